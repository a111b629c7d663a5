"""Which documents are similar to one: by vectors, else by keyword search with a warning."""

from typing import Any

import pytest

from rag_context.api.stored_documents import SimilarRequest, SimilarResponse
from rag_context.errors import BackendUnavailableError, NotFoundError
from rag_context.memory.document_queries import SAMPLED_CHUNKS
from rag_context.testing import Fault
from tests.memory.harness import ServiceHarness

DOWN = Fault(BackendUnavailableError("embedder", "down"))


async def similar(harness: ServiceHarness, document_id: str, **fields: Any) -> SimilarResponse:
    return await harness.service.similar(SimilarRequest.model_validate({"documentId": document_id, **fields}))


async def filled(harness: ServiceHarness) -> dict[str, str]:
    """Documents by a short name."""
    texts = {
        "foxes": "Red foxes hunt mice at night.",
        "more": "Red foxes hunt voles and mice at night in the snow.",
        "mice": "Mice are small animals.",
        "ships": "Container vessels cross the ocean.",
    }
    return {name: (await harness.index(text, source=name)).document_id for name, text in texts.items()}


async def test_the_nearest_comes_first_and_the_document_itself_never(harness: ServiceHarness) -> None:
    """T-5."""
    ids = await filled(harness)
    answer = await similar(harness, ids["foxes"], limit=2)
    assert [result.document_id for result in answer.results] == [ids["more"], ids["mice"]]
    assert (answer.method, answer.fallback, answer.fallback_level, answer.warning) == ("vector", False, 1, None)
    assert answer.results[0].score > answer.results[1].score
    assert answer.results[0].content == "Red foxes hunt voles and mice at night in the snow."
    assert answer.results[0].source == "more"


async def test_without_vectors_keywords_are_compared_with_a_warning(harness: ServiceHarness) -> None:
    """F-1."""
    ids = await filled(harness)
    harness.embedder.fault = DOWN
    answer = await similar(harness, ids["foxes"], limit=2)
    assert answer.results[0].document_id == ids["more"]
    assert (answer.method, answer.fallback, answer.fallback_level) == ("text", True, 2)
    assert answer.warning == "Vector search unavailable, keyword search compared the documents instead"


async def test_while_vectors_are_missing_keywords_are_compared_with_a_warning(harness: ServiceHarness) -> None:
    ids = await filled(harness)
    harness.embedder.fault = DOWN
    late = await harness.index("Red foxes hunt mice and hares at night.", source="late")
    harness.embedder.fault = None
    answer = await similar(harness, ids["foxes"], limit=2)
    assert late.document_id in [result.document_id for result in answer.results]
    assert (answer.method, answer.fallback_level) == ("text", 2)


async def test_only_documents_of_the_same_tenant_are_compared(harness: ServiceHarness) -> None:
    """Q-2."""
    ids = await filled(harness)
    theirs = await harness.index("Red foxes hunt mice at night.", source="theirs", project="theirs")
    assert theirs.document_id not in [result.document_id for result in (await similar(harness, ids["foxes"])).results]
    with pytest.raises(NotFoundError):
        await similar(harness, theirs.document_id)
    assert (await similar(harness, theirs.document_id, project="theirs")).results == []


async def test_a_document_of_many_chunks_is_matched_by_a_few_of_them(harness: ServiceHarness) -> None:
    ids = await filled(harness)
    long = await harness.index(" ".join(f"Foxes hunt number {i} of mice." for i in range(400)), source="long")
    assert long.chunks_indexed > SAMPLED_CHUNKS
    before = harness.fake.calls
    answer = await similar(harness, long.document_id, limit=20)
    assert harness.fake.calls - before == SAMPLED_CHUNKS
    assert sorted(result.document_id for result in answer.results) == sorted(ids.values())


@pytest.mark.parametrize("fault", [None, DOWN], ids=["by vectors", "by words"])
async def test_a_documents_own_chunks_do_not_hide_the_others(
    harness: ServiceHarness, monkeypatch: pytest.MonkeyPatch, fault: Fault | None
) -> None:
    """T-5: however many of them are nearer than any other document."""
    monkeypatch.setattr("rag_context.memory.document_queries.OWN_CHUNKS", 2)
    monkeypatch.setattr("rag_context.memory.document_queries.POOL", 1)
    long = await harness.index(" ".join(f"Foxes hunt number {i} of mice." for i in range(400)), source="long")
    other = await harness.index("Some mice hide from foxes in the snow of the north.", source="other")
    harness.embedder.fault = fault
    answer = await similar(harness, long.document_id)
    assert [result.document_id for result in answer.results] == [other.document_id]


async def test_each_document_is_named_once(harness: ServiceHarness) -> None:
    ids = await filled(harness)
    await harness.index(" ".join(f"Foxes hunt number {i} of mice." for i in range(400)), source="long")
    found = [result.document_id for result in (await similar(harness, ids["foxes"], limit=20)).results]
    assert len(found) == len(set(found)) == 4


async def test_where_nothing_can_be_compared_it_fails(harness: ServiceHarness) -> None:
    ids = await filled(harness)
    harness.documents.fault = Fault(BackendUnavailableError("documents", "down"))
    with pytest.raises(BackendUnavailableError):
        await similar(harness, ids["foxes"])
