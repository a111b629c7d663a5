"""Search by words: MongoDB finds documents that hold some of them, one pure BM25 scores their chunks.

Candidates come from the multikey index over the analyser's terms, which knows codes, identifiers and scripts
without spaces, and at the same time from the text index, which knows the documents of other programs too.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray
from pymongo.errors import OperationFailure

from rag_context.stores.mongodb.connection import Mongo
from rag_context.stores.mongodb.entries import Entry, chunks_of, ids_of_chunks, reference
from rag_context.stores.mongodb.faults import INDEX_NOT_FOUND, TIME_EXPIRED, is_code
from rag_context.stores.mongodb.filters import condition
from rag_context.stores.mongodb.frequencies import Frequencies, Frequency
from rag_context.stores.mongodb.indexes import Indexes
from rag_context.stores.mongodb.postings import occurrences_of, places, postings_of
from rag_context.stores.mongodb.reading import holding
from rag_context.stores.mongodb.state import IndexState
from rag_context.text.analysis import terms
from rag_context.text.bm25 import bm25, idf_share, inverse_document_frequency, profile_for
from rag_context.types import ChunkRef, Filter, Tenant, TextHit

SEARCHED_TERMS = 64
"""A longer query finds its candidates by its rarest terms; all of them count in the score."""

CANDIDATES = 80
CANDIDATES_PER_HIT = 2
BUDGET = 1000
"""Documents whose scores one round may ask for: the rarest terms that so many documents hold together drive it."""

ROUNDS = 4
TEXT_CANDIDATES = 50
TEXT_SEARCH_MS = 150
"""The text index is asked no longer than this: it ranks by repeats alone, and slowly where a word is common."""

SEARCH_MS = 2_000
"""Nobody waits any longer for a search, so the server shall not work on it any longer either."""

QUESTIONS = 256
"""Queries whose terms and weights are remembered: a search asks for scores again before it is done."""

REMEMBERED_ROWS = 200
"""Chunks that a remembered query keeps its counts of, at most."""

Floats = NDArray[np.float64]

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class _Row:
    """A chunk, its length, and how often it holds each of the terms."""

    chunk: ChunkRef
    length: int
    counts: Sequence[float]


@dataclass(slots=True)
class _Question:
    """The distinct terms of a query, and what the index knows of each. Arrays are `(t,)`."""

    terms: Sequence[str]
    frequencies: Sequence[Frequency]
    idf: Floats
    weights: Floats
    average_length: float
    holders: Mapping[str, _Row] | None = None
    """Every chunk of `tenant` that holds some of the terms, by id, where all of them were found."""

    tenant: Tenant | None = None
    """Whose documents were searched; None before the first search."""

    is_shared: bool = False
    """Several tenants asked it: a chunk does not say whose it is, so nothing is remembered of what holds the terms."""

    def asked_by(self, tenant: Tenant) -> None:
        """Note a search."""
        if self.tenant not in (None, tenant):
            self.is_shared, self.holders = True, None
        self.tenant = tenant

    @property
    def known_terms(self) -> int:
        """How many of the terms are in some document."""
        return sum(each.documents > 0 for each in self.frequencies)


class MongoTexts:
    """`TextIndex` over the collection of documents.

    Args:
        mongo: the database.
        state: what the index has come to.
        indexes: makes the text index again where it is missing.
        budget: documents whose scores one round may ask for.
    """

    def __init__(self, mongo: Mongo, state: IndexState, indexes: Indexes, budget: int = BUDGET) -> None:
        self._mongo = mongo
        self._state = state
        self._indexes = indexes
        self._budget = budget
        self._frequencies = Frequencies(mongo.documents)
        self._questions: LRUCache[tuple[str, int], _Question] = LRUCache(QUESTIONS)

    async def search(self, query: str, *, limit: int, where: Filter) -> list[TextHit]:
        """The chunks that hold the query's terms best, best first, equal ones by chunk id.

        Raises:
            BackendError: the server could not be asked.
        """
        if limit < 1 or not terms(query):
            return []
        async with self._mongo.reached():
            question = await self._question(query)
            rows = await self._candidates(query, question, max(CANDIDATES, CANDIDATES_PER_HIT * limit), where)
        hits = [hit for hit in _hits(question, rows) if hit.bm25 > 0.0]
        hits.sort(key=lambda hit: (-hit.bm25, hit.chunk.id))
        return hits[:limit]

    async def score(self, query: str, chunks: Sequence[ChunkRef]) -> dict[str, TextHit]:
        """Text scores of the given chunks; those that hold none of the terms, or are unknown, may be left out.

        Raises:
            BackendError: the server could not be asked.
        """
        if not chunks:
            return {}
        async with self._mongo.reached():
            question = await self._question(query)
            if question.holders is not None:
                return _from_holders(question, question.holders, chunks)
            stages: list[Entry] = [{"$match": holding([chunk.id for chunk in chunks])}, _read(question)]
            entries = await self._aggregate(stages, SEARCH_MS)
        rows = {row.chunk.id: row for entry in entries for row in _all_rows(entry, question)}
        known = [rows[chunk.id] for chunk in chunks if chunk.id in rows]
        asked = {chunk.id: chunk for chunk in chunks}
        return {hit.chunk.id: TextHit(asked[hit.chunk.id], hit.bm25, hit.share) for hit in _hits(question, known)}

    async def _question(self, query: str) -> _Question:
        version = self._state.version  # read before anything is asked: what came in between must not pass for known
        remembered = self._questions.get((query, version))
        if remembered is not None:
            return remembered
        seen = await self._state.known()
        counted = Counter(terms(query))
        frequencies = await self._frequencies.of(list(counted), seen)
        chunks = seen.totals.chunks
        idf = np.array([inverse_document_frequency(chunks, min(each.chunks, chunks)) for each in frequencies])
        weights = idf * np.array(list(counted.values()), dtype=np.float64)
        question = _Question(list(counted), frequencies, idf, weights, seen.totals.terms / max(chunks, 1))
        self._questions[query, version] = question
        return question

    async def _candidates(self, query: str, question: _Question, wanted: int, where: Filter) -> list[_Row]:
        """Chunks of documents that pass the filter and hold some of the terms, the rarest first."""
        found: dict[str, Entry] = {}
        rows: list[_Row] = []
        question.asked_by(where.tenant)
        whole = where == Filter(where.tenant)
        rarest_first = list(_rounds(question, self._budget))
        words = _plain_words(query, _selective(question, rarest_first))
        text = asyncio.create_task(self._text_search(words, question, where))
        text.add_done_callback(_see_exception)
        try:
            earlier: list[str] = []
            for round_ in rarest_first:
                match = {**condition(where), "terms": {"$in": list(round_), "$nin": earlier}}
                stages: list[Entry] = [{"$match": match}, {"$limit": self._budget}, _read(question)]
                entries = await self._aggregate(stages, SEARCH_MS)
                whole = whole and len(entries) < self._budget
                found.update((str(entry["_id"]), entry) for entry in entries)
                earlier += round_
                rows = [row for entry in found.values() for row in _rows(entry, question)]
                if len(rows) >= wanted:
                    break
            if (
                whole
                and not question.is_shared
                and len(earlier) == question.known_terms
                and len(rows) <= REMEMBERED_ROWS
            ):
                question.holders = {row.chunk.id: row for row in rows}
            others = [entry for entry in await text if str(entry["_id"]) not in found]
        finally:
            text.cancel()
        return [*rows, *(row for entry in others for row in _rows(entry, question))]

    async def _text_search(self, search: str, question: _Question, where: Filter) -> list[Entry]:
        """What the text index finds; nothing where it is missing (it is made again) or too slow."""
        if not search:
            return []
        match = {"$text": {"$search": search}, **condition(where)}
        order = {"$sort": {"score": {"$meta": "textScore"}}}
        stages: list[Entry] = [{"$match": match}, order, {"$limit": TEXT_CANDIDATES}, _read(question)]
        try:
            return await self._aggregate(stages, TEXT_SEARCH_MS)
        except OperationFailure as error:
            if is_code(error, INDEX_NOT_FOUND):
                self._indexes.ensure_soon()
            elif not is_code(error, TIME_EXPIRED):
                raise
            return []

    async def _aggregate(self, stages: Sequence[Entry], most_ms: int) -> list[Entry]:
        cursor = await self._mongo.documents.aggregate(stages, maxTimeMS=most_ms, batchSize=self._budget)
        return await cursor.to_list()


def _from_holders(question: _Question, holders: Mapping[str, _Row], chunks: Sequence[ChunkRef]) -> dict[str, TextHit]:
    matching = [holders[chunk.id] for chunk in chunks if chunk.id in holders]
    scores = {hit.chunk.id: hit for hit in _hits(question, matching)}
    return {chunk.id: replace(scores[chunk.id], chunk=chunk) for chunk in chunks if chunk.id in scores}


def _rounds(question: _Question, budget: int) -> Iterator[Sequence[str]]:
    """The terms, rarest first, in groups that some `budget` documents hold; a commoner term is alone."""
    pairs = zip(question.terms, question.frequencies, strict=True)
    known = sorted((each.documents, term) for term, each in pairs if each.documents)
    group: list[str] = []
    held = rounds = 0
    for documents, term in known[:SEARCHED_TERMS]:
        if group and held + documents > budget:
            yield group
            rounds += 1
            if rounds == ROUNDS:
                return
            group, held = [], 0
        group.append(term)
        held += documents
    if group:
        yield group


def _selective(question: _Question, rounds: Sequence[Sequence[str]]) -> set[str]:
    """The terms worth asking the text index for: the rarest, and those that only other programs' documents may hold."""
    unknown = [term for term, each in zip(question.terms, question.frequencies, strict=True) if not each.documents]
    return {*unknown, *(rounds[0] if rounds else ())}


def _plain_words(query: str, wanted: set[str]) -> str:
    """Those words of the query that the terms come from: runs of letters and digits, so that none is an operator."""
    return " ".join(dict.fromkeys(word for word in _WORD.findall(query) if not wanted.isdisjoint(terms(word))))


def _read(question: _Question) -> Entry:
    """What is read of a document; all of it where another program wrote it, and its words are not known."""
    occurrences = {"$map": {"input": {"$literal": list(question.terms)}, "as": "term", "in": occurrences_of("$$term")}}
    return {
        "$project": {
            "contentType": 1,
            "thread": 1,
            "lengths": 1,
            "status": 1,
            "chunks.chunkId": 1,
            "held": occurrences,
            "other": {"$cond": [{"$isArray": ["$terms"]}, None, "$$ROOT"]},
        }
    }


def _rows(entry: Entry, question: _Question) -> list[_Row]:
    """One row for each chunk of a document that holds some of the terms."""
    held, lengths, ids = _words_of(entry, question)
    counts: dict[int, list[float]] = {}
    for number, occurrences in enumerate(held):
        for position, count in places(occurrences) if occurrences else ():
            counts.setdefault(position, [0.0] * len(held))[number] = count
    return [_Row(reference(entry, ids[position], position), lengths[position], row) for position, row in counts.items()]


def _all_rows(entry: Entry, question: _Question) -> Iterator[_Row]:
    """One row for each chunk of a document."""
    matching = {row.chunk.id: row for row in _rows(entry, question)}
    nothing = [0.0] * len(question.terms)
    _, lengths, ids = _words_of(entry, question)
    for position, (id_, length) in enumerate(zip(ids, lengths, strict=True)):
        yield matching.get(id_) or _Row(reference(entry, id_, position), length, nothing)


def _words_of(entry: Entry, question: _Question) -> tuple[Sequence[str], Sequence[int], Sequence[str]]:
    """The occurrences of each term, the lengths of the chunks, and their ids."""
    other = entry.get("other")
    if other is None:
        return entry["held"], entry["lengths"], ids_of_chunks(entry)
    words = postings_of(chunks_of(other))
    known = dict(zip(words.terms, words.occurrences, strict=True))
    return [known.get(term, "") for term in question.terms], words.lengths, ids_of_chunks(other)


def _hits(question: _Question, rows: Sequence[_Row]) -> list[TextHit]:
    counts = np.array([row.counts for row in rows], dtype=np.float64).reshape(len(rows), len(question.terms))
    profiles = [profile_for(row.chunk.content_type) for row in rows]
    scores = bm25(
        counts,
        np.array([row.length for row in rows], dtype=np.float64),
        question.weights,
        np.array([profile.k1 for profile in profiles]),
        np.array([profile.b for profile in profiles]),
        question.average_length,
    )
    shares = idf_share(counts, question.idf)
    return [
        TextHit(row.chunk, score, share)
        for row, score, share in zip(rows, scores.tolist(), shares.tolist(), strict=True)
    ]


def _see_exception(search: "asyncio.Task[list[Entry]]") -> None:
    """The other half of the search may have failed first, and then nobody asks for this one's failure."""
    if not search.cancelled():
        search.exception()
