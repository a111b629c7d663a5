"""The same commands beside a running server (M-2, M-6, D-2, X-1), and what happens when it goes away."""

import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from rag_context.client.address import Announcement, read_announcement
from rag_context.server.running import announce

from .run_command import Commands, Served, ended, serving
from .stub_server import INSTANCE, Script, stub_server

DOCUMENT = "# Berths\n\nThe database refuses overlapping bookings of one berth.\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """A folder with a document; the server of this module has its data directory."""
    folder = tmp_path_factory.mktemp("served")
    commands = Commands(folder).with_variables(RAG_CONTEXT_API_KEY="the-key")
    commands.write("notes/berths.md", DOCUMENT)
    return commands


@pytest.fixture(scope="module")
def server(place: Commands) -> Iterator[Served]:
    """A server that wants a key."""
    with serving(place) as served:
        yield served


class TestBesideAServer:
    """M-2: a running server is found and used."""

    def test_the_server_indexes_and_answers(self, place: Commands, server: Served) -> None:
        indexed = place("index", "notes")
        answered = place("search", "who refuses overlapping bookings", "--json")

        assert (indexed.status, indexed.err.splitlines()[0]) == (0, f"Adding to the server at {server.url}")
        result = answered.json()["results"][0]
        assert result["source"] == str(place.folder / "notes" / "berths.md")
        assert result["sessionId"] == "files"

    def test_indexing_again_changes_nothing_and_programs_get_receipts(self, place: Commands, server: Served) -> None:
        place("index", "notes")

        (receipt,) = place("index", "notes", "--json").lines()

        assert receipt["status"] == "unchanged"
        assert receipt["source"] == str(place.folder / "notes" / "berths.md")
        assert "line" not in receipt

    def test_health_and_stats_are_the_servers(self, place: Commands, server: Served) -> None:
        assert place("health").out.startswith(f"healthy · the server at {server.url} · ")
        assert place("stats", "--json").status == 0

    def test_status_is_health_searches_and_the_latest_documents(self, place: Commands, server: Served) -> None:
        place("search", "tides")
        shown = place("status")
        assert shown.status == 0
        assert shown.out.startswith(f"healthy · the server at {server.url} · ")
        assert "in 24h · " in shown.out
        status = place("status", "--json").json()
        assert status["place"] == f"the server at {server.url}"
        assert status["health"]["indexedDocuments"] == len(status["latest"]["documents"])
        assert all(document["title"] in shown.out for document in status["latest"]["documents"])
        assert status["stats"]["totalDocuments"] == status["health"]["indexedDocuments"]

    def test_without_the_key_the_server_rejects_requests(self, place: Commands, server: Served) -> None:
        """X-1."""
        keyless = Commands(place.folder)

        rejected = keyless("search", "x")

        assert rejected.status == 78
        assert rejected.err.startswith(f"error: The server at {server.url} rejected the request: API key required")
        assert rejected.err.endswith("Set RAG_CONTEXT_API_KEY to a key it knows.\n")
        assert keyless("index", "notes").status == 78

    def test_the_announcement_file_is_for_this_user_only(self, place: Commands, server: Served) -> None:
        path = place.data_dir / "server.json"

        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        reported = json.loads(path.read_text())
        assert (reported["pid"], reported["url"]) == (server.process.pid, server.url)
        assert httpx2.get(f"{server.url}/live", trust_env=False).json()["instance"] == reported["instance"]

    def test_what_it_acknowledged_is_found_without_it_too(self, place: Commands, server: Served) -> None:
        """D-2."""
        place("index", "notes")
        announcement = place.data_dir / "server.json"
        text = announcement.read_text()
        announcement.unlink()
        try:
            health = place("health", "--json").json()
        finally:
            announcement.write_text(text)

        assert health["indexedDocuments"] == 1


class TestStopping:
    """M-6: SIGTERM and Ctrl-C end it with 0, and nothing is left behind."""

    @pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_it_cleanly(self, commands: Commands, how: signal.Signals) -> None:
        with serving(commands) as served:
            stopped = served.stop(how)

        assert stopped.status == 0
        assert f"at {served.url}" in stopped.err
        assert "Traceback" not in stopped.err
        assert read_announcement(commands.data_dir) is None

    def test_a_port_in_use_is_reported(self, commands: Commands) -> None:
        """M-5."""
        with serving(commands) as served:
            again = commands("serve", "--port", served.url.rpartition(":")[2])

        assert again.status == 78
        assert again.err.startswith("error: Port ")
        assert " is in use" in again.err


class TestStaleAnnouncements:
    """A file of a server that is gone is not believed."""

    def test_no_server_listens_there(self, commands: Commands) -> None:
        commands.data_dir.mkdir(exist_ok=True)
        announce(commands.data_dir, Announcement(1, "http://127.0.0.1:1", "gone", "secret"))

        assert "the index in" in commands("health").out

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "[]",
            '{"pid": 1}',
            '{"pid": "x", "url": "", "instance": "", "secret": "s"}',
            '{"pid": 1, "url": "u", "instance": "i"}',
        ],
    )
    def test_the_file_is_broken(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "server.json").write_text(content)

        assert read_announcement(tmp_path) is None

    def test_another_program_listens_there_and_gets_no_key(self, commands: Commands) -> None:
        """X-5."""
        keyed = commands.with_variables(RAG_CONTEXT_API_KEY="the-key")
        script = Script(secret="a guess")
        with stub_server(commands.data_dir, script):
            out = keyed("health").out

        assert "the index in" in out
        assert [path for path, _ in script.requests] == ["/live"]
        assert "the-key" not in str(script.requests)


class TestAServerThatFails:
    """75 where another try may help; what was acknowledged is counted."""

    @pytest.fixture
    def files(self, commands: Commands) -> Commands:
        for number in range(5):
            commands.write(f"{number}.md", f"text {number}")
        return commands

    def test_it_dies_in_the_middle_of_a_bulk_run(self, files: Commands) -> None:
        receipts = [
            {"status": "indexed", "line": 1, "source": "0.md", "documentId": "a", "chunksIndexed": 1},
            {"status": "unchanged", "line": 2, "source": "1.md", "documentId": "b", "chunksIndexed": 1},
        ]
        with stub_server(files.data_dir, Script(receipts=receipts)) as url:
            gone = files("index", ".", "--json")

        assert gone.status == 75
        assert [receipt["source"] for receipt in gone.lines()] == ["0.md", "1.md"]
        assert gone.err.splitlines()[-1] == (
            f"error: The server at {url} went away. 2 files were acknowledged and safe: "
            "run the same command again, it skips them."
        )

    def test_it_dies_before_anything_was_acknowledged(self, files: Commands) -> None:
        with stub_server(files.data_dir, Script(receipts=[])):
            gone = files("index", ".")

        assert gone.status == 75
        assert "Nothing was indexed: run the same command again." in gone.err

    @pytest.mark.parametrize(
        ("ends", "in_background"), [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True)]
    )
    def test_ctrl_c_and_sigterm_say_what_is_safe(
        self, files: Commands, ends: signal.Signals, in_background: bool
    ) -> None:
        script = Script()
        with stub_server(files.data_dir, script):
            process = files.start("index", ".", in_background=in_background)
            assert script.bulk_came.wait(60)
            process.send_signal(ends)
            interrupted = ended(process)

        assert interrupted.status == 130
        assert interrupted.err.splitlines()[-1] == ("interrupted. Nothing was indexed: run the same command again.")
        assert "Traceback" not in interrupted.err

    @pytest.mark.parametrize(
        ("status", "body", "code", "sentence"),
        [
            (503, b'{"error": "Database unavailable"}', 75, "could not: Database unavailable. Try again."),
            (429, b'{"error": "Too many requests"}', 75, "could not: Too many requests. Try again."),
            (400, b'{"error": "Query cannot be empty"}', 2, "error: Query cannot be empty"),
            (500, b"<html>", 1, "failed: HTTP 500."),
            (200, b"<html>", 1, "returned an invalid response: is it another version?"),
            (200, b"{}", 1, "returned an invalid response: is it another version?"),
        ],
    )
    def test_what_it_says_decides_the_status(
        self, commands: Commands, status: int, body: bytes, code: int, sentence: str
    ) -> None:
        script = Script(status=status, body=body)
        with stub_server(commands.data_dir, script):
            answered = commands("search", "x")

        assert (answered.status, answered.out) == (code, "")
        assert sentence in answered.err
        assert [path for path, _ in script.requests] == ["/live", "/tools/rag_context_search"]  # no second try

    def test_a_rejected_bulk_run_says_why(self, files: Commands) -> None:
        script = Script(status=403, body=b'{"error": "This API key may only read"}')
        with stub_server(files.data_dir, script):
            rejected = files("index", ".")

        assert rejected.status == 78
        assert rejected.err.endswith(
            "rejected the request: This API key may only read. Set RAG_CONTEXT_API_KEY to a key that may do this.\n"
        )

    def test_the_key_goes_to_the_server_that_proved_itself(self, commands: Commands) -> None:
        script = Script()
        with stub_server(commands.data_dir, script):
            commands.with_variables(RAG_CONTEXT_API_KEY="the-key")("search", "x")

        assert script.headers_of("/tools/rag_context_search")["authorization"] == "Bearer the-key"
        assert "authorization" not in script.headers_of("/live")


def test_another_servers_announcement_is_left_alone(tmp_path: Path) -> None:
    script = Script()
    with stub_server(tmp_path, script):
        announce(tmp_path, Announcement(os.getpid(), "http://127.0.0.1:1", "a later one", "secret"))

    left = read_announcement(tmp_path)
    assert left is not None
    assert left.instance == "a later one" != INSTANCE


def test_a_reader_that_closes_the_pipe_is_no_error(commands: Commands) -> None:
    for number in range(3):
        commands.write(f"{number}.md", f"text {number}")
    process = commands.start("index", ".", "--json")
    assert isinstance(process, subprocess.Popen)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()

    assert process.wait(60) == 1
    assert "Traceback" not in err
