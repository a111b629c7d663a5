"""What reorders an answer at the end of a search: a reranker.

A reranker is a model that reads the question with each passage. It takes what is left of the deadline; where it fails
or is late, the order of the search stands: nothing else of an answer depends on it.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace

from rag_context.errors import BackendDataError, BackendError
from rag_context.ports.models import Reranker
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency
from rag_context.search.query import Answer, Query, RetrieverReport, RetrieverStatus
from rag_context.search.retrievers import status_of
from rag_context.tracing import span

LEG = "rerank"
NOT_RERANKED = "The reranker did not answer, passages are in the order of the search"


class Reranking:
    def __init__(
        self,
        reranker: Reranker,
        dependency: Dependency,
        *,
        passages: int,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dependency = dependency
        self._reranker = dependency.guard(reranker, timeout_s)
        self._passages = passages
        self._clock = clock

    def widened(self, query: Query) -> Query:
        """The query with as many results as are to be scored."""
        return replace(query, limit=max(query.limit, self._passages)) if query.text.strip() else query

    async def reranked(self, query: Query, answer: Answer, deadline: Deadline) -> Answer:
        """The first `query.limit` results of an answer to the widened query; never raises a backend's error."""
        best, rest = answer.results[: self._passages], answer.results[self._passages :]
        if not query.text.strip() or len(best) < 2:
            return replace(answer, results=answer.results[: query.limit])
        started = self._clock()
        try:
            with deadline.applied(), span("reranking", {"rag.passages": len(best)}):
                scores = await self._reranker.scores(query.text, [result.passage.chunk.embedded for result in best])
            if len(scores) != len(best) or not all(map(math.isfinite, scores)):
                raise BackendDataError(LEG, "the reranker did not return one number per passage")
        except BackendError as error:
            report = RetrieverReport(status_of(error), self._took_ms(started), str(error))
            answer = replace(answer, warning=answer.warning or NOT_RERANKED)
        else:
            report = RetrieverReport(RetrieverStatus.OK, self._took_ms(started))
            scored = [replace(result, rerank_score=score) for result, score in zip(best, scores, strict=True)]
            best = tuple(sorted(scored, key=lambda result: -(result.rerank_score or 0.0)))
        return replace(answer, results=(*best, *rest)[: query.limit], legs={**answer.legs, LEG: report})

    def _took_ms(self, started: float) -> float:
        return (self._clock() - started) * 1000.0
