"""Two workers behind one port, as their clients see them: what one has stored, the other finds."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from rag_context.server.options import hash_key
from tests.end_to_end.loaded import Program
from tests.end_to_end.process import COMMAND, TIMEOUT_S, Served, command, environment, served, wait_until
from tests.outcomes.repositories import Repository, repository

BOTH = (1, 2)
KEYS = {"writer": "write", "reader": "read"}
_numbers = count()


def searches(server: Served) -> dict[int, float]:
    """How many searches each worker has answered."""
    counted = dict.fromkeys(BOTH, 0.0)
    text = httpx2.get(server.url + "/metrics", headers={"X-API-Key": "writer"}, timeout=TIMEOUT_S).text
    for line in text.splitlines():
        if line.startswith("rag_queries_total"):
            labels, _, value = line.rpartition(" ")
            (worker,) = (number for number in BOTH if f'worker="{number}"' in labels)
            counted[worker] += float(value)
    return counted


@dataclass
class Workers:
    """A server of two workers, and a client on a connection to each."""

    server: Served
    shop: Repository
    log: Path
    clients: dict[int, httpx2.Client] = field(default_factory=dict)

    def connect(self) -> None:
        """Open connections until each worker has one of ours."""
        self.close()
        with ExitStack() as further:  # open until the end, or the next one would come to the same worker
            while len(self.clients) < len(BOTH):
                worker, client = self._connection()
                if self.clients.setdefault(worker, client) is not client:
                    further.callback(client.close)

    def _connection(self) -> tuple[int, httpx2.Client]:
        """A connection, and the worker at its other end."""
        client = httpx2.Client(base_url=self.server.url, headers={"X-API-Key": "writer"}, timeout=TIMEOUT_S)
        before = searches(self.server)
        self.call(client, "rag_context_search", query=f"which worker answers, {next(_numbers)}?")
        after = searches(self.server)
        (worker,) = (number for number in BOTH if after[number] > before[number])
        return worker, client

    def close(self) -> None:
        """Close the connections."""
        for client in self.clients.values():
            client.close()
        self.clients.clear()

    def call(self, worker: int | httpx2.Client, tool: str, status: int = 200, **fields: Any) -> dict[str, Any]:
        """Call a tool over the connection to a worker."""
        client = self.clients[worker] if isinstance(worker, int) else worker
        reply = client.post(f"/tools/{tool}", json=fields)
        assert reply.status_code == status, reply.text
        answer: dict[str, Any] = reply.json()
        return answer

    def index(self, worker: int, content: str) -> str:
        """Index a document through a worker; returns its id."""
        fields: dict[str, Any] = {"contentType": "decision", "sessionId": "s", "source": f"note-{next(_numbers)}"}
        return str(self.call(worker, "rag_context_index", content=content, **fields)["documentId"])

    def pids(self) -> dict[int, int]:
        """The process of each worker, as the log says it."""
        said: dict[int, int] = {}
        for line in self.log.read_text().splitlines():
            message = json.loads(line)["message"] if line.startswith("{") else ""
            if message.startswith("worker ") and " serves, process " in message:
                said[int(message.split()[1])] = int(message.split()[-1])
        return said

    def wait_healthy(self) -> None:
        """Wait until every worker is healthy, and gets connections."""
        wait_until(lambda: httpx2.get(self.server.url + "/health", timeout=TIMEOUT_S).json()["healthy"])
        wait_until(lambda: self.log.read_text().count(" is ready") == self.log.read_text().count(" serves, process "))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("workers")
    config = folder / "config.toml"
    config.write_text(
        "".join(
            f'[[server.api_keys]]\nname = "{name}"\nhash = "{hash_key(name)}"\naccess = "{access}"\n'
            for name, access in KEYS.items()
        )
    )
    shop = repository(folder, "shop", orders="# Orders\n\nAn order is paid before it is packed.\n")
    with served(folder / "data", "--workers", "2", "--config", str(config)) as server:
        workers = Workers(server, shop, folder / "data.log")
        workers.wait_healthy()
        yield workers
        workers.close()


@pytest.fixture
def workers(running: Workers) -> Workers:
    """The shared server, with a new connection to each worker."""
    running.wait_healthy()
    running.connect()
    return running


@pytest.mark.parametrize("writer", BOTH)
def test_what_one_worker_stored_the_other_finds_at_once(workers: Workers, writer: int) -> None:
    other = 3 - writer
    for number in range(10):
        word = f"zebra{writer}x{number}"
        # The other one has an answer to this question in its cache, from before the document came.
        assert workers.call(other, "rag_context_search", query=word, minScore=0.99)["results"] == []
        id_ = workers.index(writer, f"The {word} grazes by the river.")
        found = workers.call(other, "rag_context_search", query=word)["results"]
        assert id_ in {each["documentId"] for each in found}
        assert workers.call(other, "rag_context_get", documentId=id_)["content"].startswith(f"The {word}")
        workers.call(other, "rag_context_delete", documentId=id_)
        found = workers.call(writer, "rag_context_search", query=word)["results"]
        assert id_ not in {each["documentId"] for each in found}


def test_clients_that_connect_at_once_are_divided_evenly(workers: Workers) -> None:
    before = searches(workers.server)
    gate = threading.Barrier(8)

    def ask() -> None:
        with httpx2.Client(base_url=workers.server.url, headers={"X-API-Key": "writer"}, timeout=TIMEOUT_S) as client:
            gate.wait()
            client.get("/live")
            gate.wait()  # all are connected by now
            workers.call(client, "rag_context_search", query=f"even {next(_numbers)}")
            gate.wait()

    crowd = [threading.Thread(target=ask) for _ in range(8)]
    for each in crowd:
        each.start()
    for each in crowd:
        each.join()
    after = searches(workers.server)
    assert {number: after[number] - before[number] for number in BOTH} == {1: 4, 2: 4}


def test_clients_that_keep_their_connections_are_divided_when_a_worker_comes_back(workers: Workers) -> None:
    with ExitStack() as stack:
        os.kill(workers.pids()[2], signal.SIGKILL)
        # Before that is known, it may be given a connection, which is reset.
        wait_until(lambda: workers.log.read_text().count("worker 2 ended with status -9") == 1)
        clients = [stack.enter_context(httpx2.Client(base_url=workers.server.url, timeout=TIMEOUT_S)) for _ in range(8)]
        for client in clients:
            assert client.get("/live").status_code == 200
        workers.wait_healthy()

        def ask_all() -> dict[int, float]:
            before = searches(workers.server)
            for client in clients:
                client.headers["X-API-Key"] = "writer"
                answer = workers.call(client, "rag_context_search", query=f"divided {next(_numbers)}")
                assert answer["fallbackLevel"] == 1
            after = searches(workers.server)
            return {number: after[number] - before[number] for number in BOTH}

        wait_until(lambda: min(ask_all().values()) >= 3)  # 8 connections, and those of the fixture


def test_an_activation_holds_on_every_worker(workers: Workers) -> None:
    activated = workers.call(2, "activate_project", config_path=workers.shop.config)
    own = {"activation": activated["activation"]}
    for worker in BOTH:
        found = workers.call(worker, "semantic_search", query="orders", min_relevance_score=0, **own)
        assert [each["path"] for each in found["results"]] == ["orders.md"]
        assert workers.call(worker, "index_document", path="orders.md")["status"] == "indexed"  # of the same key
        found = workers.call(worker, "rag_context_search", query="order", project="shop", minScore=0)
        assert [each["title"] for each in found["results"]] == ["Orders"]
        assert workers.call(worker, "list_doc_types", 409, activation="made-up")["code"] == "PROJECT_NOT_ACTIVATED"
        listed = workers.call(worker, "list_projects")["projects"]
        assert [(each["project_name"], each["followed"]) for each in listed] == [("shop", True)]
    levels = [
        workers.call(worker, "update_promotion_level", document_path="orders.md", promotion_level=level)["new_level"]
        for worker, level in zip(BOTH, ("critical", "standard"), strict=True)
    ]
    assert levels == ["critical", "standard"]
    workers.shop.write("docs/later.md", "# Later\n\nOrders wait.\n")
    everything = {"query": "orders", "min_relevance_score": 0, **own}
    for worker in BOTH:
        wait_until(lambda asked=worker: len(workers.call(asked, "semantic_search", **everything)["results"]) == 2)


@pytest.mark.parametrize("worker", BOTH)
def test_a_key_that_may_only_read_changes_nothing_on_any_worker(workers: Workers, worker: int) -> None:
    headers = {"X-API-Key": "reader"}
    body = {"path": "orders.md", "project": "shop"}
    reply = workers.clients[worker].post("/tools/index_document", json=body, headers=headers)
    assert (reply.status_code, reply.json()["code"]) == (403, "FORBIDDEN")
    assert reply.headers.get_list("x-request-id") == [reply.json()["requestId"]]
    forged = {**headers, "X-Rag-Worker-Caller": '["writer", "write"]'}
    assert workers.clients[worker].post("/tools/index_document", json=body, headers=forged).status_code == 403
    rejected = workers.clients[worker].post("/tools/list_projects", json={}, headers={"X-API-Key": "none"})
    assert rejected.status_code == 401


@asynccontextmanager
async def mcp_client(url: str, mode: Any) -> AsyncIterator[Client]:
    """The official client, with a connection for each request: consecutive ones reach both workers."""
    headers = {"X-API-Key": "writer", "Connection": "close"}
    async with httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_S) as client:
        transport = streamable_http_client(f"{url}/mcp?tools=all&structured=true", http_client=client)
        async with Client(transport, mode=mode) as session:
            yield session


async def test_an_mcp_session_goes_on_at_the_other_worker(running: Workers) -> None:
    running.close()
    before = searches(running.server)
    async with mcp_client(running.server.url, "legacy") as client:
        assert len((await client.list_tools()).tools) > 10
        for number in range(4):
            activated = await client.call_tool("activate_project", {"config_path": running.shop.config})
            assert not activated.is_error, activated.content
            asked = await client.call_tool("list_doc_types", {})
            assert asked.structured_content is not None, asked.content
            assert asked.structured_content["project_name"] == "shop"
            found = await client.call_tool("rag_context_search", {"query": f"a session {number}"})
            assert not found.is_error
    after = searches(running.server)
    assert all(after[number] > before[number] for number in BOTH)


@pytest.mark.parametrize("worker", BOTH)
def test_progress_reaches_a_client_of_any_worker(workers: Workers, worker: int, tmp_path: Path) -> None:
    wiki = repository(tmp_path, f"wiki{worker}", **{f"page{n}": f"# Page {n}\n\nA page.\n" for n in range(20)})
    call = {"name": "activate_project", "arguments": {"config_path": wiki.config}, "_meta": {"progressToken": 7}}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    reply = workers.clients[worker].post("/mcp?tools=all", json=message, headers=headers)
    assert "notifications/progress" in reply.text
    assert f"wiki{worker}" in reply.text
    workers.call(worker, "delete_documents", project_name=f"wiki{worker}")


@pytest.mark.parametrize("opener", BOTH)
def test_a_session_that_ended_is_unknown_to_every_worker(workers: Workers, opener: int) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    accept = {"Accept": "application/json, text/event-stream"}
    session = workers.clients[opener].post("/mcp", json=message, headers=accept).headers["mcp-session-id"]
    headers = {**accept, "Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    project = {**listing, "method": "tools/call", "params": {"name": "list_doc_types", "arguments": {}}}

    def statuses() -> set[int]:
        asked = [(worker, body) for worker in BOTH for body in (listing, project)]
        return {workers.clients[worker].post("/mcp", json=body, headers=headers).status_code for worker, body in asked}

    assert statuses() == {200}
    stolen = {**headers, "X-API-Key": "reader"}
    assert workers.clients[3 - opener].post("/mcp", json=listing, headers=stolen).status_code == 404
    assert workers.clients[3 - opener].delete("/mcp", headers=headers).status_code == 200
    assert statuses() == {404}


@pytest.mark.parametrize("worker", BOTH)
def test_a_stream_of_documents_is_taken_by_every_worker(workers: Workers, worker: int) -> None:
    line = {"content": "x" * 2000, "contentType": "documentation", "sessionId": f"bulk-{worker}"}
    lines = [json.dumps({**line, "source": f"part-{number % 4}"}) for number in range(3000)]

    def parts() -> Iterator[bytes]:
        for each in lines:
            yield each.encode() + b"\n"

    headers = {"Content-Type": "application/x-ndjson"}
    reply = workers.clients[worker].post("/bulk", content=parts(), headers=headers)
    receipts = [json.loads(each) for each in reply.text.splitlines()]
    assert len(receipts) == len(lines)
    assert {each["status"] for each in receipts} <= {"indexed", "unchanged", "pending"}


def test_a_collection_is_the_same_on_every_worker(workers: Workers) -> None:
    one, two = (workers.clients[number] for number in BOTH)
    assert two.post("/collections", json={"name": "plants", "embedding_provider": "rag-context"}).status_code in (
        200,
        201,
    )
    documents = {"documents": [{"id": "fern", "text": "A fern likes the shade."}]}
    assert two.post("/collections/plants/documents", json=documents).status_code in (200, 201)
    for client in (one, two):
        found = client.post("/collections/plants/query", json={"text": "what likes the shade?"})
        assert "fern" in found.text, found.text
    assert one.delete("/collections/plants/documents/fern").status_code == 200
    assert "fern" not in two.post("/collections/plants/query", json={"text": "what likes the shade?"}).text


def test_every_worker_reports_for_both(workers: Workers) -> None:
    for client in workers.clients.values():
        report = client.get("/health").json()
        assert [(each["name"], each["status"]) for each in report["components"][-2:]] == [
            ("worker 1", "healthy"),
            ("worker 2", "healthy"),
        ]
        text = client.get("/metrics").text
        assert text.count("# TYPE rag_queries_total counter") == 1
        for number in BOTH:
            assert f'rag_worker_up{{worker="{number}"}} 1.0' in text
            assert f'rag_circuit_breaker_state{{worker="{number}"}} 0.0' in text
    assert len({client.get("/live").json()["instance"] for client in workers.clients.values()}) == 1


@dataclass
class Load:
    """What became of searches that went on while a worker was killed."""

    asked: int = 0
    lost: int = 0
    """Ended without an answer: the worker that had it was killed."""

    failures: list[str] = field(default_factory=list)

    def ask(self, client: httpx2.Client) -> None:
        self.asked += 1
        try:
            reply = client.post("/tools/rag_context_search", json={"query": f"load {next(_numbers)}"})
        except httpx2.TransportError:
            self.lost += 1
            return
        if reply.status_code != 200 or reply.json()["fallbackLevel"] != 1:
            self.failures.append(reply.text)


@pytest.mark.parametrize("killed", BOTH)
def test_a_killed_worker_comes_back_and_only_what_it_worked_on_is_lost(workers: Workers, killed: int) -> None:
    pid, done = workers.pids()[killed], threading.Event()
    kept, fresh = Load(), Load()

    def load() -> None:
        """A client that stays on the other worker, and one that connects for each request."""
        while not done.is_set():
            kept.ask(workers.clients[3 - killed])
            with httpx2.Client(base_url=workers.server.url, headers={"X-API-Key": "writer"}, timeout=TIMEOUT_S) as one:
                fresh.ask(one)

    loading = threading.Thread(target=load)
    loading.start()
    try:
        wait_until(lambda: fresh.asked > 4)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: workers.pids()[killed] != pid)
        workers.wait_healthy()
    finally:
        done.set()
        loading.join()
    assert kept.failures == fresh.failures == []
    assert kept.lost == 0
    assert fresh.lost <= 1
    assert f"worker {killed} ended with status -9" in workers.log.read_text()
    workers.connect()
    assert workers.index(killed, "The worker came back.")


def _running_writes(server: Served) -> float:
    """How many documents all workers are storing."""
    lines = server.get("/metrics").text.splitlines()
    writes = [line for line in lines if line.startswith('rag_admission_running{class="writes"')]
    return sum(float(line.rpartition(" ")[2]) for line in writes)


def _children(pid: int) -> set[int]:
    return {int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def _is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("to_all", [False, True], ids=["the supervisor", "every process, as systemd does"])
def test_a_signal_stops_all_workers_after_the_requests_that_run(tmp_path: Path, to_all: bool) -> None:
    with served(tmp_path / "data", "--workers", "2") as server:
        server.wait_ready()
        pids = _children(server.process.pid)
        assert len(pids) == 2
        big = " ".join(f"Sentence {number} of a long document." for number in range(300))
        receipts: list[int] = []

        def index(number: int) -> None:
            body = {"content": big, "contentType": "documentation", "sessionId": "s", "source": f"big-{number}"}
            receipts.append(server.tool("index", body).status_code)

        crowd = [threading.Thread(target=index, args=(number,)) for number in range(2)]
        for each in crowd:
            each.start()
        wait_until(lambda: _running_writes(server) == len(crowd))
        for pid in pids if to_all else ():
            os.kill(pid, signal.SIGTERM)
        assert server.stop() == 0
        for each in crowd:
            each.join()
        assert receipts == [200, 200]
        wait_until(lambda: not any(map(_is_running, pids)))
        assert not (tmp_path / "data" / "server.json").exists()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """For sockets, whose paths have some 100 characters at most."""
    with TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


def test_workers_end_with_a_supervisor_that_is_killed(tmp_path: Path, short_folder: Path) -> None:
    temporary = short_folder
    with served(tmp_path / "data", "--workers", "2", TMPDIR=str(temporary)) as server:
        pids = _children(server.process.pid)
        server.kill()
        wait_until(lambda: not any(map(_is_running, pids)))
    (left,) = temporary.iterdir()
    with served(tmp_path / "data", "--workers", "2", TMPDIR=str(temporary)) as server:
        server.wait_ready()  # nothing is left that would be in its way
        assert not left.exists()
        with served(tmp_path / "other", "--workers", "2", TMPDIR=str(temporary)) as other:
            other.wait_ready()
            assert len(list(temporary.iterdir())) == 2, "that of a server that runs is kept"
            assert other.stop() == 0
        assert server.stop() == 0
    assert list(temporary.iterdir()) == []


def test_a_port_in_use_ends_the_start_with_one_sentence(running: Workers, tmp_path: Path) -> None:
    port = running.server.url.rpartition(":")[2]
    ended = command("serve", "--workers", "2", "--port", port, data_dir=tmp_path / "data")
    assert ended.returncode == 78
    assert len(ended.stderr.strip().splitlines()) == 1
    assert "in use" in ended.stderr


def test_workers_that_cannot_start_end_the_server_with_one_message(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "rag-context.db").mkdir()
    alone, several = (command("serve", "--workers", n, "--port", "0", data_dir=data) for n in ("1", "2"))
    assert several.returncode == alone.returncode == 78
    assert several.stderr == alone.stderr
    assert len(several.stderr.strip().splitlines()) == 1


def test_a_chroma_in_a_folder_is_not_shared(tmp_path: Path) -> None:
    extra = {"RAG_CONTEXT_STORES__VECTORS": "chroma", "RAG_CONTEXT_STORES__CHROMA_DIR": str(tmp_path / "chroma")}
    ended = command("serve", "--workers", "2", "--port", "0", data_dir=tmp_path / "data", **extra)
    assert ended.returncode == 78
    assert "server.workers" in ended.stderr


def test_the_setting_is_the_same_as_the_option(tmp_path: Path) -> None:
    process = Program(
        [COMMAND, "serve", "--port", "0", "--data-dir", str(tmp_path / "data")],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(RAG_WORKERS="2"),
    )
    try:
        assert process.stderr is not None
        assert any("2 workers" in line for line in process.stderr)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
