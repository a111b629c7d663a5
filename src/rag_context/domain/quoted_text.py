"""What a quoted text must not do to the model that reads it: end the frame that it stands in, or pass for a request.

Rules mark a passage that addresses a model with a demand: it is shown all the same. Some phrases are
enough alone. Else two sentences side by side count points for what attacks have in common: they speak to a model, set
aside its instructions, imitate the marks of a conversation, hide something from the user, or have data sent away. The
patterns are in `quoted_text.toml`. The points are the weights of a logistic regression on four of the five sets of
attacks in `tests/text/attacks.toml` and on 6 000 passages of documentation, rounded.
"""

import re
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

    words: frozenset[str]
    also: frozenset[str]
    expression: str
    points: int

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return _PATTERNS.compiled(self.expression, re.MULTILINE)

    def may_hold(self, present: set[str]) -> bool:
        return not self.words.isdisjoint(present) and not (self.also and self.also.isdisjoint(present))

    def holds(self, lowered: str, present: set[str]) -> bool:
        return self.may_hold(present) and self.pattern.search(lowered) is not None


_PATTERNS = Patterns(__file__)


@cache
def _rules(kind: str) -> tuple[_Rule, ...]:
    def rule(of: dict[str, Any]) -> _Rule:
        words, also = (frozenset(filter(None, of.get(name, "").split("|"))) for name in ("words", "also"))
        return _Rule(words, also, "|".join(of["patterns"]), of.get("points", 0))

    return tuple(map(rule, _PATTERNS.data[kind]))


@cache
def _words() -> WordSearch:
    """All words of all rules."""
    rules = chain.from_iterable(map(_rules, ("alone", "addressed", "claimed", "points")))
    return WordSearch(frozenset[str]().union(*(rule.words | rule.also for rule in rules)))


@lru_cache(2048)
def reads_like_instruction(text: str) -> bool:
    """Whether a text sets aside a model's instructions, or addresses a model, or speaks for its user, with a demand."""
    lowered = text.lower()
    words = _words().present(lowered)
    if any(rule.holds(lowered, words) for rule in _rules("alone")):
        return True
    beside = [any(rule.holds(lowered, words) for rule in _rules(kind)) for kind in ("addressed", "claimed")]
    if all(beside) or (any(beside) and _PATTERNS.demand.search(lowered) is not None):
        return True
    # In the whole text first, until what is missing leaves too few: most have too few words for that already.
    possible = [rule for rule in _rules("points") if rule.may_hold(words)]
    if (spare := sum(rule.points for rule in possible) - LEAST_POINTS) < 0:
        return False
    present: list[_Rule] = []
    for rule in possible:
        if rule.pattern.search(lowered) is not None:
            present.append(rule)
        elif (spare := spare - rule.points) < 0:
            return False
    sentences = [each for each in _SENTENCE_END.split(lowered) if each.strip()]
    found = [{at for at, rule in enumerate(present) if rule.pattern.search(each)} for each in sentences]
    pairs = zip(found, [*found[1:], set[int]()], strict=True)
    return any(sum(present[at].points for at in one | other) >= LEAST_POINTS for one, other in pairs)
