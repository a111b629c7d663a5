"""Computed ids (D-7)."""

import json
from dataclasses import replace
from hashlib import sha256
from types import MappingProxyType
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain.documents import (
    CHAT,
    CODE,
    DECISION,
    DOCUMENTATION,
    Channel,
    DocumentInput,
    Metadata,
    Tenant,
    chunk_ids,
    content_hash,
    document_id,
)

DRAFT = DocumentInput("text", DOCUMENTATION, "session", "source")
OTHER_TENANT = Tenant("p", "b", "h")


def changes(draft: DocumentInput) -> set[str]:
    """The fields of a draft that its id depends on."""
    others = {
        "content": replace(draft, content="other"),
        "session_id": replace(draft, session_id="other"),
        "source": replace(draft, source="other"),
        "tenant": replace(draft, tenant=OTHER_TENANT),
        "metadata": replace(draft, metadata=Metadata(agent="a")),
    }
    return {name for name, other in others.items() if document_id(other) != document_id(draft)}


@given(st.text(), st.text())
def test_ids_of_chunks_are_uuids_of_their_name(context: str, text: str) -> None:
    document = document_id(DRAFT)
    name = f"0:{sha256(json.dumps((context, text)).encode()).hexdigest()}"
    assert chunk_ids(document, [(context, text)]) == [str(uuid5(UUID(document), name))]


def test_an_id_never_changes_between_versions() -> None:
    assert document_id(DRAFT) == "8694b2b2-2696-520a-afb5-1b10a42d557b"


@pytest.mark.parametrize("content_type", [DOCUMENTATION, DECISION, "recipe"])
def test_documents_through_the_tool_are_known_by_source_and_session(content_type: str) -> None:
    assert changes(replace(DRAFT, content_type=content_type)) == {"session_id", "source", "tenant"}


def test_kinds_through_the_tool_are_distinguished() -> None:
    kinds = [CHAT, CODE, DOCUMENTATION, DECISION, "recipe"]
    assert len({document_id(replace(DRAFT, content_type=kind)) for kind in kinds}) == len(kinds)


def test_a_session_sends_many_chats() -> None:
    assert changes(replace(DRAFT, content_type=CHAT)) == {"content", "session_id", "source", "tenant"}


def test_code_is_known_by_its_source() -> None:
    assert changes(replace(DRAFT, content_type=CODE)) == {"source", "tenant"}


@pytest.mark.parametrize("content_type", [CHAT, CODE, DOCUMENTATION])
def test_a_file_is_known_by_its_source_whatever_it_holds(content_type: str) -> None:
    draft = replace(DRAFT, content_type=content_type, channel=Channel.FILE)
    assert changes(draft) == {"source", "tenant"}
    assert document_id(draft) == document_id(replace(DRAFT, content_type=CODE))


def test_fields_do_not_run_into_each_other() -> None:
    left = replace(DRAFT, source="a", session_id="bc")
    right = replace(DRAFT, source="ab", session_id="c")
    quoted = replace(DRAFT, source='a", "documentation', session_id="c")
    assert len({document_id(draft) for draft in (left, right, quoted)}) == 3


@pytest.mark.parametrize(
    "other",
    [
        replace(DRAFT, content="other"),
        replace(DRAFT, content_type=DECISION),
        replace(DRAFT, session_id="other"),
        replace(DRAFT, source="other"),
        *(
            replace(DRAFT, metadata=metadata)
            for metadata in (
                Metadata(agent="x"),
                Metadata(tags=("x",)),
                Metadata(category="x"),
                Metadata(game="x"),
                Metadata(decision_id="x"),
                Metadata(extra={"x": 1}),
            )
        ),
    ],
)
def test_whatever_is_returned_is_part_of_the_hash(other: DocumentInput) -> None:
    assert content_hash(other) != content_hash(DRAFT)


def test_the_order_of_extra_keys_is_not() -> None:
    left = replace(DRAFT, metadata=Metadata(extra=MappingProxyType({"a": 1, "b": {"c": 1, "d": 2}})))
    right = replace(DRAFT, metadata=Metadata(extra={"b": {"d": 2, "c": 1}, "a": 1}))
    assert content_hash(left) == content_hash(right)


def test_half_a_character_is_no_obstacle() -> None:
    draft = replace(DRAFT, content="\ud800", content_type=CHAT, source="\ud800")
    assert document_id(draft) == document_id(draft)
    assert content_hash(draft) != content_hash(replace(draft, content="?"))
    assert len(chunk_ids(document_id(draft), [("", draft.content)])) == 1


def test_chunk_ids_distinguish_document_position_context_and_text() -> None:
    chunks = [("", "one "), ("", "one "), ("Guide", "one "), ("", "two")]
    here, there = document_id(DRAFT), document_id(replace(DRAFT, source="other"))
    ids = chunk_ids(here, chunks)
    assert len({*ids, *chunk_ids(there, chunks)}) == 8
    changed = chunk_ids(here, [*chunks[:3], ("", "six")])
    assert changed[:3] == ids[:3]
    assert changed[3] != ids[3]
    assert chunk_ids(here, [("ab", "c")]) != chunk_ids(here, [("a", "bc")])


@given(st.text(), st.text(), st.text(), st.sampled_from([CHAT, CODE, DOCUMENTATION]), st.sampled_from(list(Channel)))
def test_ids_are_functions_of_the_document_input(
    content: str, source: str, session: str, kind: str, channel: Channel
) -> None:
    first, second = (DocumentInput(content, kind, session, source, channel=channel) for _ in range(2))
    assert document_id(first) == document_id(second)
    assert content_hash(first) == content_hash(second)
