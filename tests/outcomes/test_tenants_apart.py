"""What one tenant stores changes nothing of what a server answers to another, seen from outside."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.process import Served, served
from tests.outcomes.repositories import Caller, repository

MEMORY = (
    "The wolf pump stops at four bar; see ERR-4107 in the log.",
    "Deploys wait for the pump's sensor, five times at most.",
    "Tickets about the valve go to Ana, those about billing to Ben.",
    "The build fails with ERR-4107 when the cache is cold.",
)
QUESTIONS = ("Which service has ERR-4107?", "who gets tickets about the valve", "pump sensor", "nothing of the kind")
MODES = ("hybrid", "text", "vector")
PROJECT = {
    "pump": "# Pump\n\nThe valve of the pump has a sensor. zugzwang ERR-4107\n",
    "log": "# Log\n\n" + "ERR-4107 pump valve sensor zugzwang tickets log.\n\n" * 40,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("apart") / "data") as running:
        running.wait_ready()
        yield running


def plain(answer: dict[str, Any]) -> str:
    """All of an answer but its times and its number."""
    legs = {name: leg["status"] for name, leg in sorted(answer["legs"].items())}
    return json.dumps({**answer, "legs": legs, "latency": 0.0, "requestId": ""}, sort_keys=True)


def answers(server: Served, **fields: Any) -> list[str]:
    return [
        plain(server.search(question, mode=mode, explain=True, **fields)) for question in QUESTIONS for mode in MODES
    ]


def test_a_project_that_comes_grows_and_goes_changes_no_answer_of_the_memory(server: Served, tmp_path: Path) -> None:
    for number, text in enumerate(MEMORY):
        server.index(text, source=f"note {number}")
    for _ in range(2):  # the second time from the cache
        alone = answers(server)
    program = Caller(server.url)
    made = repository(tmp_path, "foreign", **PROJECT)
    program.call("activate_project", config_path=made.config)
    assert program.paths(project="foreign") == {"pump.md", "log.md"}
    assert answers(server) == alone
    assert server.search("pump", project="foreign")["totalIndexed"] == 2
    assert server.search("pump")["totalIndexed"] == len(MEMORY)

    # The project alone has the one word, no one has the other.
    of_another, of_none = (
        plain(server.search(f"pump {word}", mode="text", explain=True)) for word in ("zugzwang", "quixotry")
    )
    assert of_another == of_none
    program.call("delete_documents", project_name="foreign")
    assert answers(server) == alone


def test_what_the_memory_stores_changes_no_answer_of_a_project(server: Served, tmp_path: Path) -> None:
    program = Caller(server.url)
    made = repository(tmp_path, "own", **PROJECT)
    program.call("activate_project", config_path=made.config)
    assert program.paths(project="own") == {"pump.md", "log.md"}
    for _ in range(2):
        alone = answers(server, project="own")
    for number in range(20):
        server.index(f"pump valve ERR-4107 sensor {number}", source=f"more {number}")
    assert answers(server, project="own") == alone
