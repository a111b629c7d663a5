"""What is worth saying to an agent unasked: judges what a search returned for a prompt, or before an action.

Scores alone cannot tell: a passage is shown if both retrievers found it, it is relevant, it holds the rare terms of
the prompt, and it is of the project or of none. Everything else is withheld, each with the reason and its scores.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from rag_context.agents.units import Kind, Unit, kind_of, said, unit_of
from rag_context.domain.documents import Origin
from rag_context.domain.own_words import OTHERS, own_words
from rag_context.domain.search import Filter, Passage
from rag_context.domain.text import terms
from rag_context.ports.models import Tokenizer
from rag_context.search.query import Answer, Level, Query, Result

PROJECT_TAG = "project:"
"""A tag that begins so says which project a document belongs to; without one it belongs to none, and fits all."""

QUESTION_CHARS = 1_000
"""So much of a prompt's own words is searched for, as much as a search takes."""

CANDIDATES = 20
PER_DOCUMENT = 3
"""How many passages are judged, and how many of one document."""

GENERAL_ROUNDS = 4
"""How often documents of other projects are left out to find those of none behind them."""

FEWEST_TERMS = 2
"""A prompt of fewer terms ("continue", "yes please") says nothing that could be searched for."""

FILLERS = frozenset(
    terms(
        "yes no ok okay please thanks thank great good nice sure cool continue go ahead proceed next done again try let"
    )
)
"""Terms that steer a conversation and name no topic."""

LEAST_RELEVANCE = 0.5
LEAST_SHARE = 0.35
"""Of a passage that is shown: its calibrated relevance, and the share of the prompt's idf mass that it holds."""

MOST_SHOWN = 3

Search = Callable[[Query], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Moment:
    """When something could be said to an agent: at a prompt, or before it edits a file or runs a command.

    `text` is the prompt, the command, or what is edited; `path` the file that is edited, below the project's root.
    Without a `project_tag` nothing is said. `shown` are the ids of chunks that this session was shown already;
    `tokens_left` is what the session's budget and that of the event leave.
    """

    event: Literal["prompt", "action"]
    text: str
    project_tag: str | None
    session_id: str
    agent: str
    path: str | None = None
    shown: frozenset[str] = frozenset()
    tokens_left: int = 300


@dataclass(frozen=True, slots=True)
class Scores:
    """What a candidate was judged by: relevance and share of the idf mass 0..1, ranks from 1 (None: not found)."""

    relevance: float
    share: float
    vector_rank: int | None
    text_rank: int | None
    terms_held: int
    terms: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A passage that is said, with the message that it answers; `chunk_ids` are what it is made of."""

    text: str
    document_id: str
    chunk_ids: tuple[str, ...]
    kind: Kind
    title: str
    source: str
    session_id: str
    occurred_at: datetime
    origin: Origin
    tokens: int
    scores: Scores


@dataclass(frozen=True, slots=True)
class Withheld:
    """A candidate that is not said, and why."""

    document_id: str
    chunk_id: str
    source: str
    reason: str
    scores: Scores


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said, best first, what is not, and in one phrase why nothing is ("" if something is)."""

    passages: tuple[Shown, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class _Collected:
    """What was judged so far, and what may still be said."""

    tokens_left: int
    used: set[str]
    shown: list[Shown] = field(default_factory=list)
    withheld: list[Withheld] = field(default_factory=list)


class Gate:
    """Decides what is said.

    Args:
        search: answers a query of the agents' memory, as `Service.rank` does.
        tokenizer: counts tokens.
    """

    def __init__(self, search: Search, tokenizer: Tokenizer) -> None:
        self._search = search
        self._tokenizer = tokenizer

    async def decide(self, moment: Moment) -> Verdict:
        """What to say at a moment; nothing where the search fails."""
        if moment.project_tag is None:
            return Verdict(reason="no project")
        question = question_of(moment)
        sought = frozenset(terms(question)) - FILLERS
        if len(sought) < FEWEST_TERMS:
            return Verdict(reason="the prompt says too little")
        answers = await self._candidates(question, moment.project_tag)
        if any(answer.level is not Level.PRIMARY for answer in answers):
            return Verdict(reason="the search was not complete")
        collected = _Collected(moment.tokens_left, set(moment.shown))
        results = sorted((result for answer in answers for result in answer.results), key=_strength, reverse=True)
        for result in results:
            self._judge(result, sought, moment, collected)
        reason = "" if collected.shown else "nothing passed" if results else "nothing found"
        return Verdict(tuple(collected.shown), tuple(collected.withheld), reason)

    async def _candidates(self, question: str, tag: str) -> list[Answer]:
        """What the project's documents and those of no project say; each alone, so that neither crowds the other."""
        query = Query(question, CANDIDATES, Filter(tags=(tag,)), min_score=LEAST_RELEVANCE, per_document=PER_DOCUMENT)
        answers = [await self._search(query)]
        # No store can filter by the absence of tags: documents of projects are left out once they are known.
        others: tuple[str, ...] = ()
        for _ in range(GENERAL_ROUNDS):
            answer = await self._search(replace(query, where=Filter(without_documents=others)))
            general = tuple(result for result in answer.results if not _is_of_project(result.passage))
            if general or len(answer.results) < CANDIDATES:
                return [*answers, replace(answer, results=general)]
            others += tuple({result.passage.document_id for result in answer.results})
        return answers

    def _judge(self, result: Result, sought: frozenset[str], moment: Moment, collected: _Collected) -> None:
        passage = result.passage
        scores = _scores(result, sought)
        reason = _objection(result, scores, moment) or (
            "enough was said" if len(collected.shown) >= MOST_SHOWN else self._add(result, scores, collected)
        )
        if reason is not None:
            collected.withheld.append(Withheld(passage.document_id, passage.chunk.id, passage.source, reason, scores))

    def _add(self, result: Result, scores: Scores, collected: _Collected) -> str | None:
        """Say it, if it fits; else why it is not said."""
        passage = result.passage
        unit = unit_of(passage, result.before, result.after, self._tokenizer, collected.tokens_left)
        if unit is None:
            return "nothing of it fits" if collected.tokens_left > 0 else "no tokens left"
        if collected.used.intersection((passage.chunk.id, *unit.chunk_ids)):
            return "already said"
        collected.used.update(unit.chunk_ids)
        collected.tokens_left -= unit.tokens
        collected.shown.append(_shown(result, unit, scores))
        return None


def question_of(moment: Moment) -> str:
    """What is searched for: the prompt's own words without what is pasted, or the file and what is done with it."""
    if moment.event == "action":
        return f"{moment.path or ''} {moment.text}".strip()[:QUESTION_CHARS]
    return own_words(moment.text).replace(OTHERS, " ").strip()[:QUESTION_CHARS]


def _objection(result: Result, scores: Scores, moment: Moment) -> str | None:
    passage = result.passage
    if passage.session_id == moment.session_id:
        return "of this session"
    if result.newer is not None:
        return "a later statement gives another value"
    if passage.chunk.origin in (Origin.WEB, Origin.UNKNOWN):
        return "of unknown origin"
    if scores.relevance < LEAST_RELEVANCE:
        return "not relevant enough"
    if scores.vector_rank is None or scores.text_rank is None:
        return "found by one retriever only"
    if scores.share < LEAST_SHARE or scores.terms_held < FEWEST_TERMS:
        return "too few of the prompt's terms"
    return None


def _strength(result: Result) -> float:
    return result.ranked.score + result.ranked.candidate.share


def _scores(result: Result, sought: frozenset[str]) -> Scores:
    held = sought.intersection(terms(f"{result.passage.chunk.context}\n{said(result.passage)}"))
    share = result.ranked.candidate.share
    return Scores(result.ranked.score, share, result.vector_rank, result.text_rank, len(held), len(sought))


def _shown(result: Result, unit: Unit, scores: Scores) -> Shown:
    passage = result.passage
    return Shown(
        text=unit.text,
        document_id=passage.document_id,
        chunk_ids=unit.chunk_ids,
        kind=kind_of(passage, result.before),
        title=passage.title,
        source=passage.source,
        session_id=passage.session_id,
        occurred_at=passage.occurred_at,
        origin=passage.chunk.origin,
        tokens=unit.tokens,
        scores=scores,
    )


def _is_of_project(passage: Passage) -> bool:
    return any(tag.startswith(PROJECT_TAG) for tag in passage.metadata.tags)
