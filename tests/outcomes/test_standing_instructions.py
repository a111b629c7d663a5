"""A user says once how things are to be done, and later sessions get the instruction where it applies."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.end_to_end.process import Served, command, served
from tests.servers.postgres import postgres_database
from tests.servers.postgres_fixtures import server

__all__ = ["server"]

ORDER = "[user] Whenever I ask for a recipe, plan for two people and without an oven."
OTHERS = (
    "[assistant] Always let a recipe of bread rest for a night before it goes into the oven.",
    "[user] The recipe for bread is from my aunt.",
    "[user] From now on, write the names of branches in lower case.",
)
Memory: TypeAlias = tuple[Served, Path, Mapping[str, str]]

REQUEST = "Which cake could I make on Sunday?"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def memory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """A restarted server that has stored the instruction; its data directory, and where else its data is."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "sqlite":
        yield from _told(directory)
    else:
        with postgres_database(request.getfixturevalue("server")) as url:
            yield from _told(directory, DATABASE_URL=url)


def _told(directory: Path, **extra: str) -> Iterator[Memory]:
    with served(directory, **extra) as first:
        first.wait_ready()
        for number, text in enumerate((ORDER, *OTHERS)):
            first.index(text, source=f"message {number}", contentType="chat", sessionId="in March")
        first.index("Always bake a cake in the middle of the oven.", source="manual", contentType="documentation")
        for number in range(8):
            first.index(f"The cake of Sunday {number} was sweet.", source=f"cake {number}", sessionId="diary")
        assert listed(first.search(REQUEST)) == [ORDER]
        first.stop()
    with served(directory, **extra) as again:
        again.wait_ready()
        yield again, directory, extra


def listed(answer: dict[str, Any]) -> list[str]:
    assert answer["fallbackLevel"] == 1
    return [each["content"] for each in answer.get("standing", [])]


def test_another_session_gets_the_instruction_that_applies(memory: Memory) -> None:
    started, *_ = memory
    answer = started.search(REQUEST)
    assert listed(answer) == [ORDER]
    (order,) = answer["standing"]
    assert (order["source"], order["sessionId"]) == ("message 0", "in March")
    assert started.tool("get", {"documentId": order["documentId"]}).json()["content"] == ORDER
    assert listed(started.search(REQUEST)) == [ORDER], "from the cache"
    assert listed(started.search(REQUEST, sessionId="diary")) == []
    assert listed(started.search(REQUEST, asOf="2020-01-01T00:00:00Z")) == []


def test_the_command_line_says_it_too(memory: Memory) -> None:
    _, directory, _ = memory
    printed = command("search", REQUEST, data_dir=directory).stdout
    assert ORDER in printed.partition("Standing instructions that may apply")[2], printed
    said = json.loads(command("search", REQUEST, "--json", data_dir=directory).stdout)
    assert listed(said) == [ORDER]


def test_an_imported_instruction_is_listed(memory: Memory, tmp_path: Path) -> None:
    _, directory, extra = memory
    file = str(tmp_path / "all.ndjson")
    for done in (
        command("export", file, data_dir=directory, **extra),
        command("import", file, data_dir=tmp_path / "other"),
    ):
        assert done.returncode == 0, done.stderr
    said = command("search", REQUEST, "--json", data_dir=tmp_path / "other").stdout
    assert listed(json.loads(said)) == [ORDER]


def test_a_deleted_instruction_is_no_longer_listed(memory: Memory) -> None:
    started, *_ = memory
    (order,) = started.search(REQUEST)["standing"]
    started.tool("delete", {"documentId": order["documentId"]}).raise_for_status()
    assert listed(started.search(REQUEST)) == []
