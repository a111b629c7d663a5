"""Collections from outside: other models, other programs' collections, every interface, and providers that fail."""

import asyncio
import json
import os
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from mcp import Client, StdioServerParameters
from rag_context.stores.sqlite.embedded import FILE_NAME
from tests.end_to_end.process import COMMAND, Served, command, environment, served, wait_until
from tests.servers.chroma import chroma_server
from tests.servers.embedding_stub import EmbeddingStub
from tests.servers.qdrant import endpoint

CONNECTIONS = ("default", "qdrant", "chroma")
NOTES = {
    "retention": "Logs are kept for 31 days, then they are deleted.",
    "login": "Error ERR-4107 means that the session cookie has expired.",
    "backup": "The nightly backup runs at two o'clock and takes nine minutes.",
    "stones": "Granite and basalt are igneous rocks.",
}
PLUGIN = """
from contextlib import asynccontextmanager
from pydantic import BaseModel
from rag_context.collections.registry import ProviderKind
from rag_context.ports.provider import Capabilities
from tests.collections.memory_collections import MemoryCollections

class Nothing(BaseModel):
    pass

class Broken(MemoryCollections):
    async def collections(self):
        raise RuntimeError("the password is hunter2")

@asynccontextmanager
async def opened(_):
    yield Broken()

KIND = ProviderKind("broken", "Broken", Capabilities(), Nothing, opened)
"""


@dataclass
class Deployment:
    """Everything that a server of the tests stands on."""

    folder: Path
    stub: EmbeddingStub
    qdrant: str
    chroma: str
    plugins: Path

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[Served]:
        config = self.folder / "rag-context.toml"
        with served(
            self.folder / "data",
            "--config",
            str(config),
            *arguments,
            PYTHONPATH=os.pathsep.join([str(self.plugins), os.environ.get("PYTHONPATH", "")]),
        ) as running:
            running.wait_ready()
            yield running


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("collections")
    (folder / "data").mkdir()
    with ExitStack() as stack:
        stub = stack.enter_context(_stub())
        qdrant = stack.enter_context(endpoint())
        chroma = stack.enter_context(chroma_server())
        found = Deployment(folder, stub, qdrant.url, f"http://{chroma.host}:{chroma.port}", _plugin(folder / "site"))
        embedder = f'kind = "openai_compatible"\nurl = "{stub.url}"\nmodel = "stub"\n'
        (folder / "rag-context.toml").write_text(
            f'[connections.default]\nprovider = "embedded"\n[connections.default.embedder]\n{embedder}'
            f'[connections.qdrant]\nprovider = "qdrant"\nurl = "{found.qdrant}"\nprefix = "{_prefix()}"\n'
            f"[connections.qdrant.embedder]\n{embedder}"
            f'[connections.chroma]\nprovider = "chroma"\nurl = "{found.chroma}"\nprefix = "{_prefix()}"\n'
            f"[connections.chroma.embedder]\n{embedder}"
            '[connections.broken]\nprovider = "broken"\n'
        )
        yield found


@pytest.fixture(scope="module")
def server(deployment: Deployment) -> Iterator[Served]:
    with deployment.serving() as running:
        yield running


def _prefix() -> str:
    return f"test-{uuid4().hex[:8]}"


@contextmanager
def _stub() -> Iterator[EmbeddingStub]:
    """An embedding server in a thread of its own; another `seed` makes another model of it."""
    stub = EmbeddingStub(dimension=384)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(stub.start(), loop).result(10)
    try:
        yield stub
    finally:
        asyncio.run_coroutine_threadsafe(stub.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def _plugin(site: Path) -> Path:
    """A distribution whose provider raises what no provider may."""
    info = site / "broken_provider-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "broken_provider.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-provider\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rag_context.providers]\nbroken = broken_provider:KIND\n")
    return site


def ask(server: Served, method: str, path: str, body: Any = None, **fields: str) -> httpx2.Response:
    content = None if body is None else json.dumps(body)
    headers = {} if body is None else {"Content-Type": "application/json"}
    return httpx2.request(
        method, server.url + path, content=content, params=fields, headers=headers, timeout=60.0, trust_env=False
    )


def done(response: httpx2.Response) -> dict[str, Any]:
    assert response.is_success, response.text
    answer: dict[str, Any] = response.json()
    return answer


def large_index(server: Served, name: str, connection: str = "default") -> None:
    """A collection of four notes that the server embeds."""
    body = {"name": name, "embedding_provider": "rag-context"}
    done(ask(server, "POST", "/collections", body, connection=connection))
    documents = [
        {"id": id_, "text": text, "metadata": {"kind": "note", "length": len(text)}} for id_, text in NOTES.items()
    ]
    done(ask(server, "POST", f"/collections/{name}/documents", {"documents": documents}, connection=connection))


def found(server: Served, name: str, connection: str = "default", **body: Any) -> list[dict[str, Any]]:
    answer = done(ask(server, "POST", f"/collections/{name}/query", body, connection=connection))
    results: list[dict[str, Any]] = answer["results"]
    return results


def component(server: Served, connection: str) -> dict[str, Any]:
    (one,) = [
        one
        for one in server.health()["components"]
        if one["role"] == "collections" and one["name"].endswith(f" {connection}")
    ]
    return dict(one)


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_keywords_and_hybrid_find_what_vectors_do_not(server: Served, connection: str) -> None:
    """V-7. The stub's vectors mean nothing: only keyword search can find the note."""
    large_index(server, "modes", connection)
    text = "what does ERR-4107 mean?"
    by_keywords = found(server, "modes", connection, text=text, mode="text", top_k=4)
    assert [one["id"] for one in by_keywords] == ["login"]
    assert by_keywords[0]["score"] > 0.5
    hybrid = found(server, "modes", connection, text=text, mode="hybrid", top_k=4)
    assert hybrid[0]["id"] == "login"
    assert set(hybrid[0]) == {"id", "text", "metadata", "score", "cosine", "keywords"}
    half = "ERR-4107 in zebras"
    assert 0 < found(server, "modes", connection, text=half, mode="text")[0]["score"] < 0.99
    assert found(server, "modes", connection, text=half, mode="text", min_score=0.99) == []
    assert found(server, "modes", connection, text=text, mode="text", where={"kind": "other"}) == []
    assert found(server, "modes", connection, text=NOTES["stones"], min_score=0.9)[0]["id"] == "stones"


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_documents_are_read_by_ids_changed_and_deleted_by_a_filter(server: Served, connection: str) -> None:
    """V-7."""
    large_index(server, "parts", connection)
    path = "/collections/parts/documents"
    page = done(
        ask(server, "GET", path, ids='["login","nobody","retention"]', include="embeddings", connection=connection)
    )
    assert [one["id"] for one in page["documents"]] == ["login", "retention"]
    assert [len(one["embedding"]) for one in page["documents"]] == [384, 384]

    changed = ask(
        server, "PUT", f"{path}/login/metadata", {"metadata": {"seen": True}}, merge="true", connection=connection
    )
    assert done(changed)["metadata"] == {"kind": "note", "length": len(NOTES["login"]), "seen": True}
    assert found(server, "parts", connection, text=NOTES["login"])[0]["score"] > 0.99

    where = '{"length": {"$gt": 38}}'
    most = [id_ for id_, text in NOTES.items() if len(text) > 38]
    preview = done(ask(server, "DELETE", path, where=where, dry_run="true", connection=connection))
    assert (preview["status"], preview["ids"]) == ("preview", sorted(most))
    rejected = ask(server, "DELETE", path, where=where, connection=connection)
    assert rejected.status_code == 400
    assert "confirm" in rejected.json()["error"]
    assert done(ask(server, "GET", path, connection=connection))["total"] == len(NOTES)
    gone = done(ask(server, "DELETE", path, where=where, confirm="true", connection=connection))
    assert gone["count_deleted"] == len(most)
    left = done(ask(server, "GET", path, connection=connection))["documents"]
    assert [one["id"] for one in left] == sorted(NOTES.keys() - set(most))


def test_collections_of_other_programs_are_read_and_queried_and_never_written(
    deployment: Deployment, server: Served
) -> None:
    """V-7: in a Chroma as its clients fill it, in a Qdrant as LangChain does, with named vectors."""
    name = f"theirs-{uuid4().hex[:8]}"
    vectors = [[0.0, 3.0, 0.0], [4.0, 0.0, 0.0]]
    _put_in_chroma(deployment.chroma, name, vectors)
    _put_in_qdrant(deployment.qdrant, name, vectors)
    for connection, ids in (("chroma", ["a-1", "a-2"]), ("qdrant", ["1", "2"])):
        listed = done(ask(server, "GET", "/collections", connection=connection))["collections"]
        theirs = next(one for one in listed if one["name"] == name)
        assert (theirs["read_only"], theirs["count"], theirs["dimension"]) == (True, 2, 3)
        page = done(ask(server, "GET", f"/collections/{name}/documents", connection=connection))
        assert [(one["id"], one["text"]) for one in page["documents"]] == [
            (ids[0], "Granite is hard."),
            (ids[1], "Rivers run downhill."),
        ]
        nearest = found(server, name, connection, embedding=[1.0, 0.1, 0.0], where={"topic": "water"})
        assert [one["id"] for one in nearest] == [ids[1]]
        assert nearest[0]["score"] == pytest.approx(0.995, abs=0.001)
        assert [one["id"] for one in found(server, name, connection, text="hard granite", mode="text")] == [ids[0]]
        values = done(ask(server, "GET", f"/collections/{name}/metadata-values", field="topic", connection=connection))
        assert values["values"] == ["stone", "water"]
        for method, path, body in (
            ("POST", f"/collections/{name}/documents", {"documents": [{"text": "x", "embedding": [1, 0, 0]}]}),
            ("DELETE", f"/collections/{name}/documents/{ids[0]}", None),
            ("DELETE", f"/collections/{name}/documents/all", None),
            ("DELETE", f"/collections/{name}", None),
            ("PUT", f"/collections/{name}/metadata", {"metadata": {"mine": True}}),
        ):
            rejected = ask(server, method, path, body, connection=connection)
            assert rejected.status_code == 409, (method, path, rejected.text)
            assert "another program" in rejected.json()["error"]
        assert done(ask(server, "GET", f"/collections/{name}", connection=connection))["count"] == 2


def _put_in_chroma(url: str, name: str, vectors: list[list[float]]) -> None:
    base = f"{url}/api/v2/tenants/default_tenant/databases/default_database/collections"
    made = httpx2.post(base, json={"name": name}, timeout=30, trust_env=False).json()
    rows = {
        "ids": ["a-1", "a-2"],
        "embeddings": vectors,
        "documents": ["Granite is hard.", "Rivers run downhill."],
        "metadatas": [{"topic": "stone"}, {"topic": "water"}],
    }
    httpx2.post(f"{base}/{made['id']}/add", json=rows, timeout=30, trust_env=False).raise_for_status()


def _put_in_qdrant(url: str, name: str, vectors: list[list[float]]) -> None:
    made = {"vectors": {"dense": {"size": 3, "distance": "Euclid"}}}
    httpx2.put(f"{url}/collections/{name}", json=made, timeout=30, trust_env=False).raise_for_status()
    texts = ("Granite is hard.", "Rivers run downhill.")
    points = [
        {"id": number, "vector": {"dense": vector}, "payload": {"page_content": text, "metadata": {"topic": topic}}}
        for number, (vector, text, topic) in enumerate(zip(vectors, texts, ("stone", "water"), strict=True), 1)
    ]
    httpx2.put(
        f"{url}/collections/{name}/points?wait=true", json={"points": points}, timeout=30, trust_env=False
    ).raise_for_status()


async def test_a_collection_is_made_filled_and_queried_over_mcp(deployment: Deployment) -> None:
    """V-7: with the official SDK, and only the tools of the set."""
    process = StdioServerParameters(
        command=COMMAND,
        args=["mcp", "--structured", "--tools", "collections", "--data-dir", str(deployment.folder / "spoken")],
        env=environment(),
    )
    async with Client(process) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "collection_query" in names
        assert not any(name.startswith("rag_context_search") for name in names)

        async def call(tool: str, **arguments: Any) -> dict[str, Any]:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result.content
            return dict(result.structured_content or {})

        await call("collection_create", name="spoken", embedding_provider="rag-context")
        documents = [{"id": id_, "text": text, "metadata": {"of": id_}} for id_, text in NOTES.items()]
        assert (await call("collection_add", name="spoken", documents=documents))["count"] == 4
        best = await call("collection_query", name="spoken", text="for how long do we keep log files?", top_k=1)
        assert best["results"][0]["id"] == "retention"
        hybrid = await call("collection_query", name="spoken", text="ERR-4107", mode="hybrid", top_k=1)
        assert hybrid["results"][0]["id"] == "login"
        await call("collection_update_document", name="spoken", id="login", metadata={"seen": 1}, merge=True)
        page = await call("collection_documents", name="spoken", where={"seen": 1})
        assert [one["metadata"] for one in page["documents"]] == [{"of": "login", "seen": 1}]
        assert (await call("collection_values", name="spoken", field="of"))["count"] == 4
        await call("collection_set_metadata", name="spoken", metadata={"owner": "me"})
        described = await call("collection_get", name="spoken")
        assert (described["metadata"]["owner"], described["model"]["dimension"]) == ("me", 384)
        gone = await call("collection_delete_documents", name="spoken", ids=["login", "nobody"])
        assert gone["count_deleted"] == 1
        rejected = await client.call_tool("collection_delete_documents", {"name": "spoken", "every": True})
        assert rejected.is_error
        assert (await call("collection_delete_documents", name="spoken", every=True, confirm=True))[
            "count_deleted"
        ] == 3
        await call("collection_delete", name="spoken")
        assert (await call("collection_list"))["count"] == 0


def test_the_command_line_searches_by_keywords_and_deletes_by_a_filter(deployment: Deployment, server: Served) -> None:
    """V-7."""
    large_index(server, "typed")

    def run(*arguments: str) -> tuple[int, str]:
        config = str(deployment.folder / "rag-context.toml")
        result = command("collections", *arguments, "--config", config, "--json", data_dir=deployment.folder / "data")
        return result.returncode, result.stdout + result.stderr

    code, output = run("query", "typed", "nightly backup", "--mode", "text")
    assert (code, [one["id"] for one in json.loads(output)["results"]]) == (0, ["backup"])
    code, output = run("update", "typed", "stones", '{"hard": true}', "--merge")
    assert json.loads(output)["metadata"]["hard"] is True
    code, output = run("remove", "typed", "--where", '{"hard": true}')
    assert (code, json.loads(output)["count_deleted"]) == (0, 1)
    code, output = run("remove", "typed", "--where", '{"kind": "note"}')
    assert (code, "dry_run" in output) == (2, True)


def test_the_response_of_a_network_address_is_not_revealed(deployment: Deployment, server: Served) -> None:
    """X-3: the reply is the same whether something listens or not, and no one is connected to."""
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
        closing(socket.create_server(("127.0.0.1", 0))) as shut,
    ):
        listening, silent = listener.getsockname()[1], shut.getsockname()[1]
        shut.close()
        listener.settimeout(0.2)
        replies = [
            ask(server, "POST", f"/providers/{kind}/test", {"configuration": {"url": f"http://127.0.0.1:{port}"}})
            for kind in ("chroma", "qdrant")
            for port in (listening, silent)
        ]
        replies.append(ask(server, "POST", "/providers/chroma/test", {}))  # its default address
        assert {(one.status_code, one.json()["error"]) for one in replies} == {(400, replies[0].json()["error"])}
        assert "server.test_addresses" in replies[0].json()["error"]
        with pytest.raises(TimeoutError):
            listener.accept()
    configured = ask(server, "POST", "/providers/chroma/test", {"configuration": {"url": deployment.chroma}})
    assert done(configured)["status"] == "healthy"


def test_a_plug_in_that_raises_is_named_and_reveals_no_secret(server: Served) -> None:
    """T-6, V-1."""
    reply = ask(server, "GET", "/collections", connection="broken")
    body = reply.json()
    assert (reply.status_code, body["code"]) == (503, "SERVICE_UNAVAILABLE")
    assert "'broken'" in body["error"]
    assert "hunter2" not in reply.text
    assert body["requestId"]


def test_a_field_with_an_empty_part_is_reported_as_what_it_is(server: Served) -> None:
    """T-6."""
    large_index(server, "fields")
    for field in ("a..b", ".", "a."):
        reply = ask(server, "GET", "/collections/fields/metadata-values", field=field)
        assert reply.status_code == 400
        assert reply.json()["error"].startswith("field must name a metadata field")


def test_another_model_is_rejected_until_reindex_on_every_provider(deployment: Deployment, server: Served) -> None:
    """V-4, D-13: over a restart; health tells, keywords answer meanwhile, and the old documents are all there."""
    for connection in CONNECTIONS:
        large_index(server, "bound", connection)
        assert done(ask(server, "GET", "/collections/bound", connection=connection))["model"]["dimension"] == 384
    large_index(server, "older")
    assert server.stop() == 0
    with (
        closing(sqlite3.connect(deployment.folder / "data" / FILE_NAME)) as file,
        file,
    ):  # as before models were recorded
        file.execute("UPDATE collections SET metadata = '{}' WHERE name = 'older'")
    deployment.stub.seed = "two"
    with deployment.serving() as running:
        for connection in CONNECTIONS:
            for method, path, body in (
                ("POST", "/collections/bound/query", {"text": NOTES["login"]}),
                ("POST", "/collections/bound/query", {"text": NOTES["login"], "mode": "hybrid"}),
                ("POST", "/collections/bound/documents", {"documents": [{"text": "new"}]}),
            ):
                rejected = ask(running, method, path, body, connection=connection)
                assert (rejected.status_code, rejected.json()["code"]) == (409, "CONFLICT")
                assert "rag-context reindex" in rejected.json()["error"]
                assert "'bound'" in rejected.json()["error"]
            assert found(running, "bound", connection, text="nightly backup", mode="text")[0]["id"] == "backup"
            reported = component(running, connection)
            assert reported["status"] == "degraded"
            assert "'bound'" in reported["detail"]
        assert ask(running, "POST", "/collections/older/query", {"text": "x"}).status_code == 409
        assert running.health()["healthy"]

        answer = done(running.tool("reindex", {"wait": True}))
        names = {(one["collection"], one["connection"]): one["status"] for one in answer["collections"]}
        assert {names["bound", connection] for connection in CONNECTIONS} == {"done"}
        assert names["older", "default"] == "done"
        for connection in CONNECTIONS:
            best = found(running, "bound", connection, text=NOTES["login"], top_k=4)
            assert (best[0]["id"], len(best)) == ("login", 4)
            assert best[0]["score"] > 0.99
            assert done(ask(running, "GET", "/collections", connection=connection))["count"] >= 1
            wait_until(lambda c=connection: component(running, c)["status"] == "healthy")
        assert found(running, "older", text=NOTES["stones"])[0]["score"] > 0.99
