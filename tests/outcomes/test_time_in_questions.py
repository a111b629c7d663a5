"""Agents ask about a time, or as of one: what was said then comes first, and what came later can be hidden."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.process import Served, command, served
from tests.servers.postgres import postgres_database
from tests.servers.postgres_fixtures import server

__all__ = ["server"]

ASKED = "2026-03-18T10:00:00Z"
"""A Wednesday."""

DECISIONS = {
    "january": ("2026-01-14T09:00:00Z", "We decided that the project database is MongoDB, for the whole team."),
    "february": ("2026-02-12T09:00:00Z", "We decided to move the project database to MySQL, all of the team."),
    "last week": ("2026-03-11T15:00:00Z", "We decided that the project database will be PostgreSQL."),
    "this week": ("2026-03-17T11:00:00Z", "We decided on two replicas of the project database."),
    "later": ("2026-04-02T09:00:00Z", "We decided to drop the project database and the whole project."),
}
MESSAGES = (
    ("2026-03-11T15:00:00Z", "Mira: Does the exporter write times in UTC?"),
    ("2026-03-11T15:05:00Z", "Jon: The exporter writes times in UTC, yes."),
    ("2026-05-05T08:00:00Z", "Mira: The exporter writes local times again."),
)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def memory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """A server with decisions of several months, and its data directory."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "sqlite":
        yield from _filled(directory)
    else:
        with postgres_database(request.getfixturevalue("server")) as url:
            yield from _filled(directory, DATABASE_URL=url)


def _filled(directory: Path, **extra: str) -> Iterator[tuple[Served, Path]]:
    with served(directory, **extra) as started:
        started.wait_ready()
        for name, (at, text) in DECISIONS.items():
            started.index(text, source=name, contentType="decision", sessionId=name, occurredAt=at)
        for at, text in MESSAGES:
            started.index(text, source=f"message {at}", contentType="chat", sessionId="exporter", occurredAt=at)
        yield started, directory


def sources(answer: dict[str, Any]) -> list[str]:
    return [result["source"] for result in answer["results"]]


def test_as_of_a_time_nothing_later_is_seen(memory: tuple[Served, Path]) -> None:
    started, _ = memory
    question = "Which project database did we decide on?"
    now = started.search(question, minScore=0, contentType="decision")
    assert set(sources(now)) == set(DECISIONS)
    then = started.search(question, minScore=0, contentType="decision", asOf=ASKED)
    assert set(sources(then)) == set(DECISIONS) - {"later"}
    both = started.search(question, minScore=0, contentType="decision", asOf=ASKED, until="2026-02-01T00:00:00Z")
    assert sources(both) == ["january"]
    assert sources(started.search(question, minScore=0, asOf="2026-01-14T09:00:00Z")) == ["january"]
    listed = started.tool("list", {"asOf": "2026-02-12T09:00:00Z"}).json()["documents"]
    assert {each["source"] for each in listed} == {"january", "february"}


def test_as_of_a_time_no_later_message_stands_beside_a_passage(memory: tuple[Served, Path]) -> None:
    started, _ = memory
    fields = {"minScore": 0, "contentType": "chat"}
    reply = started.search("Jon: The exporter writes times in UTC, yes.", **fields)["results"][0]
    assert reply["context"]["after"].startswith("Mira: The exporter writes local times again.")
    then = started.search("Jon: The exporter writes times in UTC, yes.", **fields, asOf=ASKED)["results"][0]
    assert then["content"] == reply["content"]
    assert then["context"]["before"].startswith("Mira: Does the exporter")
    assert "after" not in then["context"]


def test_an_invalid_time_is_rejected_by_its_name(memory: tuple[Served, Path]) -> None:
    started, directory = memory
    refused = started.tool("search", {"query": "database", "asOf": "last week"})
    assert refused.status_code == 400
    assert [detail["field"] for detail in refused.json()["details"]] == ["asOf"]
    typed = command("search", "database", "--as-of", "last week", data_dir=directory)
    assert typed.returncode == 2
    assert "--as-of 'last week' is not a moment: write 7d, 2026-01-31" in typed.stderr


def test_the_command_line_searches_as_of_a_time(memory: tuple[Served, Path]) -> None:
    _, directory = memory
    printed = command("search", "project database", "--as-of", "2026-02-01", data_dir=directory).stdout
    assert "january" in printed, printed
    assert "february" not in printed, printed


def test_what_was_decided_last_week_comes_first(memory: tuple[Served, Path]) -> None:
    started, _ = memory
    question = "What did we decide about the project database last week?"
    answer = started.search(question, asOf=ASKED, contentType="decision", explain=True)
    assert answer["interpreted"] == {
        "timeRange": {"since": "2026-03-09T00:00:00Z", "until": "2026-03-16T00:00:00Z"},
        "phrase": "last week",
    }
    assert sources(answer)[0] == "last week"
    assert set(sources(answer)) == set(DECISIONS) - {"later"}, "what is from another time is still found"
    assert answer["results"][0]["explain"]["boosts"]["time"] > 0
    bare = started.search("What did we decide about the project database?", asOf=ASKED, contentType="decision")
    assert "interpreted" not in bare
    assert sources(bare)[0] != "last week", "the time decides"


def test_a_month_without_a_year_is_that_of_any_year(memory: tuple[Served, Path]) -> None:
    started, directory = memory
    answer = started.search("Which project database did we decide on in February?", asOf="2026-12-24T00:00:00Z")
    assert sources(answer)[0] == "february"
    assert answer["interpreted"]["everyYear"] is True
    question = ("search", "Which project database did we decide on in February 2026?")
    printed = command(*question, data_dir=directory).stdout
    assert '"in February 2026" is read as 2026-02-01 to 2026-02-28; what is from near then comes first.' in printed


def test_a_relative_time_is_that_of_the_moment_of_asking(memory: tuple[Served, Path]) -> None:
    started, _ = memory
    question = "What did we decide about the project database yesterday?"
    first: dict[str, set[tuple[str, str]]] = {}
    for day in ("2026-02-13", "2026-03-18", "2026-03-18", "2026-02-13"):
        answer = started.search(question, asOf=f"{day}T10:00:00Z", contentType="decision")
        first.setdefault(day, set()).add((sources(answer)[0], answer["interpreted"]["timeRange"]["since"][:10]))
    assert first == {"2026-02-13": {("february", "2026-02-12")}, "2026-03-18": {("this week", "2026-03-17")}}
