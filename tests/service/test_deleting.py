"""Deleting through the service: what goes, what stays, and whose documents are meant."""

from typing import Any

import pytest

from rag_context.api.delete import DeleteRequest, DeleteResponse
from rag_context.errors import BackendUnavailableError, InvalidInputError
from rag_context.search.query import Mode, Query
from rag_context.testing import Fault, Faulty
from tests.service.harness import House


async def delete(house: House, **fields: Any) -> DeleteResponse:
    return await house.service.delete(DeleteRequest.model_validate(fields))


async def test_a_deleted_document_is_not_found_again(house: House) -> None:
    receipt = await house.index("Red foxes live here.")
    assert (await house.search("red foxes")).results
    gone = await delete(house, documentId=receipt.document_id)
    assert (gone.deleted_count, gone.document_ids, gone.dry_run) == (1, [receipt.document_id], False)
    assert (await house.search("red foxes")).results == []


async def test_all_of_a_source_or_a_session_go_and_the_rest_stays(house: House) -> None:
    a = await house.index("One about foxes.", source="a", sessionId="s1")
    b = await house.index("Two about foxes.", source="a", sessionId="s2")
    c = await house.index("Three about foxes.", source="b", sessionId="s2")
    assert (await delete(house, source="a", confirm=True)).document_ids == [a.document_id, b.document_id]
    assert (await delete(house, sessionId="s2")).document_ids == [c.document_id]


async def test_a_dry_run_says_what_would_go_and_leaves_it(house: House) -> None:
    receipt = await house.index("Red foxes live here.")
    said = await delete(house, source="notes", dryRun=True)
    assert (said.document_ids, said.dry_run) == ([receipt.document_id], True)
    assert (await house.search("red foxes")).total_indexed == 1


async def test_nothing_is_deleted_twice(house: House) -> None:
    receipt = await house.index("Red foxes live here.")
    assert (await delete(house, documentId=receipt.document_id)).deleted_count == 1
    assert (await delete(house, documentId=receipt.document_id)).deleted_count == 0


@pytest.mark.parametrize("key", ["documentId", "source", "sessionId"])
async def test_documents_of_another_project_are_out_of_reach(house: House, key: str) -> None:
    """Q-2: also by id."""
    receipt = await house.index("Red foxes live here.", project="theirs")
    await house.index("Owls live there.", project="other", source="other", sessionId="other")
    value = {"documentId": receipt.document_id, "source": "notes", "sessionId": "s"}[key]
    assert (await delete(house, **{key: value})).deleted_count == 0
    assert (await delete(house, **{key: value, "project": "other"})).deleted_count == 0
    assert (await delete(house, **{key: value, "project": "theirs"})).deleted_count == 1


async def test_a_source_is_exact_and_never_a_pattern(house: House) -> None:
    await house.index("Red foxes live here.", source="notes")
    assert (await delete(house, source="*")).deleted_count == 0
    assert (await delete(house, source="note*")).deleted_count == 0


async def test_many_documents_go_in_one_call(house: House) -> None:
    for i in range(70):
        await house.index(f"Fox number {i}.", source="den", sessionId=f"s{i}")
    assert (await delete(house, source="den", confirm=True)).deleted_count == 70


async def test_more_than_half_of_all_go_only_when_that_is_confirmed(house: House) -> None:
    for i in range(5):
        await house.index(f"Fox number {i}.", source=f"den {i}", sessionId="most" if i < 3 else "few")
    await house.index("Another project's fox.", project="other")
    with pytest.raises(InvalidInputError, match=r"3 of 5 documents.*confirm.*dryRun") as refused:
        await delete(house, sessionId="most")
    assert [detail.field for detail in refused.value.details] == ["confirm"]
    assert (await delete(house, sessionId="most", dryRun=True)).deleted_count == 3
    assert (await delete(house, sessionId="few")).deleted_count == 2
    assert (await delete(house, sessionId="most", confirm=True)).deleted_count == 3


async def test_more_than_a_hundred_go_only_when_that_is_confirmed(house: House) -> None:
    for i in range(210):
        await house.index(f"Fox number {i}.", source=f"den {i}", sessionId="many" if i < 101 else "rest")
    with pytest.raises(InvalidInputError, match="delete 101 documents"):
        await delete(house, sessionId="many")
    assert (await delete(house, sessionId="many", confirm=True)).deleted_count == 101


async def test_a_store_that_fails_is_reported_and_the_document_stays(house: House) -> None:
    receipt = await house.index("Red foxes live here.")
    house.documents.fault = Fault(BackendUnavailableError("documents", "gone"))
    with pytest.raises(BackendUnavailableError):
        await delete(house, documentId=receipt.document_id)
    house.documents.fault = None
    assert (await delete(house, documentId=receipt.document_id)).deleted_count == 1


async def test_ranking_for_a_measurement_is_not_cached(house: House) -> None:
    """R-4: measuring changes neither the cache nor the statistics."""
    await house.index("Red foxes live here.")
    answer = await house.service.rank(Query("red foxes", limit=200, mode=Mode.HYBRID, min_score=0.0))
    assert len(answer.results) == 1
    await house.telemetry.flush()
    assert house.store.searches == []
    assert (await house.search("red foxes", minScore=0)).cached is None


async def test_long_lists_of_texts_are_embedded_in_their_order(house: House) -> None:
    texts = [f"text number {i}" for i in range(70)]
    vectors = await house.service.embed(texts)
    assert vectors.shape == (70, house.fake.model.dimension)
    assert (vectors == await house.fake.embed_documents(texts)).all()
    assert house.service.model() == house.fake.model


async def test_nothing_is_embedded_while_the_model_is_unknown() -> None:
    house = House()
    assert isinstance(house.embedder, Faulty)
    with pytest.raises(BackendUnavailableError):
        await house.service.embed(["a"])
    with pytest.raises(BackendUnavailableError):
        house.service.model()
