"""What a quoted text must not do to the model that reads it: end the frame that it stands in, or pass for a request.

Rules mark a passage that addresses a model with a demand: it is shown all the same. Some phrases are
enough alone. Else two sentences side by side count points for what attacks have in common: they speak to a model, set
aside its instructions, imitate the marks of a conversation, hide something from the user, or have data sent away. The
patterns are in `quoted_text.toml`. The points are the weights of a logistic regression on four of the five sets of
attacks in `tests/text/attacks.toml` and on 6 000 passages of documentation, rounded.
"""

import re
import tomllib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

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


class _Rule(NamedTuple):
    """A pattern over small letters; what it matches has one of the words, and one of `also` where it has any."""

    words: frozenset[str]
    also: frozenset[str]
    pattern: re.Pattern[str]

    def may_hold(self, present: set[str]) -> bool:
        return not self.words.isdisjoint(present) and not (self.also and self.also.isdisjoint(present))

    def holds(self, lowered: str, present: set[str]) -> bool:
        return self.may_hold(present) and self.pattern.search(lowered) is not None


class _Rules(NamedTuple):
    words: WordSearch
    alone: tuple[_Rule, ...]
    addressed: tuple[_Rule, ...]
    claimed: tuple[_Rule, ...]
    demand: re.Pattern[str]
    points: tuple[tuple[int, _Rule], ...]


@cache
def _rules() -> _Rules:
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

    def compiled(pattern: str) -> re.Pattern[str]:
        for name, part in data["names"].items():
            pattern = pattern.replace("{" + name + "}", part)
        return re.compile(pattern, re.MULTILINE)

    def words_of(listed: str) -> frozenset[str]:
        return frozenset(filter(None, listed.split("|")))

    def rules(found: list[dict[str, Any]]) -> tuple[_Rule, ...]:
        return tuple(
            _Rule(words_of(each["words"]), words_of(each.get("also", "")), compiled("|".join(each["patterns"])))
            for each in found
        )

    kinds = alone, addressed, claimed, counted = [
        rules(data[name]) for name in ("alone", "addressed", "claimed", "points")
    ]
    points = tuple(zip((each["points"] for each in data["points"]), counted, strict=True))
    words = WordSearch(frozenset().union(*(rule.words | rule.also for kind in kinds for rule in kind)))
    return _Rules(words, alone, addressed, claimed, compiled(data["demand"]["pattern"]), points)


@lru_cache(2048)
def reads_like_instruction(text: str) -> bool:
    """Whether a text sets aside a model's instructions, or addresses a model, or speaks for its user, with a demand."""
    lowered, rules = text.lower(), _rules()
    words = rules.words.present(lowered)
    if any(rule.holds(lowered, words) for rule in rules.alone):
        return True
    beside = [any(rule.holds(lowered, words) for rule in several) for several in (rules.addressed, rules.claimed)]
    if all(beside) or (any(beside) and rules.demand.search(lowered) is not None):
        return True
    # In the whole text first, until what is missing leaves too few: most have too few words for that already.
    possible = [each for each in rules.points if each[1].may_hold(words)]
    if (spare := sum(points for points, _ in possible) - LEAST_POINTS) < 0:
        return False
    present: list[tuple[int, _Rule]] = []
    for points, rule in possible:
        if rule.pattern.search(lowered) is not None:
            present.append((points, rule))
        elif (spare := spare - points) < 0:
            return False
    sentences = [each for each in _SENTENCE_END.split(lowered) if each.strip()]
    found = [{at for at, (_, rule) in enumerate(present) if rule.pattern.search(each)} for each in sentences]
    pairs = zip(found, [*found[1:], set[int]()], strict=True)
    return any(sum(present[at][0] for at in one | other) >= LEAST_POINTS for one, other in pairs)
