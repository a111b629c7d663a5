"""The index request, the bulk line and their receipts."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.api.index import BulkLine, BulkReceipt, IndexRequest
from rag_context.api.parsing import read_json
from rag_context.api.wire import Vocabulary, json_schema, metadata_json
from rag_context.domain.documents import Metadata
from rag_context.errors import FieldError, InvalidInputError

REQUEST = IndexRequest.with_vocabulary(Vocabulary())
LINE = BulkLine.with_vocabulary(Vocabulary.extended(("email",)))
WITHOUT_DEADLINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
DOCUMENT = {"content": "text", "contentType": "chat", "sessionId": "s", "source": "talk"}


def read(**changes: object) -> IndexRequest:
    return read_json(REQUEST, json.dumps(DOCUMENT | changes).encode())


def rejected(**changes: object) -> tuple[FieldError, ...]:
    with pytest.raises(InvalidInputError) as caught:
        read(**changes)
    return caught.value.details


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("content", "", "Content cannot be empty"),
        ("content", " \n ", "Content cannot be empty"),
        ("content", None, "Content cannot be empty"),
        ("content", "a" * 100_001, "Content too large (max 100KB)"),
        ("content", "a\0b", "content must not hold the NUL character"),
        ("sessionId", "", "Session ID required"),
        ("sessionId", "  ", "Session ID required"),
        ("source", "", "Source required"),
        ("source", None, "Source required"),
        ("contentType", None, "Content type required"),
        ("metadata", "x", "metadata must be an object"),
        ("metadata", {"k" * 129: 1}, "metadata keys must be at most 128 characters, no NUL"),
        ("metadata", {"note": "a" * 16_400}, "metadata too large (max 16 KiB as JSON)"),
    ],
)
def test_messages_are_those_of_the_specification_or_as_plain(field: str, value: object, message: str) -> None:
    """T-6."""
    assert rejected(**{field: value}) == (FieldError(field, message),)


def test_content_keeps_every_character_but_nul() -> None:
    """T-2: escape sequences of terminals are part of a log someone pasted."""
    content = "\x1b[31mred\x1b[0m\r\n\ttab \u2028 𝒳 \x85"
    assert read(content=content).content == content
    assert len(read(content="ü" * 100_000).content) == 100_000


def test_any_category_is_kept_on_index() -> None:
    """T-8."""
    metadata = read(metadata={"category": "gardening"}).metadata
    assert metadata is not None
    assert metadata.to_metadata().category == "gardening"


def test_metadata_uses_the_configured_vocabulary() -> None:
    given_metadata = {
        "agent": "oracle",
        "tags": ["b", "a", "b"],
        "game": "",
        "decisionId": "D-1",
        "decision_id": "kept as another key",
        "nested": {"null": None},
        "nothing": None,
    }
    metadata = read(metadata=given_metadata).metadata
    assert metadata is not None
    inside = metadata.to_metadata()
    assert inside == Metadata(
        agent="oracle",
        tags=("b", "a"),
        decision_id="D-1",
        extra={"decision_id": "kept as another key", "nested": {"null": None}},
    )
    assert metadata_json(inside) == {
        "agent": "oracle",
        "tags": ["b", "a"],
        "decisionId": "D-1",
        "decision_id": "kept as another key",
        "nested": {"null": None},
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@WITHOUT_DEADLINE
@given(st.dictionaries(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9), JSON))
def test_further_metadata_comes_back_as_it_went_in(further: dict[str, object]) -> None:
    """T-8."""
    known = {"agent", "tags", "category", "game", "decisionId"}
    further = {key: value for key, value in further.items() if key not in known}
    metadata = read(metadata=further).metadata
    assert metadata is not None
    assert metadata_json(metadata.to_metadata()) == {k: v for k, v in further.items() if v is not None}


def test_bounds_are_published() -> None:
    """T-2, T-8."""
    properties = json_schema(REQUEST, "validation")["properties"]
    assert properties["content"]["maxLength"] == 100_000
    assert properties["source"]["maxLength"] == 1024
    assert properties["sessionId"]["maxLength"] == 256
    tags = properties["metadata"]["properties"]["tags"]
    assert (tags["maxItems"], tags["items"]["maxLength"]) == (64, 128)
    assert "enum" not in properties["metadata"]["properties"]["category"]
    assert "16 KiB" in properties["metadata"]["description"]


def test_a_bulk_line_is_an_index_request_and_more() -> None:
    """C-3."""
    line = read_json(LINE, json.dumps(DOCUMENT | {"fromFile": True, "contentType": "email"}).encode())
    assert isinstance(line, IndexRequest)
    assert line.from_file
    assert not read_json(LINE, json.dumps(DOCUMENT | {"fromFile": None}).encode()).from_file
    assert len(read_json(LINE, json.dumps(DOCUMENT | {"content": "a" * 2_000_000}).encode()).content) == 2_000_000
    with pytest.raises(InvalidInputError, match=r"Content too large \(max 2000000 characters\)"):
        read_json(LINE, json.dumps(DOCUMENT | {"content": "a" * 2_000_001}).encode())


def test_a_receipt_leaves_out_fields_without_a_value() -> None:
    assert json.loads(BulkReceipt(status="deferred", line=3, reason="pending").to_json()) == {
        "status": "deferred",
        "line": 3,
        "reason": "pending",
    }
