"""The sessions that clients keep on a machine come into its memory once, and stay what their owner makes of them."""

import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rag_context.agents.workspace import workspace
from tests.end_to_end.loaded import Program
from tests.end_to_end.process import COMMAND, Served, command, environment, served, wait_until
from tests.files import homes
from tests.files.transcripts import AGAIN, ANSWERED, ASKED, CLOSED, INJECTED, lines
from tests.outcomes.hooks import Agent

Documents = dict[str, dict[str, Any]]


class Machine:
    """A person's home and the memory beside it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.data = folder / "data"
        self.work = folder / "work" / "harbour"

    @property
    def environment(self) -> dict[str, str]:
        names = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "GEMINI_CLI_HOME")
        return {"HOME": str(self.home), **dict.fromkeys(names, "")}

    def run(self, *arguments: str, **extra: str) -> list[dict[str, Any]]:
        done = command("import-history", "--json", *arguments, data_dir=self.data, **self.environment, **extra)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def statuses(self, *arguments: str, **extra: str) -> dict[str, str]:
        return {
            each.get("sessionId") or Path(each["path"]).stem: each["status"] for each in self.run(*arguments, **extra)
        }

    def documents(self) -> Documents:
        exported = command("export", "-", data_dir=self.data, **self.environment)
        found = (json.loads(line) for line in exported.stdout.splitlines())
        return {each["source"]: each for each in found if "content" in each}

    def claude(self, session: str, *said: str, cwd: Path | None = None, **more: object) -> Path:
        """Write a session of Claude Code: the person and the model in turn."""
        path = self.home / ".claude/projects/-w" / f"{session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.lines(session, said, 0, cwd, **more))
        return path

    def fork(self, session: str, of: Path, *said: str) -> Path:
        """Write a session as Claude Code does by `--fork-session`: all messages of another one first, as they were."""
        copied = of.read_text().replace(f'"sessionId": "{of.stem}"', f'"sessionId": "{session}"')
        path = of.with_name(f"{session}.jsonl")
        path.write_text(copied + self.lines(session, said, len(copied.splitlines())))
        return path

    def lines(
        self, session: str, said: tuple[str, ...], first: int = 0, cwd: Path | None = None, **more: object
    ) -> str:
        return lines(
            *(
                {
                    "type": role, "uuid": f"{session}-{number}", "sessionId": session, "isSidechain": False,
                    "timestamp": f"2026-01-02T03:{number:02}:05.000Z", "cwd": str(cwd or self.work),
                    "message": {"role": role, "content": text}, **more,
                }
                for number, text in enumerate(said, first)
                for role in [("user", "assistant")[number % 2]]
            )
        )  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def _state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()} | {
        str(path): (0, b"") for path in folder.rglob("*") if path.is_dir()
    }


def test_every_clients_sessions_come_in_once_as_what_was_said(machine: Machine) -> None:
    homes.fill(machine.home, machine.work)
    before = _state(machine.home)
    found = machine.run("--dry-run")
    assert not machine.documents()
    taken = machine.run()
    by_path = [sorted(each, key=lambda one: (one["path"], one.get("sessionId", ""))) for each in (taken, found)]
    assert by_path[0] == by_path[1]
    documents = machine.documents()
    aider = [source for source in documents if source.startswith("aider:")]
    assert documents.keys() == {*homes.SOURCES, *homes.IN_DATABASES, *aider}
    assert len(aider) == 1
    tag = workspace(machine.work)
    assert tag is not None
    for source, document in documents.items():
        client, session = source.split(":")
        said = (ASKED, AGAIN) if client == "warp" else (ASKED, ANSWERED, AGAIN, CLOSED)
        places = [document["content"].find(text) for text in said]
        assert -1 not in places and places == sorted(places), source
        assert INJECTED not in document["content"], source
        assert (document["metadata"]["agent"], document["sessionId"]) == (client, session)
        expected = "project:unknown" if source in homes.UNPLACED else tag.tag
        assert document["metadata"]["tags"] == [expected], source
        assert document["origin"] == "owner"
        assert document["contentType"] == "chat"
    assert documents["claude-code:claude-1"]["occurredAt"].startswith("2026-01-02T03:04:05")
    assert {each["status"] for each in machine.run()} == {"unchanged", "skipped"}
    assert machine.documents() == documents
    # No client sees that its files were read: none was changed, and none was added.
    assert _state(machine.home) == before


def test_a_session_that_went_on_brings_its_new_messages_alone(machine: Machine) -> None:
    long = tuple(f"Message {number} of the pumps. " + "The impeller turns. " * 200 for number in range(30))
    path = machine.claude("s1", *long)
    machine.claude("s2", ASKED, ANSWERED)
    assert set(machine.statuses().values()) == {"new"}
    before = machine.documents()
    assert len(before) > 3
    with path.open("a") as file:
        file.write(machine.lines("s1", (AGAIN, CLOSED), 30)[:-9])  # a client is writing the last line
    assert machine.statuses() == {"s1": "grown", "s2": "unchanged"}
    after = machine.documents()
    assert after.keys() == before.keys()
    changed = [source for source in before if after[source] != before[source]]
    assert changed == [max(source for source in before if source.startswith("claude-code:s1"))] or len(changed) == 1
    assert AGAIN in after[changed[0]]["content"] and CLOSED not in after[changed[0]]["content"]
    path.write_text(machine.lines("s1", (*long, AGAIN, CLOSED)))
    assert machine.statuses()["s1"] == "grown"
    assert CLOSED in machine.documents()[changed[0]]["content"]


def test_a_session_that_was_deleted_stays_out_until_it_is_forced(machine: Machine) -> None:
    path = machine.claude("s1", ASKED, ANSWERED)
    machine.claude("s2", AGAIN, CLOSED)
    machine.run()
    deleted = command("delete", "--session", "s1", "--yes", data_dir=machine.data, **machine.environment)
    assert deleted.returncode == 0, deleted.stderr
    path.touch()
    assert machine.statuses()["s1"] in ("unchanged", "deleted")
    with path.open("a") as file:
        file.write(machine.lines("s1", (AGAIN,), 2))
    assert machine.statuses() == {"s1": "deleted", "s2": "unchanged"}
    assert machine.documents().keys() == {"claude-code:s2"}
    assert machine.statuses("--force")["s1"] == "new" or machine.documents()
    assert machine.documents().keys() == {"claude-code:s1", "claude-code:s2"}


def _times(documents: Documents, text: str) -> int:
    return sum(document["content"].count(text) for document in documents.values())


def test_a_fork_stores_what_follows_the_messages_that_it_copied(machine: Machine) -> None:
    first = machine.claude("s1", ASKED, ANSWERED)
    fork = machine.fork("a2", first, "And the second pump?")
    machine.fork("a3", fork, "And the third pump?", "Its seal.")
    machine.fork("a4", first)
    for number, name in enumerate(("s1", "a2", "a3", "a4")):
        os.utime(first.with_name(f"{name}.jsonl"), (1767323045 + number,) * 2)
    found = machine.run("--dry-run")
    taken = machine.run()
    assert {each["sessionId"]: each["messages"] for each in taken} == {"s1": 2, "a2": 1, "a3": 2, "a4": 0}
    assert [each for each in found if each not in taken] == []
    documents = machine.documents()
    assert {source: document["content"].count("[") for source, document in documents.items()} == {
        "claude-code:s1": 3, "claude-code:a2": 2, "claude-code:a3": 3,
    }  # fmt: skip
    continued = [documents[f"claude-code:{each}"]["metadata"]["extra"] for each in ("s1", "a2", "a3")]
    assert [(each.get("continues"), each.get("repeated")) for each in continued] == [(None, None), ("s1", 2), ("a2", 3)]
    assert set(machine.statuses().values()) <= {"unchanged", "skipped"}
    assert machine.documents() == documents

    # What both say from then on is each one's own; what is forgotten does not come back by a copy.
    for path, said in ((first, AGAIN), (fork, CLOSED)):
        with path.open("a") as file:
            file.write(machine.lines(path.stem, (said,), 9))
    deleted = command("delete", "--session", "s1", "--yes", data_dir=machine.data, **machine.environment)
    assert deleted.returncode == 0, deleted.stderr
    machine.run()
    machine.fork("a5", first, "And the fifth pump?")
    machine.run()
    documents = machine.documents()
    assert documents.keys() == {f"claude-code:{each}" for each in ("a2", "a3", "a5")}
    assert [_times(documents, each) for each in (ASKED, AGAIN, CLOSED, "fifth pump")] == [0, 0, 1, 1]


def test_sessions_that_were_stored_twice_by_an_earlier_version_are_stored_once(machine: Machine) -> None:
    first = machine.claude("s1", ASKED, ANSWERED)
    fork = machine.fork("a2", first, AGAIN)
    os.utime(first, (1767323045, 1767323045))
    first.rename(first.with_suffix(".later"))
    machine.run()
    first.with_suffix(".later").rename(first)
    for path in machine.data.glob("messages.db*"):
        path.unlink()
    with closing(sqlite3.connect(machine.data / "histories.db")) as manifest, manifest:
        manifest.execute("UPDATE files SET recipe = x'00'")
    assert _times(machine.documents(), ASKED) == 1
    assert machine.statuses() == {"s1": "new", "a2": "grown"}
    documents = machine.documents()
    assert [_times(documents, each) for each in (ASKED, ANSWERED, AGAIN)] == [1, 1, 1]
    assert documents["claude-code:a2"]["metadata"]["extra"]["continues"] == "s1"

    # A session that held messages and was gone before it was taken in to its end holds none of them any more.
    with closing(sqlite3.connect(machine.data / "histories.db")) as manifest, manifest:
        manifest.execute("DELETE FROM files WHERE path = ?", (str(first),))
    first.unlink()
    with fork.open("a") as file:
        file.write(machine.lines("a2", (CLOSED,), 3))
    machine.run()
    assert ASKED in machine.documents()["claude-code:a2"]["content"]


def test_two_imports_at_once_store_each_message_once(machine: Machine) -> None:
    for number in range(20):
        said = [f"Message {each} of session {number:02}." for each in range(4)]
        machine.fork(f"a{number}", machine.claude(f"s{number}", *said), f"Fork of session {number:02}.")
    words = [COMMAND, "import-history", "--data-dir", str(machine.data)]
    both = [subprocess.Popen(words, env=environment(**machine.environment), stderr=subprocess.DEVNULL) for _ in "12"]
    assert [process.wait(120) for process in both] == [0, 0]
    documents = machine.documents()
    assert {_times(documents, f"of session {number:02}.") for number in range(20)} == {5}


def test_a_fork_in_a_database_stores_what_follows(machine: Machine) -> None:
    """OpenCode gives the messages that it copies new ids."""
    path = machine.home / ".local/share/opencode/opencode.db"
    homes.opencode(path, machine.work)
    machine.run("opencode")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript("""
            INSERT INTO session SELECT 'ses_0', project_id, NULL, title, directory, time_created, time_updated + 1
                FROM session WHERE id = 'ses_1';
            INSERT INTO message SELECT 'new_' || id, 'ses_0', time_created, data FROM message
                WHERE session_id = 'ses_1';
            INSERT INTO part SELECT 'new_' || id, 'new_' || message_id, 'ses_0', data FROM part
                WHERE session_id = 'ses_1';
            INSERT INTO message VALUES ('msg_x', 'ses_0', 1767323105000, '{"role": "user"}');
            INSERT INTO part VALUES ('prt_x', 'msg_x', 'ses_0', '{"type": "text", "text": "And the fork?"}');
        """)
    machine.run("opencode")
    documents = machine.documents()
    assert documents.keys() == {"opencode:ses_1", "opencode:ses_0"}
    assert [_times(documents, each) for each in (ASKED, ANSWERED, AGAIN, CLOSED, "And the fork?")] == [1] * 5


def test_an_index_that_was_emptied_is_filled_again(machine: Machine) -> None:
    machine.claude("s1", ASKED, ANSWERED)
    machine.run()
    for path in machine.data.glob("index*"):
        path.unlink()
    machine.run()
    assert machine.documents().keys() == {"claude-code:s1"}


def test_sessions_of_programs_and_of_excluded_folders_are_left_out(machine: Machine) -> None:
    machine.claude("person", ASKED, ANSWERED, entrypoint="cli")
    machine.claude("program", ASKED, ANSWERED, entrypoint="sdk-cli")
    machine.claude("agent-1", ASKED, ANSWERED, isSidechain=True)
    machine.claude("private", ASKED, ANSWERED, cwd=machine.work.parent / "private" / "diary")
    machine.claude("observer", ASKED, ANSWERED, cwd=machine.home / ".claude-mem" / "observer-sessions")
    setting = {"RAG_CONTEXT_HISTORY__EXCLUDE": "*/private/*"}
    expected = {
        "person": "new",
        "program": "skipped",
        "agent-1": "skipped",
        "private": "skipped",
        "observer": "skipped",
    }
    assert machine.statuses(**setting) == expected
    assert machine.documents().keys() == {"claude-code:person"}
    machine.run("--headless", "--subagents", **setting)
    assert machine.documents().keys() == {"claude-code:person", "claude-code:program", "claude-code:agent-1"}


def test_a_part_is_taken_and_the_rest_later(machine: Machine) -> None:
    other = machine.work.parent / "other"
    other.mkdir(parents=True)
    machine.claude("here", ASKED, ANSWERED)
    machine.claude("there", AGAIN, CLOSED, cwd=other)
    homes.opencode(machine.home / ".local/share/opencode/opencode.db", other)
    assert machine.statuses("claude-code", "--project", str(other)) == {"here": "skipped", "there": "new"}
    assert machine.statuses("claude-code", "--since", "2026-01-03") == {"here": "skipped", "there": "unchanged"}
    assert machine.statuses("claude-code") == {"here": "new", "there": "unchanged"}
    tags = {source: document["metadata"]["tags"] for source, document in machine.documents().items()}
    assert tags["claude-code:here"] != tags["claude-code:there"]
    (tag,) = tags["claude-code:there"]
    done = command("search", "impeller", "--tag", tag, "--json", data_dir=machine.data, **machine.environment)
    assert {each["source"] for each in json.loads(done.stdout)["results"]} == {"claude-code:there"}
    done = command("import-history", "emacs", data_dir=machine.data, **machine.environment)
    assert done.returncode == 2
    assert "'emacs' is none of the clients that are known: claude-code, codex" in done.stderr


def test_hostile_files_do_no_harm(machine: Machine) -> None:
    key = "AKIA" + "Q7ZP4M2XW6YT5RNB"
    blocks = "<rag-context>ZEBRA</rag-context>\n<private>ZEBRA</private>"
    path = machine.claude("good", f"{blocks}\n{ASKED} {key}", ANSWERED)
    path.write_text(path.read_text() + '{"type":"user","message":' + "[" * 100_000 + "\n" + '{"type":"user","broken')
    huge = machine.claude("huge", ASKED, ANSWERED)
    with huge.open("a") as file:
        file.write('{"type":"user","toolUseResult":"' + "x" * (8 << 20) + '"}\n' + machine.lines("huge", (AGAIN,), 2))
    folder = path.parent
    outside = machine.home.parent / "outside.jsonl"
    outside.write_text(machine.lines("outside", (INJECTED, INJECTED)))
    (folder / "link.jsonl").symlink_to(outside)
    (folder / "deeper").symlink_to(outside.parent)
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "other.jsonl").write_text('{"role": "user", "content": "ZEBRA", "name": "A", "ts": 1}\n')
    (folder / "empty.jsonl").touch()
    (machine.home / ".local/share/opencode").mkdir(parents=True)
    (machine.home / ".local/share/opencode/opencode.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    done = command("import-history", "--json", data_dir=machine.data, **machine.environment)
    assert done.returncode == 1
    assert "opencode.db: " in done.stderr
    documents = machine.documents()
    assert documents.keys() == {"claude-code:good", "claude-code:huge"}
    stored = json.dumps(documents)
    assert INJECTED not in stored
    assert key not in stored
    assert AGAIN in documents["claude-code:huge"]["content"]
    assert "AWS" in done.stdout or "aws" in done.stdout


def test_an_import_that_was_killed_goes_on(machine: Machine) -> None:
    for number in range(60):
        machine.claude(f"s{number}", f"{ASKED} Number {number}.", ANSWERED + " It leaks." * 4000, AGAIN)
    with Program(
        [COMMAND, "import-history", "--json", "--data-dir", str(machine.data)],
        stdout=subprocess.PIPE, env=environment(**machine.environment),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    machine.run()
    sessions = {f"s{number}" for number in range(60)}
    documents = machine.documents()
    assert {document["sessionId"] for document in documents.values()} == sessions
    assert len(documents) == 120
    assert set(machine.statuses().values()) == {"unchanged"}


def test_what_is_said_while_it_follows_comes_in(machine: Machine) -> None:
    path = machine.claude("s1", ASKED, ANSWERED)
    with Program(
        [COMMAND, "import-history", "--watch", "--data-dir", str(machine.data)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(**machine.environment),
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert any("Following" in line for line in process.stderr)
        with path.open("a") as file:
            file.write(machine.lines("s1", (AGAIN, CLOSED), 2))
        wait_until(lambda: CLOSED in machine.documents().get("claude-code:s1", {}).get("content", ""))
        machine.fork("a2", path, "And the fork?")
        wait_until(lambda: "claude-code:a2" in machine.documents())
        assert _times(machine.documents(), CLOSED) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_server_takes_in_what_a_hook_names_and_what_it_follows(machine: Machine) -> None:
    """A-2: the conversation is taken in when the client stops; A-3: and followed, if the settings say so."""
    machine.work.mkdir(parents=True)
    hooked = machine.claude("hooked", ASKED, ANSWERED)

    def said(server: Served, session: str) -> str:
        found = server.search(AGAIN, sessionId=session)["results"]
        return " ".join(each["content"] for each in found)

    with served(machine.data, **machine.environment) as server:
        server.wait_ready()
        agent = Agent(machine.data, machine.work, session="hooked")
        assert agent.hook("stop", transcript_path=str(hooked)) == ""
        wait_until(lambda: ANSWERED in said(server, "hooked"))
        with hooked.open("a") as file:
            file.write(machine.lines("hooked", (AGAIN, CLOSED), 2))
        assert agent.hook("compact", transcript_path=str(hooked)) == ""
        wait_until(lambda: CLOSED in said(server, "hooked"))
        assert server.stop() == 0
    kept = machine.claude("followed", ASKED, ANSWERED)
    with served(machine.data, RAG_CONTEXT_HISTORY__FOLLOW="true", **machine.environment) as server:
        server.wait_ready()
        wait_until(lambda: ANSWERED in said(server, "followed"))
        with kept.open("a") as file:
            file.write(machine.lines("followed", (AGAIN, CLOSED), 2))
        wait_until(lambda: CLOSED in said(server, "followed"))
        tag = workspace(machine.work)
        assert tag is not None
        assert {each["source"] for each in server.search(AGAIN, tags=[tag.tag])["results"]} == {
            "claude-code:followed",
            "claude-code:hooked",
        }
        assert server.stop() == 0
