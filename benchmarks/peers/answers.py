"""What all drivers share; for every environment, so with the standard library alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

MAX_TOKENS = 256
COLLECTION = "peers"
LIMIT = 5
"""Results of a question, for all peers alike."""

Fields: TypeAlias = Mapping[str, object]
"""What is known of a text beside it; its `source` is its name."""


@dataclass(frozen=True)
class Answer:
    """The `LIMIT` best results, best first: their texts, and their names.

    `abstained`: it says that nothing answers the question.
    """

    texts: list[str]
    sources: list[str]
    abstained: bool = False


def names_of(texts: Sequence[str], fields: Sequence[Fields], before: int) -> list[str]:
    """A name for each text: its source, or its number, where `before` texts have one already."""
    known = fields or [{}] * len(texts)
    return [str(each.get("source", f"texts/{before + number}")) for number, each in enumerate(known)]
