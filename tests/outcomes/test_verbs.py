"""What a person tells the memory in one sentence is found in one question, in its own project and in no other (A-4)."""

import json
from pathlib import Path

import pytest

from mcp import Client, StdioServerParameters
from rag_context.agents.workspace import workspace
from tests.cli.run_command import Commands
from tests.end_to_end.process import COMMAND, environment
from tests.files.test_commits import git
from tests.mcp.mcp_client import read

BERTHS = "Bookings of one berth may not overlap; an exclusion constraint in the database sees to it."
TIDES = "The tide table of Brannoch is 30 centimetres too low: add them before a boat is let in."
OFFICE = "The harbour office is closed on the first Monday of a month."


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two repositories and a folder that is none, with one memory."""
    folder = tmp_path_factory.mktemp("home")
    for name in ("berths", "tides"):
        (folder / name / "src").mkdir(parents=True)
        git(folder / name, "init", "-q")
        (folder / name / ".git" / "config").write_text(
            f'[remote "origin"]\n\turl = git@git.example.com:harbour/{name}.git\n'
        )
    return folder


def within(home: Path, name: str) -> Commands:
    """Commands in one of the repositories, all on one data directory."""
    commands = Commands(home / name)
    return commands.with_variables(RAG_CONTEXT_DATA_DIR=str(home / "data"))


@pytest.fixture(scope="module")
def remembered(home: Path) -> Path:
    assert within(home, "berths/src")("remember", BERTHS).status == 0
    assert within(home, "tides")("remember", TIDES, "--type", "fix", "--tag", "pilots").status == 0
    assert within(home, "tides")("remember", OFFICE, "--type", "note", "--everywhere").status == 0
    return home


def recalled(home: Path, name: str, question: str, *options: str) -> list[str]:
    ended = within(home, name)("recall", question, "--json", *options)
    assert ended.status == 0, ended.err
    return [result["content"] for result in ended.json()["results"]]


def test_what_was_remembered_is_recalled_in_its_project_and_in_no_other(remembered: Path) -> None:
    assert BERTHS in recalled(remembered, "berths", "may bookings of a berth overlap?")
    assert TIDES not in recalled(remembered, "berths", "how wrong is the tide table?")
    assert TIDES in recalled(remembered, "tides/src", "how wrong is the tide table?")
    assert TIDES in recalled(remembered, "berths", "how wrong is the tide table?", "--everywhere")


def test_what_is_general_is_recalled_in_every_project(remembered: Path) -> None:
    for name in ("berths", "tides"):
        assert OFFICE in recalled(remembered, name, "when is the harbour office closed?")


def test_it_is_kept_as_the_owners_words_with_kind_and_tags(remembered: Path) -> None:
    (result,) = within(remembered, "tides")("recall", "tide table", "--json", "--tag", "pilots").json()["results"]
    assert (result["origin"], result["contentType"]) == ("owner", "decision")
    here = workspace(remembered / "tides")
    assert here is not None
    assert result["metadata"] == {"tags": ["pilots", here.tag], "category": "bugfix"}


def test_people_and_agents_read_the_passages(remembered: Path) -> None:
    ended = within(remembered, "tides")("recall", "how wrong is the tide table?")
    assert TIDES in ended.out
    assert "origin owner" in ended.out
    assert "tags pilots, project:tides-" in ended.out


def test_the_same_words_again_change_nothing_and_stdin_is_read(remembered: Path) -> None:
    again = within(remembered, "berths")("remember", BERTHS, "--json").json()
    assert again["status"] == "unchanged"
    elsewhere = within(remembered, "tides")("remember", BERTHS, "--json").json()
    assert (elsewhere["status"], elsewhere["documentId"] != again["documentId"]) == ("indexed", True)
    assert within(remembered, "tides")("forget", elsewhere["documentId"], "--yes").status == 0
    assert BERTHS not in recalled(remembered, "tides", "may bookings of a berth overlap?")


@pytest.mark.parametrize("order", ["Always answer in metric units.", "Use metric units in all answers."])
def test_an_instruction_stands_in_its_project(remembered: Path, order: str) -> None:
    assert within(remembered, "berths")("remember", order, "--type", "instruction").status == 0
    own = within(remembered, "berths")("recall", "which units do answers use?", "--json").json()
    assert any(order in each["content"] for each in own["standing"])
    foreign = within(remembered, "tides")("recall", "which units do answers use?", "--json").json()
    assert "metric" not in json.dumps(foreign)


@pytest.mark.parametrize("words", [["remember", ""], ["remember", "x", "--type", "rumour"], ["recall", " "]])
def test_invalid_words_are_rejected_and_change_nothing(remembered: Path, words: list[str]) -> None:
    before = within(remembered, "tides")("list", "--json").out
    assert within(remembered, "tides")(*words).status == 2
    assert within(remembered, "tides")("list", "--json").out == before


def test_files_belong_to_the_repository_that_they_lie_in(home: Path) -> None:
    (home / "berths" / "crane.md").write_text("# Crane\n\nThe crane lifts four tonnes.\n")
    (home / "notes").mkdir()
    (home / "notes" / "bread.md").write_text("# Bread\n\nRye bread needs a sourdough.\n")
    indexed = Commands(home).with_variables(RAG_CONTEXT_DATA_DIR=str(home / "data"))
    assert indexed("index", "berths", "notes").status == 0
    found = (
        indexed("search", "crane", "--json").json()["results"] + indexed("search", "bread", "--json").json()["results"]
    )
    tags = {Path(each["source"]).name: each["metadata"].get("tags", []) for each in found}
    here = workspace(home / "berths")
    assert here is not None
    assert (tags["crane.md"], tags["bread.md"]) == ([here.tag], [])


async def test_what_an_agent_stores_belongs_to_the_project_that_its_server_was_started_in(home: Path) -> None:
    server = StdioServerParameters(
        command=COMMAND, args=["mcp", "--data-dir", str(home / "data")], env=environment(), cwd=home / "tides" / "src"
    )
    buoys = {"content": "Buoys are painted in May.", "contentType": "decision", "sessionId": "s", "source": "buoys"}
    elsewhere = {**buoys, "source": "other", "metadata": {"tags": ["project:other-00000000"]}}
    async with Client(server) as client:
        for arguments in (buoys, elsewhere):
            assert not (await client.call_tool("rag_context_index", arguments)).is_error
        text = read(await client.call_tool("rag_context_search", {"query": "when are buoys painted?"}))
    here = workspace(home / "tides")
    assert here is not None
    assert f"tags {here.tag}" in text
    assert "tags project:other-00000000" in text
