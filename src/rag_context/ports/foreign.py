"""Documents that other programs stored in a form of their own, as they are read to be taken over."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ForeignRecord:
    """A document of another program, or one passage of it: text, other fields, and ids of its vectors' passages."""

    id: str
    text: str
    fields: Mapping[str, object]
    chunk_ids: frozenset[str] = frozenset()


class ForeignSource(Protocol):
    """A place with records of another program. Reading changes nothing there."""

    @property
    def label(self) -> str:
        """The place, for people, without secrets."""

    def records(self) -> AsyncIterator[ForeignRecord]:
        """All records, in an order that does not change. Raises: BackendError, NotFoundError (no such place)."""
