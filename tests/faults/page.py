"""The table of faults in the documentation: what is tested, with the times that were measured."""

from collections.abc import Mapping, Sequence

from tests.faults.backends import Role
from tests.faults.fault_cases import FAULT_CASES, FaultCase

BEGIN, END = "<!-- faults: `make faults` writes this -->", "<!-- faults: end -->"
HEAD = "| server | fault | a search | a write | statistics | health | slowest search |"

TITLES: Mapping[Role, str] = {
    Role.EMBEDDER: "embedding server",
    Role.VECTORS: "vector store",
    Role.DOCUMENTS: "document store",
    Role.CACHE: "cache",
}
WRITES: Mapping[str, str] = {"indexed": "200, `indexed`", "pending": "200, `pending`", "503": "503, `Retry-After`"}


def described(case: FaultCase) -> tuple[str, ...]:
    """A row but for its time."""
    expected = case.expected
    label = f"level {expected.level}" + (f", `{expected.warning}`" if expected.warning else "")
    verdict = "healthy" if expected.healthy else "not healthy"
    health = f"`{case.role}` {expected.health}, {verdict}"
    return TITLES[case.role], str(case.kind), label, WRITES[expected.index], str(expected.stats), health


def table(slowest_ms: Mapping[str, float]) -> str:
    """All rows, with the slowest search of each cell by its name."""
    rows = [f"| {' | '.join(described(case))} | {slowest_ms[case.name]:.0f} ms |" for case in FAULT_CASES]
    return "\n".join([HEAD, "|" + "---|" * HEAD.count(" | ") + "---|", *rows])


def written_rows(page: str) -> list[tuple[str, ...]]:
    """The rows that a page has, without their times."""
    lines = page.partition(BEGIN)[2].partition(END)[0].splitlines()
    rows: Sequence[str] = [line for line in lines if line.startswith("| ") and line != HEAD]
    return [tuple(part.strip() for part in row.strip("|").split("|"))[:-1] for row in rows]


def replaced(page: str, text: str) -> str:
    """The page with this text between the marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}"
