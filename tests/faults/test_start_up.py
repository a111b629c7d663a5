"""A memory that is started while servers behind it are down: it answers, says so, and recovers by itself."""

from pathlib import Path

import pytest

from tests.end_to_end.process import wait_until
from tests.faults.backends import Role
from tests.faults.fault_cases import NOTHING, OF, UNAFFECTED
from tests.faults.harness import RELAXED_DEADLINE, FaultHarness, beside, component
from tests.servers.faults import Pass, Refuse

AT_START: dict[Role, tuple[int, str | None]] = {
    role: (expected.level, expected.warning) for role, expected in OF.items()
} | {Role.DOCUMENTS: (3, NOTHING)}
"""Without the document store no one knows yet whose vectors they are."""


def test_with_every_server_down_the_port_opens_and_answers_are_labelled(memory: FaultHarness, tmp_path: Path) -> None:
    for backend in memory.backends.of.values():
        backend.proxy.fault = Refuse()
    try:
        with beside(memory, tmp_path, **RELAXED_DEADLINE) as started:
            answer = started.search(memory.known())
            assert (answer["fallbackLevel"], answer["warning"], answer["results"]) == (3, NOTHING, [])
            report = started.memory.health()
            assert not report["healthy"]
            assert all(each["status"] != "healthy" for each in report["components"])
            assert started.memory.get("/ready").status_code == 503
            memory.backends.lift()
            started.wait_healthy()
            assert started.search(memory.known())["fallbackLevel"] == 1
            assert started.memory.get("/ready").status_code == 200
    finally:
        memory.backends.lift()
        memory.wait_healthy()


@pytest.mark.parametrize("role", Role)
def test_with_one_server_down_the_rest_is_used_and_it_joins_later(
    memory: FaultHarness, tmp_path: Path, role: Role
) -> None:
    proxy = memory.backends[role].proxy
    proxy.fault = Refuse()
    try:
        with beside(memory, tmp_path, **RELAXED_DEADLINE) as started:
            wait_until(lambda: others_are_well(started, role))
            answer = started.search(memory.known())
            assert (answer["fallbackLevel"], answer.get("warning")) == AT_START[role], answer
            assert started.memory.health()["healthy"] == OF[role].healthy
            proxy.fault = Pass()
            started.wait_healthy()
            answer = started.search(memory.known())
            assert (answer["fallbackLevel"], answer.get("warning")) == (UNAFFECTED.level, UNAFFECTED.warning), answer
    finally:
        memory.backends.lift()
        memory.wait_healthy()


def others_are_well(started: FaultHarness, role: Role) -> bool:
    """All but this one; the document store says which model made the index, and which vectors answer."""
    report = started.memory.health()
    waits = {role, Role.EMBEDDER, Role.VECTORS} if role is Role.DOCUMENTS else {role}
    return all(component(report, each)["status"] == "healthy" for each in Role if each not in waits)


def test_two_dead_servers_are_level_3_and_labelled(memory: FaultHarness) -> None:
    memory.backends[Role.VECTORS].proxy.fault = Refuse()
    memory.backends[Role.DOCUMENTS].proxy.fault = Refuse()
    try:
        answer = memory.search(memory.known())
        assert (answer["fallbackLevel"], answer["warning"]) == (3, NOTHING)
        assert {name for name, leg in answer["legs"].items() if leg["status"] != "ok"} == {"vector", "text"}
    finally:
        memory.backends.lift()
        memory.wait_healthy()
