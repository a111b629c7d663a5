"""Every fault of every server, and minutes of kills under load: `python -m tests.faults [--outages N] [--seed N]`.

Writes the table into docs/faults.md, and exits 1 where anything was not as it should be.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults import load, page, probes
from tests.faults.fault_cases import FAULT_CASES, UNAFFECTED, FaultCase
from tests.faults.fault_kinds import fault
from tests.faults.harness import FaultHarness, harness

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "faults.md"
SEARCHES = 4
"""Searches in each cell: the first meets the fault, the last a server that is known to be dead."""

MOST_MS = 500.0


def main() -> int:
    """Run the load, then the matrix; say how it went."""
    parser = argparse.ArgumentParser(prog="faults", description=__doc__)
    parser.add_argument("--outages", type=int, default=40, help="how often a server is killed under load (40)")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's choices (drawn, and printed)")
    parser.add_argument("--keep-page", action="store_true", help="leave docs/faults.md as it is")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="rag-context-faults-") as name, harness(Path(name)) as memory:
        record = load.run(memory, arguments.outages, random.Random(seed))
        print(summary := summed_up(record), flush=True)
        slowest_ms, complaints = matrix(memory)
    complaints += record.complaints()
    if not arguments.keep_page:
        text = f"{page.table(slowest_ms)}\n\n{summary}"
        PAGE.write_text(page.replaced(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    if record.percentile_ms(99) >= MOST_MS:
        complaints.append(f"p99 is {record.percentile_ms(99):.0f} ms")
    for complaint in complaints:
        print(f"WRONG {complaint}", file=sys.stderr)
    return 1 if complaints else 0


def matrix(memory: FaultHarness) -> tuple[dict[str, float], list[str]]:
    """Every cell: what took longest to search, by the cell's name, and what was not as it should be."""
    slowest_ms: dict[str, float] = {}
    complaints: list[str] = []
    for case in FAULT_CASES:
        started = time.monotonic()
        seen = one_case(memory, case)
        slowest_ms[case.name] = max(each.took_ms for each in seen[:SEARCHES])
        wrong = [complaint for each in seen for complaint in each.complaints]
        complaints += [f"{case.name}: {complaint}" for complaint in wrong]
        took = time.monotonic() - started
        print(f"{case.name:22}{slowest_ms[case.name]:6.0f} ms  {took:5.1f} s  {'; '.join(wrong) or 'ok'}", flush=True)
    complaints += memory.losses()
    return slowest_ms, complaints


def one_case(memory: FaultHarness, case: FaultCase) -> list[probes.ProbeResult]:
    """Searches, then everything else under the fault, then a search after it."""
    with fault(memory.backends[case.role], case.kind):
        seen = [probes.search(memory, case.expected) for _ in range(SEARCHES)]
        seen += [probes.health(memory, case), probes.index(memory, case), probes.stats(memory, case)]
    memory.wait_healthy()
    return [*seen, probes.search(memory, UNAFFECTED)]


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
