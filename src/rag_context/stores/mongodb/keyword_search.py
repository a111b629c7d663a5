"""Keyword search: MongoDB finds chunks that hold the query's terms, the one BM25 of `text` scores them.

Candidates come from the index over the terms of chunks, which knows codes, identifiers and scripts without spaces,
and at the same time from the text index, which knows the documents of other programs too.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cachetools import LRUCache
from pymongo.errors import OperationFailure

from rag_context.domain.documents import Tenant, microseconds, slices
from rag_context.domain.search import ChunkRef, Filter, KeywordHit
from rag_context.domain.text import query_terms, terms
from rag_context.stores.mongodb import chunk_records
from rag_context.stores.mongodb.document_records import OURS, Entry, chunks_of, occurred_at, reference
from rag_context.stores.mongodb.filters import condition, tenant_of
from rag_context.stores.mongodb.index_state import MongoIndexState, TenantTotals
from rag_context.stores.mongodb.indexes import Indexes
from rag_context.stores.mongodb.mongo import INDEX_NOT_FOUND, TIME_EXPIRED, Mongo, is_code
from rag_context.stores.server_stores import MOST_PER_TERM, FrequencyCache, TermStatistics, log_failure

COUNTED_TERMS = 128
"""A query of more distinct terms is searched and scored by so many, evenly spread over it."""

SEARCHED_TERMS = 64
"""A query of more terms finds its candidates by its rarest ones; all that are counted count in the score."""

BUDGET = 1000
"""Chunks that one round may read: the rarest terms that so many chunks hold together find all of them."""

ROUNDS = 4

FREQUENCIES = 16_384

AT_ONCE = 8
"""Terms that are counted at the same time."""

TEXT_CANDIDATES = 50
TEXT_SEARCH_MS = 150
"""Longest query of the text index: it ranks by repeats alone, and is slow for common words."""

SEARCH_MS = 2_000
"""No caller waits longer for a search, so the server stops working on it."""

QUESTIONS = 256
"""Cached queries with their terms and weights: a search needs scores several times."""

CACHED_ROWS = 200
"""Chunks whose counts are cached with a query, at most."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class _Row:
    """A chunk, its length, how often it holds each of the terms, and the write that its record is of."""

    chunk: ChunkRef
    length: int
    counts: Sequence[float]
    revision: str | None = None


@dataclass(slots=True)
class _Question:
    """The distinct terms of a query, and what a tenant knows of each."""

    terms: Sequence[str]
    statistics: TermStatistics
    holders: Mapping[str, _Row] | None = None
    """Every chunk of the tenant that holds some of the terms, by id, where all of them were found."""


class MongoTexts:
    """`KeywordIndex` over the collections of chunks and documents."""

    def __init__(self, mongo: Mongo, state: MongoIndexState, indexes: Indexes, budget: int = BUDGET) -> None:
        self._mongo = mongo
        self._state = state
        self._indexes = indexes
        self._budget = budget
        self._frequencies = FrequencyCache(FREQUENCIES)
        self._questions: LRUCache[tuple[str, Tenant, int], _Question] = LRUCache(QUESTIONS)

    async def search(self, query: str, *, limit: int, where: Filter) -> list[KeywordHit]:
        if limit < 1 or not query_terms(query):
            return []
        async with self._mongo.reached():
            question = await self._question(query, where.tenant)
            # Beside the search of our own index: it finds documents of other programs, and may be slow.
            text = asyncio.create_task(self._text_search(query, question, where))
            text.add_done_callback(log_failure())
            try:
                hits = await self._current_hits(question, limit, where)
                others = [hit for hit in _hits(question, await text) if hit.bm25 > 0.0]
            finally:
                text.cancel()
        return sorted([*hits, *others], key=_best_first)[:limit]

    async def score(self, query: str, chunks: Sequence[ChunkRef], *, tenant: Tenant) -> dict[str, KeywordHit]:
        if not chunks:
            return {}
        chunk_of = {chunk.id: chunk for chunk in chunks}
        async with self._mongo.reached():
            question = await self._question(query, tenant)
            if question.holders is not None:
                matching = [question.holders[chunk.id] for chunk in chunks if chunk.id in question.holders]
                scores = {hit.chunk.id: hit for hit in _hits(question, matching)}
                return {chunk.id: scores[chunk.id]._replace(chunk=chunk) for chunk in chunks if chunk.id in scores}
            # A chunk's id follows from its text, so the record of any write has its terms.
            records = await self._find({"chunkId": {"$in": list(chunk_of)}, "tenant": tenant_of(tenant)})
            rows = {record["chunkId"]: _row(record, question) for record in records}
            if others := [id_ for id_ in chunk_of if id_ not in rows]:
                of_tenant = {**chunk_records.OTHER_LAYOUT, "tenant": tenant_of(tenant)}
                found = self._mongo.documents.find({**chunk_records.with_chunks(others), **of_tenant}).max_time_ms(
                    SEARCH_MS
                )
                rows |= {row.chunk.id: row async for entry in found for row in _rows_of_other(entry, question)}
        found_rows = [rows[id_] for id_ in chunk_of if id_ in rows]
        return {
            hit.chunk.id: KeywordHit(chunk_of[hit.chunk.id], hit.bm25, hit.share) for hit in _hits(question, found_rows)
        }

    async def conversations(self, query: str, threads: Sequence[str], *, tenant: Tenant) -> Mapping[str, float]:
        """No index finds the terms of whole conversations."""
        return {}

    async def _question(self, query: str, tenant: Tenant) -> _Question:
        version = self._state.version  # read before the queries: later changes must not count as seen
        cached = self._questions.get((query, tenant, version))
        if cached is not None:
            return cached
        seen = await self._state.of_tenant(tenant)
        pairs = list(Counter(query_terms(query)).items())
        # Evenly spread: terms stand in the order of the text, and the first ones alone would search its beginning only.
        kept = min(len(pairs), COUNTED_TERMS)
        counted = dict(pairs[number * len(pairs) // kept] for number in range(kept))
        frequencies = await self._frequencies_of(list(counted), tenant, seen)
        chunks, average_length = seen.totals.chunks, seen.totals.terms / max(seen.totals.chunks, 1)
        statistics = TermStatistics.of(list(counted.values()), frequencies, chunks, average_length)
        question = _Question(list(counted), statistics)
        self._questions[query, tenant, version] = question
        return question

    async def _frequencies_of(self, terms: Sequence[str], tenant: Tenant, seen: TenantTotals) -> list[int]:
        """In how many chunks of a tenant each term occurs."""
        name = (await self._state.current()).name, tenant, seen.made
        owner = tenant_of(tenant)
        limit = asyncio.Semaphore(AT_ONCE)

        async def counted(term: str) -> int:
            frequency = self._frequencies.get(name, term, seen.turnover)
            if frequency is None:
                async with limit:
                    frequency = await self._mongo.chunks.count_documents({"terms": term, "tenant": owner})
                self._frequencies.put(name, term, seen.turnover, frequency)
            return frequency

        return list(await asyncio.gather(*map(counted, terms)))

    async def _current_hits(self, question: _Question, limit: int, where: Filter) -> list[KeywordHit]:
        """The best `limit` chunks that their documents name; read again if a document was just replaced."""
        before: Mapping[str, object] = {}
        hits: list[KeywordHit] = []
        for _ in range(chunk_records.READ_ATTEMPTS):
            rows = await self._candidates(question, limit, where)
            hits, named, records = await self._named(question, rows, limit)
            if chunk_records.is_consistent(records, named, before):
                break
            before = named
        return hits

    async def _named(
        self, question: _Question, rows: Sequence[_Row], limit: int
    ) -> tuple[list[KeywordHit], dict[str, object], list[Entry]]:
        """The best `limit` of the rows whose documents name their revision; what the documents name, and what of."""
        scored = zip(_hits(question, rows), rows, strict=True)
        ranked = sorted(((hit, row) for hit, row in scored if hit.bm25 > 0.0), key=lambda pair: _best_first(pair[0]))
        named: dict[str, object] = {}
        records: list[Entry] = []
        best: dict[str, KeywordHit] = {}
        # Page by page: few of the best were replaced meanwhile, so the first page is mostly enough.
        for page in slices(ranked, limit):
            keys = list({row.chunk.document_id for _, row in page} - named.keys())
            named.update(dict.fromkeys(keys))
            found = self._mongo.documents.find({"_id": {"$in": keys}}, {"revision": 1}).max_time_ms(SEARCH_MS)
            named.update({entry["_id"]: entry.get("revision") async for entry in found})
            records += [{"document": row.chunk.document_id, "revision": row.revision} for _, row in page]
            best.update((hit.chunk.id, hit) for hit, row in page if row.revision == named[row.chunk.document_id])
            if len(best) >= limit:
                break
        return list(best.values())[:limit], named, records

    async def _candidates(self, question: _Question, limit: int, where: Filter) -> list[_Row]:
        """Chunks that pass the filter and hold some terms, rarest first, until no other can be among the best."""
        rows: dict[str, _Row] = {}
        is_complete = where == Filter(where.tenant)
        earlier: list[str] = []
        for group in _rounds(question, self._budget):
            records, are_all = await self._holders(group, question, limit, where)
            is_complete = is_complete and are_all
            earlier += group
            rows.update((record["_id"], _row(record, question)) for record in records)
            if _is_enough(question, list(rows.values()), earlier, limit):
                break
        occurring = sum(frequency > 0 for frequency in question.statistics.frequencies)
        if is_complete and len(earlier) == occurring and len(rows) <= CACHED_ROWS:
            # All chunks with these terms are known, so scores of any chunk need no further query.
            question.holders = {row.chunk.id: row for row in rows.values()}
        return list(rows.values())

    async def _holders(
        self, group: Sequence[str], question: _Question, limit: int, where: Filter
    ) -> tuple[list[Entry], bool]:
        """Chunks that hold terms of a group, and whether they are all.

        Of a term in more chunks than may be read, half are the shortest ones that repeat it, the others the shortest.
        """
        passing = condition(where, "document")
        frequency = dict(zip(question.terms, question.statistics.frequencies, strict=True))
        if sum(frequency[term] for term in group) <= self._budget:
            return await self._find({**passing, "terms": {"$in": list(group)}}), True
        # A term commoner than the budget is alone in its group.
        (term,) = group
        # BM25 is highest in short chunks and in those that repeat a term, and both indexes are sorted by length.
        half = max(self._budget // 2, limit)
        found = await asyncio.gather(*(self._find({**passing, field: term}, half) for field in ("repeated", "terms")))
        return [record for part in found for record in part], False

    async def _find(self, match: Entry, shortest: int | None = None) -> list[Entry]:
        cursor = (
            self._mongo.chunks.find(match, chunk_records.TERM_FIELDS).max_time_ms(SEARCH_MS).batch_size(self._budget)
        )
        if shortest is not None:
            cursor = cursor.sort("length").limit(shortest)
        return await cursor.to_list()

    async def _text_search(self, query: str, question: _Question, where: Filter) -> list[_Row]:
        """What the text index finds; nothing where it is missing (it is made again) or too slow."""
        selected = _selective(question, self._budget)
        # Only letters and digits, so never an operator.
        words = (word for word in _WORD.findall(query) if not selected.isdisjoint(terms(word)))
        search = " ".join(dict.fromkeys(words))
        if not search:
            return []
        theirs = {} if self._state.finds_others else OURS
        match = {"$text": {"$search": search}, **condition(where), **chunk_records.OTHER_LAYOUT, **theirs}
        order = {"$sort": {"score": {"$meta": "textScore"}}}
        stages: list[Entry] = [{"$match": match}, order, {"$limit": TEXT_CANDIDATES}]
        try:
            cursor = await self._mongo.documents.aggregate(stages, maxTimeMS=TEXT_SEARCH_MS)
            return [row for entry in await cursor.to_list() for row in _rows_of_other(entry, question)]
        except OperationFailure as error:
            if is_code(error, INDEX_NOT_FOUND):
                self._indexes.ensure_soon()
            # Too late is no failure: chunks of our own index are found without it.
            elif not is_code(error, TIME_EXPIRED):
                raise
            return []


def _best_first(hit: KeywordHit) -> tuple[float, str]:
    return -hit.bm25, hit.chunk.id


def _rounds(question: _Question, budget: int) -> Iterator[list[str]]:
    """The terms, rarest first, in groups that some `budget` chunks hold; a commoner term is alone."""
    pairs = zip(question.terms, question.statistics.frequencies, strict=True)
    occurring = sorted((frequency, term) for term, frequency in pairs if frequency)
    group: list[str] = []
    in_group = rounds = 0
    for frequency, term in occurring[:SEARCHED_TERMS]:
        if group and in_group + frequency > budget:
            yield group
            rounds += 1
            if rounds == ROUNDS:
                return
            group, in_group = [], 0
        group.append(term)
        in_group += frequency
    if group:
        yield group


def _is_enough(question: _Question, rows: Sequence[_Row], searched: Sequence[str], limit: int) -> bool:
    """Whether the best `limit` of the rows score more than any chunk without the `searched` terms."""
    if len(rows) < limit:
        return False
    scores = sorted((hit.bm25 for hit in _hits(question, rows)), reverse=True)
    pairs = zip(question.terms, question.statistics.weights.tolist(), strict=True)
    most: float = MOST_PER_TERM * sum(weight for term, weight in pairs if term not in searched)
    return scores[limit - 1] > most


def _selective(question: _Question, budget: int) -> set[str]:
    """The terms for a query of the text index: the rarest, and those that only other programs' documents may have."""
    unknown = [term for term, count in zip(question.terms, question.statistics.frequencies, strict=True) if not count]
    return {*unknown, *next(_rounds(question, budget), ())}


def _row(record: Entry, question: _Question) -> _Row:
    counts = dict(zip(record["terms"], record["counts"], strict=False))  # `check` finds those that are not as long
    chunk = ChunkRef(
        record["chunkId"],
        record["document"],
        record["position"],
        record["contentType"],
        record.get("thread"),
        record.get("speaker"),
        microseconds(occurred_at(record)),
    )
    return _Row(chunk, record["length"], [counts.get(term, 0.0) for term in question.terms], record["revision"])


def _rows_of_other(entry: Entry, question: _Question) -> Iterator[_Row]:
    """One row for each chunk of a document that holds its chunks itself."""
    for chunk in chunks_of(entry):
        words = chunk_records.chunk_terms(chunk)
        count_of = dict(zip(words.terms, words.counts, strict=True))
        counts = [float(count_of.get(term, 0)) for term in question.terms]
        found = replace(reference(entry, chunk.id, chunk.position), occurred_us=microseconds(chunk.occurred_at))
        yield _Row(found, words.length, counts)


def _hits(question: _Question, rows: Sequence[_Row]) -> list[KeywordHit]:
    scores, shares = question.statistics.scores(
        [row.counts for row in rows], [row.length for row in rows], [row.chunk.content_type for row in rows]
    )
    return [
        KeywordHit(row.chunk, score, share)
        for row, score, share in zip(rows, scores.tolist(), shares.tolist(), strict=True)
    ]
