"""Later statements above those that they replace. Pure.

Of two statements that say nearly the same with different values the later is moved above the earlier, which is marked
with what is newer. The mark says that a later statement gives another value, not that the older one is wrong; both are
returned. A value counts only if it is of the type that the question is for: most messages on a subject hold some number
that others do not. What a file states counts where its time is its own; the time of its last change says nothing of it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rag_context.domain.documents import CHAT, CODE, Origin
from rag_context.domain.provenance import USER, is_role
from rag_context.domain.search import Passage
from rag_context.domain.text import query_terms, terms
from rag_context.domain.vectors import Vector
from rag_context.search import rules
from rag_context.search.query import Result

_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_WEEKDAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_SMALL = (
    "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|"
    "nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand"
)
_DATE = re.compile(
    rf"\d{{4}}-\d\d(?:-\d\d)?|\b\d{{1,2}}(?:st|nd|rd|th)?(?: of)? (?:{_MONTHS})\b|\b(?:{_MONTHS}) \d{{1,2}}\b(?!:)"
    rf"|\b\d{{1,2}}[:.]\d\d\b(?! ?(?:%|euros?|dollars?|pounds?))|\b\d{{1,2}} ?[ap]\.?m\b|\b(?:19|20)\d\d\b"
    rf"|\b(?:{_WEEKDAYS})(?=s?\b)|(?-i:\b(?:{_MONTHS.title()})\b)|\b(?:noon|midnight)\b|\b\d{{1,2}}(?:st|nd|rd|th)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(rf"\d+(?:[.,:]\d+)*|\b(?:{_SMALL})\b", re.IGNORECASE)

_UNITS_OF_TIME = "days?|dates?|weekdays?|evenings?|mornings?|afternoons?|weeks?|weekends?|months?|years?|time|hours?"
_QUANTITIES = (
    "numbers?|sizes?|prices?|rents?|costs?|fees?|fares?|limits?|amounts?|rates?|percent\\w*|shares?|discounts?|budgets?|"
    "salary|wages?|scores?|speeds?|weights?|heights?|lengths?|widths?|depths?|distances?|ages?|versions?|temperatures?|"
    "gates?|rooms?|floors?|ports?|levels?|capacity|quotas?|thresholds?|timeouts?|intervals?|retention|doses?|balance|"
    "totals?|maximum|minimum|max|min|deposit|tax\\w*|counts?|lifetimes?|durations?"
)
_ASKS_FOR = (
    (
        re.compile(
            rf"\bwhen(?! to\b)\b|\b(?:what|which) (?:\w+ )?(?:{_UNITS_OF_TIME})\b|\b(?:at|until|by|since) what\b",
            re.IGNORECASE,
        ),
        _DATE,
    ),
    (
        re.compile(
            r"\bhow (?:many|much|long|often|old|far|big|large|tall|high|deep|wide|heavy|fast|expensive|hot|cold)\b"
            rf"|\b(?:what|which)\b[^?.!]{{0,60}}?\b(?:{_QUANTITIES})\b",
            re.IGNORECASE,
        ),
        _NUMBER,
    ),
)
"""What a question for a date or for a number looks like, and what the values of that type look like."""

_OF_MORE_THAN_NOW = re.compile(
    r"\b(?:between|passed|at first|originally|initially|order|across|over time|differ\w*|compar\w*|used to|was|were|"
    r"did|told|so far|sequence|history|changed|summar\w*|overviews?|recap\w*)\b",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    r"\b(?:now|updated?|new|currently|moved|increased|decreased|raised|instead|no longer|any ?more|switched|changed|"
    r"rescheduled|postponed|from now on|these days|meanwhile)\b",
    re.IGNORECASE,
)
_NO_STATEMENT = re.compile(
    # Captions: pictures of Markdown, and what exports of chats write in their place.
    r"!\[[^\]\n]*+\]\([^)\n]*+\)"
    r"|[\[(<](?:[^\])>\n]{0,40}\b)?(?:image|photo|picture|pic|video|gif|sticker|caption|attachment)s?\b[^\])>\n]*+[\])>]"
    r"|(?m:^)[ \t]*+(?:image|photo|picture|caption|blip caption)[^:\n]{0,20}:[^\n]*+"
    # The time and the speaker before a message, and a code behind its last sentence.
    r"|(?m:^)[ \t]{0,3}[\[(]?\d[^\[\]()\n]{3,30}[\])]?[ \t]{1,4}(?=\[)"
    r"|(?<=[.!?])[ \t]++[\[(#]?[A-Za-z]{0,4}[-_]?\d[\w:.-]{0,12}[\])]?[ \t]*+\Z",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def asks_for_value(question: str) -> bool:
    """Whether a question is for a date or a number that holds now, and not for how it came about."""
    return bool(_types(question)) and _OF_MORE_THAN_NOW.search(question) is None


def _types(question: str) -> list[re.Pattern[str]]:
    return [values for asks, values in _ASKS_FOR if asks.search(question) is not None]


def values_in(text: str, question: str) -> frozenset[str]:
    """The values in a text that are of a type that a question is for."""
    stated = _NO_STATEMENT.sub(" ", text)
    found = (match[0].lower() for pattern in _types(question) for match in pattern.finditer(stated))
    return frozenset(" ".join(value.replace("st ", " ").split()) for value in found)


def contenders(question: str, results: Sequence[Result]) -> tuple[int, Sequence[int]]:
    """Which result may be outdated, and which may be newer, as far as their texts say; best first, none without any."""
    best = results[: rules.NEWER_AMONG]
    values = [_stated(question, result.passage) for result in best]
    has_roles = any(is_role(result.passage.chunk.speaker or "") for result in results)
    # Between a user and an assistant the user alone states what holds.
    anchor = next(
        (
            row
            for row, found in enumerate(values)
            if found and (not has_roles or not _is_message(results[row]) or results[row].passage.chunk.speaker == USER)
        ),
        None,
    )
    if anchor is None:
        return 0, ()
    old = results[anchor]
    terms_of_question = set(query_terms(question)).difference(
        terms(old.passage.chunk.speaker or "")
    )  # it is in all they said
    shared = terms_of_question.intersection(terms(old.passage.chunk.searchable))
    least = rules.NEWER_SCORE * old.ranked.fused
    # Each must have a value that the other has not: a text that only adds some contradicts nothing.
    found = [
        row
        for row, own in enumerate(values)
        if own - values[anchor]
        and values[anchor] - own
        and _is_later(results[row].passage, old.passage)
        and _is_message(results[row]) == _is_message(old)
        and results[row].passage.chunk.speaker == old.passage.chunk.speaker
        and _weight(results[row]) >= least
        and len(shared.intersection(terms(results[row].passage.chunk.searchable)))
        >= rules.NEWER_SHARE * len(terms_of_question)
    ]
    return anchor, found


def newer_first(
    results: Sequence[Result], anchor: int, found: Sequence[int], vectors: Mapping[str, Vector]
) -> tuple[Result, ...]:
    """The results with those of `found` that say nearly the same as `anchor` right above it, the newest first."""
    old = results[anchor]
    own = vectors.get(old.passage.chunk.id)
    least = rules.NEWER_COSINE if _is_message(old) else rules.NEWER_STATEMENT_COSINE
    near = [
        row
        for row in found
        if own is not None
        and (other := vectors.get(results[row].passage.chunk.id)) is not None
        and float(own @ other) >= least
    ]
    kept = sorted(near, key=lambda row: -_weight(results[row]))[: rules.NEWER_KEPT]
    if not kept:
        return tuple(results)
    newest = sorted(kept, key=lambda row: _moment(results[row].passage), reverse=True)
    marked = replace(old, newer=results[newest[0]].passage)
    above = [results[row] for row in newest]
    rest = [result for row, result in enumerate(results) if row != anchor and row not in kept]
    position = anchor - sum(row < anchor for row in kept)
    return (*rest[:position], *above, marked, *rest[position:])


def contradiction(later: str, earlier: str) -> tuple[str, str] | None:
    """Two sentences, one of either text, that say nearly the same with other values; None where there are none."""
    others = list(_valued(earlier))
    for sentence, values, said in _valued(later):
        for other, other_values, other_said in others:
            alike = len(said & other_said) >= rules.ALIKE_SHARE * max(len(said), len(other_said), rules.ALIKE_TERMS)
            if alike and values - other_values and other_values - values:
                return sentence, other
    return None


def _valued(text: str) -> Iterator[tuple[str, frozenset[str], frozenset[str]]]:
    """The sentences that hold a value: the sentence, its values, and the terms beside them."""
    for sentence in _SENTENCE_END.split(_NO_STATEMENT.sub(" ", text)):
        values = frozenset(match[0].lower() for pattern in (_DATE, _NUMBER) for match in pattern.finditer(sentence))
        if values:
            yield sentence, values, frozenset(terms(_NUMBER.sub(" ", _DATE.sub(" ", sentence))))


def _is_message(result: Result) -> bool:
    return result.passage.content_type == CHAT


def _stated(question: str, passage: Passage) -> frozenset[str]:
    """The values that a passage states: a message all of them, a document those beside the terms of the question."""
    if passage.content_type == CHAT:
        return values_in(passage.chunk.text, question)
    # A file that states no time has that of its last change, which file systems keep in fractions of seconds.
    is_undated = passage.chunk.origin is Origin.DOCUMENT and passage.occurred_at.microsecond != 0
    if passage.content_type == CODE or is_undated:
        return frozenset()
    wanted = frozenset(query_terms(question))
    near = [
        sentence
        for sentence in _SENTENCE_END.split(passage.chunk.text)
        if len(wanted.intersection(terms(sentence))) > rules.NEWER_STATEMENT_SHARE * len(wanted)
    ]
    return values_in("\n".join(near), question)


def _moment(passage: Passage) -> tuple[object, int]:
    return passage.occurred_at, passage.chunk.position


def _is_later(passage: Passage, old: Passage) -> bool:
    """Whether a passage was said later: by its time, and within one conversation without times by its place."""
    if passage.occurred_at != old.occurred_at:
        return passage.occurred_at > old.occurred_at
    return passage.document_id == old.document_id and passage.chunk.position > old.chunk.position


def _weight(result: Result) -> float:
    changes = _CHANGE.search(result.passage.chunk.text) is not None
    return result.ranked.fused * (rules.CHANGE_FACTOR if changes else 1.0)
