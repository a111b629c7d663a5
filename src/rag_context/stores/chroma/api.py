"""What is asked of Chroma, whether it runs as a server or inside this process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendDataError, BackendRejectedError, BackendUnavailableError

COMPONENT = "vectors"

SPACE = "cosine"
HNSW: Mapping[str, str | int] = {"space": SPACE, "ef_search": 200, "ef_construction": 200}
"""How a new collection is searched; with Chroma's own 100 a search for 200 neighbours finds 87 % of them."""

Fields: TypeAlias = Mapping[str, Any]
"""What a row carries beside its vector and its text; a None takes a field away that an earlier version had."""

Where: TypeAlias = Mapping[str, Any]
"""A condition in Chroma's language."""

Part: TypeAlias = Literal["metadatas", "documents", "embeddings"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A collection that is there. `dimension` is None until vectors were put in."""

    id: str
    space: str
    dimension: int | None
    name: str = ""
    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a collection, column by column; a column that was not asked for is empty."""

    ids: Sequence[str]
    fields: Sequence[Fields] = ()
    texts: Sequence[str] = ()
    vectors: Matrix | None = None
    """`(n, dim) float32`."""


class CollectionGoneError(BackendRejectedError):
    """The collection was removed, or replaced by one of the same name."""


class NameTakenError(BackendRejectedError):
    """There is a collection of this name."""


class RowsMovedError(BackendUnavailableError):
    """Rows went away while they were read: others replaced them, and the same call will find the new ones."""


LOST_ROW = "finding id"
"""What Chroma says of it, as an internal error."""


class ChromaApi(Protocol):
    """The calls. All raise `BackendError`; those with a collection's id `CollectionGoneError` where it is gone."""

    @property
    def place(self) -> str:
        """Where this Chroma is, for people."""
        ...

    async def open(self, name: str) -> Opened:
        """The collection of this name, made where it is not there."""
        ...

    async def find(self, name: str) -> Opened | None:
        """The collection of this name, if it is there."""
        ...

    async def all(self) -> list[Opened]:
        """All collections, whoever made them."""
        ...

    async def create(self, name: str, fields: Fields) -> Opened | None:
        """Make a collection; None where the name is taken."""
        ...

    async def describe(self, collection: str, fields: Fields) -> None:
        """Put other fields, one at least, in place of a collection's."""
        ...

    async def drop(self, name: str) -> None:
        """Remove a collection, if it is there."""
        ...

    async def most_rows(self) -> int:
        """How many rows one `upsert` may hold."""
        ...

    async def upsert(self, collection: str, rows: Rows) -> None: ...

    async def delete(self, collection: str, ids: Sequence[str]) -> None: ...

    async def count(self, collection: str) -> int: ...

    async def ids(self, collection: str, where: Where | None, limit: int | None = None) -> list[str]:
        """The ids of all rows that a condition lets through, or of the first `limit` of them."""
        ...

    async def rows(self, collection: str, ids: Sequence[str], include: Sequence[Part]) -> Rows:
        """The rows that exist, in any order."""
        ...

    async def matching(self, collection: str, where: Where) -> Rows:
        """All rows that a condition lets through, with their fields and vectors: as they are at one moment."""
        ...

    async def nearest(self, collection: str, vector: Vector, limit: int, where: Where | None) -> Rows:
        """Rows near to a vector with their fields and vectors: those that the index finds, nearest first."""
        ...


def in_time(place: str) -> str:
    return f"{place} did not answer in time"


def unreachable(place: str, reason: str) -> BackendUnavailableError:
    return BackendUnavailableError(COMPONENT, f"{place} cannot be reached ({reason})")


def nonsense(place: str, what: str) -> BackendDataError:
    return BackendDataError(COMPONENT, f"{place} answered nonsense: {what}")
