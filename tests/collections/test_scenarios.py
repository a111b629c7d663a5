"""The scenarios of the collections' specification, word for word, on every provider."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from rag_context.collections.provider_connections import DEFAULT
from rag_context.ports.provider import Provider

from .asgi_client import asgi_client
from .conftest import OPENERS
from .services import service_over

SECTION = [
    ("heading", "Retention"),
    ("paragraph", "Logs are kept for 31 days."),
    ("paragraph", "Older ones go at night."),
    ("code", "retention_days = 31"),
]


@pytest.fixture(params=["embedded", "postgres", "qdrant over http", "chroma"])
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    """One of each kind; what they share with their variants is proved by the contract."""
    async with OPENERS[request.param](request) as opened:
        yield opened


@pytest.fixture
async def client(provider: Provider) -> AsyncIterator[httpx2.AsyncClient]:
    async with asgi_client(service_over({DEFAULT: provider})) as client:
        await client.post("/collections", json={"name": "docs"})
        yield client


def document(number: int, **metadata: Any) -> dict[str, Any]:
    return {
        "id": f"d{number:03}",
        "text": f"text {number}",
        "metadata": metadata,
        "embedding": [1.0, number / 1000, 0.5],
    }


async def stored(client: httpx2.AsyncClient, *documents: dict[str, Any]) -> None:
    reply = await client.post("/collections/docs/documents", json={"documents": list(documents)})
    assert reply.status_code == 200, reply.text


async def listed(client: httpx2.AsyncClient, where: object = None, **asked: Any) -> dict[str, Any]:
    fields = asked if where is None else {"where": json.dumps(where), **asked}
    reply = await client.get("/collections/docs/documents", params=fields)
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def ids(body: dict[str, Any]) -> list[str]:
    return [found["id"] for found in body["documents"]]


class TestDocumentStorage:
    async def test_add_documents_with_precomputed_embeddings(self, client: httpx2.AsyncClient) -> None:
        reply = await client.post("/collections/docs/documents", json={"documents": [document(1), document(2)]})

        assert reply.status_code == 200
        assert reply.json() == {"status": "success", "count": 2, "ids": ["d001", "d002"]}

    async def test_add_documents_without_embeddings(self, client: httpx2.AsyncClient) -> None:
        bare = {"text": "no vector", "metadata": {}}

        reply = await client.post("/collections/docs/documents", json={"documents": [document(1), bare]})

        assert reply.status_code == 400
        assert reply.json()["error"] == "All documents must include pre-computed embeddings"
        assert [detail["field"] for detail in reply.json()["details"]] == ["documents[1].embedding"]
        assert (await listed(client))["total"] == 0

    @pytest.mark.parametrize("embedding", ["0.1, 0.2", {"0": 1.0}, 7, True, [1.0, "2.0"], [1.0, None], [[1.0]]])
    async def test_add_documents_with_invalid_embedding_format(
        self, client: httpx2.AsyncClient, embedding: object
    ) -> None:
        wrong = {**document(1), "embedding": embedding}

        reply = await client.post("/collections/docs/documents", json={"documents": [wrong]})

        assert reply.status_code == 400
        assert reply.json()["error"] == "documents[0].embedding must be an array of numbers"

    async def test_add_documents_with_mismatched_embedding_dimensions(self, client: httpx2.AsyncClient) -> None:
        flat = {**document(2), "embedding": [1.0, 2.0]}

        reply = await client.post("/collections/docs/documents", json={"documents": [document(1), flat]})

        assert reply.status_code == 400
        said = "Embedding dimension mismatch: documents[0] has 3 dimensions and documents[1] has 2"
        assert reply.json()["error"] == said
        assert (await listed(client))["total"] == 0

    @pytest.mark.parametrize("body", [{"documents": []}, {}, {"documents": None}, {"documents": "x"}])
    async def test_empty_documents_array(self, client: httpx2.AsyncClient, body: object) -> None:
        reply = await client.post("/collections/docs/documents", json=body)

        assert reply.status_code == 400
        assert reply.json()["error"] == "Documents array is required"


class TestCollectionMetadata:
    async def test_create_collection_with_metadata(self, client: httpx2.AsyncClient) -> None:
        reply = await client.post(
            "/collections",
            json={
                "name": "handbook",
                "embedding_provider": "a provider nobody has heard of",
                "embedding_model": "m-1",
                "metadata": {"owner": "docs", "nested": {"deep": [1, None, True]}},
            },
        )

        assert reply.status_code == 201
        assert reply.json()["status"] == "created"
        assert reply.json()["metadata"] == {
            "owner": "docs",
            "nested": {"deep": [1, None, True]},
            "embedding_provider": "a provider nobody has heard of",
            "embedding_model": "m-1",
        }

    async def test_retrieve_collection_with_metadata(self, client: httpx2.AsyncClient) -> None:
        await client.post("/collections", json={"name": "handbook", "metadata": {"owner": "docs"}})

        body = (await client.get("/collections/handbook")).json()

        assert (body["name"], body["metadata"], body["count"]) == ("handbook", {"owner": "docs"}, 0)

    async def test_update_collection_metadata(self, client: httpx2.AsyncClient) -> None:
        """The labels survive (V-4)."""
        await client.post(
            "/collections", json={"name": "handbook", "embedding_model": "m-1", "metadata": {"owner": "docs"}}
        )

        reply = await client.put("/collections/handbook/metadata", json={"metadata": {"stage": "live"}})

        assert reply.status_code == 200
        assert reply.json()["status"] == "success"
        body = (await client.get("/collections/handbook")).json()
        assert body["metadata"] == {"stage": "live", "embedding_model": "m-1"}
        assert body["embedding_model"] == "m-1"

    async def test_retrieve_all_collections_with_metadata(self, client: httpx2.AsyncClient) -> None:
        await client.post("/collections", json={"name": "handbook", "metadata": {"owner": "docs"}})

        body = (await client.get("/collections")).json()

        assert [(found["name"], found["metadata"]) for found in body["collections"]] == [
            ("docs", {}),
            ("handbook", {"owner": "docs"}),
        ]
        assert body["count"] == 2


class TestMetadataQueries:
    async def test_simple_equality_filter(self, client: httpx2.AsyncClient) -> None:
        await stored(client, document(1, section_id="intro"), document(2, section_id="end"))

        body = await listed(client, {"section_id": "intro"})

        assert body == {
            "documents": [{"id": "d001", "text": "text 1", "metadata": {"section_id": "intro"}}],
            "count": 1,
            "total": 1,
        }

    async def test_multiple_field_filter_is_an_implicit_and(self, client: httpx2.AsyncClient) -> None:
        await stored(
            client,
            document(1, chapter_id="1", doc_type="paragraph"),
            document(2, chapter_id="1", doc_type="code"),
            document(3, chapter_id="2", doc_type="paragraph"),
        )

        assert ids(await listed(client, {"chapter_id": "1", "doc_type": "paragraph"})) == ["d001"]

    async def test_complex_filter_with_operators(self, client: httpx2.AsyncClient) -> None:
        kinds = ("heading", "code", "paragraph", "list")
        await stored(client, *(document(n, doc_type=kind) for n, kind in enumerate(kinds)))

        assert ids(await listed(client, {"doc_type": {"$in": ["heading", "paragraph"]}})) == ["d000", "d002"]

    async def test_logical_or_operator(self, client: httpx2.AsyncClient) -> None:
        await stored(client, *(document(n, chapter=str(n)) for n in range(1, 5)))

        assert ids(await listed(client, {"$or": [{"chapter": "1"}, {"chapter": "3"}]})) == ["d001", "d003"]

    async def test_no_filter_provided(self, client: httpx2.AsyncClient) -> None:
        await stored(client, *(document(n) for n in range(500)))

        body = await listed(client)

        assert (body["count"], body["total"], len(body["documents"])) == (100, 500, 100)

    async def test_pagination_with_limit_and_offset(self, client: httpx2.AsyncClient) -> None:
        await stored(client, *(document(n, kind="a" if n <= 250 else "b") for n in range(1, 301)))

        body = await listed(client, {"kind": "a"}, limit=50, offset=100)

        assert ids(body) == [f"d{n:03}" for n in range(101, 151)]
        assert (body["count"], body["total"]) == (50, 250)
        beyond = await listed(client, {"kind": "a"}, offset=10**30)
        assert (beyond["documents"], beyond["total"]) == ([], 250)

    async def test_empty_results(self, client: httpx2.AsyncClient) -> None:
        await stored(client, document(1, kind="a"))

        assert await listed(client, {"kind": "never seen"}) == {"documents": [], "count": 0, "total": 0}

    async def test_collection_not_found(self, client: httpx2.AsyncClient) -> None:
        reply = await client.get("/collections/nonexistent/documents")

        assert reply.status_code == 404
        assert reply.json()["error"] == "Collection 'nonexistent' not found"

    async def test_invalid_json_filter(self, client: httpx2.AsyncClient) -> None:
        reply = await client.get("/collections/docs/documents?where=invalid-json-string")

        assert reply.status_code == 400
        assert reply.json()["error"] == "Invalid 'where' filter: must be valid JSON"

    async def test_limit_enforcement(self, client: httpx2.AsyncClient) -> None:
        for start in (0, 600):
            await stored(client, *({**document(0), "id": f"{n:04}"} for n in range(start, start + 600)))

        body = await listed(client, limit=5000)

        assert (body["count"], body["total"]) == (1000, 1200)

    async def test_sibling_gathering_use_case(self, client: httpx2.AsyncClient) -> None:
        """A fragment is found by its vector, and the section that it stands in by its section_id."""
        order = ("heading", "paragraph", "code")
        section = [
            {
                "id": f"r{n}",
                "text": text,
                "metadata": {"section_id": "retention-config", "doc_type": kind},
                "embedding": [0.2, 0.2, float(n)],
            }
            for n, (kind, text) in enumerate(SECTION)
        ]
        await stored(client, *reversed(section), document(7, section_id="intro", doc_type="heading"))

        found = await client.post("/collections/docs/query", json={"embedding": [0.2, 0.2, 1.0], "top_k": 1})
        (fragment,) = found.json()["results"]
        body = await listed(client, {"section_id": fragment["metadata"]["section_id"]})

        assert fragment["text"] == "Logs are kept for 31 days."
        assert fragment["score"] == pytest.approx(1.0)
        whole = sorted(body["documents"], key=lambda found: order.index(found["metadata"]["doc_type"]))
        assert [(found["metadata"]["doc_type"], found["text"]) for found in whole] == SECTION
