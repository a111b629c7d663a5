"""The record of a chunk: its text, its terms with their counts, and the fields of its document that filters use.

Records carry the `revision` of the write that made them, and count as the document's chunks while its own record names
that revision: one change of one record replaces all of them at once. Other programs keep chunks in documents' own
records.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson import ObjectId

from rag_context.domain.documents import FILTERED, Chunk, Document, wire_name
from rag_context.domain.search import ChunkRef, Neighbours, Passage
from rag_context.domain.text import are_similar, terms
from rag_context.stores.mongodb import document_records
from rag_context.stores.mongodb.filters import Query, key_of, tenant_of
from rag_context.stores.mongodb.mongo import Collection, Mongo

READ_ATTEMPTS = 4
"""How often chunks are read again whose document was replaced between two queries."""

TERM_FIELDS = {
    "chunkId": 1,
    "document": 1,
    "revision": 1,
    "position": 1,
    "contentType": 1,
    "thread": 1,
    "speaker": 1,
    **document_records.TIMES,
    "terms": 1,
    "counts": 1,
    "length": 1,
}
TEXT = {"terms": 0, "counts": 0, "repeated": 0, "metadata": 0}
POSITION = {"chunkId": 1, "document": 1, "revision": 1, "position": 1, "contentType": 1, "previous": 1, "next": 1}

_FILTERED = ("tenant", "contentType", "sessionId", "source", "timestamp", "timestampMicros", "thread")
_FILTERED_METADATA = (*map(wire_name, FILTERED), "agent", "tags")

OTHER_LAYOUT = {"revision": None}
"""The query for records that contain their chunks: other programs'."""

_OUTLINE_WITHOUT_CHUNKS = dict.fromkeys(
    ("contentType", "thread", "tenant", "sequence", "occurredAt", "status", "revision"), 1
)

_OUTLINE = {**_OUTLINE_WITHOUT_CHUNKS, "chunks.chunkId": 1}

_Message = tuple[str, document_records.Entry]
"""A chunk's id, and the document that is its message of a conversation."""

_BEFORE, _AFTER = "before", "after"


@dataclass(frozen=True, slots=True)
class MongoChunkTerms:
    """The distinct terms of a chunk, how often each occurs, and how many terms it has in all."""

    terms: list[str]
    counts: list[int]
    length: int

    def fields(self) -> document_records.Entry:
        """As a record keeps them; `repeated` are the terms that occur more than once."""
        repeated = [term for term, count in zip(self.terms, self.counts, strict=True) if count > 1]
        return {"terms": self.terms, "counts": self.counts, "repeated": repeated, "length": self.length}


def chunk_terms(chunk: Chunk) -> MongoChunkTerms:
    counted = Counter(terms(chunk.searchable))
    distinct = sorted(counted)
    return MongoChunkTerms(distinct, [counted[term] for term in distinct], counted.total())


def records_of(document: document_records.Entry, chunks: Sequence[Chunk]) -> Iterator[document_records.Entry]:
    """The records of a document's chunks, in order of position; `document` is its own record, with its revision."""
    metadata = document["metadata"]
    filtered = {name: document[name] for name in _FILTERED}
    filtered["metadata"] = {name: metadata[name] for name in _FILTERED_METADATA if name in metadata}
    revision = document["revision"]
    ids = [None, *(chunk.id for chunk in chunks), None]
    for number, chunk in enumerate(chunks):
        yield {
            "_id": f"{document['_id']}:{revision}:{number:07d}",
            "chunkId": chunk.id,
            "document": document["_id"],
            "revision": revision,
            "position": chunk.position,
            "previous": ids[number],
            "next": ids[number + 2],
            "text": chunk.text,
            **document_records.span_entry(chunk),
            **chunk_terms(chunk).fields(),
            **filtered,
        }


def chunk_of(record: Mapping[str, Any]) -> Chunk:
    return document_records.chunk_from({"_id": record["document"]}, 0, record)


def of_document(document_id: object, revision: str | None = None) -> document_records.Entry:
    """The query for a document's records, in order of their keys: those of one revision, or of all."""
    prefix = f"{document_id}:" if revision is None else f"{document_id}:{revision}:"
    return {"_id": {"$gte": prefix, "$lt": prefix[:-1] + ";"}}  # the character behind the colon


async def read_chunks(entry: document_records.Entry, chunks: Collection) -> list[document_records.Entry]:
    """All records of a document's chunks by position; `entry` holds its `_id` and `revision`."""
    return await chunks.find(of_document(entry["_id"], entry["revision"])).sort("_id").to_list()


async def read_current(
    mongo: Mongo, query: document_records.Entry, fields: Mapping[str, int], outline: Mapping[str, int]
) -> list[tuple[document_records.Entry, document_records.Entry]]:
    """Records that `query` finds and that their documents name, each with `outline` of its document.

    Documents are read after their chunks. One that was replaced in between names chunks that were not read yet,
    so they are read again; leftovers of an interrupted write are never named.
    """
    before: dict[Any, Any] = {}
    current: list[tuple[document_records.Entry, document_records.Entry]] = []
    for _ in range(READ_ATTEMPTS):
        records = await mongo.chunks.find(query, fields).to_list()
        # After the chunks: the other way round, a document that is replaced in between would seem to have none.
        keys = list({record["document"] for record in records})
        entries = {entry["_id"]: entry async for entry in mongo.documents.find({"_id": {"$in": keys}}, outline)}
        named = {key: entries[key].get("revision") if key in entries else None for key in keys}
        current = [
            (record, entries[record["document"]])
            for record in records
            if record["revision"] == named[record["document"]]
        ]
        if is_consistent(records, named, before):
            break
        before = named
    return current


def is_consistent(
    records: Sequence[document_records.Entry], named: Mapping[Any, Any], before: Mapping[Any, Any]
) -> bool:
    """Whether the records that their documents do not name belong to no document that has just been replaced.

    `named` is the revision that each document names now, None if it was deleted; `before` at the previous look.
    """
    unnamed = {record["document"] for record in records if record["revision"] != named[record["document"]]}
    # A document with a record of the revision that it names was read as it is now; others of its records are leftovers.
    unnamed -= {record["document"] for record in records if record["revision"] == named[record["document"]]}
    return all(key in before and before[key] == named[key] for key in unnamed)


def with_chunks(chunk_ids: Sequence[str]) -> Query:
    """The query for documents that contain some of the chunks; a document of another program may be its only chunk."""
    named: Query = {"chunks.chunkId": {"$in": list(chunk_ids)}}
    others = [key for key in map(key_of, chunk_ids) if isinstance(key, ObjectId)]
    return {"$or": [named, {"_id": {"$in": others}}]} if others else named


async def read_passages(chunk_ids: Sequence[str], mongo: Mongo) -> dict[str, Passage]:
    query = {"chunkId": {"$in": list(chunk_ids)}}
    found = {
        record["chunkId"]: document_records.passage_of(entry, chunk_of(record))
        for record, entry in await read_current(mongo, query, TEXT, document_records.WITHOUT_TEXTS)
    }
    others = [id_ for id_ in chunk_ids if id_ not in found]
    return {**found, **await _other_passages(others, mongo.documents)} if others else found


async def _other_passages(chunk_ids: Sequence[str], documents: Collection) -> dict[str, Passage]:
    """Chunks in their documents' own records; the server sends only the requested ones."""
    requested = set(chunk_ids)
    chunks = {"$cond": [{"$isArray": ["$chunks"]}, "$chunks", []]}
    selected = {"$filter": {"input": chunks, "cond": {"$in": ["$$this.chunkId", {"$literal": list(requested)}]}}}
    is_cut = {"$ne": [{"$ifNull": ["$chunks.chunkId", []]}, []]}
    stages: list[document_records.Entry] = [
        {"$match": {**with_chunks(chunk_ids), **OTHER_LAYOUT}},
        {"$set": {"chunks": selected, "content": {"$cond": [is_cut, None, "$content"]}}},
    ]
    return {
        chunk.id: document_records.passage_of(entry, chunk)
        async for entry in await documents.aggregate(stages)
        for chunk in document_records.chunks_of(entry)
        if chunk.id in requested
    }


async def read_neighbours(chunk_ids: Sequence[str], mongo: Mongo) -> dict[str, Neighbours]:
    found: dict[str, Neighbours] = {}
    ends: list[_Message] = []
    query = {"chunkId": {"$in": list(chunk_ids)}}
    for record, entry in await read_current(mongo, query, POSITION, _OUTLINE_WITHOUT_CHUNKS):
        id_, position = record["chunkId"], record["position"]
        before, after = record["previous"], record["next"]
        found[id_] = Neighbours(
            None if before is None else document_records.reference(entry, before, position - 1),
            None if after is None else document_records.reference(entry, after, position + 1),
        )
        if entry.get("thread") is not None and (before is None or after is None):
            ends.append((id_, entry))
    if others := [id_ for id_ in chunk_ids if id_ not in found]:
        await _add_other_neighbours(others, mongo.documents, found, ends)
    around = await _messages_around([entry for _, entry in ends], mongo.documents) if ends else {}
    # The nearest messages take the place of neighbours that a chunk's document does not have.
    for id_, entry in ends:
        message_before, message_after = around.get((_BEFORE, entry["_id"])), around.get((_AFTER, entry["_id"]))
        found[id_] = Neighbours(
            found[id_].before or (_references(message_before)[-1] if message_before else None),
            found[id_].after or (_references(message_after)[0] if message_after else None),
        )
    return found


async def _add_other_neighbours(
    chunk_ids: Sequence[str], documents: Collection, found: dict[str, Neighbours], ends: list[_Message]
) -> None:
    """As `read_neighbours`, of chunks in their documents' own records."""
    requested = set(chunk_ids)
    async for entry in documents.find({**with_chunks(chunk_ids), **OTHER_LAYOUT}, _OUTLINE):
        refs = _references(entry)
        for position, ref in enumerate(refs):
            if ref.id not in requested:
                continue
            before = refs[position - 1] if position > 0 else None
            after = refs[position + 1] if position + 1 < len(refs) else None
            found[ref.id] = Neighbours(before, after)
            if ref.thread is not None and (before is None or after is None):
                ends.append((ref.id, entry))


async def read_similar(document: Document, documents: Collection) -> list[str]:
    bands = document_records.similarity_bands(document.similarity_hash)
    if not bands:
        return []
    query = {
        "similarityBands": {"$in": bands},
        "tenant": tenant_of(document.tenant),
        "_id": {"$ne": key_of(document.id)},
    }
    return sorted(
        [
            str(entry["_id"])
            async for entry in documents.find(query, {"similarityHash": 1})
            if are_similar(document.similarity_hash, int(entry["similarityHash"]))
        ]
    )


async def _messages_around(
    entries: Sequence[document_records.Entry], documents: Collection
) -> dict[tuple[str, object], document_records.Entry]:
    """The nearest messages with chunks before and after each document in its conversation, by one query."""
    pipelines = {(side, entry["_id"]): _nearest(side, entry) for entry in entries for side in (_BEFORE, _AFTER)}
    # One query for all sides of all documents; each part of it is one record off the end of an index range.
    first, *others = pipelines.values()
    united = [{"$unionWith": {"coll": documents.name, "pipeline": stages}} for stages in others]
    return {(entry["side"], entry["of"]): entry async for entry in await documents.aggregate([*first, *united])}


def _nearest(side: str, entry: document_records.Entry) -> list[document_records.Entry]:
    compared, order = ("$lt", -1) if side == _BEFORE else ("$gt", 1)
    at = entry.get("occurredAt")
    conversation = {
        "thread": entry["thread"],
        "tenant": entry.get("tenant"),
        "chunkCount": {"$gt": 0},
        "$or": [{"occurredAt": {compared: at}}, {"occurredAt": at, "sequence": {compared: entry["sequence"]}}],
    }
    labels = {"side": {"$literal": side}, "of": {"$literal": entry["_id"]}}
    return [
        {"$match": conversation},
        {"$sort": {"occurredAt": order, "sequence": order}},
        {"$limit": 1},
        {"$project": {**_OUTLINE, **labels}},
    ]


def _references(entry: document_records.Entry) -> list[ChunkRef]:
    return [
        document_records.reference(entry, id_, position)
        for position, id_ in enumerate(document_records.ids_of_chunks(entry))
    ]
