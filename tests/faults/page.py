"""The tables of faults in the documentation: what is tested, with the times that were measured."""

from collections.abc import Mapping, Sequence

from tests.faults.backends import Role
from tests.faults.fault_cases import FAULT_CASES, Expected, FaultCase
from tests.faults.postgres import POSTGRES_CASES, PostgresCase

SERVERS, POSTGRES = "faults", "postgres"
"""The sections that are written."""

HEADS: Mapping[str, str] = {
    SERVERS: "| server | fault | a search | a write | statistics | health | slowest search |",
    POSTGRES: "| fault | a search | a write | statistics | health | slowest search |",
}

TITLES: Mapping[Role, str] = {
    Role.EMBEDDER: "embedding server",
    Role.VECTORS: "vector store",
    Role.DOCUMENTS: "document store",
    Role.CACHE: "cache",
}
WRITES: Mapping[str, str] = {"indexed": "200, `indexed`", "pending": "200, `pending`", "503": "503, `Retry-After`"}


def described(case: FaultCase) -> tuple[str, ...]:
    """A row but for its time."""
    health = f"`{case.role}` {case.expected.health}, {_verdict(case.expected)}"
    return TITLES[case.role], str(case.kind), *_answers(case.expected), health


def described_postgres(case: PostgresCase) -> tuple[str, ...]:
    """A row but for its time."""
    blamed = " and ".join(f"`{name}`" for name in case.statuses)
    statuses = f"{blamed} {case.expected.health}, " if blamed else ""
    says = f": `{case.says}`" if case.says else ""
    return str(case.kind), *_answers(case.expected), f"{statuses}{_verdict(case.expected)}{says}"


def table(slowest_ms: Mapping[str, float]) -> str:
    """All rows, with the slowest search of each cell by its name."""
    return _table(HEADS[SERVERS], [(described(case), slowest_ms[case.name]) for case in FAULT_CASES])


def postgres_table(slowest_ms: Mapping[str, float]) -> str:
    """As `table`, of PostgreSQL."""
    return _table(HEADS[POSTGRES], [(described_postgres(case), slowest_ms[case.name]) for case in POSTGRES_CASES])


def written_rows(page: str, section: str) -> list[tuple[str, ...]]:
    """The rows that a section of a page has, without their times."""
    begin, end = _marks(section)
    lines = page.partition(begin)[2].partition(end)[0].splitlines()
    rows: Sequence[str] = [line for line in lines if line.startswith("| ") and line != HEADS[section]]
    return [tuple(part.strip() for part in row.strip("|").split("|"))[:-1] for row in rows]


def replaced(page: str, section: str, text: str) -> str:
    """The page with this text in a section."""
    begin, end = _marks(section)
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}"


def _answers(expected: Expected) -> tuple[str, str, str]:
    label = f"level {expected.level}" + (f", `{expected.warning}`" if expected.warning else "")
    return label, WRITES[expected.index], str(expected.stats)


def _verdict(expected: Expected) -> str:
    return "healthy" if expected.healthy else "not healthy"


def _table(head: str, rows: Sequence[tuple[tuple[str, ...], float]]) -> str:
    lines = [f"| {' | '.join(row)} | {slowest_ms:.0f} ms |" for row, slowest_ms in rows]
    return "\n".join([head, "|" + "---|" * head.count(" | ") + "---|", *lines])


def _marks(section: str) -> tuple[str, str]:
    return f"<!-- {section}: `make faults` writes this -->", f"<!-- {section}: end -->"
