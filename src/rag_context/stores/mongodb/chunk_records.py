"""The record of a chunk: its text, its terms with their counts, and the fields of its document that filters use.

A document's chunks stand in a collection of their own, one record each, and so do the terms: the index over `terms`
leads from a term to the chunks that hold it. Records carry the `revision` of the write that made them. They count as
the document's chunks while the document's own record names that revision, so that one change of one record replaces
all of them at once.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rag_context.domain.documents import Chunk
from rag_context.stores.mongodb.connection import Collection, Mongo
from rag_context.stores.mongodb.entries import Entry, chunk_from, span_entry
from rag_context.text.analysis import terms

LOOKS = 4
"""How often chunks are read again whose document was replaced between two queries."""

TERM_FIELDS = {
    "chunkId": 1,
    "document": 1,
    "revision": 1,
    "position": 1,
    "contentType": 1,
    "thread": 1,
    "terms": 1,
    "counts": 1,
    "length": 1,
}
TEXT = {"terms": 0, "counts": 0, "repeated": 0, "metadata": 0}
PLACE = {"chunkId": 1, "document": 1, "revision": 1, "position": 1, "contentType": 1, "previous": 1, "next": 1}

_FILTERED = ("tenant", "contentType", "sessionId", "source", "timestamp", "timestampMicros", "thread")
_FILTERED_METADATA = ("category", "game", "tags")


@dataclass(frozen=True, slots=True)
class ChunkTerms:
    """The distinct terms of a chunk, how often each occurs, and how many terms it has in all."""

    terms: list[str]
    counts: list[int]
    length: int

    def fields(self) -> Entry:
        """As a record keeps them; `repeated` are the terms that occur more than once."""
        repeated = [term for term, count in zip(self.terms, self.counts, strict=True) if count > 1]
        return {"terms": self.terms, "counts": self.counts, "repeated": repeated, "length": self.length}


def chunk_terms(chunk: Chunk) -> ChunkTerms:
    """The terms of a chunk by the analyser."""
    counted = Counter(terms(chunk.searchable))
    distinct = sorted(counted)
    return ChunkTerms(distinct, [counted[term] for term in distinct], counted.total())


def records_of(document: Entry, chunks: Sequence[Chunk]) -> Iterator[Entry]:
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
            **span_entry(chunk),
            **chunk_terms(chunk).fields(),
            **filtered,
        }


def chunk_of(record: Mapping[str, Any]) -> Chunk:
    """The chunk of a record."""
    return chunk_from({"_id": record["document"]}, 0, record)


def of_document(document_id: object, revision: str | None = None) -> Entry:
    """The query for a document's records, in order of their keys: those of one revision, or of all."""
    prefix = f"{document_id}:" if revision is None else f"{document_id}:{revision}:"
    return {"_id": {"$gte": prefix, "$lt": prefix[:-1] + ";"}}  # the character behind the colon


async def read_chunks(entry: Entry, chunks: Collection) -> list[Entry]:
    """All records of a document's chunks by position; `entry` holds its `_id` and `revision`."""
    return await chunks.find(of_document(entry["_id"], entry["revision"])).sort("_id").to_list()


async def read_current(
    mongo: Mongo, query: Entry, fields: Mapping[str, int], outline: Mapping[str, int]
) -> list[tuple[Entry, Entry]]:
    """Records that `query` finds and that their documents name, each with `outline` of its document.

    Documents are read after their chunks. One that was replaced in between names chunks that were not read yet,
    so they are read again; leftovers of an interrupted write are never named.
    """
    before: dict[Any, Any] = {}
    current: list[tuple[Entry, Entry]] = []
    for _ in range(LOOKS):
        records = await mongo.chunks.find(query, fields).to_list()
        keys = list({record["document"] for record in records})
        entries = {entry["_id"]: entry async for entry in mongo.documents.find({"_id": {"$in": keys}}, outline)}
        named = {key: entries[key].get("revision") if key in entries else None for key in keys}
        current = [
            (record, entries[record["document"]])
            for record in records
            if record["revision"] == named[record["document"]]
        ]
        if is_settled(records, named, before):
            break
        before = named
    return current


def is_settled(records: Sequence[Entry], named: Mapping[Any, Any], before: Mapping[Any, Any]) -> bool:
    """Whether the records that their documents do not name belong to no document that has just been replaced.

    Args:
        records: the records found.
        named: the revision that each document names now; None if it was deleted.
        before: the same at the previous look.
    """
    unnamed = {record["document"] for record in records if record["revision"] != named[record["document"]]}
    unnamed -= {record["document"] for record in records if record["revision"] == named[record["document"]]}
    return all(key in before and before[key] == named[key] for key in unnamed)
