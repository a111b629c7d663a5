"""The tools over HTTP: what goes in, what comes out, and the one shape of errors."""

import json
from typing import Any

import httpx2
import pytest

from rag_context.errors import BackendDataError, BackendUnavailableError, InvalidInputError, NotFoundError

from .server_thread import DOCUMENT, INDEX, SEARCH, Running


def details(reply: httpx2.Response) -> dict[str, str]:
    assert reply.status_code == 400, reply.text
    body = reply.json()
    assert body["code"] == "INVALID_INPUT"
    assert body["requestId"] == reply.headers["x-request-id"]
    return {detail["field"]: detail["message"] for detail in body["details"]}


def test_search_answers_with_the_envelope(client: httpx2.Client, open_server: Running) -> None:
    """T-1: camelCase, absent rather than null, times in UTC with Z."""
    reply = client.post(SEARCH, json={"query": "retry logic", "limit": 1, "sessionId": "s", "minScore": 0})
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == {
        "results": [
            {
                "content": "MongoDB connections should use retry logic with exponential backoff.",
                "score": 0.89,
                "source": "docs/architecture/mongodb-patterns.md",
                "timestamp": "2026-02-18T10:30:00Z",
                "occurredAt": "2026-02-18T10:30:00Z",
                "metadata": {"agent": "oracle", "tags": ["mongodb", "retry"]},
                "documentId": "d1",
                "startLine": 3,
                "origin": "unknown",
            }
        ],
        "latency": 1.25,
        "fallback": False,
        "fallbackLevel": 1,
        "circuitBreakerOpen": False,
        "totalIndexed": 523,
        "requestId": reply.headers["x-request-id"],
        "legs": {"text": {"status": "ok", "latencyMs": 0.5}},
    }
    asked = open_server.service.searches[0]
    assert (asked.query, asked.limit, asked.session_id, asked.min_score) == ("retry logic", 1, "s", 0.0)


def test_null_means_absent(client: httpx2.Client, open_server: Running) -> None:
    """T-8: clients send null for what they do not set."""
    reply = client.post(SEARCH, json={"query": "q", "limit": None, "category": None, "game": None, "explain": None})
    assert reply.status_code == 200
    assert open_server.service.searches[0].limit == 5
    reply = client.post(INDEX, json={**DOCUMENT, "metadata": {"category": "casino", "game": None, "note": None}})
    assert reply.status_code == 200
    metadata = open_server.service.indexed[0].metadata
    assert metadata is not None
    assert metadata.to_metadata().category == "casino"
    assert metadata.to_metadata().extra == {}


def test_every_field_at_fault_is_named_at_once(client: httpx2.Client) -> None:
    """T-6: all field errors in one 400."""
    body = {"query": " ", "limit": "3", "category": "poetry", "tags": "x", "since": "yesterday", "minScore": 2, "x": 1}
    found = details(client.post(SEARCH, json=body))
    assert list(found) == ["query", "limit", "category", "tags", "since", "minScore", "x"]
    assert found["query"] == "Query cannot be empty"
    assert found["limit"] == "limit must be a whole number"
    assert found["minScore"] == "minScore must be at most 1"


def test_an_index_request_with_nothing_in_it_says_what_it_needs(client: httpx2.Client) -> None:
    """T-6: the sentences, word for word."""
    assert details(client.post(INDEX, json={})) == {
        "content": "Content cannot be empty",
        "contentType": "Content type required",
        "sessionId": "Session ID required",
        "source": "Source required",
    }


def test_a_single_error_is_the_sentence_itself(client: httpx2.Client) -> None:
    assert client.post(SEARCH, json={"query": ""}).json()["error"] == "Query cannot be empty"
    assert client.post(SEARCH, json={"query": "a" * 1001}).json()["error"] == "Query too long (max 1000 characters)"
    large = client.post(INDEX, json={**DOCUMENT, "content": "a" * 100_001})
    assert large.json()["error"] == "Content too large (max 100KB)"


def test_a_misspelt_field_is_rejected_by_name_with_the_nearest_known(
    client: httpx2.Client, open_server: Running
) -> None:
    """T-8: an ignored filter would return the wrong context."""
    found = details(client.post(SEARCH, json={"query": "q", "sesionId": "s", "content_type": "chat"}))
    assert found["sesionId"] == "Unknown field 'sesionId'; did you mean 'sessionId'?"
    assert found["content_type"] == "Unknown field 'content_type'; did you mean 'contentType'?"
    assert open_server.service.searches == []


_NAMES = ("sessionId", "game", "agent", "source", "project", "branch")
WRONG: dict[str, list[Any]] = {
    "query": [None, 3, True, [], {}, "", "\t \n", "a\0b", "a" * 1001],
    "limit": ["3", True, 2.5, 0, 21, -1, 10**30, 1e300, [], {}],
    **{name: [3, True, [], {}, "", "a\x07b", "a" * 1025] for name in _NAMES},
    **{name: ["", "nope", 3, True, []] for name in ("category", "contentType", "mode")},
    "tags": ["a", {}, 1, ["a"] * 65],
    "tags[0]": [[None], [3], [""], ["a" * 129], ["a\0"], [["a"]]],
    "minScore": ["0.5", True, -0.1, 1.1, []],
    **{
        name: [0, True, "", "2026-01-01", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z", "2026-01-01 00:00:00Z"]
        for name in ("since", "until", "asOf")
    },
    **{name: [0, 1, "true", "false", []] for name in ("explain", "strict")},
    "pathHash": ["", "0123456789abcde", "0123456789ABCDEF", "0123456789abcdef0", 3],
}


def cases(table: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(field, wrong) for field, values in table.items() for wrong in values]


@pytest.mark.parametrize(("field", "wrong"), cases(WRONG), ids=lambda value: repr(value)[:30])
def test_every_wrong_value_of_a_search_field_is_rejected(client: httpx2.Client, field: str, wrong: object) -> None:
    """T-6, T-8: strict types, bounds and forms; the field is named and nothing else."""
    body = {"query": "q", field.partition("[")[0]: wrong}
    assert list(details(client.post(SEARCH, json=body))) == [field]


WRONG_DOCUMENTS: dict[str, list[Any]] = {
    "content": [3, [], "", " \n", "a\0", "a" * 100_001],
    "contentType": [3, "", "poem", "Chat"],
    "sessionId": [3, "", " ", "a\x1b", "a" * 257],
    "source": [3, "", " ", "a\0", "a" * 1025],
    "metadata": [3, "x", [], {"note": "a" * 17_000}, {"a\0": 1}, {"k" * 129: 1}],
    "metadata.agent": [{"agent": 3}, {"agent": []}, {"agent": "a\0"}, {"agent": "a" * 257}],
    "metadata.tags": [{"tags": "a"}, {"tags": {}}, {"tags": ["a"] * 65}],
    "metadata.tags[1]": [{"tags": ["a", None]}, {"tags": ["a", 1]}, {"tags": ["a", ""]}, {"tags": ["a", "a" * 129]}],
    "agent": [3, "", "a\x02"],
    "metadata.decisionId": [{"decisionId": 7}],
    "fromFile": [True],
}


@pytest.mark.parametrize(("field", "wrong"), cases(WRONG_DOCUMENTS), ids=lambda value: repr(value)[:30])
def test_every_wrong_value_of_an_index_field_is_rejected(client: httpx2.Client, field: str, wrong: object) -> None:
    """T-6, T-8."""
    body = {**DOCUMENT, field.partition(".")[0]: wrong}
    assert list(details(client.post(INDEX, json=body))) == [field]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"nonsense",
        b"[]",
        b"null",
        b'"query"',
        b"\xef\xbb\xbf{}",
        b'{"query":"\xff"}',
        b'{"query":"\\ud800"}',
        b'{"query":"q","minScore":NaN}',
        b'{"query":"q","minScore":Infinity}',
        b'{"query":"q","minScore":1e999}',
        b'{"query":"q","limit":' + b"9" * 5000 + b"}",
        b'{"query":"q","limit":' + b"9" * 100 + b"}",
        b'{"query":"q","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"query":"q","x":' + b'{"a":' * 500 + b"1" + b"}" * 501,
        b'{"query":"q",}',
        b"{'query':'q'}",
    ],
    ids=lambda body: repr(body[:30]),
)
def test_a_body_that_is_not_a_proper_json_object_is_400(client: httpx2.Client, body: bytes) -> None:
    """T-6: never 422, never 500."""
    assert details(client.post(SEARCH, content=body, headers={"content-type": "application/json"}))


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b'{"deep":[NaN]}'])
def test_metadata_cannot_contain_what_json_cannot(client: httpx2.Client, number: bytes) -> None:
    document = json.dumps(DOCUMENT)[:-1].encode() + b',"metadata":{"n":' + number + b"}}"
    reply = client.post(INDEX, content=document, headers={"content-type": "application/json"})
    assert list(details(reply)) == ["metadata"]


def test_an_integral_float_is_an_integer(client: httpx2.Client, open_server: Running) -> None:
    """JSON Schema calls 3.0 an integer."""
    reply = client.post(SEARCH, content=b'{"query":"q","limit":3.0}', headers={"content-type": "application/json"})
    assert reply.status_code == 200
    assert open_server.service.searches[0].limit == 3


def test_further_metadata_is_kept(client: httpx2.Client, open_server: Running) -> None:
    """T-8: any JSON value under any other key."""
    further = {"ticket": 7, "deep": {"list": [1, None, "ü"]}, "": True}
    assert client.post(INDEX, json={**DOCUMENT, "metadata": {"tags": ["a", "a"], **further}}).status_code == 200
    kept = open_server.service.indexed[0].metadata
    assert kept is not None
    assert kept.to_metadata().tags == ("a",)
    assert kept.to_metadata().extra == further


def test_unknown_tool_is_404_with_the_specified_message(client: httpx2.Client) -> None:
    reply = client.post("/tools/rag_context_find", json={})
    assert reply.status_code == 404
    assert reply.json()["error"] == "Tool rag_context_find not found"
    assert reply.json()["code"] == "NOT_FOUND"
    assert client.get("/tools/rag_context_find").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "NOT_FOUND"),
        ("POST", "/tools/", 404, "NOT_FOUND"),
        ("GET", "/tools/a/b", 404, "NOT_FOUND"),
        ("GET", "/tools/../../etc/passwd", 404, "NOT_FOUND"),
        ("POST", "/health", 405, "METHOD_NOT_ALLOWED"),
        ("DELETE", "/", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/bulk", 405, "METHOD_NOT_ALLOWED"),
        ("GET", SEARCH, 405, "METHOD_NOT_ALLOWED"),
        ("PUT", INDEX, 405, "METHOD_NOT_ALLOWED"),
        ("OPTIONS", SEARCH, 405, "METHOD_NOT_ALLOWED"),
    ],
)
def test_wrong_routes_and_methods_have_the_same_shape(
    client: httpx2.Client, method: str, path: str, status: int, code: str
) -> None:
    """T-6: one shape on every route."""
    reply = client.request(method, path)
    assert reply.status_code == status
    assert set(reply.json()) == {"error", "code", "requestId"}
    assert reply.json()["code"] == code
    assert ("allow" in reply.headers) == (status == 405)


def test_stats_takes_its_range_from_the_query_or_the_body(client: httpx2.Client) -> None:
    """T-4, T-6: an empty body is {}."""
    stats = "/tools/rag_context_stats"
    assert client.get(f"{stats}?timeRange=7d").json()["totalQueries"] == 168
    assert client.get(stats).json()["totalQueries"] == 24
    assert client.post(stats).json()["totalQueries"] == 24
    assert client.post(stats, json={"timeRange": "1h"}).json()["totalQueries"] == 1
    assert list(details(client.get(f"{stats}?timeRange=8d&range=1"))) == ["timeRange", "range"]
    assert list(details(client.get(f"{stats}?timeRange=1h&timeRange=7d"))) == ["timeRange"]


def test_health_by_route_and_by_tool(client: httpx2.Client, open_server: Running) -> None:
    """T-3: 200 also when degraded."""
    open_server.service.is_healthy = False
    for reply in (client.get("/health"), client.post("/tools/rag_context_health")):
        assert reply.status_code == 200
        body = reply.json()
        assert (body["healthy"], body["qdrantStatus"], body["lmStudioStatus"]) == (False, "unavailable", "healthy")
        assert body["embeddingModel"] == {"name": "all-MiniLM-L6-v2", "dimension": 384}


def test_live_and_ready(client: httpx2.Client, open_server: Running) -> None:
    assert client.get("/live").json() == {"status": "ok", "instance": "i-1", "version": "0.1.0"}
    assert client.get("/ready").json() == {"status": "ready"}
    open_server.service.is_ready = False
    reply = client.get("/ready")
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "1"
    assert reply.json()["code"] == "SERVICE_UNAVAILABLE"


def test_tools_are_listed_with_their_schemas(client: httpx2.Client) -> None:
    tools = client.get("/tools").json()["tools"]
    assert [tool["name"] for tool in tools] == [
        "rag_context_search",
        "rag_context_index",
        "rag_context_correct",
        "rag_context_history",
        "rag_context_log",
        "rag_context_undo",
        "rag_context_forget",
        "rag_context_review",
        "rag_context_decide",
        "rag_context_get",
        "rag_context_list",
        "rag_context_similar",
        "rag_context_delete",
        "rag_context_reindex",
        "rag_context_health",
        "rag_context_stats",
        "rag_context_injections",
        "rag_context_clear_queries",
        "rag_context_converse",
        "collection_query",
        "collection_list",
        "collection_get",
        "collection_documents",
        "collection_values",
        "collection_create",
        "collection_add",
        "collection_update_document",
        "collection_set_metadata",
        "collection_delete_documents",
        "collection_delete",
    ]
    assert all(set(tool) == {"name", "description", "inputSchema", "outputSchema"} for tool in tools)
    assert tools[0]["inputSchema"]["required"] == ["query"]


def test_metrics_are_prometheus_text(client: httpx2.Client) -> None:
    """O-3."""
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    assert "rag_vectors_total 3.0" in reply.text


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_work_offline(client: httpx2.Client, path: str) -> None:
    reply = client.get(path)
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "http://" not in reply.text
    assert "https://" not in reply.text
    assert "{{" not in reply.text
    assert "default-src 'none'" in reply.headers["content-security-policy"]


@pytest.mark.parametrize("level", [2, 3, 4])
def test_search_answers_200_at_every_level(client: httpx2.Client, open_server: Running, level: int) -> None:
    """T-7."""
    open_server.service.level = level
    reply = client.post(SEARCH, json={"query": "q"})
    assert reply.status_code == 200
    assert reply.json()["fallbackLevel"] == level
    assert reply.json()["warning"]


@pytest.mark.parametrize(
    ("level", "status", "code", "wait"), [(3, 503, "SERVICE_UNAVAILABLE", "1"), (4, 429, "CIRCUIT_OPEN", "42")]
)
def test_a_strict_search_fails_with_the_envelope(
    client: httpx2.Client, open_server: Running, level: int, status: int, code: str, wait: str
) -> None:
    """T-7: the envelope plus error, code and Retry-After."""
    open_server.service.level = level
    open_server.service.retry_after_s = 41.2 if level == 4 else None
    reply = client.post(SEARCH, json={"query": "q", "strict": True})
    assert reply.status_code == status
    assert reply.headers["retry-after"] == wait
    body = reply.json()
    assert (body["code"], body["error"]) == (code, body["warning"])
    assert (body["results"], body["fallback"], body["fallbackLevel"]) == ([], True, level)
    open_server.service.level = 2
    assert client.post(SEARCH, json={"query": "q", "strict": True}).status_code == 200


@pytest.mark.parametrize(
    ("component", "sentence"),
    [
        ("embedder", "Embedding service unavailable"),
        ("vectors", "Vector database unavailable"),
        ("documents", "Database unavailable"),
    ],
)
def test_a_write_that_cannot_be_stored_is_503(
    client: httpx2.Client, open_server: Running, component: str, sentence: str
) -> None:
    """T-6, X-5: one sentence and nothing of the backend's."""
    open_server.service.failure = BackendUnavailableError(
        component, "mongodb://user:pw@host refused", retry_after_s=2.5
    )
    reply = client.post(INDEX, json=DOCUMENT)
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "3"
    body = reply.json()
    assert body.pop("requestId") == reply.headers["x-request-id"]
    assert body == {"error": sentence, "code": "SERVICE_UNAVAILABLE", "fallback": True, "fallbackLevel": 3}


def test_a_bug_is_500_and_reveals_nothing(client: httpx2.Client, open_server: Running) -> None:
    """T-6, X-5."""
    open_server.service.failure = RuntimeError("secret text of a document")
    reply = client.post(SEARCH, json={"query": "q"})
    assert reply.status_code == 500
    body = reply.json()
    assert body.pop("requestId") == reply.headers["x-request-id"]
    assert body == {"error": "Internal server error", "code": "INTERNAL_ERROR", "fallback": True, "fallbackLevel": 3}


@pytest.mark.parametrize(
    ("failure", "status"),
    [(NotFoundError("Document 'x' not found"), 404), (InvalidInputError("no"), 400), (BackendDataError("x", "y"), 503)],
)
def test_rag_context_errors_map_to_their_status(
    client: httpx2.Client, open_server: Running, failure: Exception, status: int
) -> None:
    open_server.service.failure = failure
    assert client.post(INDEX, json=DOCUMENT).status_code == status


def test_the_request_id_is_accepted_or_generated(client: httpx2.Client, open_server: Running) -> None:
    """T-9: on every reply, errors too."""
    given = client.post(SEARCH, json={"query": "q"}, headers={"x-request-id": "abc-1"})
    assert given.headers["x-request-id"] == given.json()["requestId"] == open_server.service.request_ids[-1] == "abc-1"
    for bad in (b"", b"a b", b"\xe4", b"x" * 129):
        made = client.get("/nowhere", headers={b"x-request-id": bad})
        assert len(made.headers["x-request-id"]) == 24
        assert made.json()["requestId"] == made.headers["x-request-id"]
