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
    """A pattern over small letters; a text that has none of the words does not match it."""

    words: tuple[str, ...]
    pattern: re.Pattern[str]

    def holds(self, lowered: str) -> bool:
        for word in self.words:
            if word in lowered:
                return self.pattern.search(lowered) is not None
        return False


class _Rules(NamedTuple):
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

    def rules(found: list[dict[str, Any]]) -> tuple[_Rule, ...]:
        return tuple(_Rule(tuple(each["words"].split("|")), compiled("|".join(each["patterns"]))) for each in found)

    points = tuple(zip((each["points"] for each in data["points"]), rules(data["points"]), strict=True))
    alone, addressed, claimed = (rules(data[name]) for name in ("alone", "addressed", "claimed"))
    return _Rules(alone, addressed, claimed, compiled(data["demand"]["pattern"]), points)


@lru_cache(2048)
def reads_like_instruction(text: str) -> bool:
    """Whether a text sets aside a model's instructions, or addresses a model, or speaks for its user, with a demand."""
    lowered, rules = text.lower(), _rules()
    if any(rule.holds(lowered) for rule in rules.alone):
        return True
    beside = [any(rule.holds(lowered) for rule in several) for several in (rules.addressed, rules.claimed)]
    if all(beside) or (any(beside) and rules.demand.search(lowered) is not None):
        return True
    # In the whole text first, until what is missing leaves too few: most have too few anywhere.
    spare = sum(points for points, _ in rules.points) - LEAST_POINTS
    present: list[tuple[int, _Rule]] = []
    for points, rule in rules.points:
        if rule.holds(lowered):
            present.append((points, rule))
        elif (spare := spare - points) < 0:
            return False
    sentences = [each for each in _SENTENCE_END.split(lowered) if each.strip()]
    found = [{at for at, (_, rule) in enumerate(present) if rule.holds(each)} for each in sentences]
    pairs = zip(found, [*found[1:], set[int]()], strict=True)
    return any(sum(present[at][0] for at in one | other) >= LEAST_POINTS for one, other in pairs)
