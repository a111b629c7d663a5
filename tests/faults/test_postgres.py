"""Every fault of a PostgreSQL server while a memory uses it: labelled, in time, nothing lost, healed by itself."""

import os
from collections.abc import Iterator

import pytest

from tests.faults import probes
from tests.faults.fault_cases import UNAFFECTED
from tests.faults.harness import RELAXED_DEADLINE
from tests.faults.load import examined
from tests.faults.postgres import POSTGRES_CASES, PostgresCase, PostgresFault, PostgresHarness, fault, postgres_harness

WAITS_ALIKE = (PostgresFault.HANGS, PostgresFault.SLOW, PostgresFault.LOCKED, PostgresFault.VECTORS_LOCKED)
"""Their writes wait as long as those of a stopped server, or of one where another session locks writes out."""


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresHarness]:
    with postgres_harness(
        tmp_path_factory.mktemp("faults"), CIRCUIT_BREAKER_THRESHOLD="1000", **RELAXED_DEADLINE
    ) as made:
        yield made
        made.wait_healthy()
        assert made.losses() == [], "after everything that was done to it"
        assert examined(made) == []


@pytest.mark.parametrize("case", POSTGRES_CASES, ids=[case.name for case in POSTGRES_CASES])
def test_a_search_is_labelled_and_in_time_and_a_write_kept_or_rejected(
    postgres: PostgresHarness, case: PostgresCase
) -> None:
    if case.kind is PostgresFault.FULL and postgres.server.disk is None:
        (pytest.fail if "RAG_TEST_NO_SKIPS" in os.environ else pytest.skip)(
            "only who may mount a small disk can fill it"
        )
    with fault(postgres.server, case.kind):
        assert probes.search(postgres, case.expected).complaints == ()
        if case.kind not in WAITS_ALIKE:
            assert probes.index(postgres, case, case.padding).complaints == ()
            assert probes.stats(postgres, case).complaints == ()
        assert probes.health(postgres, case).complaints == ()
    postgres.wait_healthy()
    assert probes.search(postgres, UNAFFECTED).complaints == ()
