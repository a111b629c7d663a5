"""Deleting through the service: what goes, what stays, and whose documents are deleted."""

from typing import Any

import pytest

from rag_context.api.stored_documents import DeleteRequest, DeleteResponse
from rag_context.errors import BackendUnavailableError, InvalidInputError
from rag_context.search.query import Mode, Query
from rag_context.testing import Fault, Faulty
from tests.memory.harness import ServiceHarness


async def delete(harness: ServiceHarness, **fields: Any) -> DeleteResponse:
    return await harness.service.delete(DeleteRequest.model_validate(fields))


async def test_a_deleted_document_is_not_found_again(harness: ServiceHarness) -> None:
    receipt = await harness.index("Red foxes live here.")
    assert (await harness.search("red foxes")).results
    gone = await delete(harness, documentId=receipt.document_id)
    assert (gone.deleted_count, gone.document_ids, gone.dry_run) == (1, [receipt.document_id], False)
    assert (await harness.search("red foxes")).results == []


async def test_all_of_a_source_or_a_session_go_and_the_rest_stays(harness: ServiceHarness) -> None:
    a = await harness.index("One about foxes.", source="a", sessionId="s1")
    b = await harness.index("Two about foxes.", source="a", sessionId="s2")
    c = await harness.index("Three about foxes.", source="b", sessionId="s2")
    assert (await delete(harness, source="a", confirm=True)).document_ids == [a.document_id, b.document_id]
    assert (await delete(harness, sessionId="s2")).document_ids == [c.document_id]


async def test_a_dry_run_says_what_would_go_and_leaves_it(harness: ServiceHarness) -> None:
    receipt = await harness.index("Red foxes live here.")
    response = await delete(harness, source="notes", dryRun=True)
    assert (response.document_ids, response.dry_run) == ([receipt.document_id], True)
    assert (await harness.search("red foxes")).total_indexed == 1


async def test_nothing_is_deleted_twice(harness: ServiceHarness) -> None:
    receipt = await harness.index("Red foxes live here.")
    assert (await delete(harness, documentId=receipt.document_id)).deleted_count == 1
    assert (await delete(harness, documentId=receipt.document_id)).deleted_count == 0


@pytest.mark.parametrize("key", ["documentId", "source", "sessionId"])
async def test_documents_of_another_project_are_out_of_reach(harness: ServiceHarness, key: str) -> None:
    """Q-2: also by id."""
    receipt = await harness.index("Red foxes live here.", project="theirs")
    await harness.index("Owls live there.", project="other", source="other", sessionId="other")
    value = {"documentId": receipt.document_id, "source": "notes", "sessionId": "s"}[key]
    assert (await delete(harness, **{key: value})).deleted_count == 0
    assert (await delete(harness, **{key: value, "project": "other"})).deleted_count == 0
    assert (await delete(harness, **{key: value, "project": "theirs"})).deleted_count == 1


async def test_a_source_is_exact_and_never_a_pattern(harness: ServiceHarness) -> None:
    await harness.index("Red foxes live here.", source="notes")
    assert (await delete(harness, source="*")).deleted_count == 0
    assert (await delete(harness, source="note*")).deleted_count == 0


async def test_many_documents_go_in_one_call(harness: ServiceHarness) -> None:
    for i in range(70):
        await harness.index(f"Fox number {i}.", source="den", sessionId=f"s{i}")
    assert (await delete(harness, source="den", confirm=True)).deleted_count == 70


async def test_more_than_half_of_all_go_only_when_that_is_confirmed(harness: ServiceHarness) -> None:
    for i in range(5):
        await harness.index(f"Fox number {i}.", source=f"den {i}", sessionId="most" if i < 3 else "few")
    await harness.index("Another project's fox.", project="other")
    with pytest.raises(InvalidInputError, match=r"3 of 5 documents.*confirm.*dryRun") as rejected:
        await delete(harness, sessionId="most")
    assert [detail.field for detail in rejected.value.details] == ["confirm"]
    assert (await delete(harness, sessionId="most", dryRun=True)).deleted_count == 3
    assert (await delete(harness, sessionId="few")).deleted_count == 2
    assert (await delete(harness, sessionId="most", confirm=True)).deleted_count == 3


async def test_more_than_a_hundred_go_only_when_that_is_confirmed(harness: ServiceHarness) -> None:
    for i in range(210):
        await harness.index(f"Fox number {i}.", source=f"den {i}", sessionId="many" if i < 101 else "rest")
    with pytest.raises(InvalidInputError, match="delete 101 documents"):
        await delete(harness, sessionId="many")
    assert (await delete(harness, sessionId="many", confirm=True)).deleted_count == 101


async def test_a_store_that_fails_is_reported_and_the_document_stays(harness: ServiceHarness) -> None:
    receipt = await harness.index("Red foxes live here.")
    harness.documents.fault = Fault(BackendUnavailableError("documents", "gone"))
    with pytest.raises(BackendUnavailableError):
        await delete(harness, documentId=receipt.document_id)
    harness.documents.fault = None
    assert (await delete(harness, documentId=receipt.document_id)).deleted_count == 1


async def test_ranking_for_a_measurement_is_not_cached(harness: ServiceHarness) -> None:
    """R-4: measuring changes neither the cache nor the statistics."""
    await harness.index("Red foxes live here.")
    answer = await harness.service.rank(Query("red foxes", limit=200, mode=Mode.HYBRID, min_score=0.0))
    assert len(answer.results) == 1
    await harness.telemetry.flush()
    assert harness.store.searches == []
    assert (await harness.search("red foxes", minScore=0)).cached is None


async def test_long_lists_of_texts_are_embedded_in_their_order(harness: ServiceHarness) -> None:
    texts = [f"text number {i}" for i in range(70)]
    vectors = await harness.service.embed(texts)
    assert vectors.shape == (70, harness.fake.model.dimension)
    assert (vectors == await harness.fake.embed_documents(texts)).all()
    assert harness.service.model() == harness.fake.model


async def test_nothing_is_embedded_while_the_model_is_unknown() -> None:
    harness = ServiceHarness()
    assert isinstance(harness.embedder, Faulty)
    with pytest.raises(BackendUnavailableError):
        await harness.service.embed(["a"])
    with pytest.raises(BackendUnavailableError):
        harness.service.model()
