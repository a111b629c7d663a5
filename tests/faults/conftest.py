"""One memory over four servers for all tests of this folder; each leaves it healthy, and nothing is lost."""

from collections.abc import Iterator

import pytest

from tests.end_to_end.process import PATIENT
from tests.faults.harness import RELAXED_DEADLINE, FaultHarness, harness

PATIENT.clear()


@pytest.fixture(scope="session")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultHarness]:
    with harness(tmp_path_factory.mktemp("faults"), CIRCUIT_BREAKER_THRESHOLD="1000", **RELAXED_DEADLINE) as made:
        yield made
        made.wait_healthy()
        assert made.losses() == [], "after everything that was done to it"
