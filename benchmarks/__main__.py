"""Run all benchmarks, or some: `python -m benchmarks [--quick] [STAGE ...]`.

The figures of each stage replace its earlier ones in results.json, from which docs/design/benchmarks.md is written.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import (
    browsing,
    collections,
    histories,
    hooks,
    hundred_thousand,
    indexing,
    load,
    mcp,
    million,
    postgres,
    projects,
    ranking_rules,
    references,
    searching,
    start_up,
    statistics,
    tenants,
    workers,
)
from benchmarks.figures import Figure, as_json, as_markdown
from benchmarks.page import RESULTS, known_figures, write_page

TEN_THOUSAND = 10_000


@dataclass(frozen=True, slots=True)
class Run:
    """Where a run works, and whether it measures a tenth of the size."""

    scratch: Path
    quick: bool

    @property
    def index(self) -> Path:
        """The data directory that the stage `indexing` fills and others search."""
        return self.scratch / "index"

    def of(self, number: int) -> int:
        """A size, or a tenth of it."""
        return number // 10 if self.quick else number


STAGES: dict[str, tuple[str, Callable[[Run], list[Figure]]]] = {
    "indexing": (
        "about 10 000 chunks through the service, in turn with the bare model",
        lambda run: indexing.fill(run.index, run.of(TEN_THOUSAND) // indexing.CHUNKS_PER_DOCUMENT),
    ),
    "start": ("starting five times", lambda run: searching.start(run.index)),
    "commands": ("commands beside a bare Python", lambda run: start_up.measure(run.index)),
    "search": ("searching over HTTP, in turn with the baseline", lambda run: searching.against_baseline(run.index)),
    "mcp": (
        "searching over MCP, in turn with plain HTTP; starting it five times",
        lambda run: [*mcp.against_rest(run.index), *mcp.start(run.index), *mcp.opening()],
    ),
    "hooks": (
        "hooks of agents, in turn with a bare Python, and 1 000 of 50 clients",
        lambda run: hooks.measure(run.index, run.scratch / "proj"),
    ),
    "histories": (
        "a gigabyte of sessions of agents, imported while a server answers",
        lambda run: histories.measure(run.scratch / "histories", run.of(histories.MEGABYTES)),
    ),
    "faults": (
        "eight clients, with an intact server and with faults",
        lambda run: searching.under_load(run.index, run.scratch),
    ),
    "load": (
        "1 to 128 clients, and a pause",
        lambda run: load.measure(run.index, load.SECONDS / (5 if run.quick else 1)),
    ),
    "workers": (
        "two workers in turn with one",
        lambda run: workers.measure(run.index, workers.SECONDS / (5 if run.quick else 1)),
    ),
    "collections": (
        "a collection, beside Chroma's server",
        lambda run: collections.measure(run.scratch / "collections", run.of(collections.DOCUMENTS)),
    ),
    "projects": (
        "a knowledge base of Markdown files",
        lambda run: projects.measure(run.scratch / "projects", run.of(projects.DOCUMENTS)),
    ),
    "large": (
        "pages with and without three documents of 1 MiB",
        lambda run: projects.beside_large(run.scratch / "beside", run.of(projects.PAGES)),
    ),
    "rules": (
        "the rules of ranking, in turn with none",
        lambda run: ranking_rules.measure(run.scratch / "rules", run.of(TEN_THOUSAND)),
    ),
    "references": (
        "citations of files and names in histories that are made",
        lambda run: references.measure(run.scratch / "references", run.of(references.HISTORIES)),
    ),
    "tenants": (
        "one tenant of 200, in turn with a single one",
        lambda run: tenants.measure(run.scratch / "tenants", run.of(TEN_THOUSAND)),
    ),
    "hundred-thousand": (
        "100 000 chunks",
        lambda run: [] if run.quick else asyncio.run(hundred_thousand.measure(run.scratch / "large")),
    ),
    "growth": (
        "1 000, 10 000 and 100 000 chunks, in turn with the baseline",
        lambda run: searching.growth(run.scratch / "growth", [run.of(1_000), run.of(10_000), run.of(100_000)]),
    ),
    "page": (
        "the page in a browser, over an empty index and over 100 000 documents",
        lambda run: browsing.measure(run.scratch / "page", run.of(browsing.DOCUMENTS)),
    ),
    "million": ("1 000 000 chunks", lambda run: million.measure(run.scratch / "million", run.of(million.CHUNKS))),
    "postgres": (
        "PostgreSQL, in turn with the embedded store",
        lambda run: postgres.measure(run.scratch / "postgres", run.of(postgres.CHUNKS), run.of(postgres.LARGE)),
    ),
    "statistics": (
        "statistics of 1 000 000 searches",
        lambda run: [] if run.quick else statistics.measure(run.scratch / "statistics"),
    ),
}
"""What is measured, by name and in order."""

ON_REQUEST = ("histories", "page", "million", "postgres")
"""Only measured when they are named: a browser is needed, or half an hour and up to 10 GB."""

ON_THE_INDEX = ("start", "commands", "search", "mcp", "hooks", "faults", "load", "workers")


def main() -> int:
    """Measure, print and write down; exit 1 where a target was missed or a stage failed."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument(
        "stages", metavar="STAGE", nargs="*", help=f"of {', '.join(STAGES)}; default: all but {', '.join(ON_REQUEST)}"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, nothing written: does it run?")
    options = parser.parse_args()
    # What is measured would compile its modules at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if unknown := [name for name in options.stages if name not in STAGES]:
        parser.error(f"no stage is called {unknown[0]!r}; the stages are {', '.join(STAGES)}")
    wanted = [name for name in STAGES if name in options.stages] or [name for name in STAGES if name not in ON_REQUEST]
    if "indexing" not in wanted and any(name in ON_THE_INDEX for name in wanted):
        wanted.insert(0, "indexing")
    measured: dict[str, list[Figure]] = {}
    with tempfile.TemporaryDirectory(prefix="rag-context-bench-") as name:
        run = Run(Path(name), options.quick)
        for stage in wanted:
            _say(f"{STAGES[stage][0]} ...")
            try:
                measured[stage] = STAGES[stage][1](run)
            except Exception:  # noqa: BLE001  (what the other stages measured is kept)
                _say(f"{stage} failed:\n{traceback.format_exc()}")
                continue
            sys.stdout.write(as_markdown(measured[stage]))
            sys.stdout.flush()
            if not options.quick:
                _write_down(measured)
    figures = [figure for stage in measured.values() for figure in stage]
    return 1 if len(measured) < len(wanted) or any(figure.met is False for figure in figures) else 0


def _write_down(measured: dict[str, list[Figure]]) -> None:
    """The figures of these stages in place of their earlier ones."""
    earlier = known_figures()
    known = {stage: measured.get(stage) or earlier.get(stage, []) for stage in STAGES}
    RESULTS.write_text(as_json(known), encoding="utf-8")
    write_page()


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")


if __name__ == "__main__":
    sys.exit(main())
