"""`POST /bulk`: a stream in, receipts out."""

import json
import socket
import threading
from typing import Any

import httpx2
import pytest

from rag_context.errors import BackendUnavailableError, InvalidInputError
from rag_context.server.options import ServerOptions

from .server_thread import DOCUMENT, Running, running
from .stub_service import StubService

NDJSON = {"content-type": "application/x-ndjson"}


def lines(*documents: object) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def receipts(reply: httpx2.Response) -> list[dict[str, Any]]:
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.text.splitlines()]


def test_every_line_has_its_receipt_in_order(client: httpx2.Client, open_server: Running) -> None:
    """C-3: one machine-readable receipt each."""
    documents = [{**DOCUMENT, "content": f"text {number}"} for number in range(50)]
    got = receipts(client.post("/bulk", content=lines(*documents), headers=NDJSON))
    assert [receipt["line"] for receipt in got] == list(range(1, 51))
    assert {receipt["status"] for receipt in got} == {"indexed"}
    assert all("reason" not in receipt and receipt["source"] == "talk" for receipt in got)
    assert sorted(line.content for line in open_server.service.bulked) == sorted(d["content"] for d in documents)


def test_a_bad_line_never_stops_the_rest(client: httpx2.Client, open_server: Running) -> None:
    body = b"\n".join(
        [
            lines(DOCUMENT).strip(),
            b"not json",
            b"",
            b"   \r",
            b"[]",
            b'{"content":"c"}',
            b"\xff\xfe",
            b'{"content":"' + b"a" * 5000 + b'"}',
            lines({**DOCUMENT, "fromFile": True, "contentType": "code"}).strip() + b"\r",
        ]
    )
    got = receipts(client.post("/bulk", content=body, headers=NDJSON))
    assert [(receipt["line"], receipt["status"]) for receipt in got] == [
        (1, "indexed"),
        (2, "rejected"),
        (5, "rejected"),
        (6, "rejected"),
        (7, "rejected"),
        (8, "rejected"),
        (9, "indexed"),
    ]
    assert got[1]["reason"].startswith("Not valid JSON")
    assert got[2]["reason"] == "Not a JSON object"
    assert [detail["field"] for detail in got[3]["details"]] == ["contentType", "sessionId", "source"]
    assert got[5]["reason"] == "Line too long (max 4096 bytes)"
    assert [line.from_file for line in open_server.service.bulked] == [False, True]


def test_a_line_may_be_far_longer_than_a_tools_document() -> None:
    """Files are larger than messages."""
    service = StubService()
    with running(service, ServerOptions(port=0)) as open_server, open_server.client() as client:
        got = receipts(client.post("/bulk", content=lines({**DOCUMENT, "content": "a" * 2_000_000}), headers=NDJSON))
        assert got[0]["status"] == "indexed"
        too_large = lines({**DOCUMENT, "content": "a" * 2_000_001})
        got = receipts(client.post("/bulk", content=too_large, headers=NDJSON))
        assert got[0]["reason"] == "Content too large (max 2000000 characters)"
    assert [len(line.content) for line in service.bulked] == [2_000_000]


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (BackendUnavailableError("documents", "mongodb://user:pw@host"), "Database unavailable"),
        (InvalidInputError("The path leaves its root"), "The path leaves its root"),
        (RuntimeError("secret"), "Internal server error"),
    ],
)
def test_a_line_that_fails_is_rejected_with_its_reason(
    client: httpx2.Client, open_server: Running, failure: Exception, reason: str
) -> None:
    open_server.service.failure = failure
    got = receipts(client.post("/bulk", content=lines(DOCUMENT, DOCUMENT), headers=NDJSON))
    assert [(receipt["status"], receipt["reason"]) for receipt in got] == [("rejected", reason)] * 2


def test_nothing_in_nothing_out(client: httpx2.Client) -> None:
    assert receipts(client.post("/bulk", content=b"", headers=NDJSON)) == []
    assert receipts(client.post("/bulk", content=b"\n\n", headers=NDJSON)) == []


@pytest.mark.parametrize("kind", ["application/json", "text/plain", ""])
def test_only_ndjson_is_accepted(client: httpx2.Client, kind: str) -> None:
    reply = client.post("/bulk", content=lines(DOCUMENT), headers={"content-type": kind})
    assert reply.status_code == 415
    assert "application/x-ndjson" in reply.json()["error"]


def test_lines_run_side_by_side_but_one_source_in_order(client: httpx2.Client, open_server: Running) -> None:
    """What may replace one another keeps its order; the rest does not wait for it."""
    open_server.service.delay_s = 0.01
    page = {**DOCUMENT, "contentType": "documentation"}
    versions = [{**page, "source": "a.md", "content": f"version {number}"} for number in range(6)]
    others = [{**page, "source": f"{number}.md"} for number in range(100)]
    mixed = [*versions[:3], *others, *versions[3:]]
    got = receipts(client.post("/bulk", content=lines(*mixed), headers=NDJSON))
    assert [receipt["source"] for receipt in got] == [document["source"] for document in mixed]
    kept = [line.content for line in open_server.service.bulked if line.source == "a.md"]
    assert kept == [f"version {number}" for number in range(6)]
    assert 1 < open_server.service.most_running <= 8


def test_a_receipt_comes_before_the_next_line_is_sent(open_server: Running) -> None:
    """A client may wait for each receipt."""
    with open_server.connect() as connection:
        connection.sendall(
            b"POST /bulk HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        received = b""
        for number in range(1, 4):
            line = lines(DOCUMENT)
            connection.sendall(b"%x\r\n%s\r\n" % (len(line), line))
            while b'"line":%d' % number not in received:
                received += connection.recv(65536)
        connection.sendall(b"0\r\n\r\n")
        while not received.endswith(b"0\r\n\r\n"):
            received += connection.recv(65536)
    assert received.count(b'"status":"indexed"') == 3


def test_a_client_may_send_everything_before_it_reads_anything(open_server: Running) -> None:
    """Receipts are buffered meanwhile; neither side waits for the other."""
    count = 60_000
    body = lines({**DOCUMENT, "source": "x" * 200}) * count
    head = (
        f"POST /bulk HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: {len(body)}"
    )
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(60)
        connection.connect((open_server.host, open_server.port))
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        received = bytearray()
        while not received.endswith(b"0\r\n\r\n"):
            received += connection.recv(1 << 20)
    assert received.count(b'"status":"indexed"') == count


def test_a_stream_that_stalls_ends_with_a_receipt_that_says_so(open_server: Running) -> None:
    """What came before is kept."""
    with open_server.connect() as connection:
        connection.sendall(
            b"POST /bulk HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            b"Content-Length: 100000\r\n\r\n" + lines(DOCUMENT)
        )
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += connection.recv(65536)
    assert b'"status":"indexed","line":1' in received
    assert b'"status":"rejected","line":2,"reason":"Request body took too long"' in received
    assert len(open_server.service.bulked) == 1


def test_lines_accepted_before_a_client_hangs_up_are_kept(open_server: Running) -> None:
    """Nothing accepted is lost."""
    open_server.service.delay_s = 0.05
    done = threading.Event()
    with open_server.connect() as connection:
        connection.sendall(
            b"POST /bulk HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            b"Content-Length: 100000\r\n\r\n" + lines(DOCUMENT, DOCUMENT, DOCUMENT)
        )
        while not open_server.service.running:
            done.wait(0.005)
    while open_server.service.running:
        done.wait(0.005)
    assert len(open_server.service.bulked) == 3


def test_a_fault_that_is_not_the_documents_says_so(client: httpx2.Client, open_server: Running) -> None:
    """The client may send it again."""
    open_server.service.failure = BackendUnavailableError("documents", "down")
    (got,) = receipts(client.post("/bulk", content=lines(DOCUMENT), headers=NDJSON))

    assert (got["status"], got["retryable"]) == ("rejected", True)


class TestVersions:
    """`POST /bulk/versions`: what need not be sent again."""

    def test_those_that_are_not_there_as_they_were_are_named(self, client: httpx2.Client) -> None:
        reply = client.post("/bulk/versions", json={"versions": {"a": "stored", "b": "older"}})

        assert (reply.status_code, reply.json()) == (200, {"missing": ["b"]})

    def test_an_empty_request_has_no_missing_versions(self, client: httpx2.Client) -> None:
        assert client.post("/bulk/versions", json={"versions": {}}).json() == {"missing": []}

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "versions"),
            ({"versions": None}, "versions"),
            ({"versions": ["a"]}, "versions"),
            ({"versions": {"a": 1}}, "versions.a"),
            ({"versions": {str(number): "h" for number in range(5001)}}, "versions"),
            ({"versions": {}, "x": 1}, "x"),
        ],
    )
    def test_a_wrong_question_is_rejected_by_field(
        self, client: httpx2.Client, body: dict[str, object], field: str
    ) -> None:
        reply = client.post("/bulk/versions", json=body)

        assert reply.status_code == 400
        assert [detail["field"] for detail in reply.json()["details"]] == [field]

    def test_a_key_that_may_only_read_may_search(self, locked: Running) -> None:
        with locked.client(**{"X-API-Key": "read-me"}) as reader, locked.client() as nobody:
            asked = [who.post("/bulk/versions", json={"versions": {}}).status_code for who in (reader, nobody)]

        assert asked == [200, 401]
