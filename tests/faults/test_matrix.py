"""Every fault of every server behind the memory, on real sockets, while it runs: labelled, in time, healed."""

import pytest

from rag_context.resilience.dependency import FAILURES_TO_OPEN
from tests.faults import probes
from tests.faults.fault_cases import FAULT_CASES, UNAFFECTED, FaultCase
from tests.faults.fault_kinds import FaultKind, fault
from tests.faults.harness import FaultHarness

REFUSED = [case for case in FAULT_CASES if case.kind is FaultKind.REFUSED]


@pytest.mark.parametrize("case", FAULT_CASES, ids=[case.name for case in FAULT_CASES])
def test_a_search_is_labelled_and_in_time_and_complete_again_afterwards(memory: FaultHarness, case: FaultCase) -> None:
    with fault(memory.backends[case.role], case.kind):
        assert probes.search(memory, case.expected).complaints == ()
        if (
            case.kind is FaultKind.FULL
        ):  # a store that was checked a moment ago counts as healthy until a write does not fit
            assert probes.index(memory, case).complaints == ()
        assert probes.health(memory, case).complaints == ()
    memory.wait_healthy()
    assert probes.search(memory, UNAFFECTED).complaints == ()


@pytest.mark.parametrize("case", REFUSED, ids=[case.role for case in REFUSED])
def test_a_write_is_kept_or_rejected_and_completed_afterwards(memory: FaultHarness, case: FaultCase) -> None:
    with fault(memory.backends[case.role], case.kind):
        for _ in range(FAILURES_TO_OPEN):
            probes.search(memory, case.expected)
        assert probes.index(memory, case).complaints == ()
        assert probes.stats(memory, case).complaints == ()
    memory.wait_healthy()
