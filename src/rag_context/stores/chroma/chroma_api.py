"""The calls of Chroma, whether it runs as a server or inside this process, and what both of its users make of them."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendDataError, BackendRejectedError, BackendUnavailableError

COMPONENT = "vectors"

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]")
"""Names that Chroma allows; a collection of any other name cannot exist, and its name does not fit into an address."""

PAGE = 250
"""Rows per call with their texts or vectors; 1 MB of JSON at 384 dimensions."""

FEW = 400
"""Up to so many rows, fetching and multiplying all of them is faster than a search in the index."""

WIDE = 2
WIDE_LEAST = 64
MOST_NEAREST = 2000
"""How many neighbours a search requests: so many times the limit, then four times as many, while that is not enough.
Beyond the last, all rows that pass are compared."""

SPACE = "cosine"
HNSW: Mapping[str, str | int] = {"space": SPACE, "ef_search": 200, "ef_construction": 200}
"""How a new collection is searched; with Chroma's own 100 a search for 200 neighbours finds 87 % of them."""

Fields: TypeAlias = Mapping[str, Any]
"""What a row carries beside its vector and its text; None removes a field that an earlier version had."""

Where: TypeAlias = Mapping[str, Any]
"""A condition in Chroma's language."""

Part: TypeAlias = Literal["metadatas", "documents", "embeddings"]

ATTEMPTS = 4
"""So often a call is made where rows, or the collection, are replaced while it is under way."""

LOST_ROW = "finding id"
"""The text of Chroma's internal error for a row that was removed while it was read."""

T = TypeVar("T")

if TYPE_CHECKING:
    from rag_context.stores.chroma.folder import ChromaFolder
    from rag_context.stores.chroma.server import ChromaServer

ChromaApi: TypeAlias = "ChromaServer | ChromaFolder"


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """A collection of Chroma's. `dimension` is None until it has vectors."""

    id: str
    space: str
    dimension: int | None
    name: str = ""
    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a collection, column by column; a column that was not requested is empty."""

    ids: Sequence[str]
    fields: Sequence[Fields] = ()
    texts: Sequence[str] = ()
    vectors: Matrix | None = None
    """`(n, dim) float32`."""


class CollectionGoneError(BackendRejectedError):
    """The collection was removed, or replaced by one of the same name."""


class NameExistsError(BackendRejectedError):
    """A collection of this name exists."""


class RowsMovedError(BackendUnavailableError):
    """Rows were replaced while they were read; the same call again finds the new ones."""


def either(parts: list[Where]) -> Where:
    return parts[0] if len(parts) == 1 else {"$or": parts}


def every(parts: list[Where]) -> Where:
    return parts[0] if len(parts) == 1 else {"$and": parts}


def unreachable(label: str, reason: str) -> BackendUnavailableError:
    return BackendUnavailableError(COMPONENT, f"{label} cannot be reached ({reason})")


def invalid_response(label: str, what: str) -> BackendDataError:
    return BackendDataError(COMPONENT, f"{label} returned an invalid response: {what}")


def pages(ids: Sequence[str], size: int = PAGE) -> Iterator[Sequence[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))


def rows_from(
    label: str,
    ids: Sequence[str],
    fields: Sequence[Fields | None] | None,
    texts: Sequence[str | None] | None,
    vectors: Any,
) -> Rows:
    """Rows as Chroma returned them; `vectors` are lists of numbers. Raises: BackendDataError."""
    if any(column is not None and len(column) not in (0, len(ids)) for column in (fields, texts, vectors)):
        raise invalid_response(label, "columns of different lengths")
    try:
        matrix = None if vectors is None else np.array(vectors, dtype=np.float32).reshape(len(ids), -1 if ids else 0)
    except ValueError as error:
        raise invalid_response(label, "vectors of different dimensions") from error
    return Rows(ids, [each or {} for each in fields or ()], [each or "" for each in texts or ()], matrix)


def matrix_of(rows: Rows, label: str) -> Matrix:
    """The vectors of rows, `(n, dim) float32`. Raises: BackendDataError where Chroma left them out."""
    if rows.vectors is None or not np.isfinite(rows.vectors).all():
        raise invalid_response(label, "rows without their vectors")
    return rows.vectors


async def repeated(work: Callable[[], Awaitable[T]]) -> T:
    """Call `work`, and call it again where rows, or the collection, were replaced meanwhile."""
    # The last call stands outside the loop, so that its error reaches the caller.
    for _ in range(ATTEMPTS - 1):
        try:
            return await work()
        except (CollectionGoneError, RowsMovedError):
            continue
    return await work()


@dataclass(frozen=True, slots=True)
class Near:
    """A row that a filter lets through, and its cosine to a vector."""

    id: str
    fields: Fields
    cosine: float


@dataclass(frozen=True, slots=True)
class RowComparison:
    """Compares rows of a collection with a vector, `(dim,) float32`; `matrix` returns vectors of rows, of length 1.

    Cosines are computed here, from the vectors that Chroma returns, so that a row has the same one wherever it is read.
    """

    vector: Vector
    passes: Callable[[Fields], bool]
    matrix: Callable[[Rows], Matrix]

    def cosines(self, rows: Rows) -> Vector:
        """The cosine of each row by itself, so that equal vectors get equal cosines."""
        matrix = self.matrix(rows)
        if not len(matrix):
            return np.zeros(0, dtype=np.float32)
        cosines: Vector = np.vecdot(matrix, self.vector)
        return cosines

    def of(self, rows: Rows) -> list[Near]:
        """Those that pass, nearest first, equal ones by id."""
        found = zip(rows.ids, rows.fields, self.cosines(rows).tolist(), strict=True)
        return sorted((Near(*row) for row in found if self.passes(row[1])), key=_order)

    async def of_all(self, api: ChromaApi, collection: str, ids: Sequence[str], limit: int) -> list[Near]:
        """The nearest of the rows of these ids, by reading and comparing all of them."""
        best: list[Near] = []
        for some in pages(ids):
            # Page by page: all vectors of a large collection at once would not fit into memory.
            rows = await api.get(collection, ["metadatas", "embeddings"], ids=some)
            best = sorted([*best, *self.of(rows)], key=_order)[:limit]
        return best


def _order(near: Near) -> tuple[float, str]:
    return -near.cosine, near.id
