"""What is worth saying to an agent unasked: judges what a search returned for a prompt, or before an action.

One score cannot tell (docs/hooks.md has the curve). What counts is what a passage is, of which project, and by whom;
for a prompt how relevant it is, which of the prompt's terms and names it holds, and whether the prompt is an everyday
chore; before an action, whether it speaks of that file or command. Everything else is withheld, each with the reason.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from rag_context.agents.prompts import Sought, command_words, file_pattern, mentions, sought_by
from rag_context.agents.units import Found, Kind, Unit, gives_reason, orders, rendered, said, units_of
from rag_context.domain.documents import PROJECT_TAG, Origin
from rag_context.domain.provenance import USER
from rag_context.domain.search import Filter, Passage
from rag_context.domain.text import terms
from rag_context.ports.models import Tokenizer
from rag_context.search.query import Answer, Level, Query, Result

CANDIDATES = 20
CANDIDATES_AT_ACTION = 60
PER_DOCUMENT = 6
"""How many passages are judged, before an action more, as reports on a file outnumber what was decided about it; and
how many of one document: enough for a question with what came of it."""

GENERAL_RELEVANCE = 0.3
GENERAL_ROUNDS = 4
"""Least relevance of what belongs to no project, and how often documents of others are left out to find it."""

COVERAGE_LOG_ODDS = 2.0
NAME_LOG_ODDS = 1.5
EVERYDAY = (Kind.REQUEST, Kind.REPORT)
EVERYDAY_WEIGHT = 1.0
"""Messages that decide nothing: a prompt that is nearer to the best of them is everyday work itself. A passage loses as
much as it is less relevant than that, times this weight."""

FEW_TERMS = 3
"""A prompt of fewer terms is not wholly covered by a passage that holds them all."""

NOTHING_HELD_LOG_ODDS = -1.5
INSTRUCTION_LOG_ODDS = 1.0
CHORE_LOG_ODDS = -0.75
"""What a passage gains that holds all of the prompt's terms, or one of its identifiers, and loses that holds none; what
an instruction gains, which says little of what it applies to; and what all lose where the prompt is for everyday work.
In log-odds, where they can be added to the relevance."""

REPLY_LOG_ODDS = -1.0
UNREASONED_LOG_ODDS = -2.5
"""What a reply of an agent loses that answers no question, or that gives no reason and no figure: many only report."""

BAR = 0.75
"""Least strength of what is said at a prompt. What has nothing to do with the memory then gets nothing in 95 % on two
parts of a labelled set, on which the weights were chosen. `python -m benchmarks.gate` shows the hold-out too."""

MOST_AT_PROMPT = 3
MOST_AT_ACTION = 2
"""Most units that are said at once."""

MOST_INSTRUCTIONS = 3
"""How many standing instructions a digest begins with."""

NEARLY_THE_SAME = 0.6
"""Share of the terms of the shorter of two units that the other has too, from which only the newer is said."""

NOTED_WITHHELD = 8
"""So many of the best that are withheld are noted."""

Search = Callable[[Query], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Moment:
    """When something could be said to an agent: at a prompt, or before it edits a file or runs a command.

    `text` is the prompt, the command, or what is edited; `path` the file that is edited. Without a `project_tag`
    nothing is said. `shown` are the ids of chunks that this session was shown already (`Shown.chunk_ids`);
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
    """What a candidate was judged by.

    `relevance` is calibrated, `coverage` the share of the prompt's terms that it holds, both 0..1; `names` whether it
    holds one of the prompt's identifiers, or speaks of the file or the command; ranks count from 1 (None: not among
    the candidates of that retriever).
    """

    strength: float = 0.0
    relevance: float = 0.0
    coverage: float = 0.0
    names: bool = False
    is_chore: bool = False
    everyday: float = 0.0
    vector_rank: int | None = None
    text_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """A unit that is said; `chunk_ids` are those of all messages that it is made of."""

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
    note: str = ""
    """What became of what it cites."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """A unit that is not said, and why."""

    document_id: str
    chunk_id: str
    source: str
    reason: str
    scores: Scores


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said, best first, the best of what is not, and in one phrase why nothing is ("" if something is)."""

    passages: tuple[Shown, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A unit with its scores, and why it cannot be said whatever else is; None if it can."""

    unit: Unit
    scores: Scores
    objection: str | None
    terms: frozenset[str]


@dataclass(slots=True)
class _Said:
    """What is said so far, and what may still be."""

    most: int
    tokens_left: int
    used: set[str]
    shown: list[Shown] = field(default_factory=list)
    withheld: list[Withheld] = field(default_factory=list)


class Gate:
    """Decides what is said.

    `search` is that of `Service.rank`; `bar` is the least strength of what is said at a prompt.
    """

    def __init__(self, search: Search, tokenizer: Tokenizer, bar: float = BAR) -> None:
        self._search = search
        self._tokenizer = tokenizer
        self._bar = bar

    async def decide(self, moment: Moment) -> Verdict:
        """What to say at a moment; nothing where the search is not complete."""
        if moment.project_tag is None:
            return Verdict(reason="no project")
        sought, speaks_of = _sought(moment)
        if not sought.terms and not sought.names:
            return Verdict(
                reason="the prompt says too little" if moment.event == "prompt" else "the action says too little"
            )
        limit = CANDIDATES if moment.event == "prompt" else CANDIDATES_AT_ACTION
        answers = await self._candidates(sought.text, limit, moment.project_tag)
        if any(answer.level is not Level.PRIMARY for answer in answers):
            return Verdict(reason="the search was not complete")
        results = {result.passage.chunk.id: result for answer in answers for result in answer.results}
        found = [(unit, [results[id_] for id_ in unit.found]) for unit in units_of(results.values())]
        if moment.event == "prompt":
            everyday = max((_relevance(by) for unit, by in found if _is_everyday(unit)), default=0.0)
            judged = [self._for_prompt(unit, by, sought, everyday, moment) for unit, by in found]
            judged.sort(key=lambda each: each.scores.strength, reverse=True)
        else:
            judged = [_for_action(unit, by, speaks_of, moment) for unit, by in found]
            judged.sort(key=lambda each: each.unit.conclusion.occurred_at, reverse=True)
        return self._verdict(_without_outdated(judged), moment)

    async def _candidates(self, text: str, limit: int, tag: str) -> list[Answer]:
        """What the project's documents and those of no project say; each alone, so that neither crowds the other."""
        query = Query(text, limit, Filter(tags=(tag,)), min_score=0.0, per_document=PER_DOCUMENT)
        answers = [await self._search(query)]
        # No store can filter by the absence of tags: documents of projects are left out once they are known.
        query, others = replace(query, min_score=GENERAL_RELEVANCE), set[str]()
        for _ in range(GENERAL_ROUNDS):
            answer = await self._search(replace(query, where=Filter(without_documents=tuple(sorted(others)))))
            general = tuple(result for result in answer.results if not _is_of_project(result.passage))
            if general or len(answer.results) < limit:
                return [*answers, replace(answer, results=general)]
            others.update(result.passage.document_id for result in answer.results)
        return answers

    def _for_prompt(
        self, unit: Unit, results: Sequence[Result], sought: Sought, everyday: float, moment: Moment
    ) -> _Candidate:
        text = f"{unit.conclusion.chunk.context}\n{unit.text}"
        own = frozenset(terms(text))
        coverage = len(sought.terms & own) / max(len(sought.terms), FEW_TERMS)
        names = any(name in text.lower() for name in sought.names)
        scores = _scores(unit, results, coverage, names, everyday, is_chore=sought.is_chore)
        objection = _objection(unit, results, moment)
        if objection is None and scores.strength < self._bar:
            objection = "not strong enough"
        return _Candidate(unit, scores, objection, own)

    def _verdict(self, judged: Iterable[_Candidate], moment: Moment) -> Verdict:
        most = MOST_AT_PROMPT if moment.event == "prompt" else MOST_AT_ACTION
        so_far = _Said(most, moment.tokens_left, set(moment.shown))
        for candidate in judged:
            reason = candidate.objection or self._say(candidate, so_far)
            if reason is not None and len(so_far.withheld) < NOTED_WITHHELD:
                so_far.withheld.append(_withheld(candidate, reason))
        reason = "" if so_far.shown else "nothing passed" if so_far.withheld else "nothing found"
        return Verdict(tuple(so_far.shown), tuple(so_far.withheld), reason)

    def _say(self, candidate: _Candidate, so_far: _Said) -> str | None:
        """Say a unit, if it is new and fits; else why it is not said."""
        if len(so_far.shown) >= so_far.most:
            return "enough is said"
        if candidate.unit.conclusion.chunk.id in so_far.used:
            return "already said"
        if so_far.tokens_left <= 0:
            return "no tokens left"
        text, tokens = rendered(candidate.unit, self._tokenizer, so_far.tokens_left)
        if not text:
            return "it does not fit"
        shown = _shown(candidate.unit, text, tokens, candidate.scores)
        so_far.used.update(shown.chunk_ids)
        so_far.tokens_left -= tokens
        so_far.shown.append(shown)
        return None


def digest(found: Iterable[Found], tokenizer: Tokenizer, *, most: int, unit_tokens: int) -> list[Shown]:
    """What an agent is shown at the start of a session: what the owner of the project wants, and what was decided last.

    Standing instructions come first, then decisions, the last ones first. Of those that say nearly the same, the newest
    is shown.
    """
    kept = (
        unit
        for unit in units_of(found)
        if unit.kind in (Kind.INSTRUCTION, Kind.DECISION)
        and unit.conclusion.chunk.origin not in (Origin.WEB, Origin.UNKNOWN)
    )
    judged = [_Candidate(unit, Scores(), _distrust(unit), frozenset(terms(unit.text))) for unit in kept]
    units = [each.unit for each in _without_outdated(judged) if each.objection is None]
    units.sort(key=lambda unit: unit.conclusion.occurred_at, reverse=True)
    instructions = [unit for unit in units if unit.kind is Kind.INSTRUCTION][:MOST_INSTRUCTIONS]
    decisions = [unit for unit in units if unit.kind is Kind.DECISION]
    texts = [(unit, *rendered(unit, tokenizer, unit_tokens)) for unit in (*instructions, *decisions)[:most]]
    return [_shown(unit, text, tokens, Scores()) for unit, text, tokens in texts if text]


def _sought(moment: Moment) -> tuple[Sought, Callable[[str], bool]]:
    """What is searched for, and whether a text speaks of the file or the command."""
    if moment.event == "prompt":
        return sought_by(moment.text), lambda _text: False
    if moment.path is not None:
        pattern = file_pattern(moment.path)
        return Sought(moment.path, frozenset(terms(moment.path))), lambda text: pattern.search(text) is not None
    words = command_words(moment.text)
    return Sought(" ".join(words), frozenset(terms(" ".join(words)))), lambda text: mentions(text, words)


def _for_action(unit: Unit, results: Sequence[Result], speaks_of: Callable[[str], bool], moment: Moment) -> _Candidate:
    passages = [*unit.passages, *(result.passage for result in results)]
    names = any(speaks_of(said(passage)) for passage in passages)
    objection = _objection(unit, results, moment)
    if objection is None and not names:
        objection = "it does not speak of the file" if moment.path else "it does not speak of the command"
    doubt = _doubt(unit)
    if objection is None and (unit.kind is Kind.ANSWER or doubt == UNREASONED_LOG_ODDS or (doubt and moment.path)):
        objection = "it decides nothing"
    return _Candidate(
        unit, _scores(unit, results, 0.0, names, 0.0, is_chore=False), objection, frozenset(terms(unit.text))
    )


def _objection(unit: Unit, results: Sequence[Result], moment: Moment) -> str | None:
    """What speaks against a unit whatever its scores."""
    conclusion = unit.conclusion
    if conclusion.session_id == moment.session_id:
        return "of this session"
    if unit.kind in (Kind.QUESTION, Kind.REQUEST, Kind.REPORT, Kind.CODE):
        return f"a {unit.kind} that decides nothing"
    if unit.kind is Kind.STATEMENT and unit.question is None and conclusion.chunk.speaker not in (None, USER):
        return "a statement that answers nothing"
    if any(result.newer is not None for result in results if result.passage.chunk.id == conclusion.chunk.id):
        return "a later statement gives another value"
    return _distrust(unit)


def _distrust(unit: Unit) -> str | None:
    """Why a unit is not said because of whose words it is."""
    if any(passage.chunk.origin in (Origin.WEB, Origin.UNKNOWN) and orders(said(passage)) for passage in unit.passages):
        return "it gives orders that are not the owner's"
    return None


def _without_outdated(judged: Sequence[_Candidate]) -> list[_Candidate]:
    """The same with an objection to those of which a newer one, that could be said, says nearly the same."""
    sayable = [each for each in judged if each.objection is None]

    def is_outdated(each: _Candidate) -> bool:
        return each.objection is None and any(
            other.unit.conclusion.occurred_at > each.unit.conclusion.occurred_at
            and len(each.terms & other.terms) >= NEARLY_THE_SAME * min(len(each.terms), len(other.terms))
            for other in sayable
        )

    reason = "a newer one says nearly the same"
    return [replace(each, objection=reason) if is_outdated(each) else each for each in judged]


def _scores(
    unit: Unit, results: Sequence[Result], coverage: float, names: bool, everyday: float, *, is_chore: bool
) -> Scores:
    relevance = _relevance(results)
    vector = [result.vector_rank for result in results if result.vector_rank is not None]
    text = [result.text_rank for result in results if result.text_rank is not None]
    strength = (
        _log_odds(relevance)
        + (COVERAGE_LOG_ODDS * coverage + NAME_LOG_ODDS * names if coverage or names else NOTHING_HELD_LOG_ODDS)
        + INSTRUCTION_LOG_ODDS * (unit.kind is Kind.INSTRUCTION)
        + CHORE_LOG_ODDS * is_chore
        + _doubt(unit)
        - EVERYDAY_WEIGHT * max(0.0, _log_odds(everyday) - _log_odds(relevance))
    )
    return Scores(
        strength,
        relevance,
        coverage,
        names,
        is_chore,
        everyday,
        vector_rank=min(vector, default=None),
        text_rank=min(text, default=None),
    )


def _is_everyday(unit: Unit) -> bool:
    return unit.kind in EVERYDAY or _doubt(unit) == UNREASONED_LOG_ODDS


def _doubt(unit: Unit) -> float:
    """What a unit loses, in log-odds, whose wording does not say that it decides or explains something."""
    is_reply = unit.conclusion.chunk.speaker not in (None, USER) and unit.kind in (Kind.STATEMENT, Kind.ANSWER)
    if is_reply and not gives_reason(said(unit.conclusion)):
        return UNREASONED_LOG_ODDS
    return REPLY_LOG_ODDS if is_reply and unit.kind is Kind.STATEMENT else 0.0


def _relevance(results: Sequence[Result]) -> float:
    return max(result.ranked.score for result in results)


def _log_odds(relevance: float) -> float:
    within = min(max(relevance, 1e-6), 1.0 - 1e-6)
    return math.log(within / (1.0 - within))


def _shown(unit: Unit, text: str, tokens: int, scores: Scores) -> Shown:
    conclusion = unit.conclusion
    return Shown(
        text=text,
        document_id=conclusion.document_id,
        chunk_ids=unit.chunk_ids,
        kind=unit.kind,
        title=conclusion.title,
        source=conclusion.source,
        session_id=conclusion.session_id,
        occurred_at=conclusion.occurred_at,
        origin=conclusion.chunk.origin,
        tokens=tokens,
        scores=scores,
    )


def _withheld(candidate: _Candidate, reason: str) -> Withheld:
    conclusion = candidate.unit.conclusion
    return Withheld(conclusion.document_id, conclusion.chunk.id, conclusion.source, reason, candidate.scores)


def _is_of_project(passage: Passage) -> bool:
    return any(tag.startswith(PROJECT_TAG) for tag in passage.metadata.tags)
