"""What is worth saying to an agent unasked: judges what a search returned for a prompt, or before an action.

One score cannot tell (docs/design/gate.md has the curve). What counts is what a passage is, of which project, by whom;
for a prompt how far it stands out among the project's passages, and which of the prompt's terms and names it holds;
before an action, whether it speaks of that file or command. Everything else is withheld, each with the reason.
"""

import math
import statistics
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from rag_context.agents.prompts import Sought, command_words, file_pattern, mentions, sought_by
from rag_context.agents.units import Found, Kind, Unit, gives_reason, orders, rendered, said, units_of
from rag_context.domain.documents import PROJECT_TAG, Origin
from rag_context.domain.provenance import USER
from rag_context.domain.search import Filter
from rag_context.domain.text import terms
from rag_context.ports.models import Tokenizer
from rag_context.search.query import Answer, Level, Query, Result

CANDIDATES = 60
PER_DOCUMENT = 6
"""How many passages are judged, as reports on a file outnumber what was decided about it; and how many of one document:
enough for a question with what came of it."""

GENERAL_RELEVANCE = 0.3
GENERAL_ROUNDS = 4
"""Least relevance of what belongs to no project, and how often documents of others are left out to find it."""

BACKGROUND = 20
BACKGROUND_LOG_ODDS = -2.0
"""So many of the most relevant passages are what a unit must stand out from; and how relevant those are that a small
project does not have, near the median of larger ones."""

FEW_TERMS = 3
"""A prompt of fewer terms is not wholly covered by a passage that holds them all."""

WEIGHTS = {
    "constant": -2.63,
    "conclusion": 0.24,
    "margin": 0.73,
    "coverage": 1.37,
    "names": 1.30,
    "nearest": 0.92,
    "by terms": 0.82,
    "instruction": 0.63,
    "answer": -0.87,
    "statement of an agent": -2.76,
    "without a reason": -1.48,
}
"""What strength is made of, in log-odds: a logistic regression over what `features` gives, fitted by
`python -m benchmarks.gate_fit` to the parts of the labelled set for choosing and reporting."""

BAR = 0.45
"""Least strength of what is said at a prompt; `python -m benchmarks.gate` shows what others come to."""

MOST_AT_PROMPT = 3
MOST_AT_ACTION = 2
"""Most units that are said at once."""

MOST_INSTRUCTIONS = 3
"""How many standing instructions a digest begins with."""

NEARLY_THE_SAME = 0.6
"""Share of the terms of the shorter of two units that the other has too, from which only the newer is said."""

NOTED_WITHHELD = 8
"""So many of the best that are withheld are noted."""

NOT_STRONG = "not strong enough"

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

    `relevance` is calibrated; `conclusion` is that of its conclusion alone, in log-odds, and `margin` how far it stands
    out from the background, in deviations. `coverage` is the share of the prompt's terms that it holds, `names` whether
    it holds one of the prompt's identifiers, or speaks of the file or the command. Ranks count from 1 (None: not among
    the candidates of that retriever).
    """

    strength: float = 0.0
    relevance: float = 0.0
    conclusion: float = 0.0
    margin: float = 0.0
    coverage: float = 0.0
    names: bool = False
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
class Candidate:
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
        judged = await self.judged(moment)
        return Verdict(reason=judged) if isinstance(judged, str) else self._verdict(_without_outdated(judged), moment)

    async def judged(self, moment: Moment) -> list[Candidate] | str:
        """All candidates, best first; or in one phrase why there are none."""
        if moment.project_tag is None:
            return "no project"
        sought, speaks_of = _sought(moment)
        if not sought.terms and not sought.names:
            return "the prompt says too little" if moment.event == "prompt" else "the action says too little"
        answers = await self._candidates(sought.text, moment.project_tag)
        if any(answer.level is not Level.PRIMARY for answer in answers):
            return "the search was not complete"
        results = {result.passage.chunk.id: result for answer in answers for result in answer.results}
        found = [(unit, [results[id_] for id_ in unit.found]) for unit in units_of(results.values())]
        if moment.event == "prompt":
            background = _background(results.values())
            judged = [self._for_prompt(unit, by, sought, background, moment) for unit, by in found]
            return sorted(judged, key=lambda each: each.scores.strength, reverse=True)
        judged = [_for_action(unit, by, speaks_of, moment) for unit, by in found]
        return sorted(judged, key=lambda each: each.unit.conclusion.occurred_at, reverse=True)

    async def _candidates(self, text: str, tag: str) -> list[Answer]:
        """What the project's documents and those of no project say; each alone, so that neither crowds the other."""
        query = Query(text, CANDIDATES, Filter(tags=(tag,)), min_score=0.0, per_document=PER_DOCUMENT)
        answers = [await self._search(query)]
        # No store can filter by the absence of tags: documents of projects are left out once they are known.
        query, others = replace(query, min_score=GENERAL_RELEVANCE), set[str]()
        for _ in range(GENERAL_ROUNDS):
            answer = await self._search(replace(query, where=Filter(without_documents=tuple(sorted(others)))))
            general = tuple(
                result
                for result in answer.results
                if not any(tag.startswith(PROJECT_TAG) for tag in result.passage.metadata.tags)
            )
            if general or len(answer.results) < CANDIDATES:
                return [*answers, replace(answer, results=general)]
            others.update(result.passage.document_id for result in answer.results)
        return answers

    def _for_prompt(
        self, unit: Unit, results: Sequence[Result], sought: Sought, background: tuple[float, float], moment: Moment
    ) -> Candidate:
        text = f"{unit.conclusion.chunk.context}\n{unit.text}"
        own = frozenset(terms(text))
        scores = _scores(
            results,
            conclusion=next(
                (log_odds(r) for r in results if r.passage.chunk.id == unit.conclusion.chunk.id), background[0]
            ),
            margin=(max(map(log_odds, results)) - background[0]) / background[1],
            coverage=len(sought.terms & own) / max(len(sought.terms), FEW_TERMS),
            names=any(name in text.lower() for name in sought.names),
        )
        strength = sum(weight * value for weight, value in zip(WEIGHTS.values(), features(unit, scores), strict=True))
        objection = _objection(unit, results, moment)
        if objection is None and strength < self._bar:
            objection = NOT_STRONG
        return Candidate(unit, replace(scores, strength=strength), objection, own)

    def _verdict(self, judged: Iterable[Candidate], moment: Moment) -> Verdict:
        most = MOST_AT_PROMPT if moment.event == "prompt" else MOST_AT_ACTION
        so_far = _Said(most, moment.tokens_left, set(moment.shown))
        for candidate in judged:
            reason = candidate.objection or self._say(candidate, so_far)
            if reason is not None and len(so_far.withheld) < NOTED_WITHHELD:
                at = candidate.unit.conclusion
                so_far.withheld.append(Withheld(at.document_id, at.chunk.id, at.source, reason, candidate.scores))
        reason = "" if so_far.shown else "nothing passed" if so_far.withheld else "nothing found"
        return Verdict(tuple(so_far.shown), tuple(so_far.withheld), reason)

    def _say(self, candidate: Candidate, so_far: _Said) -> str | None:
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
    judged = [Candidate(unit, Scores(), _distrust(unit), frozenset(terms(unit.text))) for unit in kept]
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


def _for_action(unit: Unit, results: Sequence[Result], speaks_of: Callable[[str], bool], moment: Moment) -> Candidate:
    passages = [*unit.passages, *(result.passage for result in results)]
    names = any(speaks_of(said(passage)) for passage in passages)
    objection = _objection(unit, results, moment)
    if objection is None and not names:
        objection = "it does not speak of the file" if moment.path else "it does not speak of the command"
    is_reply = _is_reply(unit)
    is_reasoned = gives_reason(said(unit.conclusion))
    if objection is None and (unit.kind is Kind.ANSWER or (is_reply and (moment.path or not is_reasoned))):
        objection = "it decides nothing"
    return Candidate(unit, _scores(results, names=names), objection, frozenset(terms(unit.text)))


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


def _without_outdated(judged: Sequence[Candidate]) -> list[Candidate]:
    """The same with an objection to those of which a newer one, that could be said, says nearly the same."""
    sayable = [each for each in judged if each.objection is None]

    def is_outdated(each: Candidate) -> bool:
        return each.objection is None and any(
            other.unit.conclusion.occurred_at > each.unit.conclusion.occurred_at
            and len(each.terms & other.terms) >= NEARLY_THE_SAME * min(len(each.terms), len(other.terms))
            for other in sayable
        )

    reason = "a newer one says nearly the same"
    return [replace(each, objection=reason) if is_outdated(each) else each for each in judged]


def features(unit: Unit, scores: Scores) -> tuple[float, ...]:
    """What `WEIGHTS` weigh, in their order."""
    is_reply = _is_reply(unit)
    is_reasoned = gives_reason(said(unit.conclusion))
    return (
        1.0,
        scores.conclusion,
        scores.margin,
        scores.coverage,
        scores.names,
        scores.vector_rank == 1,
        1.0 / scores.text_rank if scores.text_rank is not None else 0.0,
        unit.kind is Kind.INSTRUCTION,
        unit.kind is Kind.ANSWER,
        is_reply and is_reasoned and unit.kind is Kind.STATEMENT,
        is_reply and not is_reasoned,
    )


def log_odds(result: Result) -> float:
    """The relevance of a result where it can be added to others."""
    within = min(max(result.ranked.score, 1e-6), 1.0 - 1e-6)
    return math.log(within / (1.0 - within))


def _background(results: Iterable[Result]) -> tuple[float, float]:
    """The median of what a unit must stand out from, and its deviation, which is never small."""
    best = sorted(map(log_odds, results), reverse=True)[:BACKGROUND]
    best += [BACKGROUND_LOG_ODDS] * (BACKGROUND - len(best))
    return statistics.median(best), statistics.pstdev(best) + 0.5


def _scores(results: Sequence[Result], **judged: float) -> Scores:
    vector = [result.vector_rank for result in results if result.vector_rank is not None]
    text = [result.text_rank for result in results if result.text_rank is not None]
    return Scores(
        relevance=max(result.ranked.score for result in results),
        vector_rank=min(vector, default=None),
        text_rank=min(text, default=None),
        **judged,  # type: ignore[arg-type]
    )


def _is_reply(unit: Unit) -> bool:
    """Whether it is what an agent replied, without saying that anything was decided or repaired."""
    return unit.conclusion.chunk.speaker not in (None, USER) and unit.kind in (Kind.STATEMENT, Kind.ANSWER)


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
