"""The search request and its answer."""

import json
import re
from datetime import UTC, datetime
from typing import Annotated, Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field

from rag_context.api.embeddings import EmbeddingsRequest
from rag_context.api.parsing import read_fields, read_json
from rag_context.api.search import (
    Explain,
    LegReport,
    LegScore,
    SearchFailure,
    SearchRequest,
    SearchResponse,
    SearchResult,
)
from rag_context.api.stored_documents import GetRequest
from rag_context.api.wire import CONTENT_PATTERN, PLAIN_PATTERN, PRESENT_PATTERN, Vocabulary, WireRequest, json_schema
from rag_context.errors import FieldError, InvalidInputError

WITHOUT_DEADLINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
REQUEST = SearchRequest.with_vocabulary(Vocabulary())
SCHEMA = json_schema(REQUEST, "validation")
FITS = jsonschema_rs.validator_for(SCHEMA)


def accepts(body: object) -> bool:
    try:
        read_json(REQUEST, json.dumps(body).encode())
    except InvalidInputError:
        return False
    return True


def rejected(body: object) -> tuple[FieldError, ...]:
    with pytest.raises(InvalidInputError) as caught:
        read_json(REQUEST, json.dumps(body).encode())
    return caught.value.details


def test_the_schema_is_the_specifications_where_it_has_one() -> None:
    """T-1."""
    assert SCHEMA["required"] == ["query"]
    assert SCHEMA["additionalProperties"] is False
    properties = SCHEMA["properties"]
    assert (properties["query"]["minLength"], properties["query"]["maxLength"]) == (1, 1000)
    limit = properties["limit"]
    assert (limit["type"], limit["minimum"], limit["maximum"], limit["default"]) == ("integer", 1, 20, 5)
    assert properties["category"]["enum"] == ["strategy", "bugfix", "architecture", "casino"]
    assert properties["contentType"]["enum"] == ["chat", "decision", "code", "documentation"]
    assert all("default" not in properties[name] for name in ("category", "sessionId", "tags", "since", "minScore"))


def test_the_configured_vocabulary_is_published_and_accepted() -> None:
    """T-8."""
    wider = SearchRequest.with_vocabulary(Vocabulary.extended(("email", "chat"), ("legal",)))
    properties = json_schema(wider, "validation")["properties"]
    assert properties["contentType"]["enum"] == ["chat", "decision", "code", "documentation", "email"]
    assert properties["category"]["enum"][-1] == "legal"
    assert read_json(wider, b'{"query":"q","contentType":"email","category":"legal"}').content_type == "email"
    assert [detail.field for detail in rejected({"query": "q", "contentType": "email"})] == ["contentType"]


def test_absent_and_null_are_the_defaults() -> None:
    """T-1, T-8."""
    absent = read_json(REQUEST, b'{"query":"q"}')
    null = read_json(REQUEST, json.dumps(dict.fromkeys(SCHEMA["properties"]) | {"query": "q"}).encode())
    assert absent == null
    assert (absent.limit, absent.mode, absent.explain, absent.strict, absent.min_score) == (
        5,
        "hybrid",
        False,
        False,
        None,
    )


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31t12:00:00.5z", datetime(2026, 1, 31, 12, 0, 0, 500_000, UTC)),
        ("2026-01-31T12:00:00.123456789+02:00", datetime(2026, 1, 31, 10, 0, 0, 123_456, UTC)),
        ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC)),
        ("0001-01-01T00:00:00+14:00", datetime.min.replace(tzinfo=UTC)),
        ("0000-02-29T00:00:00Z", datetime.min.replace(tzinfo=UTC)),
        ("9999-12-31T23:59:59-14:00", datetime.max.replace(tzinfo=UTC)),
    ],
)
def test_every_rfc_3339_time_is_read(text: str, moment: datetime) -> None:
    """T-1: with its offset; what no calendar of ours holds is the nearest that it does."""
    assert read_json(REQUEST, json.dumps({"query": "q", "since": text}).encode()).since == moment


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-01-31 12:00:00Z",
        "2026-01-31T12:00Z",
        "2026-13-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T12:00:61Z",
        "２026-01-31T12:00:00Z",
        "2026-W05-6T12:00:00Z",
        "1769860800",
        "2026-01-31T12:00:00Z\n",
    ],
)
def test_other_times_are_rejected_with_an_example(text: str) -> None:
    assert rejected({"query": "q", "since": text}) == (
        FieldError("since", "since must be a time with offset as in RFC 3339, such as 2026-01-31T12:00:00Z"),
    )


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({}, "query", "Query cannot be empty"),
        ({"query": None}, "query", "Query cannot be empty"),
        ({"query": "\u2003\n"}, "query", "Query cannot be empty"),
        ({"query": "a" * 1001}, "query", "Query too long (max 1000 characters)"),
        ({"query": "a\x1bb"}, "query", "query must not hold control characters"),
        ({"query": 7}, "query", "query must be a string"),
        ({"query": "q", "limit": 0}, "limit", "limit must be at least 1"),
        ({"query": "q", "limit": 99}, "limit", "limit must be at most 20"),
        ({"query": "q", "limit": True}, "limit", "limit must be a whole number"),
        ({"query": "q", "game": ""}, "game", "game must not be empty; leave it out instead"),
        ({"query": "q", "game": "g" * 257}, "game", "game too long (max 256 characters)"),
        ({"query": "q", "mode": "fast"}, "mode", "mode must be one of 'hybrid', 'vector' or 'text'"),
        ({"query": "q", "explain": 1}, "explain", "explain must be true or false"),
        ({"query": "q", "tags": "a"}, "tags", "tags must be an array"),
        ({"query": "q", "tags": ["a", 1]}, "tags[1]", "tags[1] must be a string"),
        ({"query": "q", "tags": [None]}, "tags[0]", "tags[0] must not be null"),
        ({"query": "q", "tags": ["a"] * 65}, "tags", "tags must be an array of at most 64 items"),
        ({"query": "q", "pathHash": "x"}, "pathHash", "pathHash must be 16 hexadecimal digits in lower case"),
        ({"query": "q", "Query": "q"}, "Query", "Unknown field 'Query'; did you mean 'query'?"),
        ({"query": "q", "path_hash": "x"}, "path_hash", "Unknown field 'path_hash'; did you mean 'pathHash'?"),
    ],
)
def test_messages_say_what_to_do(body: object, field: str, message: str) -> None:
    """T-6."""
    assert rejected(body) == (FieldError(field, message),)


def test_a_text_that_is_too_short_says_its_own_least_length() -> None:
    class Named(WireRequest):
        code: Annotated[str, Field(min_length=3)]

    with pytest.raises(InvalidInputError) as caught:
        read_json(Named, b'{"code": "ab"}')
    assert caught.value.details == (FieldError("code", "code too short (min 3 characters)"),)


def test_a_field_without_a_name_is_rejected_as_any_other() -> None:
    (detail,) = rejected({"query": "q", "": 1})
    assert detail.message.startswith("Unknown field ''; known are query, ")


@pytest.mark.parametrize("body", [{}, {"documentId": None}])
def test_a_field_that_must_be_there_says_so(body: object) -> None:
    """T-8: null means absent."""
    with pytest.raises(InvalidInputError, match="documentId required"):
        read_json(GetRequest, json.dumps(body).encode())


def test_an_empty_list_says_that_it_is_empty() -> None:
    with pytest.raises(InvalidInputError, match="input must be an array that is not empty"):
        read_json(EmbeddingsRequest, b'{"input": []}')


def test_a_flood_of_errors_is_cut() -> None:
    """The sentence stays short and the details bounded, whatever a body holds."""
    with pytest.raises(InvalidInputError) as caught:
        read_json(REQUEST, json.dumps({f"{n}{'x' * 500}": n for n in range(1000)}).encode())
    assert len(caught.value.details) == 100
    assert str(caught.value).endswith("; and 998 more problems, see details")
    assert max(len(detail.field) for detail in caught.value.details) == 64


def test_a_body_of_fields_is_read_alike() -> None:
    assert read_fields(REQUEST, {"query": "q", "contentType": "chat"}).content_type == "chat"
    with pytest.raises(InvalidInputError):
        read_fields(REQUEST, {"query": "q", "limit": "3"})


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text(
    st.sampled_from(" \t\n\r\v\f\0\x1c\x1f\x7f\x85\xa0\u1680\u2009\u200b\u2028\u3000\ufeffa"), max_size=6
)


@WITHOUT_DEADLINE
@given(TEXTS)
def test_schema_and_server_agree_on_every_text(text: str) -> None:
    """T-8: what fits the published schema is accepted, and nothing else."""
    for field in ("query", "sessionId", "source", "game"):
        body = {"query": "q", field: text}
        assert accepts(body) == FITS.is_valid(body)


@WITHOUT_DEADLINE
@given(TEXTS)
def test_every_dialect_reads_the_patterns_alike(text: str) -> None:
    """Python and Rust here; no class is used that dialects define differently."""
    controls = any(ord(c) < 32 and c not in "\t\n\r" for c in text)
    assert bool(re.search(PLAIN_PATTERN, text)) == (not controls)
    assert bool(re.search(PRESENT_PATTERN, text)) == (not controls and bool(text.strip()))
    assert bool(re.search(CONTENT_PATTERN, text)) == ("\0" not in text and bool(text.strip()))


@WITHOUT_DEADLINE
@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.text(max_size=3))
def test_schema_and_server_agree_on_every_number(value: object) -> None:
    for field in ("limit", "minScore"):
        body = {"query": "q", field: value}
        assert accepts(body) == FITS.is_valid(body)


def _response(**changes: Any) -> SearchResponse:
    fields: dict[str, Any] = {
        "results": [],
        "latency": 1.5,
        "fallback": False,
        "fallback_level": 1,
        "circuit_breaker_open": False,
        "total_indexed": 3,
        "request_id": "r",
        "legs": {},
    }
    return SearchResponse(**(fields | changes))


def test_an_answer_is_camel_case_and_leaves_out_fields_without_a_value() -> None:
    """T-1."""
    result = SearchResult(
        content="c",
        score=1,
        source="s",
        timestamp=datetime(2026, 1, 31, 12, 0, 0, 500_000, UTC),
        occurred_at=datetime(2026, 1, 30, 9, 0, tzinfo=UTC),
        metadata={"decisionId": "d", "further": None},
        explain=Explain(legs={"vector": LegScore(rank=1, score=0.7)}, fused=0.9, boosts={"exact": 0.1}),
    )
    answer = _response(results=[result], legs={"vector": LegReport(status="open", latency_ms=0)}, no_answer=True)
    assert json.loads(answer.to_json()) == {
        "results": [
            {
                "content": "c",
                "score": 1.0,
                "source": "s",
                "timestamp": "2026-01-31T12:00:00.500000Z",
                "occurredAt": "2026-01-30T09:00:00Z",
                "metadata": {"decisionId": "d", "further": None},
                "origin": "unknown",
                "explain": {
                    "legs": {"vector": {"rank": 1, "score": 0.7}},
                    "fused": 0.9,
                    "boosts": {"exact": 0.1},
                    "signals": {},
                },
            }
        ],
        "latency": 1.5,
        "fallback": False,
        "fallbackLevel": 1,
        "circuitBreakerOpen": False,
        "totalIndexed": 3,
        "requestId": "r",
        "legs": {"vector": {"status": "open", "latencyMs": 0.0}},
        "noAnswer": True,
    }
    assert SearchResponse.model_validate_json(answer.to_json()) == answer


@pytest.mark.parametrize("level", [3, 4])
def test_a_strict_failure_is_the_envelope_and_more(level: int) -> None:
    """T-7."""
    answer = _response(fallback_level=level, fallback=True, warning="why")
    failed = json.loads(SearchFailure.of(answer).to_json())
    assert failed.pop("error") == "why"
    assert failed.pop("code") == {3: "SERVICE_UNAVAILABLE", 4: "CIRCUIT_OPEN"}[level]
    assert failed == json.loads(answer.to_json())


def test_an_answer_fits_its_published_schema() -> None:
    schema = json_schema(SearchResponse, "serialization")
    jsonschema_rs.validate(schema, json.loads(_response(cached=True, warning="w").to_json()))
    assert {"results", "legs", "requestId", "totalIndexed"} <= set(schema["required"])
    assert schema["properties"]["results"]["items"]["properties"]["title"] == {"type": "string"}
