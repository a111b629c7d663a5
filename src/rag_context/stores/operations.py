"""Splits writes into operations that an engine accepts at once."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rag_context.errors import InvalidInputError
from rag_context.ports.provider import Entry

T = TypeVar("T")

_SHOWN = 60
"""Characters of an id that a message repeats."""

OPERATION_BYTES = 16 * 1024 * 1024
"""Of one operation, which is all or nothing: half of the default limit of the strictest engine."""


def operations(items: Sequence[T], size_of: Callable[[T], int], most: int | None = None) -> Iterator[Sequence[T]]:
    """Items in order, in as few groups as their sizes (in bytes) and the largest number allow."""
    start = size = 0
    for end, item in enumerate(items):
        more = size_of(item)
        if end > start and (size + more > OPERATION_BYTES or end - start == most):
            yield items[start:end]
            start, size = end, 0
        size += more
    if start < len(items):
        yield items[start:]


def check_dimension(name: str, bound: int | None, dimension: int) -> None:
    """Check that a vector has the dimension of a collection; None: the collection has no dimension yet.

    Raises:
        InvalidInputError: it does not.
    """
    if bound not in (None, dimension):
        raise InvalidInputError(f"Collection '{name}' holds vectors of {bound} dimensions, not of {dimension}")


def check_distinct(entries: Sequence[Entry]) -> None:
    """Check that no id is given twice: engines keep either of the two, or reject both.

    Raises:
        InvalidInputError: one is.
    """
    seen: set[str] = set()
    for entry in entries:
        if entry.id in seen:
            raise InvalidInputError(f"The id {entry.id[:_SHOWN]!r} is given twice.")
        seen.add(entry.id)
