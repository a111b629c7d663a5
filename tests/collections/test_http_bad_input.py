"""What collections reject over HTTP: each with a sentence that says where and why, and nothing changed."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from .asgi_client import asgi_client
from .services import memory_service

JSON = {"Content-Type": "application/json"}
GOOD = {"id": "d", "text": "good", "embedding": [1.0, 0.0]}


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with asgi_client(memory_service()) as client:
        await client.post("/collections", json={"name": "docs"})
        yield client


async def add(client: httpx2.AsyncClient, *documents: object) -> httpx2.Response:
    return await client.post("/collections/docs/documents", content=json.dumps({"documents": documents}), headers=JSON)


async def rejected(client: httpx2.AsyncClient, *documents: object) -> dict[str, Any]:
    """The error of an addition; nothing may have come in with it."""
    reply = await add(client, *documents)
    assert reply.status_code == 400, reply.text
    body: dict[str, Any] = reply.json()
    assert (body["code"], body["requestId"]) == ("INVALID_INPUT", reply.headers["x-request-id"])
    assert (await client.get("/collections/docs/documents")).json()["total"] == 0
    return body


def with_embedding(*numbers: Any) -> dict[str, Any]:
    return {"text": "t", "embedding": list(numbers)}


@pytest.mark.parametrize(
    ("embedding", "said"),
    [
        ([1.0, float("nan")], "documents[1].embedding must not hold NaN or an infinite number"),
        ([1.0, float("-inf")], "documents[1].embedding must not hold NaN or an infinite number"),
        ([0.0, 0], "documents[1].embedding must not be all zeros: it has no direction"),
        ([], "documents[1].embedding must have 1 to 65535 dimensions, not 0"),
        ([0.5] * 100_000, "documents[1].embedding must have 1 to 65535 dimensions, not 100000"),
        ([1, 10**400], "documents[1].embedding must not hold a number beyond the range of floating point"),
        ([1, True], "documents[1].embedding must be an array of numbers"),
    ],
)
async def test_an_invalid_embedding_is_named_by_its_position(
    client: httpx2.AsyncClient, embedding: list[Any], said: str
) -> None:
    body = await rejected(client, GOOD, with_embedding(*embedding))
    assert body["error"] == said
    assert body["details"] == [{"field": "documents[1].embedding", "message": said}]


async def test_very_large_and_very_small_numbers_have_a_direction(client: httpx2.AsyncClient) -> None:
    assert (await add(client, with_embedding(1e300, 0.0), {**with_embedding(0, 5e-324), "id": "small"})).is_success
    found = await client.post("/collections/docs/query", json={"embedding": [0, 1e-310], "top_k": 1})
    assert [(hit["id"], round(hit["score"], 6)) for hit in found.json()["results"]] == [("small", 1.0)]


async def test_a_collection_is_bound_to_its_first_dimension(client: httpx2.AsyncClient) -> None:
    """V-4."""
    await add(client, GOOD)
    added = await add(client, with_embedding(1, 2, 3))
    queried = await client.post("/collections/docs/query", json={"embedding": [1, 2, 3]})
    said = "Collection 'docs' holds vectors of 2 dimensions, not of 3"
    assert (added.status_code, added.json()["error"]) == (400, said)
    assert (queried.status_code, queried.json()["error"]) == (400, said)
    assert (await client.get("/collections/docs")).json()["dimension"] == 2


async def test_the_dimension_stays_when_a_collection_is_emptied(client: httpx2.AsyncClient) -> None:
    await add(client, GOOD)
    await client.delete("/collections/docs/documents/all")
    assert (await add(client, with_embedding(1, 2, 3))).status_code == 400


@pytest.mark.parametrize(
    ("document", "field", "said"),
    [
        ("a string", "documents[0]", "documents[0] must be an object"),
        ({**GOOD, "text": None}, "documents[0].text", "documents[0].text required"),
        ({**GOOD, "text": " \n"}, "documents[0].text", "documents[0].text must not be empty"),
        ({**GOOD, "text": 5}, "documents[0].text", "documents[0].text must be a string"),
        ({**GOOD, "text": "x" * 1_000_001}, "documents[0].text", "documents[0].text too long (max 1000000 characters)"),
        ({**GOOD, "metadata": []}, "documents[0].metadata", "documents[0].metadata must be an object"),
        ({**GOOD, "id": 5}, "documents[0].id", "documents[0].id must be a string"),
        ({**GOOD, "id": ""}, "documents[0].id", "documents[0].id must not be empty"),
        ({**GOOD, "id": ".."}, "documents[0].id", "documents[0].id must not be . or .., which no address can hold"),
        (
            {**GOOD, "id": "all"},
            "documents[0].id",
            "documents[0].id must not be 'all', which means every document where documents are deleted",
        ),
        ({**GOOD, "meta": {}}, "documents[0].meta", "Unknown field 'meta'; known are id, text, metadata, embedding"),
    ],
)
async def test_a_wrong_field_is_named(client: httpx2.AsyncClient, document: object, field: str, said: str) -> None:
    body = await rejected(client, document)
    assert body["details"] == [{"field": field, "message": said}]
    assert body["error"] == said


async def test_half_a_surrogate_pair_and_nul_are_no_text(client: httpx2.AsyncClient) -> None:
    said = "must not hold the NUL character or half a surrogate pair"
    for text in ("\ud800", "a\0b"):
        assert (await rejected(client, {**GOOD, "text": text}))["error"] == f"documents[0].text {said}"
    assert "control characters" in (await rejected(client, {**GOOD, "id": "\udfff"}))["error"]
    await rejected(client, {**GOOD, "metadata": {"a": "\ud800"}})


async def test_all_that_is_wrong_is_reported_at_once(client: httpx2.AsyncClient) -> None:
    """T-6."""
    body = await rejected(
        client, {"text": "t"}, {**GOOD, "text": ""}, {**GOOD, "id": "e", "metadata": 3}, with_embedding(0)
    )
    assert [detail["field"] for detail in body["details"]] == [
        "documents[0].embedding",
        "documents[1].text",
        "documents[2].metadata",
        "documents[3].embedding",
    ]
    assert body["error"] == (
        "All documents must include pre-computed embeddings; documents[1].text must not be empty; "
        "documents[2].metadata must be an object; documents[3].embedding must not be all zeros: it has no direction"
    )


async def test_duplicate_ids_in_one_request_are_rejected(client: httpx2.AsyncClient) -> None:
    body = await rejected(client, GOOD, {**GOOD, "id": "other"}, {**GOOD, "text": "another"})
    assert body["details"] == [
        {"field": "documents[2].id", "message": "documents[2].id is the same as documents[0].id"}
    ]


async def test_the_same_document_twice_in_one_request_is_rejected(client: httpx2.AsyncClient) -> None:
    twin = with_embedding(1, 2)
    said = "documents[1] is the same as documents[0]: leave one out, or give each an id of its own"
    assert (await rejected(client, twin, twin))["error"] == said


@pytest.mark.parametrize("metadata", [{"a.b": 1}, {"": 1}, {"$a": 1}, {"x": [{"a.b": 1}]}, {"n": float("nan")}])
async def test_metadata_that_no_filter_could_match_is_rejected(
    client: httpx2.AsyncClient, metadata: dict[str, Any]
) -> None:
    body = await rejected(client, {**GOOD, "metadata": metadata})
    assert body["error"].startswith("documents[0].metadata")
    assert body["details"][0]["field"].startswith("documents[0].metadata")
    created = await client.post("/collections", content=json.dumps({"name": "n", "metadata": metadata}), headers=JSON)
    assert created.status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"documents"',
        b'{"documents": [',
        b'{"documents": [{]}',
        b'{"documents": [] ',
        b'{"documents": [{}] x}',
        b'{"documents": [{}],}',
        b'{"documents": [{}]} {}',
        b'{,"documents": []}',
        b'{"documents": [1 2]}',
        b'{"documents": [{}], "more": 1}',
        b'{"documents": [{}], "documents": [{}]}',
        b'\xff\xfe{"documents": []}',
        b'{"documents": [' + b"[" * 100_000,
        b'{"documents": [{"text": ' + b"9" * 10_000 + b"}]}",
    ],
)
async def test_a_body_that_is_not_documents_is_rejected(client: httpx2.AsyncClient, body: bytes) -> None:
    reply = await client.post("/collections/docs/documents", content=body, headers=JSON)
    assert reply.status_code == 400
    assert reply.json()["code"] == "INVALID_INPUT"
    assert (await client.get("/collections/docs/documents")).json()["total"] == 0


async def test_a_body_of_another_kind_is_415(client: httpx2.AsyncClient) -> None:
    reply = await client.post("/collections/docs/documents", content=b"{}", headers={"Content-Type": "text/plain"})
    assert reply.status_code == 415


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "name must not be empty"),
        ("  ", "name must not be empty"),
        ("x" * 301, "name too long (max 300 characters)"),
        ("a\nb", "name must not hold control characters or half a surrogate pair"),
        ("a\x7fb", "name must not hold control characters or half a surrogate pair"),
        (".", "name must not be . or .., which no address can hold"),
        ("..", "name must not be . or .., which no address can hold"),
        (5, "name must be a string"),
        (None, "name required"),
    ],
)
async def test_an_invalid_name_is_rejected(client: httpx2.AsyncClient, name: object, said: str) -> None:
    reply = await client.post("/collections", json={"name": name})
    assert (reply.status_code, reply.json()["error"]) == (400, said)
    assert (await client.get("/collections")).json()["count"] == 1


async def test_an_existing_name_is_409_and_changes_nothing(client: httpx2.AsyncClient) -> None:
    """V-4."""
    reply = await client.post("/collections", json={"name": "docs", "metadata": {"a": 1}})
    assert (reply.status_code, reply.json()["code"]) == (409, "CONFLICT")
    assert reply.json()["error"] == "Collection 'docs' already exists"
    assert (await client.get("/collections/docs")).json()["metadata"] == {}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/collections/x"),
        ("DELETE", "/collections/x"),
        ("GET", "/collections/x/documents"),
        ("DELETE", "/collections/x/documents/all"),
        ("DELETE", "/collections/x/documents/1"),
        ("GET", "/collections/x/metadata-values?field=a"),
    ],
)
async def test_an_unknown_collection_is_404(client: httpx2.AsyncClient, method: str, path: str) -> None:
    reply = await client.request(method, path)
    assert (reply.status_code, reply.json()["error"]) == (404, "Collection 'x' not found")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/collections/x/metadata", {"metadata": {}}),
        ("POST", "/collections/x/documents", {"documents": [GOOD]}),
        ("POST", "/collections/x/query", {"embedding": [1.0]}),
        ("POST", "/collections/x/query", {"text": "what"}),
    ],
)
async def test_an_unknown_collection_is_404_for_bodies_too(
    client: httpx2.AsyncClient, method: str, path: str, body: object
) -> None:
    reply = await client.request(method, path, json=body)
    assert (reply.status_code, reply.json()["error"]) == (404, "Collection 'x' not found")


async def test_an_unknown_connection_is_404_and_the_known_ones_are_named(client: httpx2.AsyncClient) -> None:
    reply = await client.get("/collections?connection=elsewhere")
    said = "Connection 'elsewhere' not found; known are default"
    assert (reply.status_code, reply.json()["error"]) == (404, said)


async def test_an_unknown_document_is_404(client: httpx2.AsyncClient) -> None:
    reply = await client.delete("/collections/docs/documents/none")
    assert (reply.status_code, reply.json()["error"]) == (404, "Document 'none' not found")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("limit=0", "limit must be at least 1"),
        ("limit=-1", "limit must be at least 1"),
        ("offset=-1", "offset must be at least 0"),
        ("limit=--1", "limit must be a whole number"),
        ("limit=ten", "limit must be a whole number"),
        ("limit=1.5", "limit must be a whole number"),
        ("limit=", "limit must be a whole number"),
        ("limit=5&limit=6", "limit given twice"),
        ("filter={}", "Unknown field 'filter'; known are connection, where, limit, offset, ids, include"),
        ("Limit=1", "Unknown field 'Limit'; did you mean 'limit'?"),
        ("where=", "Invalid 'where' filter: must be valid JSON"),
        ("where=[1]", "Invalid 'where' filter: must be a JSON object"),
        ("where={", "Invalid 'where' filter: must be valid JSON"),
    ],
)
async def test_a_wrong_query_string_is_rejected(client: httpx2.AsyncClient, fields: str, said: str) -> None:
    reply = await client.get(f"/collections/docs/documents?{fields}")
    assert (reply.status_code, reply.json()["error"]) == (400, said)


@pytest.mark.parametrize("where", [{"a": {"$regex": "x"}}, {"$nor": [{"a": 1}]}])
async def test_an_unknown_operator_is_named(client: httpx2.AsyncClient, where: dict[str, Any]) -> None:
    """V-5."""
    operator = "$nor" if "$nor" in where else "$regex"
    by_address = await client.get("/collections/docs/documents", params={"where": json.dumps(where)})
    by_body = await client.post("/collections/docs/query", json={"embedding": [1], "where": where})
    for reply in (by_address, by_body):
        assert reply.status_code == 400
        assert reply.json()["error"].startswith("Invalid 'where' filter: ")
        assert operator in reply.json()["error"]


@pytest.mark.parametrize("where", ['{"a":1,"a":2}', '{"$not":{"$or":[{"b":3},{"a":1,"a":1}]}}'])
async def test_a_condition_that_json_would_lose_is_rejected(client: httpx2.AsyncClient, where: str) -> None:
    """V-5: in an address and in a body."""
    by_address = await client.get("/collections/docs/documents", params={"where": where})
    by_body = await client.post("/collections/docs/query", content=f'{{"embedding":[1],"where":{where}}}', headers=JSON)
    said = "Invalid 'where' filter: has 'a' twice; put both conditions into $and"
    assert (by_address.status_code, by_address.json()["error"]) == (400, said)
    assert (by_body.status_code, by_body.json()["error"]) == (400, "a given twice")


@pytest.mark.parametrize("depth", [33, 1000, 50_000])
async def test_a_filter_too_deep_is_rejected(client: httpx2.AsyncClient, depth: int) -> None:
    """V-5."""
    deep = '{"$not":' * depth + '{"a":1}' + "}" * depth
    by_address = await client.get("/collections/docs/documents", params={"where": deep}) if depth < 5000 else None
    by_body = await client.post("/collections/docs/query", content=f'{{"embedding":[1],"where":{deep}}}', headers=JSON)
    assert by_body.status_code == 400
    if by_address is not None:
        assert by_address.status_code == 400
        assert "32 levels" in by_address.json()["error"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "Name exactly one of embedding or text"),
        ({"embedding": [1], "text": "both"}, "Name exactly one of embedding or text"),
        ({"embedding": []}, "embedding must have 1 to 65535 dimensions, not 0"),
        ({"embedding": [0, 0]}, "embedding must not be all zeros: it has no direction"),
        ({"embedding": "abc"}, "embedding must be an array of numbers"),
        ({"embedding": [1], "top_k": 0}, "top_k must be at least 1"),
        ({"embedding": [1], "where": "x"}, "where must be an object"),
        (
            {"embedding": [1], "limit": 3},
            "Unknown field 'limit'; known are embedding, text, mode, min_score, where, top_k",
        ),
        ({"text": " "}, "text must not be empty; leave it out instead"),
    ],
)
async def test_a_wrong_query_is_rejected(client: httpx2.AsyncClient, body: object, said: str) -> None:
    reply = await client.post("/collections/docs/query", json=body)
    assert (reply.status_code, reply.json()["error"]) == (400, said)


async def test_texts_are_embedded_only_where_the_label_says_so(client: httpx2.AsyncClient) -> None:
    """V-4."""
    reply = await client.post("/collections/docs/query", json={"text": "what"})
    assert reply.status_code == 400
    assert reply.json()["error"] == (
        "Collection 'docs' has embeddings made elsewhere: send an embedding instead of a text "
        "(its embedding_provider is not 'rag-context')"
    )


@pytest.mark.parametrize("field", ["", ".", "a.", ".a", "a..b"])
async def test_values_need_the_name_of_a_field(client: httpx2.AsyncClient, field: str) -> None:
    assert (await client.get("/collections/docs/metadata-values", params={"field": field})).status_code == 400


async def test_values_without_a_field_are_rejected(client: httpx2.AsyncClient) -> None:
    reply = await client.get("/collections/docs/metadata-values")
    assert (reply.status_code, reply.json()["error"]) == (400, "field required")


@pytest.mark.parametrize("merge", ["true", "false"])
async def test_an_invalid_label_is_rejected_and_the_old_one_stays(client: httpx2.AsyncClient, merge: str) -> None:
    """V-4: it would hide the label that there is."""
    address = f"/collections/docs/metadata?merge={merge}"
    await client.put(address, json={"metadata": {"embedding_provider": "second"}})
    reply = await client.put(address, json={"metadata": {"embedding_provider": 5, "a": 1}})
    said = "metadata.embedding_provider must be a string; leave it out to keep it unchanged"
    assert (reply.status_code, reply.json()["error"]) == (400, said)
    found = (await client.get("/collections/docs")).json()
    assert (found["embedding_provider"], found["metadata"]) == ("second", {"embedding_provider": "second"})


@pytest.mark.parametrize("merge", ["yes", "1", ""])
async def test_merge_is_true_or_false(client: httpx2.AsyncClient, merge: str) -> None:
    reply = await client.put(f"/collections/docs/metadata?merge={merge}", json={"metadata": {}})
    assert (reply.status_code, reply.json()["error"]) == (400, "merge must be true or false")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/collections", "GET, HEAD, POST"),
        ("POST", "/collections/docs", "DELETE, GET, HEAD"),
        ("GET", "/collections/docs/query", "POST"),
        ("POST", "/collections/docs/metadata", "PUT"),
        ("GET", "/collections/docs/documents/d", "DELETE"),
        ("POST", "/providers", "GET, HEAD"),
        ("GET", "/providers/embedded/test", "POST"),
    ],
)
async def test_another_method_is_405_and_says_which_are_allowed(
    client: httpx2.AsyncClient, method: str, path: str, allowed: str
) -> None:
    reply = await client.request(method, path)
    assert (reply.status_code, reply.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize(
    "path", ["/collections/", "/collections/docs/", "/collections/docs/more", "/collections/a/b/c/d"]
)
async def test_an_unknown_address_is_404(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code in (400, 404)


async def test_too_large_a_body_is_413(client: httpx2.AsyncClient) -> None:
    """X-2: documents may be large, all else may not."""
    async with asgi_client(memory_service(), body_bytes=1000, collection_body_bytes=5000) as small:
        await small.post("/collections", json={"name": "docs"})
        text = "x" * 2000
        assert (await small.post("/collections", json={"name": "n", "metadata": {"a": text}})).status_code == 413
        assert (await add(small, {**GOOD, "text": text})).status_code == 200
        assert (await add(small, {**GOOD, "text": text * 3})).status_code == 413
