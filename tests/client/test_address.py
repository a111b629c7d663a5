"""A client finds its server: by its arguments, by the settings, or by the data directory."""

import asyncio
import json
import stat
from contextlib import aclosing
from pathlib import Path

import httpx2
import pytest

from rag_context.api.operations.memory import HEALTH
from rag_context.client import AsyncClient, Client, Retries, ServerUnreachableError
from rag_context.client.address import CHALLENGE, FILE_NAME, Address, address_of, announced_address
from rag_context.client.async_http import AsyncHttp
from rag_context.client.call import call_of
from rag_context.server.options import ServerOptions
from rag_context.settings import load_settings
from tests.end_to_end.process import Served
from tests.server.server_thread import running
from tests.server.stub_service import StubService

from .scripted_server import reply, scripted

QUICK = Retries(tries=3, base_s=0.0)


@pytest.fixture
def data_dir(server: Served, tmp_path: Path) -> Path:
    """A data directory that announces the shared server."""
    (tmp_path / FILE_NAME).write_bytes((data_dir_of(server) / FILE_NAME).read_bytes())
    return tmp_path


def data_dir_of(server: Served) -> Path:
    arguments = list(map(str, server.process.args if isinstance(server.process.args, list) else ()))
    return Path(arguments[arguments.index("--data-dir") + 1])


def announce(data_dir: Path, url: str, secret: str, pid: int = 1) -> None:
    fields = {"pid": pid, "url": url, "instance": "i", "secret": secret}
    (data_dir / FILE_NAME).write_text(json.dumps(fields))


async def test_the_server_of_a_data_directory_is_found(data_dir: Path) -> None:
    with Client(data_dir=data_dir) as client:
        assert client.health().healthy
    async with AsyncClient(data_dir=data_dir) as async_client:
        assert (await async_client.health()).healthy


async def test_another_program_at_the_announced_address_gets_neither_request_nor_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_SERVER_PORT", "1")
    strange = reply(200, {"instance": "another"})
    with scripted([strange] * 6) as other_program:
        announce(tmp_path, other_program.url, "ours")
        with (
            Client(data_dir=tmp_path, api_key="k-1", retries=QUICK) as client,
            pytest.raises(ServerUnreachableError, match=r"http://127\.0\.0\.1:1:"),
        ):
            client.health()
        async with AsyncClient(data_dir=tmp_path, api_key="k-1", retries=QUICK) as async_client:
            with pytest.raises(ServerUnreachableError, match=r"http://127\.0\.0\.1:1:"):
                await async_client.health()
    assert {request.line for request in other_program.requests} == {"GET /live HTTP/1.1"}
    assert "k-1" not in str([request.headers for request in other_program.requests])


def test_a_client_follows_its_server_to_another_port(tmp_path: Path) -> None:
    with Client(data_dir=tmp_path) as client:
        for secret in ("one", "two"):
            stub = StubService()
            with running(stub, ServerOptions(port=0, secret=secret)) as http_server:
                announce(tmp_path, http_server.url, secret)
                client.search("where are you?")
            assert len(stub.searches) == 1


async def test_a_command_shows_its_key_to_no_other_than_the_server_that_announces_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_CONTEXT_API_KEY", "k-1")
    settings = load_settings(flags={"data_dir": tmp_path}, cwd=tmp_path).settings
    async with aclosing(AsyncHttp(announced_address(settings), 5.0)) as http:
        assert await http.find() is None
        for secret in ("one", "two"):  # the second after a restart, on another port
            with running(StubService(), ServerOptions(port=0, secret=secret)) as http_server:
                announce(tmp_path, http_server.url, secret)
                assert (await http.send(call_of(HEALTH, {}), "r-1")).healthy
                assert await http.find() == http_server.url
            with pytest.raises(ServerUnreachableError):
                await http.send(call_of(HEALTH, {}), "r-2")
        with scripted([reply(200, {"instance": "another"})] * 2) as other_program:
            announce(tmp_path, other_program.url, "two")
            with pytest.raises(ServerUnreachableError, match="No server announces itself any more"):
                await http.send(call_of(HEALTH, {}), "r-3")
            assert await http.find() is None
    assert {request.line for request in other_program.requests} == {"GET /live HTTP/1.1"}
    assert "k-1" not in str([request.headers for request in other_program.requests])


def test_settings_say_where_the_server_is_and_with_which_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Served
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAG_CONTEXT_URL", f"{server.url}/")
    monkeypatch.setenv("RAG_CONTEXT_API_KEY", "k-2")
    assert address_of(None, None, None).url == server.url
    assert address_of(None, None, None).key == "k-2"
    assert address_of("http://other:1", None, None).url == "http://other:1"
    assert address_of(None, "", None).key is None
    with Client() as client:
        assert client.health().healthy
    assert address_of(None, None, tmp_path).url is None  # a named directory is the right one
    assert "k-2" not in repr(address_of(None, None, None))


def test_with_address_and_key_given_no_settings_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rag-context.toml").write_text("this is no TOML")
    assert address_of("http://host:1/", "k", None).url == "http://host:1"


def test_a_left_over_announcement_leads_to_the_configured_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_SERVER_PORT", "1")
    announce(tmp_path, "http://127.0.0.1:9", "gone")
    with Client(data_dir=tmp_path) as client, pytest.raises(ServerUnreachableError, match=r"http://127\.0\.0\.1:1:"):
        client.health()


async def test_who_has_the_port_of_a_server_that_died_gets_neither_question_nor_key(tmp_path: Path) -> None:
    """Also a client that has found the server before, and an impostor that repeats all that the server has shown."""
    died = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        with running(StubService(), ServerOptions(port=0, instance_id="i", secret="s")) as http_server:
            shown = httpx2.get(f"{http_server.url}/live", headers={CHALLENGE: "00"}).content
            announce(tmp_path, http_server.url, "s", died.pid)
            async with aclosing(AsyncHttp(Address(None, tmp_path, None, "k-1"), 5.0)) as http:
                assert (await http.send(call_of(HEALTH, {}), "r-1")).healthy
                died.kill()
                await died.wait()
                with pytest.raises(ServerUnreachableError):
                    await http.send(call_of(HEALTH, {}), "r-2")
    finally:
        if died.returncode is None:
            died.kill()
            await died.wait()
    with scripted([reply(200, json.loads(shown))] * 4) as impostor:
        for pid in (1, died.pid):
            announce(tmp_path, impostor.url, "s", pid)
            for default in (None, impostor.url):
                async with aclosing(AsyncHttp(Address(None, tmp_path, default, "k-1"), 5.0)) as http:
                    with pytest.raises(ServerUnreachableError):
                        await http.send(call_of(HEALTH, {}), "r-3")
    assert {request.line for request in impostor.requests} == {"GET /live HTTP/1.1"}
    assert len(impostor.requests) == 2, "where the process is dead, it is not even asked"
    assert "k-1" not in str([request.headers for request in impostor.requests])


def test_no_open_address_shows_the_secret_and_no_other_user_reads_it(server: Served) -> None:
    file = data_dir_of(server) / FILE_NAME
    secret = json.loads(file.read_text())["secret"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for path in ("/live", "/ready", "/health", "/", "/docs", "/metrics", "/openapi.json"):
        assert secret not in server.get(path).text
