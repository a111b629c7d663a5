"""Newer statements first: of two passages that say nearly the same with different values, the later stands above. Pure.

Messages of conversations only: files have the time of their last change, which says nothing of what they state.
The older one is marked with what is newer. The mark says that a later statement gives another value, not that the
older one is wrong; both are returned.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rag_context.domain.documents import CHAT
from rag_context.domain.vectors import Vector
from rag_context.search import rules
from rag_context.search.query import Result
from rag_context.speakers import USER, is_role
from rag_context.text import terms

_VALUE_WANTED = re.compile(r"\b(?:what|when|which|where|who|how (?!to\b)\w+)\b", re.IGNORECASE)
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
    return _VALUE_WANTED.search(text) is not None and _OF_MORE_THAN_NOW.search(text) is None


def values_in(text: str) -> frozenset[str]:
    """The numbers, times, dates and weekdays of a text."""
    return frozenset(found.lower() for found in _VALUE.findall(text))


def contenders(text: str, results: Sequence[Result]) -> tuple[int, Sequence[int]]:
    """Which result may be outdated, and which may be newer, as far as their texts say; best first, none without any."""
    best = results[: rules.NEWER_AMONG]
    values = [values_in(each.passage.chunk.text) if each.passage.content_type == CHAT else frozenset() for each in best]
    has_roles = any(is_role(result.passage.chunk.speaker or "") for result in results)
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
    asked = set(terms(text)).difference(terms(old.passage.chunk.speaker or ""))  # the name stands in all they said
    held = asked.intersection(terms(old.passage.chunk.searchable))
    least = rules.NEWER_SCORE * old.ranked.fused
    found = [
        row
        for row, given in enumerate(values)
        if given - values[anchor]
        and values[anchor] - given
        and results[row].passage.occurred_at > old.passage.occurred_at
        and results[row].passage.chunk.speaker == old.passage.chunk.speaker
        and _weight(results[row]) >= least
        and len(held.intersection(terms(results[row].passage.chunk.searchable))) >= rules.NEWER_SHARE * len(asked)
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
    place = anchor - sum(row < anchor for row in kept)
    return (*rest[:place], *above, marked, *rest[place:])


def _weight(result: Result) -> float:
    changes = _CHANGE.search(result.passage.chunk.text) is not None
    return result.ranked.fused * (rules.CHANGE_FACTOR if changes else 1.0)
