"""How many documents and chunks hold a term: asked of an index, remembered while that is close enough."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from rag_context.stores.mongodb.connection import Collection
from rag_context.stores.mongodb.entries import Entry
from rag_context.stores.mongodb.postings import occurrences_of
from rag_context.stores.mongodb.state import Snapshot

REMEMBERED = 16_384
TOLERATED_DRIFT = 100
"""A term is counted again once more than one chunk in this many of those that hold it may have come or gone."""

SAMPLE = 200
"""Documents whose chunks are counted one by one. Beyond, the chunks of a term are estimated from so many."""


@dataclass(frozen=True, slots=True)
class Frequency:
    """In how many documents a term is, and in how many chunks."""

    documents: int = 0
    chunks: int = 0


class Frequencies:
    """What is known of terms. Counts are those of all tenants, so that scores are comparable between them.

    Args:
        documents: the collection.
        sample: documents whose chunks are counted one by one.
    """

    def __init__(self, documents: Collection, sample: int = SAMPLE) -> None:
        self._documents = documents
        self._sample = sample
        self._known: LRUCache[tuple[str, str], tuple[Frequency, int]] = LRUCache(REMEMBERED)

    async def of(self, terms: Sequence[str], seen: Snapshot) -> list[Frequency]:
        """How common each of the distinct `terms` is."""
        known = {term: self._remembered(term, seen) for term in terms}
        unknown = [term for term, frequency in known.items() if frequency is None]
        counted = await self._count(unknown) if unknown else {}
        for term in unknown:
            self._known[seen.name, term] = (counted.get(term, Frequency()), seen.turnover)
        return [frequency or counted.get(term, Frequency()) for term, frequency in known.items()]

    def _remembered(self, term: str, seen: Snapshot) -> Frequency | None:
        """A count that is off by little at most: the turnover grows with every chunk that comes or goes."""
        remembered = self._known.get((seen.name, term))
        if remembered is None:
            return None
        frequency, turnover = remembered
        return frequency if abs(seen.turnover - turnover) * TOLERATED_DRIFT <= frequency.chunks else None

    async def _count(self, terms: Sequence[str]) -> dict[str, Frequency]:
        first, *others = (_counting(term, self._sample) for term in terms)
        united = [{"$unionWith": {"coll": self._documents.name, "pipeline": stages}} for stages in others]
        found = await (await self._documents.aggregate([*first, *united])).to_list()
        sampled = {entry["_id"]: Frequency(entry["documents"], entry["chunks"]) for entry in found}
        common = [term for term, frequency in sampled.items() if frequency.documents >= self._sample]
        whole = await asyncio.gather(*(self._documents.count_documents({"terms": term}) for term in common))
        for term, documents in zip(common, whole, strict=True):
            part = sampled[term]
            sampled[term] = Frequency(documents, round(part.chunks * documents / part.documents))
        return sampled


def _counting(term: str, sample: int) -> list[Entry]:
    chunks = {"$size": {"$split": [occurrences_of({"$literal": term}), " "]}}
    group = {"_id": {"$literal": term}, "documents": {"$sum": 1}, "chunks": {"$sum": chunks}}
    return [{"$match": {"terms": term}}, {"$limit": sample}, {"$group": group}]
