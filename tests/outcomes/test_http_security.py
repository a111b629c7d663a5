"""The HTTP API and the directory behind it, as someone finds them who means no good."""

import json
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.end_to_end.process import TIMEOUT_S, Served, command, served

SEARCH = "/tools/rag_context_search"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("doors") / "data"


@pytest.fixture(scope="module")
def server(data_dir: Path) -> Iterator[Served]:
    with served(data_dir) as running:
        running.wait_ready()
        running.index("Foxes live in the woods.")
        yield running


def sent(url: str, data: bytes, source: str = "127.0.0.1") -> tuple[int, str]:
    """Send bytes in one write from an address; the status and all that came back."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), TIMEOUT_S, (source, 0)) as connection:
        connection.sendall(data)
        connection.settimeout(TIMEOUT_S)
        reply = b""
        while b"\r\n\r\n" not in reply and (part := connection.recv(65536)):
            reply += part
    head = reply.decode("latin-1")
    return int(head.split(" ", 2)[1]), head


@pytest.mark.parametrize(
    "lines", [b"x-a: " + b"a" * 148_000 + b"\r\n", b"x-a: b\r\n" * 12_000], ids=["one header", "many headers"]
)
def test_a_head_that_comes_in_one_write_is_bounded(server: Served, lines: bytes) -> None:
    status, head = sent(server.url, b"GET /live HTTP/1.1\r\nhost: localhost\r\n" + lines + b"\r\n")
    assert status == 431, head
    status, _ = sent(server.url, b"GET /live HTTP/1.1\r\nhost: localhost\r\nx-a: " + b"a" * 60_000 + b"\r\n\r\n")
    assert status == 200


def test_a_trailer_is_no_header(server: Served) -> None:
    head = b"POST /tools/rag_context_search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    body = b"transfer-encoding: chunked\r\n\r\nf\r\n" + b'{"query":"fox"}' + b"\r\n0\r\nx-request-id: trailer\r\n\r\n"
    status, reply = sent(server.url, head + body)
    assert status == 200
    assert "trailer" not in reply


def test_a_key_that_is_given_twice_is_named_at_every_depth(server: Served) -> None:
    index = '{"content":"a","contentType":"chat","sessionId":"s","source":"x","metadata":{"a":{"b":1,"b":2}}}'
    call = '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":null,"cursor":null}}'
    httpx2.post(f"{server.url}/collections", json={"name": "docs"}, timeout=TIMEOUT_S).raise_for_status()
    documents = '{"documents":[{"text":"a","metadata":{"c":1,"c":2}}]}'
    for path, body, key in (
        (SEARCH, '{"query":"a","limit":1,"limit":2}', "limit"),
        ("/tools/rag_context_index", index, "b"),
        ("/collections/docs/documents", documents, "c"),
        ("/mcp", call, "cursor"),
    ):
        headers = {**JSON, "accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
        reply = httpx2.post(server.url + path, content=body, headers=headers, timeout=TIMEOUT_S)
        assert reply.status_code == 400, (path, reply.text)
        assert key in reply.json()["error"] if path != "/mcp" else key in reply.json()["error"]["message"]


def test_clients_that_go_away_while_they_pipeline_leave_no_traceback(server: Served, data_dir: Path) -> None:
    place = urlsplit(server.url)
    body = b'{"query":"fox"}'
    search = (
        b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
        % (SEARCH.encode(), len(body), body)
    )
    listing = b"GET /tools HTTP/1.1\r\nhost: localhost\r\n\r\n"
    for number in range(120):
        connection = socket.create_connection((place.hostname, place.port), TIMEOUT_S)
        connection.sendall(search * 20 if number % 3 else listing * 50)
        if number % 2:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(0.005 * (number % 5) if number % 4 == 0 else 0)
        connection.close()
    assert server.search("fox")["results"]
    assert "Traceback" not in data_dir.with_suffix(".log").read_text()


def test_a_directory_that_is_made_is_its_users_own(server: Served, data_dir: Path) -> None:
    assert server.get("/live").status_code == 200
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700


def test_a_directory_that_others_may_open_is_left_and_warned_about(tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir(mode=0o755)
    place.chmod(0o755)
    output = command("config", data_dir=place)
    assert (output.returncode, stat.S_IMODE(place.stat().st_mode)) == (0, 0o755)
    assert "chmod 700" in output.stderr


def test_no_parameter_of_an_address_is_shown_that_may_be_a_secret(tmp_path: Path) -> None:
    token = "hush"
    output = command(
        "config",
        data_dir=tmp_path / "data",
        MONGODB_URI=f"mongodb://h/db?authMechanismProperties=AWS_SESSION_TOKEN:{token}&replicaSet=rs0",
        QDRANT_URL=f"http://h:6333/?access={token}",
        LM_STUDIO_URL=f"http://h:1234/v1?{token}#{token}",
    )
    assert output.returncode == 0, output.stderr
    assert token not in output.stdout + output.stderr
    assert "rs0" in output.stdout


def test_wrong_keys_are_limited_by_address_and_right_ones_are_not(tmp_path: Path) -> None:
    def asked(key: str, source: str = "127.0.0.1") -> tuple[int, str]:
        return sent(running.url, f"GET /tools HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\n\r\n".encode(), source)

    with served(tmp_path / "data", RAG_CONTEXT_API_KEY="right") as running:
        answers = [asked(f"wrong {number}", "127.0.0.2") for number in range(30)]
        assert [status for status, _ in answers[:5]] == [401] * 5
        assert answers[-1][0] == 429
        assert "retry-after: " in answers[-1][1].lower()
        for _ in range(30):
            assert asked("wrong", "127.0.0.2")[0] == 429
            assert asked("right", "127.0.0.2")[0] == 200, "others' wrong keys do not limit a right one"
        assert asked("wrong", "127.0.0.3")[0] == 401, "another address has its own allowance"
        assert sent(running.url, b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n", "127.0.0.2")[0] == 200


def test_a_schema_that_is_not_there_is_the_projects_mistake(server: Served, tmp_path: Path) -> None:
    config = tmp_path / ".rag-context" / "config.json"
    config.parent.mkdir()
    kind = {"name": "trap", "folder": "traps", "schema_file": "gone.json"}
    config.write_text(json.dumps({"project_name": "p", "custom_doc_types": [kind]}))
    url = f"{server.url}/tools/activate_project"
    reply = httpx2.post(url, json={"config_path": str(tmp_path)}, timeout=TIMEOUT_S)
    assert reply.status_code == 400
    assert "gone.json" in reply.json()["error"]


def test_most_of_a_memory_is_deleted_only_when_that_is_confirmed(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for number in range(6):
        (files / f"{number}.md").write_text(f"# Note {number}\n\nAbout harbour {number}.\n")
    with served(tmp_path / "data") as running:
        assert command("index", str(files), data_dir=tmp_path / "data").returncode == 0
        rejected = running.tool("delete", {"sessionId": "files"})
        assert rejected.status_code == 400
        assert "6 of 6" in rejected.json()["error"]
        assert "dryRun" in rejected.json()["error"]
        assert rejected.json()["details"][0]["field"] == "confirm"
        assert running.tool("delete", {"sessionId": "files", "dryRun": True}).json()["deletedCount"] == 6
        assert running.tool("delete", {"sessionId": "files", "confirm": True}).json()["deletedCount"] == 6
