"""The words a server knows: kinds of content, and categories to filter by."""

from dataclasses import dataclass
from typing import Any, Literal

from rag_context.domain.documents import CONTENT_TYPES

CATEGORIES = ("strategy", "bugfix", "architecture", "casino")
"""The built-in categories of a search filter; the configuration may add more."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Kinds of content and categories: the built-in ones, and those the configuration adds."""

    content_types: tuple[str, ...] = CONTENT_TYPES
    categories: tuple[str, ...] = CATEGORIES

    @classmethod
    def extended(cls, content_types: tuple[str, ...] = (), categories: tuple[str, ...] = ()) -> "Vocabulary":
        """The built-in words and the given ones, without repetition."""
        return cls(
            tuple(dict.fromkeys((*CONTENT_TYPES, *content_types))),
            tuple(dict.fromkeys((*CATEGORIES, *categories))),
        )


def one_of(values: tuple[str, ...]) -> Any:
    """The type of a string that is one of `values`."""
    return Literal[values]
