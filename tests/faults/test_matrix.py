"""Every fault of every server behind the memory, on real sockets, while it runs: labelled, in time, healed."""

import pytest

from rag_context.resilience.dependency import FAILURES_TO_OPEN
from tests.faults import probes
from tests.faults.fault_cases import CELLS, WHOLE, Cell
from tests.faults.fault_kinds import Kind, fault
from tests.faults.harness import Rig

REFUSED = [cell for cell in CELLS if cell.kind is Kind.REFUSED]


@pytest.mark.parametrize("cell", CELLS, ids=[cell.name for cell in CELLS])
def test_a_search_is_labelled_and_in_time_and_complete_again_afterwards(memory: Rig, cell: Cell) -> None:
    with fault(memory.backends[cell.role], cell.kind):
        assert probes.search(memory, cell.expected).complaints == ()
        if cell.kind is Kind.FULL:  # a store that was asked a moment ago is believed until something does not fit
            assert probes.index(memory, cell).complaints == ()
        assert probes.health(memory, cell).complaints == ()
    memory.wait_whole()
    assert probes.search(memory, WHOLE).complaints == ()


@pytest.mark.parametrize("cell", REFUSED, ids=[cell.role for cell in REFUSED])
def test_a_write_is_kept_or_rejected_and_completed_afterwards(memory: Rig, cell: Cell) -> None:
    with fault(memory.backends[cell.role], cell.kind):
        for _ in range(FAILURES_TO_OPEN):
            probes.search(memory, cell.expected)
        assert probes.index(memory, cell).complaints == ()
        assert probes.stats(memory, cell).complaints == ()
    memory.wait_whole()
