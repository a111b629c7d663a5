"""A short run of what `make faults` does for minutes."""

import random
from pathlib import Path

from tests.faults import load
from tests.faults.harness import FaultHarness, beside

PATIENCE = {"RAG_CONTEXT_SEARCH__DEADLINE_MS": "5000", "RAG_CONTEXT_ADMISSION__MAX_WAIT_MS": "5000"}
"""A search that is late or waits because the machine is busy is no fault of a server that was killed."""


def test_no_search_fails_and_nothing_is_lost_however_often_servers_are_killed(
    memory: FaultHarness, tmp_path: Path
) -> None:
    with beside(memory, tmp_path, **PATIENCE) as other:
        other.wait_healthy()
        record = load.run(other, outages=4, rng=random.Random(11))
    assert list(record.complaints()) == []
    assert len(record.searches) > load.CLIENTS
    assert record.acknowledged > 0
    assert {outage.role for outage in record.outages} == set(memory.backends.of)
    memory.wait_healthy()
