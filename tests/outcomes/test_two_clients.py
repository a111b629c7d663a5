"""Two clients at once, in two projects: over HTTP and stdio, with sessions, handles, keys, and with none of these."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from rag_context import Client as PythonClient
from rag_context.server.options import hash_key
from tests.end_to_end.process import COMMAND, Served, environment, served
from tests.outcomes.repositories import Caller, Repository, repository

GENERATIONS = ("legacy", "2026-07-28")
"""A handshake and a session, or each request by itself."""

ACCEPT = {"Accept": "application/json, text/event-stream"}
KEYS = {"alice": "write", "bob": "write", "reader": "read"}


@dataclass(frozen=True, slots=True)
class TwoRepositories:
    """A server and two repositories that it can see."""

    served: Served
    shop: Repository
    wiki: Repository

    @property
    def url(self) -> str:
        return self.served.url

    def as_it_was(self) -> None:
        """Both repositories as they were in the beginning."""
        self.shop.write("docs/orders.md", "# Orders\n\nAn order is paid before it is packed.\n")
        self.wiki.write("docs/pages.md", "# Pages\n\nA page is reviewed before it is shown.\n")


def _two_repositories(folder: Path, running: Served) -> TwoRepositories:
    two_repositories = TwoRepositories(running, repository(folder, "shop"), repository(folder, "wiki"))
    two_repositories.as_it_was()
    return two_repositories


@pytest.fixture(scope="module")
def two_repositories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoRepositories]:
    """A server without keys."""
    folder = tmp_path_factory.mktemp("open")
    with served(folder / "data") as running:
        running.wait_ready()
        yield _two_repositories(folder, running)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoRepositories]:
    """A server whose callers have keys; each key is its name."""
    folder = tmp_path_factory.mktemp("locked")
    keys = "".join(
        f'[[server.api_keys]]\nname = "{name}"\nhash = "{hash_key(name)}"\naccess = "{access}"\n'
        for name, access in KEYS.items()
    )
    (folder / "config.toml").write_text(keys)
    with served(folder / "data", "--config", str(folder / "config.toml")) as running:
        yield _two_repositories(folder, running)


async def reported(client: Client, tool: str, **arguments: Any) -> Any:
    """What a tool answers, an error too."""
    result = await client.call_tool(tool, arguments)
    return json.loads(cast("Any", result.content[0]).text) if result.is_error else result.structured_content


class Window:
    """One window of an agent: it activates a project, and passes on the handle where its generation needs it."""

    def __init__(self, client: Client, *, passes_on: bool) -> None:
        self._client = client
        self._passes_on = passes_on
        self._handle: dict[str, str] = {}

    async def activate(self, project: Repository) -> Any:
        reply = await reported(self._client, "activate_project", config_path=project.config)
        self._handle = {"activation": reply["activation"]} if self._passes_on else {}
        return reply

    async def call(self, tool: str, **arguments: Any) -> Any:
        return await reported(self._client, tool, **self._handle, **arguments)


@asynccontextmanager
async def window(two_repositories: TwoRepositories, generation: str, key: str | None = None) -> AsyncIterator[Window]:
    """The official client at the server."""
    headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
        Client(
            streamable_http_client(f"{two_repositories.url}/mcp?tools=all&structured=true", http_client=http),
            mode=cast("Any", generation),
        ) as client,
    ):
        yield Window(client, passes_on=generation != "legacy")


async def work_apart(two_repositories: TwoRepositories, one: Window, two: Window) -> None:
    """Two windows work at once; each must see and change its own project only."""
    two_repositories.as_it_was()
    await one.activate(two_repositories.shop)
    await two.activate(two_repositories.wiki)
    (types_one, types_two) = await asyncio.gather(one.call("list_doc_types"), two.call("list_doc_types"))
    assert (types_one["project_name"], types_two["project_name"]) == ("shop", "wiki")
    asked = {"query": "what comes before what?", "min_relevance_score": 0}
    answers = await asyncio.gather(one.call("rag_query", **asked), two.call("rag_query", **asked))
    assert [[source["path"] for source in answer["sources"]] for answer in answers] == [["orders.md"], ["pages.md"]]
    missing = await one.call("update_promotion_level", document_path="pages.md", promotion_level="critical")
    assert missing["code"] == "DOCUMENT_NOT_FOUND"
    await one.call("update_promotion_level", document_path="orders.md", promotion_level="important")
    assert "promotion_level: important" in (two_repositories.shop.root / "docs/orders.md").read_text()
    assert "promotion_level" not in (two_repositories.wiki.root / "docs/pages.md").read_text()
    assert (await two.call("index_document", path="pages.md"))["project_name"] == "wiki"
    assert (await two.call("index_document", path="orders.md"))["code"] == "DOCUMENT_NOT_FOUND"


@pytest.mark.parametrize("generation", GENERATIONS)
async def test_two_clients_without_keys_work_in_two_projects(
    two_repositories: TwoRepositories, generation: str
) -> None:
    async with window(two_repositories, generation) as one, window(two_repositories, generation) as two:
        await work_apart(two_repositories, one, two)


@pytest.mark.parametrize("generation", GENERATIONS)
async def test_two_windows_with_one_key_work_in_two_projects(locked: TwoRepositories, generation: str) -> None:
    async with window(locked, generation, "alice") as one, window(locked, generation, "alice") as two:
        await work_apart(locked, one, two)


async def test_two_stdio_processes_on_one_directory_work_in_two_projects(
    two_repositories: TwoRepositories, tmp_path: Path
) -> None:
    def process() -> Client:
        arguments = ["mcp", "--structured", "--tools", "projects", "--data-dir", str(tmp_path / "data")]
        return Client(stdio_client(StdioServerParameters(command=COMMAND, args=arguments, env=environment())))

    async with process() as one, process() as two:
        await work_apart(two_repositories, Window(one, passes_on=False), Window(two, passes_on=False))


async def test_a_client_that_activated_nothing_touches_no_project(two_repositories: TwoRepositories) -> None:
    two_repositories.as_it_was()
    async with (
        window(two_repositories, "legacy") as one,
        window(two_repositories, "legacy") as idle,
        window(two_repositories, "2026-07-28") as stateless,
    ):
        await one.activate(two_repositories.shop)
        for client in (idle, stateless):
            for tool, arguments in {
                "index_document": {"path": "orders.md"},
                "update_promotion_level": {"document_path": "orders.md", "promotion_level": "critical"},
                "rag_query": {"query": "orders"},
            }.items():
                rejected = await client.call(tool, **arguments)
                assert rejected["code"] == "PROJECT_NOT_ACTIVATED"
                assert "activate_project" in rejected["error"]
            named = await client.call("rag_query", query="orders", project="shop")
            assert named["project_name"] == "shop"
    assert "promotion_level" not in (two_repositories.shop.root / "docs/orders.md").read_text()


def test_programs_without_a_session_pass_on_the_handle(two_repositories: TwoRepositories) -> None:
    program = Caller(two_repositories.url)
    shop = program.call("activate_project", config_path=two_repositories.shop.config)["activation"]
    wiki = program.call("activate_project", config_path=two_repositories.wiki.config)["activation"]
    assert shop != wiki
    assert len(shop) >= 20
    assert program.call("index_document", path="pages.md", status=409)["code"] == "PROJECT_NOT_ACTIVATED"
    assert program.call("index_document", path="pages.md", activation=wiki)["project_name"] == "wiki"
    assert program.call("list_doc_types", activation=shop)["project_name"] == "shop"
    unknown = program.call("list_doc_types", activation=shop[:-1] + "-", status=409)
    assert "activate_project again" in unknown["error"]


def test_two_python_clients_work_in_two_projects(two_repositories: TwoRepositories) -> None:
    with PythonClient(two_repositories.url) as one, PythonClient(two_repositories.url) as two:
        one.call("activate_project", config_path=two_repositories.shop.config)
        two.call("activate_project", config_path=two_repositories.wiki.config)
        assert one.call("list_doc_types")["project_name"] == "shop"
        assert two.call("index_document", path="pages.md")["project_name"] == "wiki"


def test_two_activations_of_one_key_decide_nothing(locked: TwoRepositories) -> None:
    program = Caller(locked.url, "bob")
    shop = program.call("activate_project", config_path=locked.shop.config)["activation"]
    assert program.call("index_document", path="orders.md")["project_name"] == "shop"
    program.call("activate_project", config_path=locked.wiki.config)
    rejected = program.call("update_promotion_level", document_path="orders.md", promotion_level="critical", status=409)
    assert "'shop'" in rejected["error"]
    assert "'wiki'" in rejected["error"]
    assert program.call("list_doc_types", activation=shop)["project_name"] == "shop"
    assert program.call("list_doc_types", project="wiki")["project_name"] == "wiki"


def test_a_handle_belongs_to_the_key_that_made_it(locked: TwoRepositories) -> None:
    handle = Caller(locked.url, "alice").call("activate_project", config_path=locked.shop.config)["activation"]
    stolen = Caller(locked.url, "bob").call("index_document", path="orders.md", activation=handle, status=409)
    assert stolen["code"] == "PROJECT_NOT_ACTIVATED"


def test_a_key_that_may_only_read_reads_an_activated_project_and_changes_nothing(locked: TwoRepositories) -> None:
    reader = Caller(locked.url, "reader")
    Caller(locked.url, "alice").call("activate_project", config_path=locked.shop.config)
    activated = reader.call("activate_project", config_path=locked.shop.config)
    assert (activated["project_name"], activated["total_docs"]) == ("shop", 1)
    assert reader.paths(activation=activated["activation"]) == {"orders.md"}
    assert reader.paths() == {"orders.md"}
    changed: dict[str, Any] = {
        "document_path": "orders.md",
        "promotion_level": "critical",
        "activation": activated["activation"],
    }
    assert reader.call("update_promotion_level", **changed, status=403)["code"] == "FORBIDDEN"
    hidden = repository(locked.shop.root.parent, "hidden", secret="# Secret\n")
    rejected = reader.call("activate_project", config_path=hidden.config, status=409)
    assert "may only read" in rejected["error"]
    assert reader.call("rag_query", query="secret", project="hidden", status=404)["code"] == "NOT_FOUND"


def open_session(
    two_repositories: TwoRepositories, key: str | None = None, version: str = "2025-11-25"
) -> tuple[dict[str, str], str]:
    """The headers of a new session, and its id."""
    headers = {**ACCEPT, **({"Authorization": f"Bearer {key}"} if key is not None else {})}
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    reply = httpx2.post(f"{two_repositories.url}/mcp?tools=all", json=message, headers=headers)
    session = reply.headers["mcp-session-id"]
    return {**headers, "Mcp-Session-Id": session, "MCP-Protocol-Version": version}, session


def ask(
    two_repositories: TwoRepositories, headers: dict[str, str], tool: str = "list_doc_types", **arguments: Any
) -> httpx2.Response:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    address = f"{two_repositories.url}/mcp?tools=all&structured=true"
    return httpx2.post(address, json=message, headers=headers, timeout=60)


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
def test_revisions_with_sessions_get_one_that_cannot_be_guessed(
    two_repositories: TwoRepositories, version: str
) -> None:
    sessions = {open_session(two_repositories, version=version)[1] for _ in range(3)}
    assert len(sessions) == 3
    assert min(map(len, sessions)) >= 32


def test_an_ended_session_and_one_that_never_was_are_not_found(two_repositories: TwoRepositories) -> None:
    headers, _ = open_session(two_repositories)
    assert (
        ask(two_repositories, headers, "activate_project", config_path=two_repositories.shop.config).status_code == 200
    )
    assert ask(two_repositories, headers).json()["result"]["structuredContent"]["project_name"] == "shop"
    assert httpx2.delete(f"{two_repositories.url}/mcp", headers=headers).status_code == 200
    for gone in (headers, {**headers, "Mcp-Session-Id": "made-up"}):
        rejected = ask(two_repositories, gone)
        assert rejected.status_code == 404
        assert "initialize" in rejected.json()["error"]["message"]
        assert httpx2.delete(f"{two_repositories.url}/mcp", headers=gone).status_code == 404


def test_a_session_is_closed_to_other_keys(locked: TwoRepositories) -> None:
    headers, _ = open_session(locked, "alice")
    assert ask(locked, headers).status_code == 200
    assert ask(locked, {**headers, "Authorization": "Bearer bob"}).status_code == 404


def test_plain_http_enters_no_session(two_repositories: TwoRepositories) -> None:
    headers, _ = open_session(two_repositories)
    ask(two_repositories, headers, "activate_project", config_path=two_repositories.shop.config)
    reply = httpx2.post(f"{two_repositories.url}/tools/list_doc_types", json={}, headers=headers)
    assert reply.status_code == 409


def test_a_cached_answer_is_not_another_tenants(two_repositories: TwoRepositories) -> None:
    program = Caller(two_repositories.url)
    program.call("activate_project", config_path=two_repositories.shop.config)
    program.call("activate_project", config_path=two_repositories.wiki.config)
    question: dict[str, Any] = {"query": "what is done before something else?", "minScore": 0}
    for _ in range(2):
        for project, document in (("shop", "Orders"), ("wiki", "Pages")):
            found = program.call("rag_context_search", **question, project=project)
            assert [result["title"] for result in found["results"]] == [document]
    assert program.call("rag_context_search", **question)["results"] == []


def test_a_name_means_the_same_to_every_tool(two_repositories: TwoRepositories) -> None:
    program = Caller(two_repositories.url)
    program.call("activate_project", config_path=two_repositories.shop.config)
    found = program.call("rag_context_search", query="order", project="shop", minScore=0)
    assert [result["title"] for result in found["results"]] == ["Orders"]
    (listed,) = program.call("rag_context_list", project="shop")["documents"]
    named: dict[str, Any] = {"documentId": listed["documentId"], "project": "shop"}
    assert program.call("rag_context_get", **named)["title"] == "Orders"
    assert program.call("rag_context_similar", **named)["results"] == []
    assert program.call("rag_context_delete", **named, dryRun=True)["deletedCount"] == 1


@pytest.mark.parametrize(
    ("tool", "fields"),
    [
        ("rag_context_search", {"query": "order"}),
        ("rag_context_list", {}),
        ("rag_context_get", {"documentId": "x"}),
        ("rag_context_similar", {"documentId": "x"}),
        ("rag_context_delete", {"source": "x"}),
        ("rag_query", {"query": "order"}),
        ("list_doc_types", {}),
        ("index_document", {"path": "orders.md"}),
    ],
)
def test_a_project_that_is_not_there_is_not_found_by_any_tool(
    two_repositories: TwoRepositories, tool: str, fields: dict[str, str]
) -> None:
    program = Caller(two_repositories.url)
    program.call("activate_project", config_path=two_repositories.shop.config)
    rejected = program.call(tool, **fields, project="shoop", status=404)
    assert rejected["code"] == "NOT_FOUND"
    assert "shop" in rejected["error"].replace("shoop", "")


def test_deleting_an_unknown_project_says_which_there_are(two_repositories: TwoRepositories) -> None:
    program = Caller(two_repositories.url)
    program.call("activate_project", config_path=two_repositories.shop.config)
    rejected = program.call("delete_documents", project_name="shoop", status=404)
    assert "shop" in rejected["error"].replace("shoop", "")


def test_nothing_is_indexed_past_the_files_of_a_project(two_repositories: TwoRepositories) -> None:
    program = Caller(two_repositories.url)
    program.call("activate_project", config_path=two_repositories.shop.config)
    document: dict[str, Any] = {"content": "A ghost.", "contentType": "decision", "sessionId": "s", "source": "ghost"}
    rejected = program.call("rag_context_index", **document, project="shop", status=400)
    assert "index_document" in rejected["error"]
    assert program.call("rag_query", query="ghost", project="shop")["project_name"] == "shop"
    kept = program.call("rag_context_index", **document, project="notes")
    assert kept["status"] == "indexed"
    found = program.call("rag_context_search", query="ghost", project="notes", minScore=0)
    assert [result["content"] for result in found["results"]] == ["A ghost."]


def test_a_branch_that_is_not_checked_out_is_accepted_only_when_forced(two_repositories: TwoRepositories) -> None:
    program = Caller(two_repositories.url)
    asked: dict[str, Any] = {"config_path": two_repositories.shop.config, "branch_name": "release-9"}
    rejected = program.call("activate_project", **asked, status=400)
    assert "'main' is checked out" in rejected["error"]
    assert program.call("list_doc_types", project="shop", branch="release-9", status=404)["code"] == "NOT_FOUND"
    assert program.call("activate_project", **asked, force=True)["branch_name"] == "release-9"
    assert program.call("delete_documents", project_name="shop", branch_name="release-9")["deleted_count"] == 1
    assert program.call("activate_project", **{**asked, "branch_name": "main"})["branch_name"] == "main"


def test_a_document_is_named_from_the_docs_folder_or_the_repository(two_repositories: TwoRepositories) -> None:
    program = Caller(two_repositories.url)
    handle = program.call("activate_project", config_path=two_repositories.shop.config)["activation"]
    for path in ("orders.md", "docs/orders.md", str(two_repositories.shop.root / "docs" / "orders.md")):
        assert program.call("index_document", path=path, activation=handle)["path"] == "orders.md"
    missing = program.call("index_document", path="docs/none.md", activation=handle, status=404)
    assert "relative to the docs folder, which is 'docs'" in missing["error"]
    outside = program.call("index_document", path="docs/../../wiki/docs/pages.md", activation=handle, status=400)
    assert outside["code"] == "INVALID_INPUT"
