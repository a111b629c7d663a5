"""More questions and documents than the server can work on: answers stay complete, the rest gets a retry delay."""

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from benchmarks.corpus import Writer

from tests.end_to_end.process import TIMEOUT_S, Served, served
from tests.outcomes.clients import Reply, ask_together, search
from tests.outcomes.large_index import LargeIndex

OK, UNAVAILABLE = 200, 503


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One search and one write at a time, one of each may wait, and not for long."""
    settings = {"SEARCHES": "1", "WRITES": "1", "MAX_WAITING": "1", "MAX_WAIT_MS": "300"}
    environment = {f"RAG_CONTEXT_ADMISSION__{name}": value for name, value in settings.items()}
    with served(tmp_path_factory.mktemp("narrow") / "data", RAG_CACHE_SIZE="0", **environment) as server:
        server.wait_ready()
        server.index("The retry queue is drained by the night shift.", source="notes/queue.md")
        yield server


def is_whole(reply: Reply) -> bool:
    return reply.status == OK and reply.level == 1 and reply.warning is None


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply, with the names of its headers in lower case."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str]


def is_politely_refused(reply: Reply | Answered) -> bool:
    body = reply.body
    return (
        reply.status == UNAVAILABLE
        and body["code"] == "OVERLOADED"
        and body["fallback"] is True
        and bool(body["requestId"])
        and int(reply.headers["retry-after"]) >= 1
        and "results" not in body
    )


def meter(server: Served, name: str, class_: str) -> float:
    found = re.search(rf'^{name}{{class="{class_}"}} (\S+)$', server.get("/metrics").text, re.MULTILINE)
    assert found, name
    return float(found[1])


def test_64_clients_without_a_break_get_complete_answers_and_no_breaker_opens(large_index: LargeIndex) -> None:
    many = ask_together(large_index.server.url, 64, 5.0, large_index.question)
    ended = time.monotonic()

    odd = [reply for reply in many if reply.level != 1 and not is_politely_refused(reply)]
    assert not odd, odd[0].body
    whole = sum(is_whole(reply) for reply in many)
    answered = sum(reply.status == OK for reply in many)
    assert answered
    assert answered - whole <= 2 + 0.02 * answered, (whole, answered)  # two: on a machine that hardly runs at all
    assert meter(large_index.server, "rag_admission_wait_seconds_count", "searches") >= answered

    time.sleep(max(ended + 1.0 - time.monotonic(), 0.0))
    with httpx2.Client(base_url=large_index.server.url, timeout=TIMEOUT_S) as client:
        after = [search(client, large_index.question(99, number)) for number in range(5)]
    assert all(is_whole(reply) for reply in after), [reply.body for reply in after]
    assert large_index.server.health()["circuitBreakerOpen"] is False


def burst(server: Served, path: str, bodies: list[dict[str, Any]], **headers: str) -> list[Answered]:
    """Replies to requests of which each is sent before the first is answered."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    connections = [http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S) for _ in bodies]
    for connection in connections:
        connection.connect()
    for connection, body in zip(connections, bodies, strict=True):
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
    replies = []
    for connection in connections:
        response = connection.getresponse()
        given = {name.lower(): value for name, value in response.getheaders()}
        replies.append(Answered(response.status, json.loads(response.read()), given))
        connection.close()
    return replies


def test_a_search_beyond_the_queue_is_rejected_with_a_time_to_retry(narrow: Served) -> None:
    replies = burst(narrow, "/tools/rag_context_search", [{"query": f"retry queue {number}"} for number in range(32)])

    rejected = [reply for reply in replies if reply.status != OK]
    assert rejected
    assert all(is_politely_refused(reply) for reply in rejected), rejected[0]
    answered = [reply for reply in replies if reply.status == OK]
    assert answered
    assert all(reply.body["fallbackLevel"] == 1 and reply.body["results"] for reply in answered)
    assert meter(narrow, "rag_admission_rejected_total", "searches") >= len(rejected)
    assert meter(narrow, "rag_admission_waiting", "searches") == 0


def test_a_call_over_mcp_waits_in_the_same_queue(narrow: Served) -> None:
    def call(number: int) -> dict[str, Any]:
        params = {"name": "rag_context_search", "arguments": {"query": f"night shift {number}"}}
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}

    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    burst(narrow, "/mcp", [call(0)], **headers)  # the first one loads the library
    results = [reply.body["result"] for reply in burst(narrow, "/mcp", [call(n) for n in range(1, 33)], **headers)]
    rejected = [result for result in results if result["isError"]]
    assert 0 < len(rejected) < len(results)
    assert all("OVERLOADED" in json.dumps(result["content"]) for result in rejected), rejected[0]


def test_a_write_beyond_the_queue_is_rejected_and_an_accepted_one_is_stored(narrow: Served) -> None:
    writer = Writer(seed=23)
    sources = [f"load/{number}.md" for number in range(24)]
    said = {"contentType": "documentation", "sessionId": "s"}
    bodies = [{**said, "source": source, "content": writer.passage(20)} for source in sources]
    replies = burst(narrow, "/tools/rag_context_index", bodies)

    rejected = [reply for reply in replies if reply.status != OK]
    assert rejected
    assert all(is_politely_refused(reply) for reply in rejected), rejected[0]
    listed = narrow.tool("list", {"source": "load/*", "limit": 100}).json()["documents"]
    taken = [source for source, reply in zip(sources, replies, strict=True) if reply.status == OK]
    assert {each["source"] for each in listed} == set(taken)


def test_one_searcher_beside_bulk_work_has_every_question_answered_completely(large_index: LargeIndex) -> None:
    stop = threading.Event()
    bulk = threading.Thread(target=send_until, args=(large_index.server, stop))
    bulk.start()
    try:
        with httpx2.Client(base_url=large_index.server.url, timeout=TIMEOUT_S) as client:
            replies = []
            for number in range(24):
                replies.append(search(client, large_index.question(7, number)))
                time.sleep(0.2)
    finally:
        stop.set()
        bulk.join()
    short = [reply for reply in replies if not is_whole(reply)]
    assert len(short) <= 1, [(reply.body["fallbackLevel"], reply.warning, reply.body["legs"]) for reply in short]


def send_until(server: Served, stop: threading.Event) -> None:
    """Stream long documents to `/bulk`, in pieces, until stopped; then hang up."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
    connection.putrequest("POST", "/bulk")
    connection.putheader("Content-Type", "application/x-ndjson")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    writer = Writer(seed=17)
    for number in range(60):
        if stop.is_set():
            break
        paragraphs = "\n\n".join(writer.passage() for _ in range(60))
        line = {"content": f"# Report {number}\n\n{paragraphs}", "contentType": "documentation", "sessionId": "files"}
        data = json.dumps({**line, "source": f"/reports/{number}.md", "fromFile": True}).encode() + b"\n"
        connection.send(b"%x\r\n" % len(data) + data + b"\r\n")
    stop.wait(TIMEOUT_S)
    connection.close()
