"""The collections API: what no scenario covers, and what spans several."""

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx2
import pytest

from rag_context.api.operations import Access
from rag_context.errors import BackendUnavailableError
from rag_context.server.options import HashedKey, ServerOptions, hash_key
from rag_context.testing.fakes import FakeEmbedder, Fault, Faulty
from tests.collections.memory_collections import MemoryCollections
from tests.server.server_thread import running
from tests.server.stub_service import StubService

from .asgi_client import asgi_client
from .services import DIMENSION, memory_service, service_over

ODD_NAMES = [
    "a/b",
    "a b",
    "über größe",
    "日本語",
    "x" * 300,
    "ü" * 300,
    "100%",
    "%2F",
    "a?b#c",
    "metadata",
    "documents",
    "all",
    "🙂",
    "a\\b",
    "...",
    "C:/x/../y",
]


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with asgi_client(memory_service()) as client:
        yield client


def at(name: str, rest: str = "") -> str:
    return f"/collections/{quote(name, safe='')}{rest}"


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_any_name_is_reached_by_its_address(client: httpx2.AsyncClient, name: str) -> None:
    """V-3: names and ids are cut out of the address before they are decoded."""
    created = await client.post("/collections", json={"name": name})
    assert (created.status_code, created.json()["name"]) == (201, name)
    assert (await client.get(at(name))).json()["name"] == name
    id_ = name if name != "all" else "every"
    added = await client.post(
        at(name, "/documents"), json={"documents": [{"id": id_, "text": "t", "embedding": [1.0]}]}
    )
    assert added.json()["ids"] == [id_]
    deleted = await client.delete(at(name, f"/documents/{quote(id_, safe='')}"))
    assert deleted.json() == {"status": "deleted", "collection": name, "id": id_}
    assert (await client.delete(at(name))).json() == {"status": "deleted", "collection": name}
    assert (await client.get(at(name))).status_code == 404


async def test_a_slash_in_the_address_is_not_one_in_the_name(client: httpx2.AsyncClient) -> None:
    await client.post("/collections", json={"name": "a/metadata"})
    assert (await client.get("/collections/a/metadata")).status_code == 405
    assert (await client.get("/collections/a%2Fmetadata")).status_code == 200


async def test_an_address_that_is_not_utf_8_is_400(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/collections/%ff")).status_code == 400


async def test_head_is_get_without_a_body(client: httpx2.AsyncClient) -> None:
    assert (await client.head("/collections")).status_code == 200
    assert (await client.head("/collections/none")).status_code == 404


async def test_the_same_document_has_the_same_id_and_is_there_once(client: httpx2.AsyncClient) -> None:
    await client.post("/collections", json={"name": "c"})
    document = {"text": "one", "metadata": {"b": [1, 2], "a": None}, "embedding": [1.0, 0.0]}
    turned = {"embedding": [0.0, 1.0], "metadata": {"a": None, "b": [1, 2]}, "text": "one"}
    other = {**document, "metadata": {"a": None, "b": [2, 1]}}
    first = (await client.post(at("c", "/documents"), json={"documents": [document]})).json()["ids"]
    second = (await client.post(at("c", "/documents"), json={"documents": [turned, other]})).json()["ids"]
    assert first[0] == second[0]
    assert second[0] != second[1]
    body = (await client.get(at("c", "/documents"))).json()
    assert body["total"] == 2
    assert {found["id"] for found in body["documents"]} == set(second)
    nearest = await client.post(at("c", "/query"), json={"embedding": [0, 1], "top_k": 1})
    assert nearest.json()["results"][0]["id"] == first[0]


async def test_metadata_comes_back_exactly(client: httpx2.AsyncClient) -> None:
    metadata = {"n": None, "big": 2**70, "f": 1.0, "t": True, "nested": {"x": {"y": [{"z": "ä"}, []]}}, "s": ""}
    await client.post("/collections", json={"name": "c", "metadata": metadata})
    await client.post(
        at("c", "/documents"), json={"documents": [{"text": "t", "metadata": metadata, "embedding": [1]}]}
    )
    found = json.loads((await client.get(at("c", "/documents"))).content)["documents"][0]["metadata"]
    assert json.dumps(found, sort_keys=True) == json.dumps(metadata, sort_keys=True)
    kept = json.loads((await client.get(at("c"))).content)["metadata"]
    assert json.dumps(kept, sort_keys=True) == json.dumps(metadata, sort_keys=True)


async def test_metadata_is_replaced_or_merged(client: httpx2.AsyncClient) -> None:
    await client.post("/collections", json={"name": "c", "metadata": {"a": 1, "b": 2}})
    merged = await client.put(at("c", "/metadata?merge=true"), json={"metadata": {"b": 3, "c": None}})
    assert merged.json() == {"status": "success", "collection": "c", "metadata": {"a": 1, "b": 3, "c": None}}
    replaced = await client.put(at("c", "/metadata?merge=false"), json={"metadata": {"d": 4}})
    assert replaced.json()["metadata"] == {"d": 4}


async def test_labels_may_stand_in_metadata_and_be_changed_there(client: httpx2.AsyncClient) -> None:
    """V-4."""
    labels = {"embedding_provider": "p1", "embedding_model": "m1"}
    await client.post("/collections", json={"name": "c", "metadata": {**labels, "a": 1}})
    assert (await client.get(at("c"))).json()["embedding_model"] == "m1"
    for body, model in (
        ({"metadata": {}}, "m1"),
        ({"metadata": {"embedding_model": "m2"}}, "m2"),
        ({"metadata": {"b": 1}}, "m2"),
        ({"metadata": {"embedding_model": None}}, "m2"),
    ):
        await client.put(at("c", "/metadata"), json=body)
        found = (await client.get(at("c"))).json()
        assert found["embedding_model"] == found["metadata"]["embedding_model"] == model
        assert found["embedding_provider"] == "p1"


async def test_the_values_of_a_field_are_sorted(client: httpx2.AsyncClient) -> None:
    await client.post("/collections", json={"name": "c"})
    kinds = ["b", "a", 2, 1.5, True, None, ["a", "c"], 1, {"x": 1}]
    documents = [
        {"id": str(n), "text": "t", "metadata": {"k": {"v": kind}}, "embedding": [1]} for n, kind in enumerate(kinds)
    ]
    await client.post(at("c", "/documents"), json={"documents": documents})
    body = (await client.get(at("c", "/metadata-values?field=k.v"))).json()
    assert body == {"field": "k.v", "values": [1, 1.5, 2, "a", "b", "c", True], "count": 7}
    assert (await client.get(at("c", "/metadata-values?field=none"))).json()["values"] == []


async def test_a_page_beyond_the_end_is_empty_and_reports_the_total(client: httpx2.AsyncClient) -> None:
    await client.post("/collections", json={"name": "c"})
    await client.post(at("c", "/documents"), json={"documents": [{"text": "t", "embedding": [1]}]})
    for offset in ("1", "1000000000000000000000000000000"):
        body = (await client.get(at("c", f"/documents?offset={offset}"))).json()
        assert body == {"documents": [], "count": 0, "total": 1}


async def test_a_query_is_narrowed_by_its_filter(client: httpx2.AsyncClient) -> None:
    await client.post("/collections", json={"name": "c"})
    documents = [{"id": str(n), "text": f"t{n}", "metadata": {"n": n}, "embedding": [1.0, n / 10]} for n in range(10)]
    await client.post(at("c", "/documents"), json={"documents": documents})
    asked = {"embedding": [1.0, 0.0], "where": {"n": {"$gte": 4}}, "top_k": 2}
    body = (await client.post(at("c", "/query"), json=asked)).json()
    assert [hit["id"] for hit in body["results"]] == ["4", "5"]
    assert body["results"][0]["score"] == pytest.approx(1 / (1 + 0.4**2) ** 0.5, abs=1e-6)
    assert body["results"][0].keys() == {"id", "text", "metadata", "score"}


class TestOwnEmbeddings:
    """V-4: `embedding_provider: "rag-context"`."""

    async def test_texts_are_embedded_and_queried_by_text(self, client: httpx2.AsyncClient) -> None:
        await client.post("/collections", json={"name": "c", "embedding_provider": "rag-context"})
        texts = ["valve seven opens at nine bar", "the pump in the cellar is blue"]
        added = await client.post(at("c", "/documents"), json={"documents": [{"text": text} for text in texts]})
        assert added.json()["count"] == 2
        assert (await client.get(at("c"))).json()["dimension"] == DIMENSION
        body = (await client.post(at("c", "/query"), json={"text": "which colour has the pump", "top_k": 1})).json()
        assert body["results"][0]["text"] == texts[1]

    async def test_a_document_may_bring_its_own_vector(self, client: httpx2.AsyncClient) -> None:
        await client.post("/collections", json={"name": "c", "embedding_provider": "rag-context"})
        own = {"id": "own", "text": "own", "embedding": [1.0] * DIMENSION}
        assert (await client.post(at("c", "/documents"), json={"documents": [{"text": "t"}, own]})).is_success
        short = {"id": "short", "text": "short", "embedding": [1.0]}
        rejected = await client.post(at("c", "/documents"), json={"documents": [{"text": "t"}, short]})
        assert rejected.status_code == 400
        assert rejected.json()["details"][0]["field"] == "documents[1].embedding"

    async def test_without_the_model_nothing_is_stored(self) -> None:
        embedder = Faulty(FakeEmbedder())
        embedder.fault = Fault(BackendUnavailableError("embedder", "down"))
        async with asgi_client(service_over({"default": MemoryCollections()}, embedder.port)) as client:
            await client.post("/collections", json={"name": "c", "embedding_provider": "rag-context"})
            reply = await client.post(at("c", "/documents"), json={"documents": [{"text": "t"}]})
            assert (reply.status_code, reply.json()["error"]) == (503, "Embedding service unavailable")
            assert "retry-after" in reply.headers
            assert (await client.get(at("c"))).json()["count"] == 0


class TestConnections:
    """V-6: where a collection lives."""

    async def test_one_name_on_two_connections_is_two_collections(self) -> None:
        providers = {"default": MemoryCollections(), "archive": MemoryCollections()}
        async with asgi_client(service_over(providers)) as client:
            for query in ("", "?connection=archive"):
                assert (await client.post(f"/collections{query}", json={"name": "c"})).status_code == 201
            await client.post(
                at("c", "/documents?connection=archive"), json={"documents": [{"text": "t", "embedding": [1]}]}
            )
            assert (await client.get(at("c"))).json()["count"] == 0
            archived = (await client.get(at("c", "?connection=archive"))).json()
            assert (archived["count"], archived["connection"]) == (1, "archive")

    async def test_a_dead_provider_is_503_at_once_after_a_few_failures_and_comes_back(self) -> None:
        faulty = Faulty(MemoryCollections(), "collections", "health")
        faulty.fault = Fault(BackendUnavailableError("qdrant", "refused"))
        async with asgi_client(service_over({"default": faulty.port})) as client:
            for _ in range(3):
                reply = await client.get("/collections")
                assert (reply.status_code, reply.json()["error"]) == (503, "Vector database unavailable")
                assert int(reply.headers["retry-after"]) >= 1
            calls = faulty.calls
            assert (await client.get("/collections")).status_code == 503
            assert faulty.calls == calls
            faulty.fault = None
            async with asyncio.timeout(10):
                while (await client.get("/collections")).status_code != 200:
                    await asyncio.sleep(0.05)


class TestKeys:
    """X-1."""

    async def test_a_key_that_may_only_read_may_read_and_query(self) -> None:
        keys = (
            HashedKey.parse("reader", hash_key("read-me"), Access.READ),
            HashedKey.parse("writer", hash_key("write-me"), Access.WRITE),
        )
        async with asgi_client(memory_service(), api_keys=keys) as client:
            client.headers["X-API-Key"] = "write-me"
            await client.post("/collections", json={"name": "c"})
            await client.post(at("c", "/documents"), json={"documents": [{"id": "1", "text": "t", "embedding": [1]}]})
            client.headers["X-API-Key"] = "read-me"
            for path in (
                "/collections",
                at("c"),
                at("c", "/documents"),
                at("c", "/metadata-values?field=a"),
                "/providers",
            ):
                assert (await client.get(path)).status_code == 200
            assert (await client.post(at("c", "/query"), json={"embedding": [1]})).status_code == 200
            for method, path in (
                ("POST", "/collections"),
                ("DELETE", at("c")),
                ("PUT", at("c", "/metadata")),
                ("POST", at("c", "/documents")),
                ("DELETE", at("c", "/documents/1")),
                ("DELETE", at("c", "/documents/all")),
                ("POST", "/providers/embedded/test"),
            ):
                assert (await client.request(method, path, json={})).status_code == 403, path
            del client.headers["X-API-Key"]
            assert (await client.get("/collections")).status_code == 401


async def test_more_large_bodies_than_there_is_room_for_get_a_retry_delay() -> None:
    """Memory is bounded whatever arrives at once."""
    async with asgi_client(memory_service(), collection_body_bytes=1000) as client:
        await client.post("/collections", json={"name": "c"})
        gate = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b'{"documents": '
            await gate.wait()
            yield b'[{"text": "t", "embedding": [1]}]}'

        headers = {"Content-Type": "application/json"}
        held = [
            asyncio.create_task(client.post(at("c", "/documents"), content=slow(), headers=headers)) for _ in range(4)
        ]
        async with asyncio.timeout(10):
            while True:
                await asyncio.sleep(0)
                reply = await client.post(at("c", "/documents"), content=b" " * 999, headers=headers)
                if reply.status_code == 503:
                    break
        gate.set()
        assert reply.headers["retry-after"] == "1"
        assert [done.status_code for done in await asyncio.gather(*held)] == [200] * 4


async def test_over_a_real_socket_names_keep_their_slashes_and_a_large_body_comes_in() -> None:
    """V-3, X-2: 64 MiB for documents, where all else may be 1 MiB."""
    with running(StubService(), ServerOptions(port=0)) as http_server, http_server.client() as client:
        assert client.post("/collections", json={"name": "a/../b?"}).status_code == 201
        documents = [{"id": f"{n}/x", "text": "t" * 1000, "embedding": [n, 1]} for n in range(1, 3001)]
        added = client.post(at("a/../b?", "/documents"), json={"documents": documents})
        assert added.json()["count"] == 3000
        raw = http_server.raw(b"DELETE /collections/a%2F..%2Fb%3F/documents/7%2Fx HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (raw.status, raw.json()["id"]) == (200, "7/x")
