"""Every fault of every server, and minutes of kills under load: `python -m tests.faults [--outages N] [--seed N]`.

Writes the tables into docs/design/faults.md, and exits 1 where anything was not as it should be. `--only postgres`
measures PostgreSQL alone, `--only servers` the others.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.faults import load, page, probes
from tests.faults.failover import failover
from tests.faults.fault_cases import FAULT_CASES, UNAFFECTED, Case
from tests.faults.fault_kinds import fault
from tests.faults.harness import FaultHarness, MemoryHarness, harness
from tests.faults.postgres import POSTGRES_CASES, postgres_harness
from tests.faults.postgres import fault as postgres_fault

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "design" / "faults.md"
SEARCHES = 4
"""Searches in each cell: the first meets the fault, the last a server that is known to be dead."""

MOST_MS = 500.0


def main() -> int:
    """Measure, write the page, and say how it went."""
    parser = argparse.ArgumentParser(prog="faults", description=__doc__)
    parser.add_argument("--outages", type=int, default=40, help="how often a server is killed under load (40)")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's choices (drawn, and printed)")
    parser.add_argument("--keep-page", action="store_true", help="leave docs/design/faults.md as it is")
    parser.add_argument("--only", choices=("servers", "postgres"), help="measure a part")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    complaints: list[str] = []
    with tempfile.TemporaryDirectory(prefix="rag-context-faults-") as name:
        for part, section, measure in (
            ("servers", page.SERVERS, partial(servers, outages=arguments.outages)),
            ("postgres", page.POSTGRES, postgres),
        ):
            if arguments.only in (None, part):
                text, wrong = measure(Path(name), random.Random(seed))
                complaints += wrong
                if not arguments.keep_page:
                    PAGE.write_text(page.replaced(PAGE.read_text(encoding="utf-8"), section, text), encoding="utf-8")
    for complaint in complaints:
        print(f"WRONG {complaint}", file=sys.stderr)
    return 1 if complaints else 0


def servers(folder: Path, rng: random.Random, *, outages: int) -> tuple[str, list[str]]:
    """The four servers: what is written of them, and what was not as it should be."""
    with harness(folder) as memory:
        record = load.run(memory, outages, rng)
        print(summary := summed_up(record), flush=True)
        slowest_ms, complaints = matrix(memory)
    complaints += record.complaints()
    if record.percentile_ms(99) >= MOST_MS:
        complaints.append(f"p99 is {record.percentile_ms(99):.0f} ms")
    return f"{page.table(slowest_ms)}\n\n{summary}", complaints


def postgres(folder: Path, rng: random.Random) -> tuple[str, list[str]]:
    """PostgreSQL: what is written of it, and what was not as it should be."""
    slowest_ms: dict[str, float] = {}
    complaints: list[str] = []
    with postgres_harness(folder, CIRCUIT_BREAKER_THRESHOLD="1000") as memory:
        for case in POSTGRES_CASES:
            started = time.monotonic()
            with postgres_fault(memory.server, case.kind):
                seen = under_fault(memory, case, case.padding)
            seen.append(recovered(memory))
            slowest_ms[case.name] = note(case, seen, started, complaints)
        complaints += [*memory.losses(), *load.examined(memory)]
    summary, wrong = failover(folder, rng)
    print(summary, flush=True)
    return f"{page.postgres_table(slowest_ms)}\n\n{summary}", complaints + wrong


def matrix(memory: FaultHarness) -> tuple[dict[str, float], list[str]]:
    """Every cell: what took longest to search, by the cell's name, and what was not as it should be."""
    slowest_ms: dict[str, float] = {}
    complaints: list[str] = []
    for case in FAULT_CASES:
        started = time.monotonic()
        with fault(memory.backends[case.role], case.kind):
            seen = under_fault(memory, case)
        seen.append(recovered(memory))
        slowest_ms[case.name] = note(case, seen, started, complaints)
    complaints += memory.losses()
    return slowest_ms, complaints


def under_fault(memory: MemoryHarness, case: Case, padding: str = "") -> list[probes.ProbeResult]:
    """Searches, then everything else."""
    seen = [probes.search(memory, case.expected) for _ in range(SEARCHES)]
    # A write before health: a store that has just accepted one is believed until one does not fit.
    return [*seen, probes.index(memory, case, padding), probes.health(memory, case), probes.stats(memory, case)]


def recovered(memory: MemoryHarness) -> probes.ProbeResult:
    """A search after the fault."""
    memory.wait_healthy()
    return probes.search(memory, UNAFFECTED)


def note(case: Case, seen: Sequence[probes.ProbeResult], started: float, complaints: list[str]) -> float:
    """Add what was wrong to the complaints; returns the time of the slowest search under the fault, in ms."""
    slowest_ms = max(each.took_ms for each in seen[:SEARCHES])
    wrong = [complaint for each in seen for complaint in each.complaints]
    complaints += [f"{case.name}: {complaint}" for complaint in wrong]
    took_s = time.monotonic() - started
    print(f"{case.name:24}{slowest_ms:6.0f} ms  {took_s:5.1f} s  {'; '.join(wrong) or 'ok'}", flush=True)
    return slowest_ms


def summed_up(record: load.Record) -> str:
    """The load in a few lines."""
    recovered_s = max(outage.back - outage.started for outage in record.outages)
    failed = sum(each.label[0] not in (1, 2) for each in record.searches)
    rate = f"{1 / load.EVERY_S:.0f} requests a second each"
    return (
        f"Under load, {load.CLIENTS} clients at {rate}, with {len(record.outages)} kills: {len(record.searches)}"
        f" searches, {failed} failed, p50 {record.percentile_ms(50):.0f} ms, p99 {record.percentile_ms(99):.0f} ms;"
        f" {record.acknowledged} writes acknowledged, {record.pending} of them pending, {len(record.rejected)} rejected"
        f" while the document store was down, {len(record.losses)} lost. A restarted server was in use again after"
        f" {recovered_s:.1f} s at most."
    )


if __name__ == "__main__":
    sys.exit(main())
