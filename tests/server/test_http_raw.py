"""Bytes on the wire: broken, huge, slow and hostile requests."""

import json
import socket
import struct
import time

import httpx2
import pytest

from .server_thread import DOCUMENT, INDEX, SEARCH, Running, read_reply

MIB = 1024 * 1024


def post(path: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def search_of(size: int) -> bytes:
    return b'{"query":"' + b"a" * (size - 12) + b'"}'


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonp",
        "application/x-ndjson",
        "application/json; charset=latin-1",
        "multipart/form-data; boundary=x",
    ],
)
def test_another_content_type_is_415(open_server: Running, kind: str | None) -> None:
    """T-6."""
    body = b'{"query":"q"}'
    kinds = [] if kind is None else [f"Content-Type: {kind}"]
    reply = open_server.raw(post(SEARCH, f"Content-Length: {len(body)}", *kinds, body=body))
    assert reply.status == 415
    assert reply.json()["code"] == "UNSUPPORTED_MEDIA_TYPE"
    assert open_server.service.searches == []


@pytest.mark.parametrize(
    "kind",
    ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"', "application/a+json"],
)
def test_json_by_any_of_its_names(open_server: Running, kind: str) -> None:
    body = b'{"query":"q"}'
    reply = open_server.raw(post(SEARCH, f"Content-Length: {len(body)}", f"Content-Type:  {kind}  ", body=body))
    assert reply.status == 200


def test_a_compressed_body_is_415(open_server: Running) -> None:
    headers = ("Content-Length: 2", "Content-Type: application/json", "Content-Encoding: gzip")
    assert open_server.raw(post(SEARCH, *headers, body=b"{}")).status == 415


def test_no_body_at_all_is_an_empty_object(open_server: Running) -> None:
    """T-6: an empty body to health and stats is {}; to search the query is missing."""
    assert open_server.raw(post("/tools/rag_context_health")).status == 200
    assert open_server.raw(post("/tools/rag_context_stats", "Content-Length: 0")).status == 200
    chunked = post(
        "/tools/rag_context_stats", "Transfer-Encoding: chunked", "Content-Type: application/json", body=b"0\r\n\r\n"
    )
    assert open_server.raw(chunked).status == 200
    assert open_server.raw(post(SEARCH)).json()["error"] == "Query cannot be empty"


def test_a_hundred_megabytes_are_rejected_unread(open_server: Running) -> None:
    """X-2: by Content-Length, before any of it is sent."""
    reply = open_server.raw(post(SEARCH, f"Content-Length: {100 * MIB}", "Content-Type: application/json"))
    assert reply.status == 413
    assert reply.headers["connection"] == "close"
    assert reply.json()["error"] == "Request body too large (max 1048576 bytes)"


def check_rejected_early(connection: socket.socket, piece: bytes) -> None:
    """Send a hundred megabytes in pieces: the server ends the connection before half of them, with a 413."""
    sent = 0
    try:
        while sent < 100 * MIB:
            connection.sendall(piece)
            sent += len(piece)
    except OSError:
        pass
    assert sent < 50 * MIB
    assert read_reply(connection).status == 413


def test_a_hundred_megabytes_sent_anyway_are_not_accepted(open_server: Running) -> None:
    """X-2: the reply comes, and the connection ends long before the body does."""
    piece = b" " * 65536
    with open_server.connect() as connection:
        connection.sendall(post(SEARCH, f"Content-Length: {100 * MIB}", "Content-Type: application/json"))
        check_rejected_early(connection, piece)


def test_an_endless_chunked_body_is_rejected_on_the_way(open_server: Running) -> None:
    """X-2: enforced while streaming, where no length is announced."""
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    with open_server.connect() as connection:
        connection.sendall(post(SEARCH, "Transfer-Encoding: chunked", "Content-Type: application/json"))
        check_rejected_early(connection, piece)


@pytest.mark.parametrize(("path", "limit"), [(SEARCH, MIB), (INDEX, 2 * MIB)])
def test_the_limit_is_exact(client: httpx2.Client, path: str, limit: int) -> None:
    """X-2: 1 MiB; 2 MiB for rag_context_index."""
    headers = {"content-type": "application/json"}
    assert client.post(path, content=search_of(limit), headers=headers).status_code == 400
    assert client.post(path, content=search_of(limit + 1), headers=headers).status_code == 413


def test_a_client_that_expects_continue_gets_an_answer_before_it_sends(open_server: Running) -> None:
    """No `100 Continue` for a body that will be rejected."""
    headers = ("Content-Type: application/json", "Expect: 100-continue")
    assert open_server.raw(post(SEARCH, f"Content-Length: {5 * MIB}", *headers)).status == 413
    with open_server.connect() as connection:
        connection.sendall(post(SEARCH, "Content-Length: 13", *headers))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b'{"query":"q"}')
        assert read_reply(connection).status == 200


def test_a_connection_survives_a_rejected_request(open_server: Running) -> None:
    """A small body of a rejected request is not taken for the next request."""
    with open_server.connect() as connection:
        for path, status in (("/tools/nope", 404), (SEARCH, 415), ("/health", 405)):
            connection.sendall(post(path, "Content-Length: 30", body=b"GET /live HTTP/1.1\r\nHost: a\r\n\r"))
            assert read_reply(connection).status == status
        connection.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_reply(connection).status == 200


@pytest.mark.parametrize("sent", [b"", b'{"query":', b'{"query":"q"'])
def test_a_body_that_stops_coming_is_408(open_server: Running, sent: bytes) -> None:
    """X-2: time limits."""
    reply = open_server.raw(post(SEARCH, "Content-Length: 50", "Content-Type: application/json", body=sent))
    assert reply.status == 408
    assert reply.json()["code"] == "REQUEST_TIMEOUT"
    assert open_server.service.searches == []


def test_a_dripping_body_is_408(open_server: Running) -> None:
    """X-2: each byte in time, the whole too late."""
    with open_server.connect() as connection:
        connection.sendall(post(SEARCH, "Content-Length: 1000", "Content-Type: application/json"))
        connection.settimeout(0.05)
        for _ in range(200):
            connection.sendall(b" ")
            try:
                first = connection.recv(1, socket.MSG_PEEK)
                break
            except TimeoutError:
                continue
        connection.settimeout(20)
        assert first == b"H"
        assert read_reply(connection).status == 408


def test_a_slow_body_in_time_is_served(open_server: Running) -> None:
    with open_server.connect() as connection:
        connection.sendall(post(SEARCH, "Content-Length: 13", "Content-Type: application/json"))
        for piece in (b'{"qu', b'ery":', b'"q"}'):
            time.sleep(0.05)
            connection.sendall(piece)
        assert read_reply(connection).status == 200


@pytest.mark.parametrize("sent", [b"", b"POST /tools/rag_con", b"GET /live HTTP/1.1\r\nHost: local"])
def test_a_head_that_stops_coming_ends_the_connection(open_server: Running, sent: bytes) -> None:
    """X-2: nothing at all is closed silently, half a head with 408."""
    with open_server.connect() as connection:
        connection.sendall(sent)
        got = connection.recv(100)
        assert got.startswith(b"HTTP/1.1 408") if sent else got == b""


def test_an_endless_head_is_rejected(open_server: Running) -> None:
    """X-2: header limits."""
    with open_server.connect() as connection:
        connection.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n")
        sent = 0
        try:
            while sent < 100 * MIB:
                connection.sendall(b"X-%d: %s\r\n" % (sent, b"a" * 8000))
                sent += 8000
        except OSError:
            pass
        assert sent < 50 * MIB
        assert read_reply(connection).status == 431


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"GET /live HTTP/9.9\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /live HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n",
    ],
)
def test_what_is_not_http_is_400_in_our_shape(open_server: Running, request_bytes: bytes) -> None:
    reply = open_server.raw(request_bytes)
    assert reply.status == 400
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["code"] == "INVALID_INPUT"


def test_odd_but_proper_requests(open_server: Running) -> None:
    assert open_server.raw(b"GET /li%76e?x=%zz HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 200
    assert open_server.raw(b"GET /live HTTP/1.0\r\nHost: localhost\r\n\r\n").status == 200
    assert open_server.raw(b"GET /%ff%00 HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 404
    assert open_server.raw(b"GET /tools/%ff%00%0d%0ax HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 404
    upgrade = b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert open_server.raw(upgrade).status == 200


def test_pipelined_requests_are_answered_in_order(open_server: Running) -> None:
    one = b"GET /live HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: r%d\r\n\r\n"
    with open_server.connect() as connection:
        connection.sendall(b"".join(one % n for n in range(3)))
        data = b""
        while data.count(b'"status":"ok"') < 3:
            data += connection.recv(65536)
    assert [data.index(b"x-request-id: r%d" % n) for n in range(3)] == sorted(
        data.index(b"x-request-id: r%d" % n) for n in range(3)
    )


DATA_SEGMENTS_IN = 152
"""Where the kernel's `struct tcp_info` counts the segments with data that came in."""


def test_an_answer_comes_in_one_piece(open_server: Running) -> None:
    """Its client wakes up once, not for the head and again for the body."""
    body = b'{"query":"q"}'
    request = post(SEARCH, f"Content-Length: {len(body)}", "Content-Type: application/json", body=body)
    with open_server.connect() as connection:
        for _ in range(20):
            connection.sendall(request)
            assert read_reply(connection).status == 200
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, DATA_SEGMENTS_IN + 4)
    assert struct.unpack_from("I", state, DATA_SEGMENTS_IN) == (20,)


def test_an_answer_without_its_body_ends_with_its_head(open_server: Running) -> None:
    with open_server.connect() as connection:
        for _ in range(2):
            connection.sendall(b"HEAD /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert connection.recv(65_536).endswith(b"\r\n\r\n")


def test_a_client_that_hangs_up_harms_no_other_client(open_server: Running) -> None:
    for sent in (b"", b"POST", post(SEARCH, "Content-Length: 100"), post("/bulk", "Content-Length: 100")):
        with open_server.connect() as connection:
            connection.sendall(sent)
    assert open_server.raw(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 200


def test_a_large_document_goes_in(client: httpx2.Client, open_server: Running) -> None:
    """T-2: 100 000 characters, however they are written."""
    content = "ü" * 100_000
    escaped = json.dumps({**DOCUMENT, "content": content}).encode()
    assert len(escaped) > 600_000
    reply = client.post(INDEX, content=escaped, headers={"content-type": "application/json"})
    assert reply.status_code == 200
    assert open_server.service.indexed[0].content == content
