"""H-3, H-7: what is corrected is found in its new version, the old one is kept, and every change can be read."""

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.process import Served, command, served
from tests.outcomes.changes import contents, done, log, state
from tests.torture.changing import Changing

OLD = "A failed payment is retried three times, then the customer is told."
NEW = "A failed payment is retried five times, then the customer is told."
QUESTION = "How often is a failed payment retried?"

ROUNDS = 2
"""Ends of the server at a random moment."""


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corrections") / "data"


@pytest.fixture(scope="module")
def server(data_dir: Path) -> Iterator[Served]:
    with served(data_dir) as running:
        running.wait_ready()
        for number, colour in enumerate(("red", "green", "yellow", "black")):
            running.index(f"The buoys of berth {number} are {colour}.", source=f"buoys-{number}.md")
        yield running


def decision(server: Served, source: str, content: str = OLD, **fields: Any) -> str:
    receipt = server.index(content, contentType="decision", source=source, **fields)
    assert receipt["status"] in {"indexed", "pending", "replaced"}, receipt
    return str(receipt["documentId"])


def test_a_correction_is_found_and_what_it_corrects_is_not(server: Served) -> None:
    old = decision(server, "first.md")
    done(server, "correct", documentId=old, content=NEW, reason="three were too few")
    found = server.search(QUESTION, source="first.md")
    assert contents(found) == [NEW]
    assert all(server.search(QUESTION, source="first.md", mode=mode)["results"][0]["content"] == NEW
               for mode in ("vector", "text"))  # fmt: skip
    both = server.search(QUESTION, source="first.md", includeSuperseded=True)["results"]
    assert {each["content"] for each in both} == {OLD, NEW}
    (hidden,) = (each for each in both if each["content"] == OLD)
    (shown,) = (each for each in both if each["content"] == NEW)
    assert (hidden["supersededBy"], hidden["reason"]) == (shown["documentId"], "three were too few")
    assert "supersededBy" not in shown
    kept = done(server, "get", documentId=hidden["documentId"])
    assert (kept["content"], kept["supersededBy"], kept["reason"]) == (OLD, shown["documentId"], "three were too few")
    versions = done(server, "history", documentId=shown["documentId"])["versions"]
    assert [each["documentId"] for each in versions] == [hidden["documentId"], shown["documentId"]]


def test_a_question_as_of_a_moment_finds_the_version_that_was_current_then(server: Served) -> None:
    decision(server, "past.md", occurredAt="2025-01-10T12:00:00Z")
    old = server.search(QUESTION, source="past.md")["results"][0]["documentId"]
    new = decision(server, "past-2.md", NEW, supersedes=[old], occurredAt="2025-03-10T12:00:00Z")
    expected = {"2025-01-01": [], "2025-02-01": [OLD], "2025-04-01": [NEW]}
    for day, texts in expected.items():
        found = server.search(QUESTION, source="past*", asOf=f"{day}T00:00:00Z")
        assert contents(found) == texts
    forgotten = done(server, "forget", documentId=new)
    assert contents(server.search(QUESTION, source="past*", asOf="2025-02-01T00:00:00Z")) == []
    done(server, "undo", id=forgotten["id"])
    assert contents(server.search(QUESTION, source="past*", asOf="2025-02-01T00:00:00Z")) == [OLD]
    # A correction that keeps the date of the text is no part of what was known before it.
    dated = decision(server, "dated.md", occurredAt="2025-01-10T12:00:00Z")
    decision(server, "dated-2.md", NEW, supersedes=[dated], occurredAt="2025-01-10T12:00:00Z")
    assert contents(server.search(QUESTION, source="dated*", asOf="2025-04-01T00:00:00Z")) == [OLD]


def test_other_tags_and_pinning_leave_the_document_as_it_is(server: Served) -> None:
    """W-4: of a chat too, which is named by its text."""
    for kind in ("decision", "chat"):
        fields = {"contentType": kind, "source": f"tagged-{kind}", "occurredAt": "2020-01-02T03:04:05Z"}
        id_ = server.index(OLD, metadata={"agent": "opus", "tags": ["a"]}, **fields)["documentId"]
        before = done(server, "get", documentId=id_)
        done(server, "correct", documentId=id_, content=OLD, pinned=True)
        pinned = done(server, "get", documentId=id_)
        assert pinned == before | {"pinned": True, "timestamp": pinned["timestamp"]}
        done(server, "correct", documentId=id_, content=OLD, tags=["b", "c"])
        after = done(server, "get", documentId=id_)
        assert (after["metadata"]["tags"], after["metadata"]["agent"], after["pinned"]) == (["b", "c"], "opus", True)
        assert (after["occurredAt"], after["documentId"]) == (before["occurredAt"], id_)
        assert [each["operation"] for each in log(server)][:3] == ["replace", "pin", "index"]


def test_a_chain_of_corrections_is_undone_step_by_step_to_the_byte(server: Served) -> None:
    decision(server, "chain.md")
    states = [state(server)]
    for number in range(6, 9):
        done(server, "correct", source="chain.md", content=f"A failed payment is retried {number} times.")
        states.append(state(server))
    hidden = state(server, superseded=True)
    steps = log(server, limit=3)
    assert [(each["operation"], each["undoable"]) for each in steps] == [("correct", True), *[("correct", False)] * 2]
    assert server.tool("undo", {"id": steps[1]["id"]}).status_code == 409
    for step, before in zip(steps, reversed(states[:-1]), strict=True):
        done(server, "undo", id=step["id"])
        assert state(server) == before
    for undoing, after in zip(log(server, limit=3), states[1:], strict=True):
        assert undoing["operation"] == "undo"
        done(server, "undo", id=undoing["id"])
        assert state(server) == after
        undoable = {each["id"]: each["undoable"] for each in log(server)}
        assert not undoable[undoing["id"]]
    assert state(server, superseded=True) == hidden


def test_other_documents_are_superseded_by_name_when_one_is_indexed(server: Served) -> None:
    one, other = decision(server, "one.md"), decision(server, "other.md", "Payments are retried three times.")
    new = decision(server, "whole.md", NEW, supersedes=[one, other], reason="said once")
    versions = done(server, "history", documentId=one)["versions"]
    assert {each["documentId"]: each.get("supersededBy") for each in versions} == {one: new, other: new, new: None}
    again = server.tool("correct", {"documentId": one, "content": "Else."})
    assert again.status_code == 409
    assert new in again.text
    unchanged = server.index(OLD, contentType="decision", source="one.md")
    assert unchanged["status"] == "unchanged"
    assert "stays hidden" in unchanged["warning"]
    assert contents(server.search(QUESTION, source="one.md")) == []


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"documentId": "11111111-1111-5111-9111-111111111111", "content": "x"}, 404),
        ({"source": "nothing.md", "content": "x"}, 404),
        ({"source": "buoys-0.md", "content": "The buoys of berth 0 are red."}, 400),
        ({"content": "x"}, 400),
    ],
)
def test_what_cannot_be_corrected_says_why(server: Served, fields: dict[str, str], status: int) -> None:
    response = server.tool("correct", fields)
    assert response.status_code == status, response.text


def test_a_correction_never_reaches_another_tenant(server: Served) -> None:
    own = decision(server, "tenant.md", project="harbour")
    assert server.tool("correct", {"documentId": own, "content": NEW}).status_code == 404
    assert server.tool("history", {"documentId": own}).status_code == 404
    rejected = server.tool(
        "index", {"content": NEW, "contentType": "decision", "sessionId": "s", "source": "t", "supersedes": [own]}
    )
    assert rejected.status_code == 400
    done(server, "correct", documentId=own, content=NEW, project="harbour")
    (entry,) = log(server, project="harbour", limit=1)
    assert entry["operation"] == "correct"
    assert server.tool("undo", {"id": entry["id"]}).status_code == 404
    done(server, "undo", id=entry["id"], project="harbour")


def test_two_writers_correct_one_document_and_one_of_them_gets_a_conflict(server: Served) -> None:
    old = decision(server, "raced.md")
    with ThreadPoolExecutor(4) as threads:
        answers = list(
            threads.map(
                lambda number: server.tool("index", {
                    "content": f"A failed payment is retried {number} times.", "contentType": "decision",
                    "sessionId": "s", "source": f"raced-{number}.md", "supersedes": [old],
                }),
                range(4),
            )
        )  # fmt: skip
    assert sorted(each.status_code for each in answers) == [200, 409, 409, 409]
    versions = done(server, "history", documentId=old)["versions"]
    assert len(versions) == 2


def test_commands_correct_show_and_undo(server: Served, data_dir: Path) -> None:
    old = decision(server, "typed.md")
    before = state(server)
    corrected = command("correct", old, "--content", NEW, "--reason", "typed", data_dir=data_dir)
    assert corrected.returncode == 0, corrected.stderr
    listed = json.loads(command("log", "--limit", "1", "--json", data_dir=data_dir).stdout)["entries"]
    assert [(each["operation"], each["by"], each["reason"]) for each in listed] == [("correct", "cli", "typed")]
    assert "typed" in command("history", old, data_dir=data_dir).stdout
    checked = command("check", data_dir=data_dir)
    assert checked.returncode == 0, checked.stdout
    undone = command("undo", str(listed[0]["id"]), data_dir=data_dir)
    assert undone.returncode == 0, undone.stderr
    assert state(server) == before


def test_the_journal_and_the_documents_agree_wherever_the_server_ends(tmp_path: Path) -> None:
    """Killed in the middle of corrections, forgetting, purging and undoing; `tests.torture.changing` does it longer."""
    changing = Changing(tmp_path / "data", random.Random(30))
    for _ in range(ROUNDS):
        changing.round()
    changing.finish()
    assert changing.undone
