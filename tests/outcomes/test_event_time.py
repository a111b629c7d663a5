"""What is found by a time is what was said or written then, whenever it was indexed."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.process import Served, command, served

MARCH, APRIL = "2025-03-01T00:00:00Z", "2025-04-01T00:00:00Z"
PADDING = " ".join(f"Crate {number} went to shelf {number % 7}." for number in range(40))
"""Long enough that every message is a passage of its own."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("times")


@pytest.fixture(scope="module")
def files(place: Path) -> Path:
    """A file with the time of its last change, one with a date, and a conversation of three days."""
    folder = place / "files"
    folder.mkdir()
    (folder / "plain.md").write_text("# Winch\n\nThe winch of the north pier squeals.\n")
    modified = datetime(2024, 6, 7, 8, 9, 10, tzinfo=UTC).timestamp()
    os.utime(folder / "plain.md", (modified, modified))
    (folder / "dated.md").write_text("---\ntitle: Crane\ndate: 2024-02-29\n---\n\nThe crane is painted yellow.\n")
    messages = [
        {"role": role, "content": f"{said} {PADDING}", "timestamp": at}
        for role, said, at in (
            ("user", "The ferry leaves at nine.", "2025-03-02T09:00:00Z"),
            ("assistant", "The ferry leaves at ten.", "2025-03-05T09:30:00Z"),
            ("user", "The ferry leaves at eleven.", "2025-04-09T10:00:00Z"),
        )
    ]
    (folder / "talk.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages))
    return folder


@pytest.fixture(scope="module")
def server(place: Path, files: Path) -> Iterator[Served]:
    """A server that has stored an old fact and indexed the files, and was restarted since."""
    data = place / "data"
    with served(data) as first:
        first.wait_ready()
        first.index(
            "The gate code is 4711.", source="gate", contentType="decision", occurredAt="2025-03-01T09:00:00+01:00"
        )
        first.index("The gate code is 4712 now.", source="gate, new", contentType="decision")
        done = command("index", str(files), data_dir=data)
        assert done.returncode == 0, done.stderr
        first.stop()
    with served(data) as again:
        again.wait_ready()
        yield again


def found(server: Served, query: str, **bounds: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = server.search(query, minScore=0, **bounds)["results"]
    return results


def times(listed: list[dict[str, Any]]) -> dict[str, str]:
    """When each document was said or written, by the end of its source."""
    return {each["source"].rpartition("/")[2]: each["occurredAt"] for each in listed}


def listed(server: Served, **fields: Any) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = server.tool("list", fields).json()["documents"]
    return documents


def test_a_search_is_bounded_by_event_time(server: Served) -> None:
    (old,) = found(server, "gate code", since="2025-02-28T00:00:00Z", until="2025-03-02T00:00:00Z")
    assert (old["source"], old["occurredAt"]) == ("gate", "2025-03-01T08:00:00Z")
    assert old["timestamp"] > "2026"
    sources = {each["source"] for each in found(server, "gate code", since=old["timestamp"][:10] + "T00:00:00Z")}
    assert sources == {"gate, new"}


def test_every_message_of_a_conversation_has_its_own_time(server: Served) -> None:
    march = found(server, "When does the ferry leave?", since=MARCH, until=APRIL, contentType="chat")
    april = found(server, "When does the ferry leave?", since=APRIL, contentType="chat")
    assert {each["occurredAt"] for each in march} == {"2025-03-02T09:00:00Z", "2025-03-05T09:30:00Z"}
    assert {each["occurredAt"] for each in april} == {"2025-04-09T10:00:00Z"}
    assert not any("eleven" in each["content"] for each in march)
    (talk,) = listed(server, contentType="chat")
    assert talk["occurredAt"] == "2025-03-02T09:00:00Z"


def test_files_have_the_date_that_they_state_or_the_time_of_their_last_change(server: Served) -> None:
    assert times(listed(server, until=MARCH)) == {
        "plain.md": "2024-06-07T08:09:10Z",
        "dated.md": "2024-02-29T00:00:00Z",
    }


def test_the_statistics_and_a_document_say_both_times(server: Served) -> None:
    stats = server.tool("stats", {}).json()
    assert stats["occurred"]["first"] == "2024-02-29T00:00:00Z"
    assert stats["occurred"]["last"] >= stats["indexed"]["first"] > "2026"
    (old,) = listed(server, source="gate")
    document = server.tool("get", {"documentId": old["documentId"]}).json()
    assert (document["occurredAt"], document["timestamp"]) == (old["occurredAt"], old["timestamp"])


def test_another_time_replaces_and_none_keeps_what_is_known(server: Served) -> None:
    fact = {"content": "The lamp was mended.", "source": "lamp"}
    first = server.index(**fact, occurredAt="2023-01-01T00:00:00Z")
    assert server.index(**fact, occurredAt="2023-01-01T01:00:00+01:00")["status"] == "unchanged"
    assert server.index(**fact)["status"] == "unchanged"
    assert times(listed(server, source="lamp")) == {"lamp": "2023-01-01T00:00:00Z"}
    moved = server.index(**fact, occurredAt="2023-05-05T00:00:00Z")
    assert (moved["status"], moved["documentId"], moved["vectorIds"]) == (
        "replaced",
        first["documentId"],
        first["vectorIds"],
    )
    assert [each["source"] for each in found(server, "lamp", since="2023-05-01T00:00:00Z", until=MARCH)][:1] == ["lamp"]
    server.tool("delete", {"documentId": first["documentId"]})


@pytest.mark.parametrize("bad", ["yesterday", "2025-02-30T00:00:00Z", "2025-03-01", "2025-03-01T09:00:00", 1740787200])
def test_an_invalid_time_is_rejected_in_a_sentence(server: Served, bad: object) -> None:
    body = {"content": "x", "contentType": "decision", "sessionId": "s", "source": "x", "occurredAt": bad}
    refused = server.tool("index", body)
    assert refused.status_code == 400
    (detail,) = refused.json()["details"]
    assert detail["field"] == "occurredAt"
    assert "2026-01-31T12:00:00Z" in detail["message"]


def test_an_export_takes_all_times_along(server: Served, place: Path) -> None:
    for arguments in (("export", str(place / "out.jsonl")), ("import", str(place / "out.jsonl"))):
        data = place / ("data" if arguments[0] == "export" else "other")
        done = command(*arguments, data_dir=data)
        assert done.returncode == 0, done.stderr
    with served(place / "other") as other:
        other.wait_ready()
        assert times(listed(other)) == times(listed(server))
        bounds = {"since": MARCH, "until": APRIL, "contentType": "chat"}
        here, there = (found(each, "When does the ferry leave?", **bounds) for each in (server, other))
        assert [each["occurredAt"] for each in there] == [each["occurredAt"] for each in here]


def test_the_command_line_shows_when_it_was_said(server: Served, place: Path) -> None:
    del server
    searched = command("search", "gate code", "--until", "2025-03-02", data_dir=place / "data", TZ="UTC")
    assert "2025-03-01" in searched.stdout, searched.stdout
    printed = command("list", "--until", "2025-03-01", data_dir=place / "data", TZ="UTC").stdout
    assert " 2024-06-07\n" in printed, printed
    assert "Said or written" in command("stats", data_dir=place / "data").stdout
