"""Several processes on one MongoDB, at the same time and one after an interrupted one; the counters stay right."""

import asyncio
from typing import Any

import pytest

from rag_context.domain.documents import DEFAULT_TENANT, Counts, Tenant
from rag_context.domain.search import Filter
from rag_context.domain.vectors import Calibration, EmbeddingModel
from rag_context.errors import BackendRejectedError, IndexMismatchError
from rag_context.stores.mongodb import MongoStore, open_mongodb
from rag_context.stores.mongodb.document_store import MongoDocuments
from rag_context.stores.mongodb.index_state import NOTHING, MongoChange, MongoIndexState
from rag_context.stores.mongodb.mongo_store import MongoMaintenance
from tests.servers.mongodb_fixtures import Raw, database, kept, mongodb, put, raw, server
from tests.stores.builders import chunks_of, document

__all__ = ["database", "kept", "mongodb", "raw", "server"]


MODEL = EmbeddingModel("mini", 16, "f00d", 254, Calibration(12.1, -4.01), document_prefix="passage: ")
OTHER = EmbeddingModel("other", 16, "beef", 510, Calibration(1.0, 0.0))


async def test_an_index_that_is_there_is_counted_when_its_state_is_lost(database: str, raw: Raw) -> None:
    async with open_mongodb(database) as opened:
        await put(opened, "a", "one", "two", settled=True)
        await put(opened, "b", "three")
        before = (await opened.documents.tenant_state(DEFAULT_TENANT)).stamp
    await raw["C0N7EXT_state"].delete_many({})
    async with open_mongodb(database) as opened:
        while await opened.documents.counts() != Counts(documents=2, pending=1, chunks=3, vectors=2):
            await asyncio.sleep(0.01)
        assert (await opened.documents.tenant_state(DEFAULT_TENANT)).stamp != before


async def test_what_one_process_writes_another_one_notices(database: str) -> None:
    async with open_mongodb(database) as one, open_mongodb(database) as other:
        await put(one, "a", "wolf")
        await other.documents.ping()
        version = other.documents.version
        assert await one.documents.tenant_state(DEFAULT_TENANT) == await other.documents.tenant_state(DEFAULT_TENANT)
        await put(one, "b", "wolf")
        while other.documents.version == version:
            await asyncio.sleep(0.01)
        assert await one.documents.tenant_state(DEFAULT_TENANT) == await other.documents.tenant_state(DEFAULT_TENANT)
        assert len(await other.texts.search("wolf", limit=5, where=Filter())) == 2
        assert (await other.documents.counts()).documents == 2


async def test_many_writers_leave_one_document_and_true_counters(database: str) -> None:
    async with open_mongodb(database) as one, open_mongodb(database) as other:
        texts = [["one"], ["one", "two"], ["one", "two", "three"]]
        await asyncio.gather(
            *(put(store, f"document {n % 4}", *texts[n % 3]) for n in range(40) for store in (one, other))
        )
        real = sum((await one.documents._state.count_by_tenant()).values(), NOTHING)
        seen = await one.documents._state.refresh()
        assert (real.documents, real.pending) == (4, 4)
        assert seen.totals == real
        assert seen.is_consistent


async def test_at_no_moment_is_neither_version_found(mongodb: MongoStore) -> None:
    await put(mongodb, "a", "wolf version")
    done = asyncio.Event()

    async def replace() -> None:
        for number in range(25):
            await put(mongodb, "a", f"wolf version {number}", "more", content=f"{number}")
        done.set()

    async def watch() -> int:
        looks = 0
        while not done.is_set():
            (hit,) = await mongodb.texts.search("wolf", limit=5, where=Filter())
            assert hit.chunk.document_id == document("a").id
            looks += 1
        return looks

    _, looks = await asyncio.gather(replace(), watch())
    assert looks > 5


async def test_a_change_that_was_interrupted_is_counted_after_a_while(mongodb: MongoStore, raw: Raw) -> None:
    await put(mongodb, "a", "one")
    await raw["C0N7EXT_state"].update_one({"_id": "index"}, {"$inc": {"begun": 1}})
    await raw["C0N7EXT"].delete_one({"_id": document("a").id})
    version, mongo, state = mongodb.documents.version, mongodb.documents._mongo, mongodb.documents._state
    maintenance = MongoMaintenance(mongo, state, mongodb.texts._indexes, mongodb.documents._revisions, stalled_s=5.0)
    await maintenance.round(100.0)
    assert (await mongodb.documents.counts()).documents == 1
    await maintenance.round(105.0)
    assert await mongodb.documents.counts() == Counts(0, 0, 0, 0)
    assert mongodb.documents.version > version
    assert (await state.refresh()).is_consistent


async def test_an_interrupted_change_is_counted_while_others_go_on_at_a_moment_without_one(
    mongodb: MongoStore, raw: Raw
) -> None:
    await put(mongodb, "a", "one")
    record = raw["C0N7EXT_state"]
    await record.update_one({"_id": "index"}, {"$inc": {"begun": 1}})
    await raw["C0N7EXT"].delete_one({"_id": document("a").id})
    mongo, state = mongodb.documents._mongo, mongodb.documents._state
    maintenance = MongoMaintenance(mongo, state, mongodb.texts._indexes, mongodb.documents._revisions, stalled_s=5.0)
    for second in range(5):
        await maintenance.round(100.0 + second)
        await record.update_one({"_id": "index"}, {"$inc": {"begun": 1, "version": 1}})
    await record.update_one({"_id": "index"}, {"$inc": {"begun": 1}})
    await maintenance.round(105.0)
    assert (await mongodb.documents.counts()).documents == 1
    await record.update_one({"_id": "index"}, {"$inc": {"version": 1}})
    await maintenance.round(105.2)
    assert (await mongodb.documents.counts()).documents == 0
    assert (await state.refresh()).is_consistent


async def test_counters_that_are_too_low_for_a_while_are_never_below_nothing(mongodb: MongoStore, raw: Raw) -> None:
    await put(mongodb, "a", "one")
    await raw["C0N7EXT_state"].update_one({"_id": "index"}, {"$inc": {"totals.pending": -2, "totals.vectors": -2}})
    await mongodb.documents._state.refresh()
    counts = await mongodb.documents.counts()
    assert (counts.documents, counts.pending, counts.vectors) == (1, 0, 0)


async def test_a_write_continues_without_a_waiting_caller(mongodb: MongoStore) -> None:
    await mongodb.documents.ping()
    for number in range(20):
        task = asyncio.create_task(put(mongodb, f"document {number}", "one"))
        await asyncio.sleep(0.0005 * number)
        task.cancel()
        await asyncio.wait({task})
    await mongodb.documents._state.close()
    seen = await mongodb.documents._state.refresh()
    assert seen.is_consistent
    assert seen.totals == sum((await mongodb.documents._state.count_by_tenant()).values(), NOTHING)


async def test_vectors_of_a_model_that_is_no_longer_the_indexs_complete_nothing(mongodb: MongoStore) -> None:
    await mongodb.documents.adopt_model(MODEL)
    await put(mongodb, "a", "one")
    written = document("a")
    with pytest.raises(BackendRejectedError, match="another model"):
        await mongodb.documents.mark_indexed(written.id, written.content_hash, "beef")
    assert await mongodb.documents.mark_indexed(written.id, written.content_hash, MODEL.fingerprint) is True
    with pytest.raises(IndexMismatchError, match="mini"):
        await mongodb.documents.adopt_model(OTHER)
    assert await mongodb.documents.drop_vectors() == 1
    assert await mongodb.documents.pending(5) == [written.id]
    await mongodb.documents.adopt_model(OTHER)
    assert await mongodb.documents.recorded_model() == OTHER


async def test_what_a_broken_off_reindexing_left_indexed_is_pending_for_the_next_model(
    mongodb: MongoStore, raw: Raw
) -> None:
    await mongodb.documents.adopt_model(MODEL)
    await put(mongodb, "a", "one", settled=True)
    await raw["C0N7EXT_state"].update_one({"_id": "index"}, {"$unset": {"model": ""}})
    await mongodb.documents.adopt_model(OTHER)
    assert await mongodb.documents.pending(5) == [document("a").id]
    assert (await mongodb.documents.counts()).vectors == 0


async def test_a_reindexing_that_begins_while_vectors_are_marked_indexed_wins(database: str) -> None:
    async with open_mongodb(database) as one, open_mongodb(database) as other:
        await one.documents.adopt_model(MODEL)
        for number in range(12):
            await put(one, str(number), "one")
        hashes = {document(str(number)).id: document(str(number)).content_hash for number in range(12)}
        settling = [one.documents.mark_indexed(id_, hash_, MODEL.fingerprint) for id_, hash_ in hashes.items()]
        await asyncio.gather(*settling[:6], other.documents.drop_vectors(), *settling[6:], return_exceptions=True)
        assert sorted(await one.documents.pending(20)) == sorted(hashes)


class Interrupted(MongoDocuments):
    """Another process begins a reindexing in the middle of a settlement."""

    async def _mark(self, query: dict[str, Any], status: str, change: MongoChange) -> bool:
        if status == "indexed":
            state = MongoIndexState(self._mongo)
            await MongoDocuments(self._mongo, state, self._indexes, self._revisions).drop_vectors()
        return await super()._mark(query, status, change)


async def test_vectors_marked_indexed_during_a_reindexing_are_removed_again(mongodb: MongoStore) -> None:
    await mongodb.documents.adopt_model(MODEL)
    await put(mongodb, "a", "one")
    held = mongodb.documents
    documents = Interrupted(held._mongo, held._state, held._indexes, held._revisions)
    with pytest.raises(BackendRejectedError, match="another model"):
        await documents.mark_indexed(document("a").id, document("a").content_hash, MODEL.fingerprint)
    assert await documents.pending(5) == [document("a").id]
    assert (await documents.counts()).vectors == 0


async def test_a_state_of_another_index_makes_the_version_grow(mongodb: MongoStore, raw: Raw) -> None:
    for name in "abc":
        await put(mongodb, name, "one")
    version, stamp = mongodb.documents.version, (await mongodb.documents.tenant_state(DEFAULT_TENANT)).stamp
    await raw["C0N7EXT"].delete_many({})
    await raw["C0N7EXT_state"].delete_many({})
    await mongodb.documents.ping()
    assert mongodb.documents.version > version
    assert (await mongodb.documents.tenant_state(DEFAULT_TENANT)).stamp != stamp
    assert isinstance(mongodb.documents._state, MongoIndexState)
    assert await mongodb.documents.counts() == Counts(0, 0, 0, 0)


async def test_the_name_of_a_tenant_goes_with_its_last_document_and_comes_with_the_next(
    mongodb: MongoStore, raw: Raw
) -> None:
    mine = Tenant("zugzwang")
    names = {"_id": {"$regex": "^tenant:.*zugzwang"}}
    for name in ("1", "2"):
        await put(mongodb, name, "a wolf", tenant=mine)
    await mongodb.documents.delete(document("1").id)
    first = await mongodb.documents.tenant_state(mine)
    assert await raw["C0N7EXT_state"].count_documents(names) == 1
    await mongodb.documents.delete(document("2").id)
    assert await raw["C0N7EXT_state"].count_documents(names) == 0
    for name in ("1", "2", "3"):
        await put(mongodb, name, "a sheep", tenant=mine)
        again = await mongodb.documents.tenant_state(mine)
        assert (again.documents, again.stamp != first.stamp) == (int(name), True)
    assert await mongodb.texts.search("wolf", limit=2, where=Filter(mine)) == []
    assert (await mongodb.documents._state.refresh()).is_consistent


async def test_tenants_of_an_older_index_are_counted_when_it_is_opened(database: str, raw: Raw) -> None:
    tenants = [Tenant(), Tenant("shop", "main", "aa")]
    async with open_mongodb(database) as opened:
        for number, tenant in enumerate((tenants[0], tenants[0], tenants[1])):
            written = document(str(number), tenant=tenant)
            await opened.documents.put(written, chunks_of(written, "wolf", f"sheep {number}"))
        hits = [await opened.texts.search("wolf 1", limit=9, where=Filter(each)) for each in tenants]
    state = raw["C0N7EXT_state"]
    await state.delete_many({"_id": {"$regex": "^tenant:"}})
    await state.update_one({"_id": "index"}, {"$unset": {"byTenant": "", "epoch": ""}})
    async with open_mongodb(database) as opened:
        while [(await opened.documents.tenant_state(each)).documents for each in tenants] != [2, 1]:
            await asyncio.sleep(0.01)
        assert [await opened.texts.search("wolf 1", limit=9, where=Filter(each)) for each in tenants] == hits
        assert (await opened.documents._state.refresh()).is_consistent
