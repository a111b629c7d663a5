"""What reorders an answer at the end of a search: a reranker, and later statements above those that they replace.

A reranker is a model that reads the question with each passage. It takes what is left of the deadline; where it fails
or is late, the order of the search stands: nothing else of an answer depends on it.

Of two messages that say nearly the same with different values, the later is moved above the earlier. Messages only:
files have the time of their last change, which says nothing of what they state. The older one is marked with what is
newer. The mark says that a later statement gives another value, not that the older one is wrong; both are returned.
"""

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rag_context.domain.documents import CHAT
from rag_context.domain.provenance import USER, is_role
from rag_context.domain.text import terms
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendDataError, BackendError
from rag_context.ports.models import Reranker
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency
from rag_context.search import rules
from rag_context.search.query import Answer, Query, Result, RetrieverReport, RetrieverStatus
from rag_context.search.retrievers import status_of
from rag_context.tracing import span

LEG = "rerank"
NOT_RERANKED = "The reranker did not answer, passages are in the order of the search"


class Reranking:
    """Reranks answers."""

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


_ASKS_FOR_VALUE = re.compile(r"\b(?:what|when|which|where|who|how (?!to\b)\w+)\b", re.IGNORECASE)
_OF_MORE_THAN_NOW = re.compile(
    r"\b(?:between|passed|at first|originally|initially|order|across|over time|differ\w*|compar\w*|used to|was|were|"
    r"did|told|so far|sequence|history|changed|summar\w*|overviews?|recap\w*)\b",
    re.IGNORECASE,
)
_WORDS = (
    r"two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|"
    r"nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|"
    r"monday|tuesday|wednesday|thursday|friday|saturday|sunday|"
    r"january|february|march|april|june|july|august|september|october|november|december"
)
_VALUE = re.compile(rf"\d+(?:[.,:/-]\d+)*|\b(?:{_WORDS})(?=s?\b)", re.IGNORECASE)
_CHANGE = re.compile(
    r"\b(?:now|updated?|new|currently|moved|increased|decreased|raised|instead|no longer|any ?more|switched|changed|"
    r"rescheduled|postponed|from now on|these days|meanwhile)\b",
    re.IGNORECASE,
)


def asks_for_value(text: str) -> bool:
    """Whether a question is for what holds now, and not for how it came about."""
    return _ASKS_FOR_VALUE.search(text) is not None and _OF_MORE_THAN_NOW.search(text) is None


def values_in(text: str) -> frozenset[str]:
    """The numbers, times, dates and weekdays of a text."""
    return frozenset(found.lower() for found in _VALUE.findall(text))


def contenders(text: str, results: Sequence[Result]) -> tuple[int, Sequence[int]]:
    """Which result may be outdated, and which may be newer, as far as their texts say; best first, none without any."""
    best = results[: rules.NEWER_AMONG]
    values = [values_in(each.passage.chunk.text) if each.passage.content_type == CHAT else frozenset() for each in best]
    has_roles = any(is_role(result.passage.chunk.speaker or "") for result in results)
    # Between a user and an assistant the user alone states what holds.
    anchor = next(
        (
            row
            for row, found in enumerate(values)
            if found and (not has_roles or results[row].passage.chunk.speaker == USER)
        ),
        None,
    )
    if anchor is None:
        return 0, ()
    old = results[anchor]
    question = set(terms(text)).difference(terms(old.passage.chunk.speaker or ""))  # the name stands in all they said
    shared = question.intersection(terms(old.passage.chunk.searchable))
    least = rules.NEWER_SCORE * old.ranked.fused
    # Each must have a value that the other has not: a text that only adds some contradicts nothing.
    found = [
        row
        for row, own in enumerate(values)
        if own - values[anchor]
        and values[anchor] - own
        and results[row].passage.occurred_at > old.passage.occurred_at
        and results[row].passage.chunk.speaker == old.passage.chunk.speaker
        and _weight(results[row]) >= least
        and len(shared.intersection(terms(results[row].passage.chunk.searchable))) >= rules.NEWER_SHARE * len(question)
    ]
    return anchor, found


def newer_first(
    results: Sequence[Result], anchor: int, found: Sequence[int], vectors: Mapping[str, Vector]
) -> tuple[Result, ...]:
    """The results with those of `found` that say nearly the same as `anchor` right above it, the newest first."""
    old = results[anchor]
    own = vectors.get(old.passage.chunk.id)
    near = [
        row
        for row in found
        if own is not None
        and (other := vectors.get(results[row].passage.chunk.id)) is not None
        and float(own @ other) >= rules.NEWER_COSINE
    ]
    kept = sorted(near, key=lambda row: -_weight(results[row]))[: rules.NEWER_KEPT]
    if not kept:
        return tuple(results)
    newest = sorted(kept, key=lambda row: results[row].passage.occurred_at, reverse=True)
    marked = replace(old, newer=results[newest[0]].passage)
    above = [results[row] for row in newest]
    rest = [result for row, result in enumerate(results) if row != anchor and row not in kept]
    position = anchor - sum(row < anchor for row in kept)
    return (*rest[:position], *above, marked, *rest[position:])


def _weight(result: Result) -> float:
    changes = _CHANGE.search(result.passage.chunk.text) is not None
    return result.ranked.fused * (rules.CHANGE_FACTOR if changes else 1.0)
