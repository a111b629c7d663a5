"""One memory over four servers for all tests of this folder; each leaves it whole, and nothing is lost."""

from collections.abc import Iterator

import pytest

from tests.faults.harness import UNHURRIED, Rig, rig


@pytest.fixture(scope="session")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("faults"), CIRCUIT_BREAKER_THRESHOLD="1000", **UNHURRIED) as made:
        yield made
        made.wait_whole()
        assert made.losses() == [], "after everything that was done to it"
