"""Reads chunks, their neighbours, and near-duplicates of a document."""

from collections.abc import Sequence

from bson import ObjectId

from rag_context.domain.documents import Document
from rag_context.domain.search import ChunkRef, Neighbours, Passage
from rag_context.stores.mongodb.chunk_records import PLACE, TEXT, chunk_of, read_current
from rag_context.stores.mongodb.connection import Collection, Mongo
from rag_context.stores.mongodb.entries import (
    WITHOUT_TEXTS,
    Entry,
    chunks_of,
    difference,
    ids_of_chunks,
    passage_of,
    reference,
    similarity_bands,
)
from rag_context.stores.mongodb.filters import Query, key_of, tenant_of

MOST_DIFFERENT_BITS = 3

OTHER_LAYOUT = {"revision": None}
"""The query for records that contain their chunks: other programs', and those of earlier versions."""

_OUTLINE_WITHOUT_CHUNKS = {"contentType": 1, "thread": 1, "tenant": 1, "sequence": 1, "status": 1, "revision": 1}
_OUTLINE = {**_OUTLINE_WITHOUT_CHUNKS, "chunks.chunkId": 1}


def with_chunks(chunk_ids: Sequence[str]) -> Query:
    """The query for documents that contain some of the chunks; a document of another program may be its only chunk."""
    named: Query = {"chunks.chunkId": {"$in": list(chunk_ids)}}
    whole = [key for key in map(key_of, chunk_ids) if isinstance(key, ObjectId)]
    return {"$or": [named, {"_id": {"$in": whole}}]} if whole else named


async def read_passages(chunk_ids: Sequence[str], mongo: Mongo) -> dict[str, Passage]:
    """Those of the passages that exist."""
    query = {"chunkId": {"$in": list(chunk_ids)}}
    found = {
        record["chunkId"]: passage_of(entry, chunk_of(record))
        for record, entry in await read_current(mongo, query, TEXT, WITHOUT_TEXTS)
    }
    others = [id_ for id_ in chunk_ids if id_ not in found]
    return {**found, **await _other_passages(others, mongo.documents)} if others else found


async def _other_passages(chunk_ids: Sequence[str], documents: Collection) -> dict[str, Passage]:
    """Chunks in their documents' own records; the server sends only the requested ones."""
    wanted = set(chunk_ids)
    chunks = {"$cond": [{"$isArray": ["$chunks"]}, "$chunks", []]}
    asked = {"$filter": {"input": chunks, "cond": {"$in": ["$$this.chunkId", {"$literal": list(wanted)}]}}}
    is_cut = {"$ne": [{"$ifNull": ["$chunks.chunkId", []]}, []]}
    stages: list[Entry] = [
        {"$match": {**with_chunks(chunk_ids), **OTHER_LAYOUT}},
        {"$set": {"chunks": asked, "content": {"$cond": [is_cut, None, "$content"]}}},
        {"$unset": ["terms", "occurrences", "lengths"]},
    ]
    return {
        chunk.id: passage_of(entry, chunk)
        async for entry in await documents.aggregate(stages)
        for chunk in chunks_of(entry)
        if chunk.id in wanted
    }


async def read_neighbours(chunk_ids: Sequence[str], mongo: Mongo) -> dict[str, Neighbours]:
    """The chunks before and after each chunk: in its document, else in its conversation."""
    found: dict[str, Neighbours] = {}
    ends: list[Turn] = []
    query = {"chunkId": {"$in": list(chunk_ids)}}
    for record, entry in await read_current(mongo, query, PLACE, _OUTLINE_WITHOUT_CHUNKS):
        id_, place = record["chunkId"], record["position"]
        before, after = record["previous"], record["next"]
        found[id_] = Neighbours(
            None if before is None else reference(entry, before, place - 1),
            None if after is None else reference(entry, after, place + 1),
        )
        if entry.get("thread") is not None and (before is None or after is None):
            ends.append((id_, entry))
    if others := [id_ for id_ in chunk_ids if id_ not in found]:
        await _add_other_neighbours(others, mongo.documents, found, ends)
    if ends:
        await _add_turns(ends, mongo.documents, found)
    return found


async def _add_other_neighbours(
    chunk_ids: Sequence[str], documents: Collection, found: dict[str, Neighbours], ends: "list[Turn]"
) -> None:
    """As `read_neighbours`, of chunks in their documents' own records."""
    wanted = set(chunk_ids)
    async for entry in documents.find({**with_chunks(chunk_ids), **OTHER_LAYOUT}, _OUTLINE):
        refs = _references(entry)
        for place, ref in enumerate(refs):
            if ref.id not in wanted:
                continue
            before = refs[place - 1] if place > 0 else None
            after = refs[place + 1] if place + 1 < len(refs) else None
            found[ref.id] = Neighbours(before, after)
            if ref.thread is not None and (before is None or after is None):
                ends.append((ref.id, entry))


async def _add_turns(ends: "Sequence[Turn]", documents: Collection, found: dict[str, Neighbours]) -> None:
    """Put the nearest messages in place of neighbours that a chunk's document does not have."""
    around = await _turns_around([entry for _, entry in ends], documents)
    for id_, entry in ends:
        before, after = found[id_].before, found[id_].after
        turn_before, turn_after = around.get((_BEFORE, entry["_id"])), around.get((_AFTER, entry["_id"]))
        found[id_] = Neighbours(
            before or (_references(turn_before)[-1] if turn_before else None),
            after or (_references(turn_after)[0] if turn_after else None),
        )


async def read_similar(document: Document, documents: Collection) -> list[str]:
    """Documents of the same tenant whose similarity hash is within three bits, by id."""
    wanted = similarity_bands(document.similarity_hash)
    if not wanted:
        return []
    query = {
        "similarityBands": {"$in": wanted},
        "tenant": tenant_of(document.tenant),
        "_id": {"$ne": key_of(document.id)},
    }
    return sorted(
        [
            str(entry["_id"])
            async for entry in documents.find(query, {"similarityHash": 1})
            if difference(entry, document.similarity_hash) <= MOST_DIFFERENT_BITS
        ]
    )


Turn = tuple[str, Entry]
_BEFORE, _AFTER = "before", "after"


async def _turns_around(entries: Sequence[Entry], documents: Collection) -> dict[tuple[str, object], Entry]:
    """The nearest turns with chunks before and after each document in its conversation, by one query."""
    asked = {(side, entry["_id"]): _nearest(side, entry) for entry in entries for side in (_BEFORE, _AFTER)}
    first, *others = asked.values()
    united = [{"$unionWith": {"coll": documents.name, "pipeline": stages}} for stages in others]
    return {(entry["side"], entry["of"]): entry async for entry in await documents.aggregate([*first, *united])}


def _nearest(side: str, entry: Entry) -> list[Entry]:
    compared, order = ("$lt", -1) if side == _BEFORE else ("$gt", 1)
    talk = {
        "thread": entry["thread"],
        "tenant": entry.get("tenant"),
        "sequence": {compared: entry["sequence"]},
        "chunkCount": {"$gt": 0},
    }
    labels = {"side": {"$literal": side}, "of": {"$literal": entry["_id"]}}
    return [{"$match": talk}, {"$sort": {"sequence": order}}, {"$limit": 1}, {"$project": {**_OUTLINE, **labels}}]


def _references(entry: Entry) -> list[ChunkRef]:
    return [reference(entry, id_, position) for position, id_ in enumerate(ids_of_chunks(entry))]
