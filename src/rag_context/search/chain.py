"""The fallback chain: level 4, then 1, then 2, then 3, read from top to bottom. It always answers, in time."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace

from cachetools import LRUCache

from rag_context.domain.documents import Missing, Tenant
from rag_context.domain.ranking_rules import Rule
from rag_context.domain.search import Filter, KeywordHit
from rag_context.errors import BackendDataError, BackendError, BackendStartingError, BackendTimeoutError
from rag_context.ports.models import Reranker
from rag_context.ports.reading import CandidateSource, completed
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Breaker, BreakerOpenError, Dependency
from rag_context.search import query as queries
from rag_context.search import reads
from rag_context.search.newer import asks_for_value, contenders, newer_first
from rag_context.search.query import Answer, Level, Mode, Query, RetrieverReport, RetrieverStatus
from rag_context.search.retrievers import Backends, Retrievers, VectorResults, status_of
from rag_context.search.selection import KnownPassages, Selection, candidate_request, select, select_in
from rag_context.tracing import past_span, span

logger = logging.getLogger(__name__)

RETRIEVERS_SHARE = 0.75
"""Share of the deadline that the retrievers may use; the rest is for scoring and for reading the passages."""

HEDGE_SHARE = 0.25
"""Share of the deadline after which a keyword search is started while the vector search still runs (a hedge)."""

ONE_CALL_SHARE = 0.3
"""Share of the deadline that one call for everything may take before its parts are called instead.

It is less than a timeout needs to count as the store's failure: slow keyword searches do not make vectors unavailable.
"""

FALLBACK_SHARE = 0.5
"""Share of the deadline after which the answer of level 2 is prepared while the vector search still runs."""

LOOK_S = 0.25
"""How long the search for an answer that is kept may take to find out whether it is still valid."""

RERANK_LEG = "rerank"
NOT_RERANKED = "The reranker did not answer, passages are in the order of the search"

REMEMBERED = 1000
"""Filters of which it is known that they let no standing instruction through."""

WARNINGS: Mapping[Level, str] = {
    Level.TEXT: "Vector search unavailable, using text search fallback",
    Level.EMPTY: "All search methods failed, returning empty results",
    Level.OPEN: "Circuit breaker is open - too many failures",
}
VECTOR_ONLY = "Vector search unavailable, and the query has no text for a keyword search"
TEXT_MISSING = "Text search unavailable, using vector search alone"
INEXACT = "Passages are ranked without some of their scores or neighbours, which were not available in time"


class Reranking:
    """A model reads the question with each passage, in what is left of the deadline; if it fails, the order stands."""

    def __init__(self, reranker: Reranker, dependency: Dependency, *, passages: int, timeout_s: float) -> None:
        self.dependency = dependency
        self._reranker = dependency.guard(reranker, timeout_s)
        self._passages = passages

    def widened(self, query: Query) -> Query:
        """The query with as many results as are to be scored."""
        return replace(query, limit=max(query.limit, self._passages)) if query.text.strip() else query

    async def reranked(self, query: Query, answer: Answer, deadline: Deadline) -> Answer:
        """The first `query.limit` results of an answer to the widened query; never raises a backend's error."""
        best, rest = answer.results[: self._passages], answer.results[self._passages :]
        if not query.text.strip() or len(best) < 2:
            return replace(answer, results=answer.results[: query.limit])
        started = time.monotonic()
        try:
            with deadline.applied(), span("reranking", {"rag.passages": len(best)}):
                scores = await self._reranker.scores(query.text, [result.passage.chunk.embedded for result in best])
            if len(scores) != len(best) or not all(map(math.isfinite, scores)):
                raise BackendDataError(RERANK_LEG, "the reranker did not return one number per passage")
        except BackendError as error:
            report = RetrieverReport(status_of(error), (time.monotonic() - started) * 1000.0, str(error))
            answer = replace(answer, warning=answer.warning or NOT_RERANKED)
        else:
            report = RetrieverReport(RetrieverStatus.OK, (time.monotonic() - started) * 1000.0)
            scored = [replace(result, rerank_score=score) for result, score in zip(best, scores, strict=True)]
            best = tuple(sorted(scored, key=lambda result: -(result.rerank_score or 0.0)))
        return replace(answer, results=(*best, *rest)[: query.limit], legs={**answer.legs, RERANK_LEG: report})


@dataclass(eq=False)
class SearchChain:
    """Answers queries from the sources, also where some of them fail."""

    sources: Backends
    breaker: Breaker
    _: KW_ONLY
    deadline_s: float
    without: tuple[Rule, ...] = ()
    reranking: Reranking | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._sources = sources = self.sources.guarded(self.deadline_s)
        self._known = KnownPassages()
        self._coverage = reads.Coverage(sources.documents, self.clock, sources.lost_vectors)
        self._without_standing: LRUCache[Filter, int] = LRUCache(REMEMBERED)
        self._tenants = queries.TenantStates(sources.documents)

    def over(self, sources: Backends) -> "SearchChain":
        """A chain with other sources, and this one's breaker."""
        return replace(self, sources=sources)

    async def search(self, query: Query) -> Answer:
        """Answer `query`; never raises a backend's error."""
        deadline = Deadline.after(self.deadline_s, self.clock)
        query = replace(query, without=self.without, windows=() if Rule.TIME in self.without else query.windows)
        try:
            with self.breaker.permit_or_probe() as permit:
                answer = await self._ordered(query, deadline)
                if answer.level is not Level.EMPTY:
                    permit.succeed()
                elif query.has_text:  # without text, keyword search was not tried
                    permit.fail()
        except BreakerOpenError:
            return self._rejected(query.where.tenant)
        if self.breaker.closed:
            return answer
        return replace(answer, breaker_open=True, retry_after_s=self.breaker.retry_after_s)

    async def state_of(self, tenant: Tenant) -> queries.KnownState | None:
        """The state of a tenant, for answers that are kept; None where it is not known and cannot be read at once."""
        known = self._tenants.current(tenant)
        if known is not None or not self.breaker.closed:  # with an open breaker no store is called
            return known
        try:
            with Deadline.after(LOOK_S, self.clock).applied():
                return await self._tenants.read(tenant)
        except BackendError:  # the search says why
            return None

    async def _ordered(self, query: Query, deadline: Deadline) -> Answer:
        if self.reranking is None:
            answer = await self._descend(query, deadline)
        else:
            answer = await self._descend(self.reranking.widened(query), deadline)
            answer = await self.reranking.reranked(query, answer, deadline)
        return await self.newer_first(query, answer, deadline)

    async def newer_first(self, query: Query, answer: Answer, deadline: Deadline | None = None) -> Answer:
        """With later statements above those that they replace; as it was where that is not known in time."""
        applies = query.mode is Mode.HYBRID and Rule.NEWER not in query.without and answer.level is Level.PRIMARY
        # A question that names a time is about what was said then, whatever was said later.
        if not applies or query.windows or not asks_for_value(query.text):
            return answer
        anchor, found = contenders(query.text, answer.results)
        if not found:
            return answer
        ids = [answer.results[row].passage.chunk.id for row in (anchor, *found)]
        try:
            with (deadline or Deadline.after(self.deadline_s, self.clock)).applied():
                vectors = await self._sources.vectors.vectors(ids)
        except BackendError as error:
            logger.warning("search: newer statements could not be found: %s", error)
            report = RetrieverReport(status_of(error), 0.0, str(error))
            return replace(answer, legs={**answer.legs, "ranking": report}, warning=answer.warning or INEXACT)
        return replace(answer, results=newer_first(answer.results, anchor, found, vectors))

    async def _descend(self, query: Query, deadline: Deadline) -> Answer:
        for_retrievers = deadline.sooner((1.0 - RETRIEVERS_SHARE) * self.deadline_s)
        errors: list[str] = []
        tasks = Retrievers(self._sources, query, deadline, for_retrievers, self.clock, self._without_standing)
        with tasks as retrievers:
            for level in (self._primary, self._text) if query.has_text else (self._primary,):
                try:
                    answer = await level(retrievers)
                    return replace(answer, legs={**retrievers.reports, **answer.legs})
                except BackendError as error:
                    is_logged = isinstance(error, BreakerOpenError | BackendStartingError)  # when it began
                    severity = logging.DEBUG if is_logged else logging.WARNING
                    logger.log(severity, "search: %s failed: %s", level.__name__.strip("_"), error)
                    errors.append(f"{error.component}: {error}")
                    if level == self._primary:
                        retrievers.note_unused(error)
            empty = Answer(
                (), Level.EMPTY, dict(retrievers.reports), 0, warning=WARNINGS[Level.EMPTY], error="; ".join(errors)
            )
            return empty if query.has_text else replace(empty, warning=VECTOR_ONLY)

    async def _primary(self, retrievers: Retrievers) -> Answer:
        """Level 1: the retrievers that the mode names; where one is missing, a warning says which."""
        query, deadline = retrievers.query, retrievers.answer_deadline
        if query.mode is Mode.TEXT:
            return await self._from_text(retrievers, Level.PRIMARY)
        if query.has_text:
            # Hedges: where the vector search fails in the end, the answer by keywords is ready in time.
            retrievers.call_if_vector_is_late(HEDGE_SHARE * self.deadline_s, retrievers.start_text)
            retrievers.call_if_vector_is_late(
                FALLBACK_SHARE * self.deadline_s,
                lambda: retrievers.prepare_fallback(self._from_text(retrievers, Level.TEXT)),
            )
        candidates = self._sources.candidates
        if candidates is None:
            vector = retrievers.start_one_call(retrievers.search_vectors())
        else:
            vector = retrievers.start_embedding()
        is_hybrid = query.has_text and query.mode is not Mode.VECTOR
        keywords = retrievers.start_text() if is_hybrid and candidates is None else None
        # Counted beside the embedding, which was started above.
        missing = self._coverage.known(query.where)
        if missing is None:
            with deadline.sooner((1.0 - reads.RANKING_SHARE) * deadline.remaining_s).applied():
                missing = await self._coverage.missing(query.where)
        if not is_hybrid and query.has_text and reads.matters(missing):
            is_hybrid = True  # vector search cannot find passages without a vector
            keywords = retrievers.start_text() if candidates is None else None
        if candidates is None:
            vector_results = await vector
            text, warning = await _hits_or_warning(keywords)
            selection = await self._from_stores(retrievers, vector_results, text)
            self._sources.require_same_model(vector_results)
        elif is_hybrid and candidates.is_remote:
            in_one_call = self._from_one_call_or_its_parts(retrievers, candidates)
            selection, warning = await retrievers.start_one_call(in_one_call)
        else:
            one_call = self._from_one_call(retrievers, candidates, query.text if is_hybrid else None)
            selection, warning = await retrievers.start_one_call(one_call), None
        answer = await self._answer(selection, retrievers)
        answer = answer if warning is None else replace(answer, warning=warning)
        return _labelled(answer, missing)

    async def _from_stores(
        self, retrievers: Retrievers, vector_results: VectorResults | None, text: Sequence[KeywordHit] | None
    ) -> Selection:
        query, vector = retrievers.query, None if vector_results is None else vector_results.vector
        has_texts = not retrievers.text_failed
        store_reads = reads.StoreReads(self._sources, query, vector, retrievers.answer_deadline, has_texts=has_texts)
        with span("ranking"):
            return await select(query, store_reads, vector_results, text, self._known)

    async def _from_one_call(self, retrievers: Retrievers, candidates: CandidateSource, text: str | None) -> Selection:
        """Everything after the embedding in one call; a keyword search only where there is a `text` for it."""
        query, vector_results = retrievers.query, await retrievers.start_embedding()
        with retrievers.reported("vector", "index_read"), retrievers.deadline.applied():
            selection = await candidates.read(
                lambda: candidate_request(query, vector_results, text),
                lambda snapshot: completed(select_in(snapshot, query, vector_results, text, self._known)),
            )
            # Recorded afterwards: the call ran in a thread, which knows no trace.
            if not candidates.is_remote:
                past_span("vector_search", selection.vector_ms, selection.text_ms + selection.ranking_ms)
                past_span("keyword_search", selection.text_ms, selection.ranking_ms)
            past_span("ranking", selection.ranking_ms)
        if text is not None:
            retrievers.reports["text"] = retrievers.reports["vector"]
        if not candidates.is_remote:
            retrievers.note_latencies(vector=selection.vector_ms, text=selection.text_ms)
        # After reading: the vectors may have been replaced by those of another model meanwhile.
        self._sources.require_same_model(vector_results)
        return selection

    async def _from_one_call_or_its_parts(
        self, retrievers: Retrievers, candidates: CandidateSource
    ) -> tuple[Selection, str | None]:
        """As `_from_one_call`; where a server is late with it, the retrievers search by themselves.

        A call that does it all is as slow as its slowest part: so one of the two can still be answered alone.
        """
        query = retrievers.query
        try:
            with retrievers.deadline.applied(), self._for_one_call().applied():
                await candidates.prepare(query.text, query.where.tenant)
            await retrievers.start_embedding()  # outside of the share, which is for the store alone
            with self._for_one_call().applied():
                return await self._from_one_call(retrievers, candidates, query.text), None
        except BackendTimeoutError:
            keywords = retrievers.start_text()
            vector_results = await retrievers.search_vectors()
            text, warning = await _hits_or_warning(keywords)
            return await self._from_stores(retrievers, vector_results, text), warning

    def _for_one_call(self) -> Deadline:
        return Deadline.after(ONE_CALL_SHARE * self.deadline_s, self.clock)

    async def _text(self, retrievers: Retrievers) -> Answer:
        """Level 2: keyword search alone; prepared beside a late vector search where there was one."""
        answer = await (retrievers.fallback or self._from_text(retrievers, Level.TEXT))
        return replace(answer, warning=WARNINGS[Level.TEXT])

    async def _from_text(self, retrievers: Retrievers, level: Level) -> Answer:
        query = retrievers.query
        text, candidates = await retrievers.start_text(), self._sources.keyword_candidates
        if candidates is None:
            selection = await self._from_stores(retrievers, None, text)
        else:
            with retrievers.answer_deadline.applied(), span("ranking"):
                selection = await candidates.read(
                    lambda: candidate_request(query, None, query.text, text),
                    lambda snapshot: completed(
                        select(query, reads.SnapshotReads(snapshot, query, None), None, text, self._known)
                    ),
                )
        return replace(await self._answer(selection, retrievers), level=level)

    async def _answer(self, selection: Selection, retrievers: Retrievers) -> Answer:
        failure = selection.gathered.failure
        if failure is None and not retrievers.text_failed:
            await self._count(retrievers.tenant, retrievers.answer_deadline)
        warning = None if failure is None else INEXACT
        if failure is None and selection.lag is not None:
            failure, warning = selection.lag, str(selection.lag)
        return Answer(
            results=selection.results,
            level=Level.PRIMARY,
            legs={} if failure is None else {"ranking": RetrieverReport(status_of(failure), 0.0, str(failure))},
            total_indexed=self._known_total(retrievers.tenant),
            warning=warning,
            unanswerable=selection.unanswerable,
            other_speaker=selection.other_speaker,
            standing=selection.standing,
        )

    async def _count(self, tenant: Tenant, deadline: Deadline) -> None:
        """Count a tenant's documents again if the index has changed; where that fails, the last count stays."""
        if self._tenants.current(tenant) is not None:
            return
        in_time = deadline.sooner(deadline.remaining_s / 2.0)  # the answer is ready and must not wait for a number
        try:
            with in_time.applied():
                await self._tenants.read(tenant)
        except BackendError as error:
            logger.warning("search: the documents could not be counted: %s", error)

    def _known_total(self, tenant: Tenant) -> int:
        """How many documents a tenant has, as it was counted last; 0 before that."""
        known = self._tenants.last(tenant)
        return 0 if known is None else known.state.documents

    def _rejected(self, tenant: Tenant) -> Answer:
        return Answer(
            results=(),
            level=Level.OPEN,
            legs={part: RetrieverReport(RetrieverStatus.SKIPPED, 0.0) for part in ("embedding", "vector", "text")},
            total_indexed=self._known_total(tenant),
            breaker_open=True,
            warning=WARNINGS[Level.OPEN],
            retry_after_s=self.breaker.retry_after_s,
        )


async def _hits_or_warning(
    keywords: "asyncio.Task[Sequence[KeywordHit]] | None",
) -> tuple[Sequence[KeywordHit] | None, str | None]:
    """The hits of the keyword search, or a warning that says they are missing; neither where there is none."""
    if keywords is None:
        return None, None
    try:
        return await keywords, None
    except BackendError:
        return None, TEXT_MISSING


def _labelled(answer: Answer, missing: Missing) -> Answer:
    """`answer` with a warning where passages have no vector, and at level 2 where too many have none."""
    if not reads.matters(missing):
        return answer
    warning = reads.described(missing) if answer.warning is None else f"{reads.described(missing)}; {answer.warning}"
    level = Level.TEXT if reads.lowers_level(missing) else answer.level
    labelled = replace(answer, level=level, warning=warning, unanswerable=False)
    if missing.vectors < missing.passages:
        return labelled
    skipped = RetrieverReport(RetrieverStatus.SKIPPED, 0.0, "no passage has a vector yet")
    return replace(labelled, legs={**answer.legs, "vector": skipped})
