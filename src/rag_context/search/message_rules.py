"""Ranking of messages: by the kind of answer they hold, by how much of them is questions, by their conversation. Pure.

A question that begins with "when" is answered by a time, "how many" by a number, "where" by a place. Between people,
one question shares the words of another and does not answer it; with an assistant that is not so: users state much
in questions ("my flight is at nine, how do I get there?"). Values in `rules`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rag_context.domain.documents import CHAT, CODE
from rag_context.domain.provenance import is_role
from rag_context.domain.ranking_rules import Rule
from rag_context.domain.search import ChunkRef, Floats, Passage
from rag_context.search import rules
from rag_context.search.query import Mode, Query
from rag_context.search.ranking import Candidates, is_between_people

_SMALL = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million"
)
_AMOUNT = rf"\d|\b(?:{_SMALL.replace(' ', '|')}|a (?:couple|few|dozen|while)|half|several)\b"
_NUMBER = re.compile(_AMOUNT, re.IGNORECASE)
_REPEATED = re.compile(
    rf"{_AMOUNT}|\b(?:once|twice|daily|weekly|monthly|yearly)\b"
    r"|\b(?:every|each) (?:\w+ )?(?:day|night|week|month|year|morning|evening)\b",
    re.IGNORECASE,
)
_MONTH = "january|february|march|april|june|july|august|september|october|november|december"
_UNITS = (
    "second|minute|hour|day|night|morning|afternoon|evening|week|weekend|month|year|summer|winter|spring|fall|autumn"
)
_TIME = re.compile(
    rf"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|{_MONTH}|(?-i:May)|yesterday|today|tonight|tomorrow|ago|"
    rf"(?:last|next|this|past|coming|previous|following|the other|in the|on the|at the) (?:\w+ )?(?:{_UNITS})s?|"
    rf"(?:{_UNITS})s? (?:ago|before|later)|recently|lately|just now|soon|noon|midnight|birthday|christmas|easter)\b"
    r"|\b(?:19|20)\d\d\b|\b\d{1,2}(?:st|nd|rd|th)\b|\b\d{1,2}:\d\d\b|\b\d{1,2} ?[ap]\.?m\b"
    r"|\b\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b",
    re.IGNORECASE,
)
_PLACE = re.compile(r"\b(?:[Ii]n|[Aa]t|[Tt]o|[Ff]rom|[Nn]ear) (?:the )?[A-Z]\w")

_KINDS: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...] = (
    (re.compile(r"\b(?:when(?! to\b)|(?:what|which) (?:date|day|month|year|time))\b", re.IGNORECASE), _TIME),
    (re.compile(r"\bhow (?:many|much|long)\b", re.IGNORECASE), _NUMBER),
    (re.compile(r"\bhow often\b", re.IGNORECASE), _REPEATED),
    (re.compile(r"\bwhere\b", re.IGNORECASE), _PLACE),
)
"""What a question is for, and what a message that answers it holds."""

_WHEN = re.compile(r"\bwhen (?:did|was|were|has|have)\b", re.IGNORECASE)
_DAY = re.compile(
    rf"\b(?:19|20)\d\d-\d\d(?:-\d\d)?\b|\b(?:{_MONTH}|may) (?:\d{{1,2}}(?:st|nd|rd|th)?,? )?(?:19|20)\d\d\b"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)?\.? (?:{_MONTH}|may),? (?:19|20)\d\d\b",
    re.IGNORECASE,
)
_CHANGES = re.compile(r"(?:^|/)(?:change(?:s|log)|history|news|releases?(?:[-_ ]?notes)?)(?:\.\w+)?$", re.IGNORECASE)
"""Questions for a day, days in documents, and files that list changes."""

_HEAD = re.compile(
    r"^[ \t]{0,3}(?:[\[(]?\d[^\[\]()\n]{3,30}[\])]?[ \t]{1,4})?(?:\[[^\]\n]{1,63}\]:?[ \t])?", re.MULTILINE
)
"""A time stamp and a speaker before a message: they stand before every one, and answer nothing."""

_SENTENCE = re.compile(r"[^.!?\n]*+[.!?\n]*+")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class MessageFeatures:
    """What ranking needs to know of a passage of a conversation."""

    holds: tuple[bool, ...]
    """Which kinds of answers it has, in the order of `_KINDS`."""
    asked: float
    """Share of its words that stand in questions, 0..1."""

    @classmethod
    def of(cls, passage: Passage) -> "MessageFeatures":
        text = _HEAD.sub("", passage.chunk.text)
        return cls(tuple(answer.search(text) is not None for _, answer in _KINDS), question_share(text))


def question_share(text: str) -> float:
    """Share of the words of a text that stand in questions, 0..1."""
    asked = total = 0
    for sentence in _SENTENCE.findall(text):
        words = len(_WORD.findall(sentence))
        total += words
        asked += words if "?" in sentence[-3:] else 0
    return asked / total if total else 0.0


def kinds_of_answer(question: str) -> tuple[int, ...]:
    """What a question is for, by the places in `MessageFeatures.holds`."""
    return tuple(kind for kind, (asks, _) in enumerate(_KINDS) if asks.search(question) is not None)


def ranks_messages(query: Query, chunks: Sequence[ChunkRef]) -> bool:
    """Whether some of these are messages that a rule ranks by what they say."""
    if query.mode is not Mode.HYBRID:
        return False
    by_kind = Rule.ANSWER not in query.without and bool(kinds_of_answer(query.text))
    by_share = Rule.QUESTIONS not in query.without
    return any(chunk.content_type == CHAT and (by_kind or (by_share and is_between_people(chunk))) for chunk in chunks)


class KnownMessages:
    """Features of passages of conversations: a chunk that keeps its id keeps its text. Any thread may use it."""

    def __init__(self) -> None:
        self._known: dict[str, MessageFeatures] = {}

    def unknown(self, chunks: Iterable[ChunkRef]) -> list[str]:
        """Ids of the messages that are not known yet."""
        known = self._known
        return [chunk.id for chunk in chunks if chunk.content_type == CHAT and chunk.id not in known]

    def add(self, passages: Mapping[str, Passage]) -> None:
        """Remember what there is to know of messages."""
        # A new table when it is full: searches in other threads go on with the one that they have.
        known = {} if len(self._known) + len(passages) > rules.KNOWN_MESSAGES else self._known
        known.update((id_, MessageFeatures.of(passage)) for id_, passage in passages.items())
        self._known = known

    def features(self, candidates: Candidates) -> dict[int, MessageFeatures]:
        """The known features of the candidates, by row."""
        found = ((row, self._known.get(chunk.id)) for row, chunk in enumerate(candidates.chunks))
        return {row: features for row, features in found if features is not None}


def by_answer(question: str, fused: Floats, features: Mapping[int, MessageFeatures]) -> Floats:
    """Scores, `(n,)`, those of messages (`features`, by row) that hold what the question is for raised."""
    kinds = kinds_of_answer(question)
    holding = [row for row, each in features.items() if any(each.holds[kind] for kind in kinds)]
    raised = fused.copy()
    raised[holding] += rules.ANSWER_WEIGHT * float(fused.max(initial=0.0))
    return raised


def asks_when(query: Query) -> bool:
    """Whether a question is for the day on which something happened, which documents tell too."""
    is_ranked = query.mode is Mode.HYBRID and Rule.ANSWER not in query.without
    return is_ranked and _WHEN.search(query.text) is not None


def by_date(fused: Floats, chunks: Sequence[ChunkRef], passages: Mapping[str, Passage]) -> Floats:
    """Scores, `(n,)`, those of passages of documents that state a day, or are of a list of changes, raised."""
    raised, gain = fused.copy(), rules.ANSWER_WEIGHT * float(fused.max(initial=0.0))
    for row, chunk in enumerate(chunks):
        passage = passages.get(chunk.id)
        if passage is not None and chunk.content_type not in (CHAT, CODE):
            is_dated = _DAY.search(passage.chunk.searchable) is not None or _CHANGES.search(passage.source) is not None
            raised[row] += gain if is_dated else 0.0
    return raised


def by_questions(fused: Floats, chunks: Iterable[ChunkRef], features: Mapping[int, MessageFeatures]) -> Floats:
    """Scores, `(n,)`, of which messages between people lose by the share of them that is questions."""
    asked = np.zeros_like(fused)
    for row, chunk in enumerate(chunks):
        if row in features and is_between_people(chunk):
            asked[row] = features[row].asked
    lowered: Floats = fused * (1.0 - rules.QUESTION_WEIGHT * asked)
    return lowered


def said_by_other(speaker: str | None, candidates: Candidates) -> str | None:
    """Who said what is much nearer to a question about `speaker` than all that this person said; None if no one did."""
    if speaker is None or is_role(speaker):
        return None
    scores = candidates.scores
    near = np.nan_to_num(scores.cosines) + rules.OTHER_SPEAKER_SHARE * scores.shares
    best: dict[str, float] = {}
    for chunk, score in zip(candidates.chunks, near.tolist(), strict=True):
        if chunk.speaker is not None and is_between_people(chunk):
            best[chunk.speaker] = max(score, best.get(chunk.speaker, -1.0))
    other = max(best, key=lambda name: best[name], default=speaker)
    is_nearer = best.get(other, 0.0) >= best.get(speaker, 0.0) + rules.OTHER_SPEAKER_MARGIN
    return other if is_nearer else None


def with_session_prior(scores: Floats, chunks: Sequence[ChunkRef], conversations: Mapping[str, float]) -> Floats:
    """Scores, `(n,)`, of which messages gain by their conversation.

    Between people by the BM25 of the question in all of it, where `conversations` has that: they keep to a subject for
    an evening. With an assistant, where one conversation has many subjects, by the best of its messages.
    """
    best: dict[str, list[float]] = {}
    for chunk, score in zip(chunks, scores.tolist(), strict=True):
        if chunk.thread is not None:
            best.setdefault(chunk.thread, []).append(score)
    if not best:
        return scores
    # Not of all its messages: a long conversation has many that say nothing of the question.
    prior = {thread: float(np.mean(sorted(found)[-rules.SESSION_MESSAGES :])) for thread, found in best.items()}
    largest = max(conversations.values(), default=0.0)
    if largest > 0.0:
        prior.update((thread, score / largest) for thread, score in conversations.items())
    gains = np.array([prior.get(chunk.thread or "", 0.0) for chunk in chunks], dtype=np.float64)
    summed: Floats = scores + rules.SESSION_WEIGHT * gains
    return summed
