"""H-5: what is forgotten is not found and not stored again, comes back exactly, and once purged is in no file."""

import json
import random
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.end_to_end.process import TIMEOUT_S, Served, command, served, wait_until
from tests.outcomes.changes import contents, done, log, state

ERASED_SOON = {"RAG_CONTEXT_STORES__ERASE_AFTER_S": "1"}
"""The usual half minute, made short."""

RETRIES = "A failed payment is retried three times, then the customer is told by mail and by phone."
QUESTION = "How often is a failed payment retried?"
ROUNDS = 3
"""Ends of the server at a random moment of a purge."""


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("forgetting") / "data"


@pytest.fixture(scope="module")
def server(data_dir: Path) -> Iterator[Served]:
    with served(data_dir, **ERASED_SOON) as running:
        running.wait_ready()
        running.index("The buoys of berth 4 are red.", source="buoys.md")
        yield running


def fill(server: Served, name: str) -> list[str]:
    """Two documents of a source, a session, an agent and a tag of their own; one of them says who pays."""
    fields = {"sessionId": f"session-{name}", "metadata": {"agent": f"agent-{name}", "tags": [f"tag-{name}"]}}
    texts = (f"{RETRIES} {name} begins.", f"{name}: the TREASURER of {name} pays the berth.")
    receipts = [
        server.index(text, source=f"{name}.md", contentType=kind, **fields)
        for text, kind in zip(texts, ("decision", "documentation"), strict=True)
    ]
    return [str(each["documentId"]) for each in receipts]


@pytest.mark.parametrize(
    ("field", "value", "count"),
    [
        ("documentId", None, 1),
        ("source", "{}.md", 2),
        ("sessionId", "session-{}", 2),
        ("agent", "agent-{}", 2),
        ("tag", "tag-{}", 2),
        ("contains", "treasurer of {}", 1),
    ],
)
def test_what_is_selected_is_listed_then_forgotten_and_comes_back(
    server: Served, field: str, value: str | None, count: int
) -> None:
    name = f"by{field}"
    ids = fill(server, name)
    selected: dict[str, Any] = {field: ids[0] if value is None else value.format(name)}
    before = state(server)
    preview = done(server, "forget", **selected, dryRun=True)
    assert state(server) == before
    receipt = done(server, "forget", **selected, reason="not ours")
    assert receipt["listed"] == preview["listed"]
    for each in (preview, receipt):
        assert (each["documents"], each["passages"], each["vectors"]) == (count, count, count)
        assert each["derived"] >= count  # the tags, and the statistics that are written a moment later
    assert {each["documentId"] for each in receipt["listed"]} <= set(ids)
    assert done(server, "forget", **selected, dryRun=True)["documents"] == 0
    for each in receipt["listed"]:
        assert server.tool("get", {"documentId": each["documentId"]}).status_code == 404
    assert len(server.search(name, source=f"{name}.md", minScore=0)["results"]) == 2 - count
    (entry,) = log(server, limit=1)
    assert (entry["operation"], entry["undoable"], entry["reason"]) == ("forget", True, "not ours")
    undone = done(server, "undo", id=entry["id"])
    assert state(server) == before
    done(server, "undo", id=undone["id"])
    assert done(server, "forget", **selected, dryRun=True)["documents"] == 0
    assert done(server, "forget", source=f"{name}.md", purge=True)["purged"]


def test_what_was_forgotten_is_not_stored_again_unless_it_is_forced(
    server: Served, data_dir: Path, tmp_path: Path
) -> None:
    note = tmp_path / "zugzwang72.md"
    note.write_text(f"# Payments\n\n{RETRIES}\n", "utf-8")
    assert command("index", str(note), data_dir=data_dir).returncode == 0
    assert server.search(QUESTION, source=note.as_posix())["results"]
    done(server, "forget", source=note.as_posix(), purge=True, clearQueries=True)
    wait_until(lambda: not in_files(data_dir, [note.stem]))
    again = command("index", "--all", str(note), data_dir=data_dir)
    note.write_text(f"# Payments\n\n{RETRIES} Changed.\n", "utf-8")
    changed = command("index", str(note), data_dir=data_dir)
    moved = tmp_path / "moved.md"
    moved.write_text(f"# Payments\n\n{RETRIES}\n", "utf-8")
    elsewhere = command("index", str(moved), data_dir=data_dir)
    assert not server.search(QUESTION, source=f"{tmp_path.as_posix()}*")["results"], (again, changed, elsewhere)
    assert "1 forgotten" in changed.stderr
    line = {"content": RETRIES, "contentType": "decision", "sessionId": "s", "source": "elsewhere.md"}
    assert server.tool("index", {**line, "content": moved.read_text("utf-8")}).json()["status"] == "forgotten"
    bulk = httpx2.post(
        f"{server.url}/bulk",
        content=json.dumps({**line, "content": moved.read_text("utf-8")}),
        headers={"Content-Type": "application/x-ndjson"},
        timeout=TIMEOUT_S,
    )
    assert json.loads(bulk.text.splitlines()[0])["status"] == "forgotten"
    forced = server.tool("index", {**line, "content": moved.read_text("utf-8"), "force": True}).json()
    assert forced["status"] in {"indexed", "pending"}
    done(server, "forget", documentId=forced["documentId"], purge=True)


def test_a_command_forgets_after_a_list(server: Served, data_dir: Path, tmp_path: Path) -> None:
    fill(server, "typed")
    listed = command("forget", "--tag", "tag-typed", "--dry-run", data_dir=data_dir)
    assert "typed.md" in listed.stdout
    assert command("forget", "--tag", "tag-typed", data_dir=data_dir).returncode == 2
    forgotten = command("forget", "--tag", "tag-typed", "--yes", "--json", data_dir=data_dir)
    assert json.loads(forgotten.stdout)["documents"] == 2
    assert log(server, limit=1)[0]["by"] == "rag-context"
    exported = command("export", str(tmp_path / "export.jsonl"), data_dir=data_dir)
    assert exported.returncode == 0, exported.stderr
    assert "typed begins" not in (tmp_path / "export.jsonl").read_text("utf-8")
    assert command("check", data_dir=data_dir).returncode == 0


def test_superseded_versions_go_with_the_document_that_took_their_place(server: Served) -> None:
    old = str(server.index("Berth 9 is closed until May.", source="nine.md")["documentId"])
    new = done(server, "correct", documentId=old, content="Berth 9 is closed until June.")["documentId"]
    assert done(server, "forget", documentId=new, purge=True)["documents"] == 2
    assert server.tool("history", {"documentId": new}).status_code == 404
    assert contents(server.search("Until when is berth 9 closed?", source="nine.md", includeSuperseded=True)) == []


def test_what_expires_is_forgotten_and_what_is_pinned_is_not(server: Served) -> None:
    past = {"expiresAt": "2026-01-01T00:00:00Z"}
    server.index("The crane of berth 2 is being repaired.", source="crane.md", **past)
    kept = server.index("The crane of berth 3 works.", source="crane-3.md", **past, pinned=True)["documentId"]
    wait_until(lambda: not done(server, "list", source="crane.md")["documents"])
    stored = done(server, "get", documentId=kept)
    assert (stored["expiresAt"], stored["pinned"]) == ("2026-01-01T00:00:00Z", True)
    expired = next(each for each in log(server) if each["operation"] == "expire")
    assert (expired["by"], expired["undoable"]) == ("retention", True)
    done(server, "undo", id=expired["id"])
    assert len(done(server, "list", source="crane.md")["documents"]) == 1


def test_the_trash_and_old_documents_are_emptied_by_the_settings(tmp_path: Path) -> None:
    settings = {"RAG_CONTEXT_RETENTION__TRASH_DAYS": "0", "RAG_CONTEXT_RETENTION__KEEP": "decision=0"}
    with served(tmp_path / "data", **settings, **ERASED_SOON) as server:
        server.wait_ready()
        kept = server.index("The buoys are red.", source="buoys.md")["documentId"]
        server.index(f"{RETRIES} zugzwang71", source="old.md", contentType="decision")
        wait_until(lambda: [each["operation"] for each in log(server)][:2] == ["purge", "expire"])
        assert [each["documentId"] for each in done(server, "list")["documents"]] == [kept]
        wait_until(lambda: not in_files(tmp_path / "data", ["zugzwang71"]))


def in_files(data_dir: Path, words: list[str]) -> set[tuple[str, str]]:
    """Which words are in which files."""
    found = set()
    for file in data_dir.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        found |= {(word, file.name) for word in words if word.encode() in content}
    return found


_STORED = """
SELECT d.source, p.text, v.vector FROM documents AS d JOIN chunks AS c ON c.document = d.key
JOIN passages AS p ON p.chunk = c.key LEFT JOIN vectors AS v ON v.chunk = c.key WHERE d.session_id = ?
"""


def test_the_receipt_counts_what_a_scan_of_the_bytes_finds(server: Served, data_dir: Path) -> None:
    for number in range(3):
        lines = (
            f"Berth {number}{line} of zugzwang73 is let by the {line}. clerk of the harbour." for line in range(40)
        )
        server.index("\n\n".join(lines), sessionId="scanned", source=f"zugzwang74-{number}.md")
    with closing(sqlite3.connect(data_dir / "rag-context.db")) as file:
        rows = file.execute(_STORED, ("scanned",)).fetchall()
    texts = {source.encode() for source, _, _ in rows}, {text[:100].encode() for _, text, _ in rows}
    vectors = {vector for _, _, vector in rows}

    def found() -> list[int]:
        """How many sources, passages and vectors are in any file, as bytes."""
        contents = [file.read_bytes() for file in data_dir.rglob("*") if file.is_file()]
        return [sum(any(each in content for content in contents) for each in some) for some in (*texts, vectors)]

    counted = found()
    assert counted[0] == 3
    assert counted[1] == counted[2] == len(rows) > 6
    receipt = done(server, "forget", sessionId="scanned", purge=True)
    assert [receipt["documents"], receipt["passages"], receipt["vectors"]] == counted
    names = ("documents", "passages", "vectors", "derived")
    assert receipt["stores"] == {"embedded": {name: receipt[name] for name in names}}
    wait_until(lambda: found() == [0, 0, 0])


def canaries(number: int) -> list[str]:
    generator = random.Random(number)
    return [f"canary{generator.randrange(10**12):012}" for _ in range(40)]


def fill_with(server: Served, words: Sequence[str], first: int = 0) -> None:
    """Each word in a place of its own: texts, sources, sessions, tags, agents, corrected versions and reasons."""
    for place, word in enumerate(words, first):
        fields: dict[str, Any] = {"source": f"canary-{place}.md", "sessionId": "canaries"}
        match place % 5:
            case 0:
                server.index(f"{RETRIES} {word}", **fields)
                server.search(word)
            case 1:
                server.index(f"{RETRIES} {place}", **{**fields, "source": f"{word}.md"})
            case 2:
                server.index(f"{RETRIES} {place}", **fields, metadata={"tags": [word], "agent": word, "note": word})
            case 3:
                server.index(f"{RETRIES} {word}", **fields)
                done(server, "correct", source=fields["source"], content=f"{RETRIES} {place}", reason=word)
            case _:
                server.index(f"{RETRIES} {word}", **fields)
                done(server, "forget", source=fields["source"], reason=word)


def test_a_purge_leaves_no_byte_wherever_it_is_interrupted(tmp_path: Path) -> None:
    data_dir, generator = tmp_path / "data", random.Random(7)
    words = canaries(5)
    for round_ in range(ROUNDS):
        with served(data_dir, **ERASED_SOON) as server:
            server.wait_ready()
            if round_ == 0:
                server.index("The buoys of berth 4 are red.", source="buoys.md")
                fill_with(server, words)
                assert in_files(data_dir, words)
            purging = threading.Thread(target=_purge, args=(server,))
            purging.start()
            threading.Event().wait(generator.uniform(0.0, 0.1))
            server.kill()
            purging.join()
    with served(data_dir, **ERASED_SOON) as server:
        server.wait_ready()
        _purge(server)
        assert done(server, "forget", sessionId="canaries", purge=True, dryRun=True)["documents"] == 0
        assert [each["source"] for each in done(server, "list")["documents"]] == ["buoys.md"]
        wait_until(lambda: not in_files(data_dir, words))
        assert {each["reason"] for each in log(server, limit=200) if "reason" in each} == set()
        assert server.index(f"{RETRIES} {words[0]}", source="again.md")["status"] == "forgotten"
        for copy in ("backup", "export"):
            made = command(copy, str(tmp_path / copy), data_dir=data_dir)
            assert made.returncode == 0, made.stderr
    assert not in_files(tmp_path, words), "in no log either"


def _purge(server: Served) -> None:
    try:
        server.tool("forget", {"sessionId": "canaries", "purge": True, "confirm": True, "clearQueries": True})
    except httpx2.TransportError:
        return
