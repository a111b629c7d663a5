"""A disk that is full, a directory that cannot be written, a data file that is gone: answers, and the truth."""

import ctypes
import itertools
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.end_to_end.process import COMMAND, TIMEOUT_S, Served, command, environment, served, wait_until
from tests.outcomes.repositories import Caller, repository

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
TEXT = "MongoDB connections use retry logic with exponential backoff, five times at most."
QUESTION = "how are connections to MongoDB retried"
BODY = {"content": "The harbour office keeps the key.", "contentType": "code", "sessionId": "s", "source": "new"}
LIBC = ctypes.CDLL(None, use_errno=True)


def obey_permissions() -> None:
    """Have permissions bind the program that this process becomes, also where it is the superuser's."""
    if os.geteuid() != 0:
        return
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "permissions cannot be made to bind: run the tests as another user")


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """Two data directories with one document each: of a server that stopped, and of one that was killed."""
    place = Path(tempfile.mkdtemp(prefix="rag-context-"))
    try:
        for name in ("stopped", "killed"):
            with served(place / name) as server:
                server.wait_ready()
                server.index(TEXT)
                if name == "stopped":
                    assert server.stop() == 0
                else:
                    server.kill()
        yield place
    finally:
        shutil.rmtree(place)


@pytest.fixture
def data_dir(made: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A copy of the directory of the server that stopped, or of the one that a test names."""
    copy = Path(tempfile.mkdtemp(dir=made)) / "data"
    shutil.copytree(made / getattr(request, "param", "stopped"), copy, ignore=shutil.ignore_patterns("*.sock"))
    (copy / "server.json").unlink(missing_ok=True)
    yield copy
    if copy.exists():
        allow(copy)


def forbid(data_dir: Path) -> None:
    for file in data_dir.iterdir():
        file.chmod(0o444)
    data_dir.chmod(0o555)


def allow(data_dir: Path) -> None:
    data_dir.chmod(0o755)
    for file in data_dir.iterdir():
        file.chmod(0o644)


@contextmanager
def bound_server(data_dir: Path, *, most_bytes: int | None = None, **extra: str) -> Iterator[Served]:
    """A server that permissions bind, whose files may be `most_bytes` long. It need not announce itself."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def bind() -> None:
        obey_permissions()
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    process = subprocess.Popen(
        [COMMAND, "serve", "--port", str(port), "--data-dir", str(data_dir)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(**extra),
        preexec_fn=bind,  # noqa: PLW1509  (the tests have no threads that hold a lock)
    )
    server = Served(process, f"http://127.0.0.1:{port}")
    try:
        wait_until(lambda: process.poll() is not None or answers(server))
        if process.poll() is None:
            yield server
            server.stop()
    finally:
        if process.poll() is None:
            process.kill()
        log = process.communicate(timeout=TIMEOUT_S)[1].decode()
    assert "Traceback" not in log, log
    assert process.returncode == 0, log


def answers(server: Served) -> bool:
    try:
        return server.get("/live").status_code == 200
    except httpx2.TransportError:
        return False


def documents(server: Served) -> dict[str, str]:
    """What health says of the document store."""
    return next(part for part in server.health()["components"] if part["name"] == "documents")


def refuses_and_searches(server: Served) -> None:
    """Level 1, ready, a polite rejection, and a report that says so."""
    server.wait_ready()
    answer = server.search(QUESTION)
    assert (answer["fallbackLevel"], answer["results"][0]["content"]) == (1, TEXT)
    report = server.health()
    assert (report["healthy"], report["mongoStatus"]) == (False, "degraded")
    rejected = server.tool("index", BODY)
    assert (rejected.status_code, rejected.json()["code"]) == (503, "SERVICE_UNAVAILABLE")
    assert server.get("/ready").status_code == 200


def heals(server: Served) -> None:
    wait_until(lambda: server.health()["healthy"])
    assert server.tool("index", BODY).json()["status"] == "indexed"
    assert server.search("who keeps the key of the harbour office")["results"][0]["content"] == BODY["content"]


@pytest.mark.parametrize("data_dir", ["stopped", "killed"], indirect=True)
def test_a_read_only_directory_is_searched_and_heals_when_it_may_be_written(data_dir: Path) -> None:
    forbid(data_dir)
    with bound_server(data_dir) as server:
        refuses_and_searches(server)
        assert "cannot be written; give this program the permission to write" in documents(server)["detail"]
        allow(data_dir)
        heals(server)
        wait_until((data_dir / "server.json").exists)


def test_a_read_only_directory_is_searched_by_the_command_line_without_a_server(data_dir: Path) -> None:
    forbid(data_dir)
    found = subprocess.run(
        [COMMAND, "search", QUESTION, "--json", "--data-dir", str(data_dir)],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        preexec_fn=obey_permissions,
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["results"][0]["content"] == TEXT


def test_what_another_process_writes_is_found_in_a_read_only_directory(data_dir: Path) -> None:
    """The server may not write; another process may, and does."""
    forbid(data_dir)
    with bound_server(data_dir) as server:
        server.wait_ready()
        assert server.health()["indexedDocuments"] == 1
        allow(data_dir)
        (data_dir.parent / "note.md").write_text("The lighthouse of Hook Head is the oldest one that still works.")
        written = command("index", str(data_dir.parent / "note.md"), data_dir=data_dir)
        assert written.returncode == 0, written.stderr
        wait_until(lambda: server.health()["indexedDocuments"] == 2)
        assert "Hook Head" in server.search("oldest lighthouse")["results"][0]["content"]


def test_a_full_disk_does_not_keep_a_server_from_starting(data_dir: Path) -> None:
    with bound_server(data_dir, most_bytes=0) as server:
        refuses_and_searches(server)
        hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        heals(server)
        wait_until((data_dir / "server.json").exists)


def test_a_project_that_is_activated_after_a_start_on_a_full_disk_is_followed_after_the_next_start(
    data_dir: Path,
) -> None:
    shop = repository(data_dir.parent, "shop", kept="# Kept\n\nOrders stay.\n", gone="# Gone\n\nOrders go.\n")
    with bound_server(data_dir, most_bytes=0) as server:
        server.wait_ready()
        hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        wait_until(lambda: server.health()["healthy"])
        Caller(server.url).call("activate_project", config_path=shop.config)
    (shop.root / "docs" / "gone.md").unlink()
    shop.write("docs/new.md", "# New\n\nOrders come.\n")
    with bound_server(data_dir) as server:
        wait_until(lambda: Caller(server.url).paths(project="shop") == {"kept.md", "new.md"})
        assert {file.stat().st_mode & 0o777 for file in data_dir.iterdir() if file.is_file()} == {0o600}


def test_a_data_directory_that_is_moved_away_is_level_3_and_heals_when_it_is_back(data_dir: Path) -> None:
    away = data_dir.with_name("elsewhere")
    with bound_server(data_dir, CIRCUIT_BREAKER_THRESHOLD="3", CIRCUIT_BREAKER_TIMEOUT="500") as server:
        server.wait_ready()
        data_dir.rename(away)
        questions = (f"question {number}" for number in itertools.count())
        levels = (server.search(question) for question in questions)
        answer = next(answer for answer in levels if answer["fallbackLevel"] > 1)  # until it is noticed
        assert (answer["fallbackLevel"], answer["results"]) == (3, [])
        assert answer["warning"] == "All search methods failed, returning empty results"
        rejected = server.tool("index", BODY)
        assert (rejected.status_code, rejected.json()["code"]) == (503, "SERVICE_UNAVAILABLE")
        wait_until(lambda: server.search(next(questions))["circuitBreakerOpen"])
        report = server.health()
        assert (report["healthy"], report["circuitBreakerOpen"], report["mongoStatus"]) == (False, True, "unavailable")
        assert "The data directory" in documents(server)["detail"]
        assert "put it back" in documents(server)["detail"]
        assert not data_dir.exists()
        away.rename(data_dir)
        heals(server)


def test_an_index_that_is_gone_does_not_look_like_a_new_one(data_dir: Path) -> None:
    (data_dir / "rag-context.db").write_bytes(b"")
    said = "but it had 1 document; restore it from a backup, or begin an empty index with"
    with bound_server(data_dir) as server:
        assert server.search(QUESTION)["fallbackLevel"] == 3
        assert server.tool("index", BODY).status_code == 503
        assert not server.health()["healthy"]
        assert said in documents(server)["detail"]
        checked = command("check", data_dir=data_dir)
        assert checked.returncode == 1
        assert said in checked.stderr
        begun = command("check", "--start-empty", data_dir=data_dir)
        assert (begun.returncode, "in place of 1 document" in " ".join(begun.stdout.split())) == (0, True)
        wait_until(lambda: server.health()["healthy"])
        assert server.health()["indexedDocuments"] == 0
        assert server.tool("index", BODY).json()["status"] == "indexed"
    again = command("check", "--start-empty", data_dir=data_dir)
    assert (again.returncode, "is not empty" in again.stderr) == (78, True)


def test_the_first_of_two_servers_is_found_again_when_the_second_stops_or_dies(data_dir: Path) -> None:
    announced = data_dir / "server.json"

    def pid() -> int | None:
        return int(json.loads(announced.read_text())["pid"]) if announced.exists() else None

    key = {"RAG_CONTEXT_API_KEY": "a-key-of-more-than-sixteen-characters"}
    with served(data_dir, "--host", "0.0.0.0", **key) as first:
        reported = json.loads(announced.read_text())
        port = first.url.rpartition(":")[2]
        assert (reported["url"], reported["bound"]) == (f"http://127.0.0.1:{port}", f"0.0.0.0:{port}")
        for how in (signal.SIGTERM, signal.SIGKILL):
            with served(data_dir, **key) as second:
                assert pid() == second.process.pid
                second.process.send_signal(how)
                second.process.wait(TIMEOUT_S)
                wait_until(lambda: pid() == first.process.pid)
        assert command("health", data_dir=data_dir, **key).stdout.startswith(f"healthy · the server at {first.url}")
        assert first.stop() == 0
    assert not announced.exists()
