"""What MongoDB rejects is rejected by the server of these tests too, and the store does without it."""

import asyncio
import random
from collections.abc import Iterator, Mapping
from typing import Any

import bson
import pytest
from pymongo.errors import OperationFailure

from rag_context.domain.documents import Document
from rag_context.domain.search import Filter
from rag_context.errors import BackendTimeoutError
from rag_context.stores.mongodb import MongoStore, open_mongodb
from rag_context.stores.mongodb.chunk_records import records_of
from rag_context.stores.mongodb.document_records import entry_of
from rag_context.stores.mongodb.keyword_search import MongoTexts
from rag_context.stores.mongodb.revisions import ABANDONED_S, Revisions
from rag_context.testing.fakes import FrozenClock
from tests.servers.mongodb import mongodb_process, uri_of
from tests.servers.mongodb_fixtures import Raw, database, kept, mongodb, raw, server
from tests.servers.mongodb_limits import MOST_BYTES, MOST_STAGES
from tests.stores.builders import chunks_of, document

__all__ = ["database", "kept", "mongodb", "raw", "server"]


EVERYTHING = Filter()


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a database on a member of a replica set."""
    with mongodb_process(tmp_path_factory.mktemp("member") / "data", "--replica-set", "members") as process:
        yield uri_of(process.port, "election")


CHARACTERS = [chr(0x4E00 + number) for number in range(3000)]
CHUNK_CHARS = 120


def chinese(characters: int, seed: int = 1) -> str:
    return "".join(random.Random(seed).choices(CHARACTERS, k=characters))


def pieces(text: str) -> list[str]:
    return [text[start : start + CHUNK_CHARS] for start in range(0, len(text), CHUNK_CHARS)]


async def put(store: MongoStore, written: Document, *texts: str) -> list[str]:
    chunks = chunks_of(written, *texts)
    await store.documents.put(written, chunks)
    return [chunk.id for chunk in chunks]


async def found(store: MongoStore, query: str, limit: int = 5) -> list[str]:
    return [hit.chunk.id for hit in await store.texts.search(query, limit=limit, where=EVERYTHING)]


@pytest.mark.parametrize(
    ("code", "command"),
    [
        (7749501, {"aggregate": "limits", "pipeline": [{"$match": {}}] * (MOST_STAGES + 1), "cursor": {}}),
        (10334, {"insert": "limits", "documents": [{"text": "x" * MOST_BYTES}]}),
        (10334, {"findAndModify": "limits", "query": {}, "update": {"$set": {"text": "x" * MOST_BYTES}}}),
        (171, {"insert": "limits", "documents": [{"one": [1], "other": [2]}]}),
        (171, {"update": "limits", "updates": [{"q": {}, "u": {"$set": {"one": [1], "other": [2]}}}]}),
    ],
    ids=["stages", "inserted bytes", "updated bytes", "inserted arrays", "updated arrays"],
)
async def test_what_mongodb_rejects_is_rejected(raw: Raw, code: int, command: Mapping[str, Any]) -> None:
    await raw["limits"].create_index([("one", 1), ("other", 1)])
    with pytest.raises(OperationFailure) as rejected:
        await raw.command(dict(command))
    assert rejected.value.code == code


def test_no_record_of_a_document_of_two_million_characters_comes_near_the_limit() -> None:
    content = "".join(random.Random(2).choices([chr(0x20000 + number) for number in range(3000)], k=2_000_000))
    chunks = chunks_of(document("a"), *pieces(content))
    entry = entry_of(document("a", content), chunks, "0" * 32)
    assert len(bson.encode(entry)) < 0.75 * MOST_BYTES
    assert max(len(bson.encode(record)) for record in records_of(entry, chunks[:200])) < 20_000


async def test_a_long_document_in_chinese_is_stored_found_and_replaced(mongodb: MongoStore, raw: Raw) -> None:
    await mongodb.texts._indexes.ensure()  # the server of these tests makes them slowly beside writes
    content = chinese(30_000)
    chunk_ids = await put(mongodb, document("a", content), *pieces(content))
    await put(mongodb, document("b", chinese(600, 9)), *pieces(chinese(600, 9)))
    assert (await found(mongodb, content[7_204:7_230]))[0] == chunk_ids[60]
    assert [chunk.text for chunk in await mongodb.documents.chunks(document("a").id)] == pieces(content)
    passage = (await mongodb.documents.passages(chunk_ids[60:61]))[chunk_ids[60]]
    assert (passage.chunk.text, passage.chunk.position) == (content[7_200:7_320], 60)
    around = (await mongodb.documents.neighbours(chunk_ids[60:61]))[chunk_ids[60]]
    assert (around.before and around.before.id, around.after and around.after.id) == (chunk_ids[59], chunk_ids[61])
    (shorter,) = await put(mongodb, document("a", content[:100]), content[:100])
    assert await found(mongodb, content[:26]) == [shorter]
    assert await raw["C0N7EXT_chunks"].count_documents({"document": document("a").id}) == 1
    assert await mongodb.documents.delete(document("a").id) is True
    assert await raw["C0N7EXT_chunks"].count_documents({"document": document("a").id}) == 0
    assert await raw["C0N7EXT_state"].count_documents({"_id": {"$regex": "^write:"}}) == 0


async def test_a_query_of_a_thousand_chinese_characters_finds_what_it_quotes(mongodb: MongoStore) -> None:
    await mongodb.texts._indexes.ensure()
    content = chinese(3_000)
    chunk_ids = await put(mongodb, document("a", content), *pieces(content))
    await put(mongodb, document("b", chinese(3_000, 5)), *pieces(chinese(3_000, 5)))
    hits = await found(mongodb, content[960:1960], limit=8)
    assert set(hits) == set(chunk_ids[8:16])


async def test_a_term_of_more_chunks_than_may_be_read_finds_those_in_which_it_says_most(mongodb: MongoStore) -> None:
    frugal = MongoTexts(mongodb.texts._mongo, mongodb.texts._state, mongodb.texts._indexes, budget=4)
    for number in range(12):
        await put(mongodb, document(f"long {number}"), "wolf " + " ".join(f"w{number}x{n}" for n in range(40)))
    (repeated,) = await put(mongodb, document("repeated"), "wolf " * 8 + " ".join(f"more{n}" for n in range(40)))
    (short,) = await put(mongodb, document("short"), "a wolf")
    assert await found(mongodb, "wolf", limit=2) == await found_by(frugal, "wolf", 2)
    assert set(await found_by(frugal, "wolf", 2)) == {repeated, short}


async def found_by(texts: MongoTexts, query: str, limit: int) -> list[str]:
    return [hit.chunk.id for hit in await texts.search(query, limit=limit, where=EVERYTHING)]


async def test_an_interrupted_write_is_not_seen_and_removed_after_a_while(mongodb: MongoStore, raw: Raw) -> None:
    clock = FrozenClock()
    revisions = Revisions(mongodb.documents._mongo, mongodb.documents._state, clock)
    old = await put(mongodb, document("a", "old"), "wolf old")
    await revisions.store(document("a", "new"), chunks_of(document("a"), "wolf", "new"))
    await revisions.store(document("b"), chunks_of(document("b"), "wolf"))
    assert await found(mongodb, "wolf") == old
    assert [chunk.id for chunk in await mongodb.documents.chunks(document("a").id)] == old
    assert await mongodb.documents.passages([chunk.id for chunk in chunks_of(document("b"), "wolf")]) == {}
    await revisions.sweep()
    clock.advance(ABANDONED_S - 1.0)
    await revisions.sweep()
    assert await raw["C0N7EXT_chunks"].count_documents({}) == 4
    clock.advance(1.0)
    young = await revisions.store(document("a", "young"), chunks_of(document("a"), "wolf young"))
    await revisions.sweep()
    assert {record["chunkId"] async for record in raw["C0N7EXT_chunks"].find()} == {
        *old,
        *(chunk.id for chunk in chunks_of(document("a"), "wolf young")),
    }
    await revisions.withdraw(young)
    assert await raw["C0N7EXT_state"].count_documents({"_id": {"$regex": "^write:"}}) == 0


async def test_an_index_of_another_program_under_our_name_stops_no_other_index(database: str, raw: Raw) -> None:
    await raw["theirs"].create_index([("mine", 1)], name="tags_idx")
    async with open_mongodb(database, documents="theirs", metrics="their_metrics") as opened:
        while "index theirs.tags_idx is missing" not in (said := await opened.documents.ping()):
            await asyncio.sleep(0.01)
        assert "code 86" in said
        names = {index["name"] async for index in await raw["theirs"].list_indexes()}
        assert {"content_text_index", "session_timestamp_idx", "status_idx"} < names
        assert {index["name"] async for index in await raw["theirs_chunks"].list_indexes()} > {"terms_idx"}
        await raw["theirs"].drop_index("tags_idx")
        await opened.texts._indexes.ensure()
        assert "missing" not in await opened.documents.ping()


async def failing(raw: Raw, times: int, **data: object) -> None:
    """Make the next commands fail, as `failCommand` of a server for tests does."""
    try:
        await raw.client.admin.command({"configureFailPoint": "failCommand", "mode": {"times": times}, "data": data})
    except OperationFailure as error:
        pytest.skip(f"this server does not fail on command ({error.code})")


@pytest.mark.parametrize("command", ["insert", "findAndModify"])
async def test_a_write_that_no_majority_has_in_time_says_so_and_may_be_repeated(
    mongodb: MongoStore, raw: Raw, command: str
) -> None:
    await mongodb.documents.ping()
    late = {"code": 64, "errmsg": "waiting for replication timed out", "errInfo": {"wtimeout": True}}
    await failing(raw, 1, failCommands=[command], writeConcernError=late)
    with pytest.raises(BackendTimeoutError, match="majority"):
        await put(mongodb, document("a"), "wolf")
    (chunk_id,) = await put(mongodb, document("a"), "wolf")
    assert await found(mongodb, "wolf") == [chunk_id]


@pytest.mark.parametrize("command", ["insert", "findAndModify", "update"])
async def test_a_write_goes_on_with_the_primary_that_is_elected_meanwhile(member: str, command: str) -> None:
    # The only member: until the next heartbeat none is known, on a busy machine for more than a quarter second.
    async with open_mongodb(f"{member}&serverSelectionTimeoutMS=12000") as opened:
        await opened.texts._indexes.ensure()
        gone = {"failCommands": [command], "errorCode": 10107, "errorLabels": ["RetryableWriteError"]}
        await opened.documents._mongo.client.admin.command(
            {"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": gone}
        )
        (chunk_id,) = await put(opened, document("a"), f"wolf {command}")
        assert await found(opened, command.lower()) == [chunk_id]


async def test_a_majority_is_waited_for_no_longer_than_some_seconds_and_a_primary_for_longer_by_writes(
    mongodb: MongoStore,
) -> None:
    async with open_mongodb("mongodb://127.0.0.1:1/mine") as opened:
        mongo = opened.documents._mongo
        written, searched = mongo.writing.client.options, mongo.client.options
        assert written.write_concern.document == {"w": "majority", "j": True, "wtimeout": 4000}
        assert (searched.server_selection_timeout, written.server_selection_timeout) == (0.25, 12.0)
        assert written.retry_writes is True
