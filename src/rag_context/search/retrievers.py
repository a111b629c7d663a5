"""The two retrievers of a search, by vector and by keyword. Each runs as a task with a deadline and a report."""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from rag_context.domain.documents import Missing, Tenant, microseconds
from rag_context.domain.search import Filter, KeywordHit, VectorHit
from rag_context.domain.vectors import Calibration, Vector
from rag_context.errors import BackendError, BackendRejectedError, BackendStartingError, BackendTimeoutError
from rag_context.ports.models import Embedder
from rag_context.ports.reading import CandidateSource, DocumentStore, IndexVectors, KeywordIndex
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import BreakerOpenError, Dependency
from rag_context.search import rules
from rag_context.search.query import Answer, Query, RetrieverReport, RetrieverStatus
from rag_context.search.question_rules import candidate_limit, hit_limit, pool_per_document, standing_request
from rag_context.search.question_times import near_filters
from rag_context.search.ranking import spread
from rag_context.tracing import span

ENOUGH = 2
"""A pool is wide enough if it has one in so many of the documents that may be returned."""

FURTHER_SEARCHES = 2
"""How often a retriever searches again without the documents that fill its pool."""

SPAN_NAMES = {
    "embedding": "query_embedding",
    "vector": "vector_search",
    "text": "keyword_search",
    "standing": "standing",
}
"""What the parts of a search are called in traces."""

Hit = TypeVar("Hit", bound=VectorHit | KeywordHit)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class VectorResults:
    """The hits of the vector search, with the query's own vector for exact scores of other chunks."""

    vector: Vector
    hits: Sequence[VectorHit]
    calibration: Calibration
    made_by: str | None = None
    """Fingerprint of the model that made the query's vector; None where the caller brought it."""
    standing: Sequence[VectorHit] = ()


@dataclass(frozen=True, slots=True)
class Backends:
    """The ports a search reads from, each with the dependency that guards it."""

    embedder: Embedder
    vectors: IndexVectors
    texts: KeywordIndex
    documents: DocumentStore
    embedding: Dependency
    vector_store: Dependency
    document_store: Dependency
    candidates: CandidateSource | None = None
    """Where vectors, terms and documents are in one place, what reads all of them in one call."""
    keyword_candidates: CandidateSource | None = None
    """The same without the vectors, which may be missing or still be read."""
    lost_vectors: Callable[[], Missing] = Missing
    """How many vectors are missing from a store beside the documents, for which no document waits."""

    def guarded(self, timeout_s: float) -> "Backends":
        """These backends, guarded: a call takes `timeout_s` seconds at most, or less under an applied deadline."""
        vectors, documents = self.vector_store, self.document_store
        return replace(
            self,
            embedder=self.embedding.guard(self.embedder, timeout_s),
            vectors=vectors.guard(self.vectors, timeout_s),
            texts=documents.guard(self.texts, timeout_s),
            documents=documents.guard(self.documents, timeout_s),
            candidates=vectors.guard(self.candidates, timeout_s) if self.candidates else None,
            keyword_candidates=documents.guard(self.keyword_candidates, timeout_s) if self.keyword_candidates else None,
        )

    def require_same_model(self, vector_results: VectorResults) -> None:
        """Raise BackendRejectedError where a reindexing has just replaced the vectors by those of another model."""
        if vector_results.made_by is not None and self.vectors.made_by not in (None, vector_results.made_by):
            raise BackendRejectedError(
                "vectors", "The vectors of the index were just replaced by those of another model."
            )


@dataclass
class Retrievers:
    """The tasks of one search. Use as a context manager: tasks that still run at the end are cancelled.

    Both retrievers must be done at the `deadline`, so that time is left for scoring until `answer_deadline`.
    `without_standing` are filters that let no standing instruction through, each with the version of the documents.
    """

    sources: Backends
    query: Query
    answer_deadline: Deadline
    deadline: Deadline
    clock: Callable[[], float]
    without_standing: MutableMapping[Filter, int]
    reports: dict[str, RetrieverReport] = field(default_factory=dict)
    fallback: "asyncio.Task[Answer] | None" = None
    """The answer of level 2, prepared while the vector search is late."""
    _vector: "asyncio.Task[Any] | None" = None
    _embedding: "asyncio.Task[VectorResults] | None" = None
    _text: "asyncio.Task[Sequence[KeywordHit]] | None" = None
    _timers: list[asyncio.TimerHandle] = field(default_factory=list)

    def __enter__(self) -> "Retrievers":
        return self

    def __exit__(self, *_exc: object) -> None:
        for timer in self._timers:
            timer.cancel()
        for task in (self._vector, self._embedding, self._text, self.fallback):
            if task is not None and not task.done():
                task.cancel()
            elif task is not None and not task.cancelled():
                task.exception()  # read, so that asyncio does not log it as never retrieved

    def start_embedding(self) -> "asyncio.Task[VectorResults]":
        """The embedding of the query, started once; it has no hits yet."""
        if self._embedding is None:
            self._embedding = asyncio.create_task(self._embedded())
        return self._embedding

    def start_one_call(self, work: Coroutine[None, None, T]) -> "asyncio.Task[T]":
        """A vector search with whatever else `work` does in the same call."""
        self._vector = task = asyncio.create_task(work)
        return task

    def start_text(self) -> "asyncio.Task[Sequence[KeywordHit]]":
        """The keyword search, started once: half of level 1, and all of level 2."""
        if self._text is None:
            self._text = asyncio.create_task(self._run_text())
        return self._text

    def call_if_vector_is_late(self, after_s: float, work: Callable[[], object]) -> None:
        """Do `work` so many seconds from now, if the vector search still runs by then."""

        def late() -> None:
            # None where it has not begun, because the embedding is late.
            if self._vector is None or not self._vector.done():
                work()

        self._timers.append(asyncio.get_running_loop().call_later(after_s, late))

    def prepare_fallback(self, answer: Coroutine[None, None, Answer]) -> None:
        self.fallback = asyncio.create_task(answer)

    def note_latencies(self, **latencies_ms: float) -> None:
        """Report how long the parts of one call took, each by its name; the call was without those not reported."""
        for part in self.reports.keys() & latencies_ms.keys():
            self.reports[part] = replace(self.reports[part], latency_ms=latencies_ms[part])

    def note_unused(self, error: BackendError) -> None:
        """Report the vector search as failed, though it succeeded: the answer is without it because of `error`."""
        report = self.reports.get("vector")
        if report is not None and report.status is RetrieverStatus.OK:
            self.reports["vector"] = replace(report, status=status_of(error), detail=str(error))

    @property
    def tenant(self) -> Tenant:
        return self.query.where.tenant

    @property
    def text_failed(self) -> bool:
        report = self.reports.get("text")
        return report is not None and report.status is not RetrieverStatus.OK

    async def search_vectors(self) -> VectorResults:
        """Embed the query and search by it. Raises: BackendError."""
        sources, results = self.sources, await self.start_embedding()
        search = partial(sources.vectors.search, results.vector)
        with self.reported("vector"), self.deadline.applied():
            # At the same time as the search, as each may be a round trip to a server.
            beside = asyncio.create_task(self._standing(search))
            try:
                hits = await spread_hits(lambda limit, where: search(limit=limit, where=where), self.query)
                standing = await beside
            finally:
                beside.cancel()
        if isinstance(standing, BackendError):  # the answer is there, without its list
            self.reports["standing"] = RetrieverReport(status_of(standing), 0.0, str(standing))
            standing = ()
        results = replace(results, hits=hits, standing=standing)
        sources.require_same_model(results)
        return results

    async def _embedded(self) -> VectorResults:
        """The query's vector, and the fingerprint of the model that made it."""
        embedder, query = self.sources.embedder, self.query
        if query.vector is not None:
            return VectorResults(query.vector, (), embedder.model.calibration)
        with self.reported("embedding"), self.deadline.applied():
            model = embedder.model  # read before embedding: shows a model that is replaced meanwhile
            vector = await embedder.embed_query(query.text)
        return VectorResults(vector, (), model.calibration, model.fingerprint)

    async def _standing(
        self, search: Callable[..., Awaitable[Sequence[VectorHit]]]
    ) -> Sequence[VectorHit] | BackendError:
        """The nearest standing instructions, or why they cannot be found."""
        version, request = self.sources.documents.version, standing_request(self.query)
        # Most memories have none, and looking again for what is not there costs a call.
        if request is None or self.without_standing.get(request[1]) == version:
            return ()
        try:
            found = await search(limit=request[0], where=request[1])
        except BackendError as error:
            return error
        if not found:
            self.without_standing[request[1]] = version
        return found

    async def _run_text(self) -> Sequence[KeywordHit]:
        texts, query = self.sources.texts, self.query
        with self.reported("text"), self.deadline.applied():
            return await spread_hits(lambda limit, where: texts.search(query.text, limit=limit, where=where), query)

    @contextmanager
    def reported(self, part: str, span_name: str | None = None) -> Iterator[None]:
        """Report how the block ended, and how long it took, as the part `part`; in traces it may have another name."""
        started = self.clock()
        status, detail = RetrieverStatus.OK, None
        try:
            with span(span_name or SPAN_NAMES[part]):
                yield
        except BackendError as error:
            status, detail = status_of(error), str(error)
            raise
        except asyncio.CancelledError:
            status, detail = RetrieverStatus.TIMEOUT, "not finished in time"
            raise
        finally:
            self.reports[part] = RetrieverReport(status, (self.clock() - started) * 1000.0, detail)


async def spread_hits(search: Callable[[int, Filter], Awaitable[Sequence[Hit]]], query: Query) -> Sequence[Hit]:
    """The hits of a store for a query; where it names a time, the best from near that time too."""
    found = await _spread_hits(search, query)
    if not query.windows:
        return found
    # Of one document there may be others than those found.
    is_complete = query.per_document is None
    hits = found[: candidate_limit(query)] if is_complete else found
    for where in near_filters(query.windows, query.where):
        near: Sequence[Hit] = _in_time(found, where)[: rules.JOINING]
        if not is_complete or (len(near) < rules.JOINING and len(found) == hit_limit(query)):
            try:
                near = await search(rules.JOINING, where)
            except BackendError:  # the hits so far stay
                break
        hits = _united(hits, near)
    return hits


def _in_time(hits: Sequence[Hit], where: Filter) -> Sequence[Hit]:
    since = -math.inf if where.since is None else microseconds(where.since)
    until = math.inf if where.until is None else microseconds(where.until)
    return [hit for hit in hits if hit.chunk.occurred_us is not None and since <= hit.chunk.occurred_us < until]


async def _spread_hits(search: Callable[[int, Filter], Awaitable[Sequence[Hit]]], query: Query) -> Sequence[Hit]:
    """The hits of a store; where a few documents fill the pool, the hits of other documents too."""
    pool = hit_limit(query)
    hits: list[Hit] = list(await search(pool, query.where))
    found = len(hits)
    most = pool_per_document(query)
    if query.per_document is None or most is None:
        return hits
    # Stores have no limit per document: they search again without the documents that have enough.
    for _ in range(FURTHER_SEARCHES):
        counts = Counter(hit.chunk.document_id for hit in hits)
        crowding = tuple(document for document, count in counts.items() if count >= most)
        is_wide = ENOUGH * len(counts) * query.per_document >= query.limit
        if found < pool or not crowding or is_wide:
            break
        try:
            further: Sequence[Hit] = await search(pool, replace(query.where, without_documents=crowding))
        except BackendError:  # the hits so far stay
            break
        found = len(further)
        hits = _united(hits, further)
    return list(spread(hits, lambda hit: hit.chunk.document_id, most))


def _united(hits: Sequence[Hit], further: Sequence[Hit]) -> list[Hit]:
    """The hits and those of the further ones whose chunks are not among them."""
    known = {hit.chunk.id for hit in hits}
    return [*hits, *(hit for hit in further if hit.chunk.id not in known)]


def status_of(error: BackendError) -> RetrieverStatus:
    match error:
        case BreakerOpenError():
            return RetrieverStatus.OPEN
        case BackendStartingError():
            return RetrieverStatus.LOADING
        case BackendTimeoutError():
            return RetrieverStatus.TIMEOUT
        case _:
            return RetrieverStatus.FAILED
