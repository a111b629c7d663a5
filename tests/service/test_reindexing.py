"""Reindexing behind the searches: begun once, carried on by the upkeep, told as it is."""

import asyncio
from typing import Any

import pytest

from rag_context.api.maintenance import ReindexRequest, ReindexResponse
from rag_context.errors import BackendUnavailableError
from rag_context.testing import FakeEmbedder, Fault
from tests.service.harness import House


async def unheard(_done: int, _total: int) -> None:
    pass


async def reindex(house: House, **fields: Any) -> ReindexResponse:
    return await house.service.reindex_behind(ReindexRequest.model_validate(fields), unheard)


async def fill(house: House) -> None:
    for number in range(5):
        await house.index(f"MongoDB retry logic number {number}.", source=str(number))


async def test_reindexing_a_current_index_embeds_nothing(house: House) -> None:
    """T-5."""
    await fill(house)
    before = house.fake.calls
    said = await reindex(house)
    assert (said.status, said.documents, said.done, said.pending) == ("current", 5, 5, 0)
    assert house.fake.calls == before


async def test_after_a_change_of_model_all_vectors_are_recreated(house: House) -> None:
    """D-10."""
    await fill(house)
    house.fake.model = FakeEmbedder("another").model
    looked = await reindex(house, statusOnly=True)
    assert looked.status == "needed"
    assert "another" in (looked.detail or "")
    begun = await reindex(house)
    assert (begun.status, begun.done, begun.pending) == ("running", 0, 5)
    assert (await house.search("mongodb retry")).results, "words answer meanwhile"
    async with house.kept_up():
        done = await reindex(house, wait=True)
    assert (done.status, done.done) == ("current", 5)
    assert (await house.search("mongodb logic")).fallback_level == 1


async def test_it_is_started_once_however_often_it_is_requested(house: House) -> None:
    await fill(house)
    await asyncio.gather(*(reindex(house, force=True) for _ in range(5)))
    async with house.kept_up():
        await reindex(house, wait=True)
    before = house.fake.calls
    assert (await reindex(house)).status == "current"
    assert house.fake.calls == before


async def test_a_run_under_way_is_carried_on_and_not_begun_again(house: House) -> None:
    await fill(house)
    await reindex(house, force=True)
    await house.indexer.complete((await house.store.pending(1))[0])
    assert (await reindex(house, force=True)).done == 1


async def test_while_it_waits_it_sends_only_progress(house: House) -> None:
    """P-1."""
    await fill(house)
    told: list[tuple[int, int]] = []

    async def listen(done: int, total: int) -> None:
        told.append((done, total))

    async with house.kept_up():
        await house.service.reindex_behind(ReindexRequest(force=True, wait=True), listen)
    counts = [done for done, _ in told]
    assert counts == sorted(set(counts))
    assert told[-1] == (5, 5)


async def test_a_model_that_changes_under_a_run_is_reported(house: House) -> None:
    await fill(house)
    await reindex(house, force=True)
    house.fake.model = FakeEmbedder("another").model
    assert (await reindex(house, statusOnly=True)).status == "needed"


async def test_without_a_store_it_fails(house: House) -> None:
    house.documents.fault = Fault(BackendUnavailableError("documents", "down"))
    with pytest.raises(BackendUnavailableError):
        await reindex(house)
