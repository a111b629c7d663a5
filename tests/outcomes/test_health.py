"""`healthy` is true when searches are answered completely and a write would be accepted, and only then."""

import gzip
import resource
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.end_to_end.process import Served, command, served, wait_until

LONG = " ".join(f"The winch of pier {number} is next to the ferry of dock {number % 97}." for number in range(250))
BOMB = gzip.compress(bytes(128 << 20), compresslevel=1)
"""128 MiB of nothing, packed."""

ROOM_KIB = 48 << 10
"""By so much a server's memory may grow while it is sent bombs: far less than what is in one piece of them."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("health") / "data"


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Served]:
    """A server that makes documents wait for their vectors unless these are there at once."""
    with served(place, RAG_CONTEXT_INDEXING__TIMEOUT_S="0.1") as server:
        server.wait_ready()
        yield server


def details(report: dict[str, object]) -> dict[str, str]:
    components = report["components"]
    assert isinstance(components, list)
    return {each["name"]: each["detail"] for each in components}


def test_a_component_report_is_as_new_as_the_counts_beside_it(server: Served) -> None:
    for number in range(1, 4):
        server.index(f"The key of locker {number} hangs in the harbour office.", source=f"note {number}")
        report = server.health()
        assert report["indexedDocuments"] == number
        counted = "1 document in 1 chunk" if number == 1 else f"{number} documents in {number} chunks"
        assert details(report)["documents"].startswith(f"{counted}, ")


def test_documents_that_are_being_embedded_are_a_healthy_state(server: Served, place: Path) -> None:
    server.index(LONG, source="book")
    report = server.health()
    assert (report["healthy"], report["indexing"]) == (True, True), report
    assert report["pendingDocuments"] > 0
    reported = command("health", data_dir=place)
    assert reported.returncode == 0, reported.stdout
    wait_until(lambda: not server.health()["indexing"])
    assert server.health()["pendingDocuments"] == 0


def test_a_full_disk_is_reported_before_a_write_fails_and_until_there_is_room_again(
    server: Served, place: Path
) -> None:
    wait_until(lambda: server.health()["healthy"] and not server.health()["indexing"])
    pid = server.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        wait_until(lambda: not server.health()["healthy"])
        report = server.health()
        assert report["mongoStatus"] == "degraded"
        assert details(report)["documents"].startswith("Writes fail: ")
        body = {"content": "One more note.", "contentType": "code", "sessionId": "s", "source": "more"}
        assert server.tool("index", body).status_code == 503
        assert server.get("/ready").status_code == 200
        assert command("health", data_dir=place).returncode == 1
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
    wait_until(lambda: server.health()["healthy"])
    assert server.tool("index", body).is_success


class _Bombs(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sent = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(BOMB)))
        self.end_headers()
        try:
            self.wfile.write(BOMB)
        except OSError:
            self.close_connection = True
        type(self).sent += 1

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_a_gzip_bomb_of_the_embedding_server_costs_no_memory_and_is_reported(server: Served, tmp_path: Path) -> None:
    bomber = ThreadingHTTPServer(("127.0.0.1", 0), _Bombs)
    threading.Thread(target=bomber.serve_forever, args=(0.05,), daemon=True).start()
    try:
        usual = most_kib(server)
        url = f"http://127.0.0.1:{bomber.server_port}"
        with served(tmp_path / "data", LM_STUDIO_URL=url, RAG_CONTEXT_EMBEDDER__KIND="openai_compatible") as other:
            wait_until(lambda: _Bombs.sent >= 3)
            assert other.search("harbour")["fallbackLevel"] == 2
            report = other.health()
            assert (report["healthy"], report["lmStudioStatus"]) == (False, "unavailable")
            assert "more than" in details(report)["embedder"]
            assert most_kib(other) < usual + ROOM_KIB
    finally:
        bomber.shutdown()
        bomber.server_close()


def most_kib(server: Served) -> int:
    """The most memory that a server ever had."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
