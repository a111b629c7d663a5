"""What a quoted text must not do to the model that reads it: end the frame that it stands in, or pass for a request.

Rules mark a passage that addresses a model with a demand: it is shown all the same. Some phrases are
enough alone. Else two sentences side by side count points for what attacks have in common: they speak to a model, set
aside its instructions, imitate the marks of a conversation, hide something from the user, or have data sent away. The
patterns are in `quoted_text.toml`. The points are the weights of a logistic regression on four of the five sets of
attacks in `tests/text/attacks.toml` and on 6 000 passages of documentation, rounded.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import chain
from typing import Any

from rag_context.domain.patterns import Patterns
from rag_context.domain.word_search import WordSearch

TAG = "rag-context"
"""Encloses the block of quotations that hooks give to a model."""

LIKE_INSTRUCTION = "reads like an instruction"
"""Stands at the head of a quotation that does, and that is not the owner's."""

LEAST_POINTS = 10
"""From which two sentences are marked: with 9, 0.8 % of documentation is, and with 10 0.3 %."""

_MARK = re.compile(rf"(?:<|&(?:lt|#0*60|#x0*3c);)(?=\s*/?\s*{TAG}\b)", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def without_tags(text: str) -> str:
    """The text without a tag that would end a block of quotations, or begin one."""
    return _MARK.sub("‹", text)


@dataclass(frozen=True)
class _Rule:
    """A pattern over small letters; what it matches has one of the words, and one of `also` where it has any."""

    kind: str
    words: frozenset[str]
    also: frozenset[str]
    expression: str
    points: int

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return _PATTERNS.compiled(self.expression, re.MULTILINE)


_PATTERNS = Patterns(__file__)


@cache
def _rules() -> Sequence[_Rule]:
    def rule(kind: str, of: dict[str, Any]) -> _Rule:
        words, also = (frozenset(filter(None, of.get(name, "").split("|"))) for name in ("words", "also"))
        return _Rule(kind, words, also, "|".join(of["patterns"]), of.get("points", 0))

    return [rule(kind, of) for kind in ("alone", "addressed", "claimed", "points") for of in _PATTERNS.data[kind]]


@cache
def _words() -> WordSearch:
    return WordSearch([rule.words for rule in _rules()], chain.from_iterable(rule.also for rule in _rules()))


def _possible(lowered: str) -> Mapping[str, Sequence[_Rule]]:
    """The rules of each kind that a text has the words for, in their order."""
    present = _words().present(lowered)
    possible: dict[str, list[_Rule]] = defaultdict(list)
    for rule in map(_rules().__getitem__, _words().rules(present)):
        if not (rule.also and rule.also.isdisjoint(present)):
            possible[rule.kind].append(rule)
    return possible


@lru_cache(2048)
def reads_like_instruction(text: str) -> bool:
    """Whether a text sets aside a model's instructions, or addresses a model, or speaks for its user, with a demand."""
    lowered = text.lower()
    possible = _possible(lowered)

    def holds(kind: str) -> bool:
        return any(rule.pattern.search(lowered) for rule in possible[kind])

    if holds("alone"):
        return True
    beside = [holds("addressed"), holds("claimed")]
    if all(beside) or (any(beside) and _PATTERNS.demand.search(lowered) is not None):
        return True
    # In the whole text first, until what is missing leaves too few: most have too few words for that already.
    if (spare := sum(rule.points for rule in possible["points"]) - LEAST_POINTS) < 0:
        return False
    present: list[_Rule] = []
    for rule in possible["points"]:
        if rule.pattern.search(lowered) is not None:
            present.append(rule)
        elif (spare := spare - rule.points) < 0:
            return False
    sentences = [each for each in _SENTENCE_END.split(lowered) if each.strip()]
    found = [{at for at, rule in enumerate(present) if rule.pattern.search(each)} for each in sentences]
    pairs = zip(found, [*found[1:], set[int]()], strict=True)
    return any(sum(present[at].points for at in one | other) >= LEAST_POINTS for one, other in pairs)
