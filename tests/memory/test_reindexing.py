"""Reindexing behind the searches: started once, continued by the maintenance, reported with its progress."""

import asyncio
from typing import Any

import pytest

from rag_context.api.handlers import CallContext
from rag_context.api.maintenance import ReindexRequest, ReindexResponse
from rag_context.errors import BackendUnavailableError
from rag_context.testing import FakeEmbedder, Fault
from tests.memory.harness import ServiceHarness


async def reindex(harness: ServiceHarness, **fields: Any) -> ReindexResponse:
    return await harness.service.reindex(ReindexRequest.model_validate(fields), CallContext("r"))


async def fill(harness: ServiceHarness) -> None:
    for number in range(5):
        await harness.index(f"MongoDB retry logic number {number}.", source=str(number))


async def test_reindexing_a_current_index_embeds_nothing(harness: ServiceHarness) -> None:
    """T-5."""
    await fill(harness)
    before = harness.fake.calls
    response = await reindex(harness)
    assert (response.status, response.documents, response.done, response.pending) == ("current", 5, 5, 0)
    assert harness.fake.calls == before


async def test_after_a_change_of_model_all_vectors_are_recreated(harness: ServiceHarness) -> None:
    """D-10."""
    await fill(harness)
    harness.fake.model = FakeEmbedder("another").model
    looked = await reindex(harness, statusOnly=True)
    assert looked.status == "needed"
    assert "another" in (looked.detail or "")
    begun = await reindex(harness)
    assert (begun.status, begun.done, begun.pending) == ("running", 0, 5)
    assert (await harness.search("mongodb retry")).results, "words answer meanwhile"
    async with harness.maintained():
        done = await reindex(harness, wait=True)
    assert (done.status, done.done) == ("current", 5)
    assert (await harness.search("mongodb logic")).fallback_level == 1


async def test_it_is_started_once_however_often_it_is_requested(harness: ServiceHarness) -> None:
    await fill(harness)
    await asyncio.gather(*(reindex(harness, force=True) for _ in range(5)))
    async with harness.maintained():
        await reindex(harness, wait=True)
    before = harness.fake.calls
    assert (await reindex(harness)).status == "current"
    assert harness.fake.calls == before


async def test_a_run_under_way_is_carried_on_and_not_begun_again(harness: ServiceHarness) -> None:
    await fill(harness)
    await reindex(harness, force=True)
    await harness.indexer.complete((await harness.store.pending(1))[0])
    assert (await reindex(harness, force=True)).done == 1


async def test_while_it_waits_it_sends_only_progress(harness: ServiceHarness) -> None:
    """P-1."""
    await fill(harness)
    reported: list[tuple[int, int]] = []

    async def listen(done: int, total: int) -> None:
        reported.append((done, total))

    async with harness.maintained():
        await harness.service.reindex(ReindexRequest(force=True, wait=True), CallContext("r", listen))
    counts = [done for done, _ in reported]
    assert counts == sorted(set(counts))
    assert reported[-1] == (5, 5)


async def test_a_model_that_changes_under_a_run_is_reported(harness: ServiceHarness) -> None:
    await fill(harness)
    await reindex(harness, force=True)
    harness.fake.model = FakeEmbedder("another").model
    assert (await reindex(harness, statusOnly=True)).status == "needed"


async def test_without_a_store_it_fails(harness: ServiceHarness) -> None:
    harness.documents.fault = Fault(BackendUnavailableError("documents", "down"))
    with pytest.raises(BackendUnavailableError):
        await reindex(harness)
