"""What MongoDB keeps: the records, indexes and statistics, and other programs' documents."""

import asyncio
from datetime import UTC
from typing import Any

import pytest
from bson import ObjectId

from rag_context.domain.documents import Counts, Cursor, Metadata, Missing, Retrievals, Stored, Tenant
from rag_context.domain.search import Filter, Neighbours
from rag_context.errors import BackendRejectedError, ConfigurationError, ForeignDataError
from rag_context.ports.reading import DocumentStore, KeywordIndex, MetricsStore
from rag_context.ports.writing import DocumentWriter, IndexAuditor, ModelRegistry, Version
from rag_context.stores.mongodb import MongoStore, open_mongodb
from rag_context.stores.mongodb.mongo_store import MongoMaintenance
from tests.servers.mongodb_fixtures import Raw, database, kept, mongodb, put, raw, server
from tests.stores.builders import NOON, chunks_of, document, minutes

__all__ = ["database", "kept", "mongodb", "raw", "server"]


INDEXES = {
    "session_timestamp_idx": {"sessionId": 1, "timestamp": -1},
    "tags_idx": {"metadata.tags": 1},
    "category_idx": {"metadata.category": 1},
    "content_type_timestamp_idx": {"contentType": 1, "timestamp": -1},
    "decision_id_idx": {"metadata.decisionId": 1},
}

FOREIGN: dict[str, Any] = {
    "_id": ObjectId("65f000000000000000000001"),
    "sessionId": "theirs",
    "timestamp": NOON,
    "contentType": "decision",
    "source": "docs/old.md",
    "content": "A wolverine was seen. It left again.",
    "chunks": [
        {"chunkId": "their-chunk-0", "text": "A wolverine was seen.", "vectorId": "v0", "embedding": [0.1, 0.2]},
        {"chunkId": "their-chunk-1", "text": "It left again.", "vectorId": "v1"},
    ],
    "metadata": {"agent": "opus", "tags": ["x"], "category": "strategy"},
    "retrievalStats": {"queryCount": 3},
}


async def test_it_fits_every_port(mongodb: MongoStore) -> None:
    documents: DocumentStore = mongodb.documents
    writer: DocumentWriter = mongodb.documents
    models: ModelRegistry = mongodb.documents
    texts: KeywordIndex = mongodb.texts
    metrics: MetricsStore = mongodb.metrics
    auditor: IndexAuditor = mongodb.auditor
    assert len({id(port) for port in (documents, texts, metrics, auditor)}) == 4
    assert {id(writer), id(models)} == {id(documents)}


async def indexes(raw: Raw, collection: str) -> dict[str, dict[str, Any]]:
    return {index["name"]: dict(index["key"]) async for index in await raw[collection].list_indexes()}


async def indexes_with(raw: Raw, collection: str, name: str) -> dict[str, dict[str, Any]]:
    """The indexes once one of them is there."""
    while name not in (found := await indexes(raw, collection)):
        await asyncio.sleep(0.01)
    return found


async def test_a_document_is_kept_in_the_fields_that_others_know(mongodb: MongoStore, raw: Raw) -> None:
    said = Metadata("opus", ("a", "b"), "d-1", {"weight": 3}, category="strategy", game="chess")
    chunk_ids = await put(mongodb, "a", "one", "two", metadata=said, session_id="s", timestamp=NOON)
    kept_ = await raw["C0N7EXT"].find_one({"_id": document("a").id})
    assert kept_ is not None
    assert (kept_["sessionId"], kept_["contentType"], kept_["source"]) == ("s", "documentation", "source.md")
    assert (kept_["timestamp"], kept_["content"]) == (NOON, "Some text.")
    assert [(each["chunkId"], each["vectorId"], each["text"]) for each in kept_["chunks"]] == [
        (chunk_ids[0], chunk_ids[0], "one"),
        (chunk_ids[1], chunk_ids[1], "two"),
    ]
    seeds = {name: kept_["metadata"][name] for name in ("agent", "tags", "category", "game", "decisionId")}
    assert seeds == {"agent": "opus", "tags": ["a", "b"], "category": "strategy", "game": "chess", "decisionId": "d-1"}
    assert kept_["retrievalStats"] == {"queryCount": 0}


async def test_the_indexes_have_the_names_and_keys_that_others_know(mongodb: MongoStore, raw: Raw) -> None:
    errors = await indexes_with(raw, "errors", "timestamp_idx")
    assert errors["timestamp_idx"] == {"timestamp": -1}
    found = await indexes(raw, "C0N7EXT")
    assert {name: found[name] for name in INDEXES} == INDEXES
    (text,) = [index async for index in await raw["C0N7EXT"].list_indexes() if index["name"] == "content_text_index"]
    assert text["weights"] == {"content": 10, "metadata.tags": 5}
    assert text["default_language"] == "english"
    metrics = await indexes(raw, "R4G_M37R1C5")
    assert metrics["timestamp_idx"] == {"timestamp": -1}
    assert metrics["agent_timestamp_idx"] == {"agent": 1, "timestamp": -1}


async def test_an_index_of_the_same_keys_under_another_name_will_do(database: str, raw: Raw) -> None:
    documents = raw["elsewhere"]
    await documents.create_index([("sessionId", 1), ("timestamp", -1)], name="mine")
    await documents.create_index([("content", "text")], name="my_text")
    async with open_mongodb(database, documents="elsewhere", metrics="elsewhere_metrics"):
        await indexes_with(raw, "elsewhere_metrics", "timestamp_idx")
    found = await indexes(raw, "elsewhere")
    assert found["mine"] == INDEXES["session_timestamp_idx"]
    assert "session_timestamp_idx" not in found
    assert [name for name, key in found.items() if "text" in key.values()] == ["my_text"]
    assert "tags_idx" in found


async def test_documents_of_other_programs_are_read_found_and_counted(mongodb: MongoStore, raw: Raw) -> None:
    await raw["C0N7EXT"].insert_one(FOREIGN)
    id_ = str(FOREIGN["_id"])
    while not (hits := await mongodb.texts.search("wolverines", limit=5, where=Filter())):
        await asyncio.sleep(0.01)  # the text index is made
    assert [hit.chunk.id for hit in hits] == ["their-chunk-0"]
    passage = (await mongodb.documents.passages(["their-chunk-0"]))["their-chunk-0"]
    assert (passage.chunk.text, passage.document_id, passage.metadata.tags) == ("A wolverine was seen.", id_, ("x",))
    read = await mongodb.documents.get(id_)
    assert read is not None
    assert (read.content, read.source, read.timestamp) == (FOREIGN["content"], "docs/old.md", NOON)
    assert [chunk.text for chunk in await mongodb.documents.chunks(id_)] == ["A wolverine was seen.", "It left again."]
    assert await mongodb.documents.counts() == Counts(0, 0, 0, 0, others=1)
    assert await mongodb.documents.missing_vectors(Filter()) == Missing(2, 2)
    assert await mongodb.documents.missing_vectors(Filter(session_id="another")) == Missing()
    assert "1 document of other programs without vectors" in await mongodb.documents.ping()
    assert [each.id for each in await mongodb.documents.listing(Filter(), limit=5)] == [id_]
    assert await mongodb.documents.matching(Filter(session_id="theirs", tags=("x",)), 5) == []
    assert await mongodb.documents.pending(5) == []
    assert await mongodb.documents.inventory("", 5) == {}
    assert (await mongodb.documents.neighbours(["their-chunk-0"]))["their-chunk-0"].after is not None
    with pytest.raises(ForeignDataError, match="was not deleted"):
        await mongodb.documents.delete(id_)
    await mongodb.documents.record_retrievals([id_], NOON)
    await mongodb.auditor.invalidate([id_])
    assert await raw["C0N7EXT"].find_one({"_id": FOREIGN["_id"]}) == FOREIGN


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "wolverine"},
        {"content": "wolverine", "chunks": [], "metadata": None, "timestamp": "yesterday"},
        {"content": "wolverine", "chunks": [{"text": "wolverine"}], "metadata": {"tags": ["t", 3]}},
        {"content": "wolverine", "chunks": ["wolverine"], "metadata": {"tags": "t", "agent": 7, "extra": {"a": 1}}},
        {"content": "wolverine", "chunks": "wolverine", "metadata": {"tags": 7, "extra": "no JSON"}, "thread": "talk"},
        {"content": "wolverine", "status": "published", "thread": 7, "similarityHash": "x", "timestampMicros": "x"},
        {"content": "wolverine", "chunks": [{"chunkId": "c", "text": "wolverine", "start": "a", "position": "b"}]},
    ],
)
async def test_a_document_without_nearly_all_fields_is_read_all_the_same(
    mongodb: MongoStore, raw: Raw, fields: dict[str, Any]
) -> None:
    id_ = str((await raw["C0N7EXT"].insert_one(dict(fields))).inserted_id)
    while not (hits := await mongodb.texts.search("wolverine", limit=5, where=Filter())):
        await asyncio.sleep(0.01)
    chunk_id = hits[0].chunk.id
    assert hits[0].chunk.document_id == id_
    assert (await mongodb.documents.chunks(id_))[0].text == "wolverine"
    assert await mongodb.documents.neighbours([chunk_id]) in ({}, {chunk_id: Neighbours()})
    if chunk_id in (id_, "c"):
        assert (await mongodb.documents.passages([chunk_id]))[chunk_id].chunk.text == "wolverine"
    (listed,) = await mongodb.documents.listing(Filter(), limit=5)
    assert (listed.id, listed.content_type, listed.indexed) == (id_, "documentation", True)
    read = await mongodb.documents.get(id_)
    assert read is not None
    assert (read.content, read.thread, dict(read.metadata.extra)) == ("wolverine", None, {})
    with pytest.raises(ForeignDataError):
        await mongodb.documents.delete(id_)
    assert await mongodb.documents.counts() == Counts(0, 0, 0, 0, others=1)


async def test_a_document_larger_than_a_record_is_rejected_in_one_sentence(mongodb: MongoStore) -> None:
    await put(mongodb, "a", "small")
    with pytest.raises(BackendRejectedError, match="16 MB"):
        await put(mongodb, "a", "x" * 17_000_000)
    assert (await mongodb.documents.chunks(document("a").id))[0].text == "small"
    assert (await mongodb.documents._state.refresh()).is_consistent


async def test_a_mebibyte_of_text_is_no_trouble(mongodb: MongoStore) -> None:
    texts = [" ".join(f"word{number * 40 + n}" for n in range(40)) for number in range(2700)]
    content = "\n".join(texts)
    assert len(content) > 2**20
    chunk_ids = await put(mongodb, "a", *texts, content=content)
    hits = await mongodb.texts.search("word99999 word50000", limit=5, where=Filter())
    assert {hit.chunk.id for hit in hits} == {chunk_ids[2499], chunk_ids[1250]}


async def test_text_that_has_no_utf_8_is_rejected(mongodb: MongoStore) -> None:
    with pytest.raises(BackendRejectedError, match="cannot store"):
        await mongodb.documents.put(document("a", "half a pair \ud800"), chunks_of(document("a")))
    assert (await mongodb.documents.counts()).documents == 0
    assert (await mongodb.documents._state.refresh()).is_consistent


async def test_marking_as_indexed_counts_vectors_and_unmarking_subtracts_them(mongodb: MongoStore) -> None:
    await put(mongodb, "a", "one", "two", settled=True)
    await put(mongodb, "b", "three")
    assert await mongodb.documents.counts() == Counts(documents=2, pending=1, chunks=3, vectors=2)
    await mongodb.documents.mark_pending([document("a").id, document("b").id, "nobody"])
    assert await mongodb.documents.pending(5) == [document("a").id, document("b").id]
    assert await mongodb.documents.counts() == Counts(documents=2, pending=2, chunks=3, vectors=0)


async def test_another_version_is_neither_marked_indexed_nor_rechunked(mongodb: MongoStore) -> None:
    old, new = document("a", "old"), document("a", "new")
    await mongodb.documents.put(new, chunks_of(new))
    assert await mongodb.documents.mark_indexed(old.id, old.content_hash) is False
    assert await mongodb.documents.rechunk(Version(old, chunks_of(old))) is False
    assert await mongodb.documents.rechunk(Version(new, chunks_of(new, "n", "ew"))) is True
    stored = await mongodb.documents.stored(new.id)
    assert stored == Stored(new.content_hash, False, tuple(each.id for each in chunks_of(new, "n", "ew")), NOON)


async def test_lists_go_on_behind_the_last_that_was_shown(mongodb: MongoStore) -> None:
    moments = [NOON, NOON, NOON + minutes(1), NOON.replace(microsecond=7), NOON.replace(microsecond=7)]
    for number, at in enumerate(moments):
        await put(mongodb, str(number), "one", timestamp=at, metadata=Metadata(tags=("t",)))
    await put(mongodb, "elsewhere", "one", tenant=Tenant("p"))
    whole = await mongodb.documents.listing(Filter(), limit=20)
    assert [(each.timestamp, each.id) for each in whole] == sorted(
        [(each.timestamp, each.id) for each in whole], key=lambda pair: (-pair[0].timestamp(), pair[1])
    )
    assert len(whole) == 5
    shown, after = [], None
    while page := await mongodb.documents.listing(Filter(tags=("t",)), limit=2, after=after):
        shown += page
        after = Cursor(page[-1].timestamp, page[-1].id)
    assert shown == whole


async def test_the_inventory_goes_through_all_tenants_by_id(mongodb: MongoStore) -> None:
    names = {document(name).id: name for name in "abcde"}
    for name in names.values():
        await put(mongodb, name, "one", tenant=Tenant(name))
    pages, after = [], ""
    while page := await mongodb.documents.inventory(after, 2):
        pages += list(page)
        after = max(page)
    assert pages == sorted(names)


async def test_retrievals_are_counted_beside_the_requests(database: str) -> None:
    async with open_mongodb(database) as opened:
        await put(opened, "a", "one")
        version = opened.documents.version
        await opened.documents.record_retrievals([document("a").id, "unknown"], NOON + minutes(1))
        await opened.documents.record_retrievals([document("a").id], NOON)
        assert await opened.documents.retrievals(document("a").id) == Retrievals(2, NOON + minutes(1))
        await put(opened, "a", "another version")
        assert (await opened.documents.retrievals(document("a").id)).count == 2
        assert opened.documents.version == version + 1
        await opened.documents.record_retrievals([document("a").id], NOON)
    async with open_mongodb(database) as opened:
        assert (await opened.documents.retrievals(document("a").id)).count == 3
        assert (await opened.documents.counts()).documents == 1


async def test_the_progress_of_embedding_is_there_for_people_to_see(mongodb: MongoStore, raw: Raw) -> None:
    await put(mongodb, "a", "one", settled=True)
    await put(mongodb, "b", "two")
    maintenance = MongoMaintenance(
        mongodb.documents._mongo, mongodb.documents._state, mongodb.texts._indexes, mongodb.documents._revisions
    )
    await maintenance.round(10.0)
    shown = await raw["_indexing_progress"].find_one({"_id": "C0N7EXT"})
    assert shown is not None
    assert (shown["documents"], shown["indexed"], shown["pending"]) == (2, 1, 1)


@pytest.mark.parametrize(
    "uri",
    [
        "http://127.0.0.1/x",
        "mongodb://",
        "mongodb://user:s3:cret@127.0.0.1:27017/x",
        "mongodb://user:s3cret@127.0.0.1:s3cret/x",
        "mongodb://127.0.0.1/bad name?maxPoolSize=-3",
    ],
)
async def test_an_impossible_address_is_rejected_at_once_without_its_password(uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"stores\.mongodb_uri") as raised:
        async with open_mongodb(uri):
            raise AssertionError("it was opened")
    assert "s3" not in str(raised.value)
    assert raised.value.__cause__ is None


async def test_the_database_is_the_one_of_the_address_or_the_default(server: str) -> None:
    async with open_mongodb(server) as opened:
        assert opened.documents._mongo.documents.database.name == "P4NTH30N"
    async with open_mongodb("mongodb://127.0.0.1:1/mine?maxPoolSize=7") as opened:
        mongo = opened.documents._mongo
        assert (mongo.documents.database.name, mongo.documents.name, mongo.metrics.name) == (
            "mine",
            "C0N7EXT",
            "R4G_M37R1C5",
        )
        options = mongo.client.options.pool_options
        assert (options.max_pool_size, options.max_idle_time_seconds, options.wait_queue_timeout) == (7, 30, 5)
        assert mongo.client.write_concern.document == {"w": "majority", "j": True}
        assert mongo.client.read_concern.level == "majority"


async def test_other_programs_dates_are_in_utc(mongodb: MongoStore, raw: Raw) -> None:
    await raw["C0N7EXT"].insert_one(FOREIGN)
    read = await mongodb.documents.get(str(FOREIGN["_id"]))
    assert read is not None
    assert read.timestamp.tzinfo is not None
    assert read.timestamp.astimezone(UTC) == NOON


async def test_the_tenants_are_those_of_whom_there_are_documents(mongodb: MongoStore) -> None:
    shop, other = Tenant("shop", "main", "0" * 16), Tenant("shop", "next", "0" * 16)
    for name, tenant in (("a", shop), ("b", shop), ("c", other), ("d", Tenant())):
        await put(mongodb, name, tenant=tenant)
    assert set(await mongodb.documents.tenants()) == {shop, other, Tenant()}


async def test_a_record_without_an_event_time_counts_with_its_timestamp(mongodb: MongoStore, raw: Raw) -> None:
    await raw["C0N7EXT"].insert_one(FOREIGN)
    theirs = str(FOREIGN["_id"])
    await put(mongodb, "ours", "one", timestamp=NOON, occurred_at=NOON - minutes(9))
    ours = document("ours").id
    listed = [await mongodb.documents.listing(where, limit=9) for where in (Filter(since=NOON), Filter(until=NOON))]
    assert [[each.id for each in some] for some in listed] == [[theirs], [ours]]
    read = await mongodb.documents.get(theirs)
    assert read is not None
    assert read.occurred_at == NOON
    assert {chunk.occurred_at for chunk in await mongodb.documents.chunks(theirs)} == {NOON}
