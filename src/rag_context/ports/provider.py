"""The interface of providers of collections: named sets of documents with vectors.

A provider is async, raises only our own errors, applies every `Clause` exactly as `rag_context.domain.where.matches`
would (it may scan where its engine cannot), and normalises nothing: vectors arrive with L2 norm 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from rag_context.domain.clauses import Clause
from rag_context.domain.documents import Json, Status
from rag_context.domain.vectors import Matrix, Vector


@dataclass(frozen=True, slots=True)
class Capabilities:
    collections: bool = True
    search: bool = True
    embeddings: bool = False
    """Whether it makes vectors itself."""
    metadata_filtering: bool = True
    scanned_operators: tuple[str, ...] = ()
    """Operators of `where` that it answers by reading documents, exactly but slower."""


@dataclass(frozen=True, slots=True)
class Collection:
    """A named set. The labels are stored and returned, not interpreted; `dimension` is None until the first vector."""

    name: str
    metadata: Mapping[str, Json] = field(default_factory=dict)
    embedding_provider: str | None = None
    embedding_model: str | None = None
    dimension: int | None = None
    created: datetime | None = None
    count: int = 0
    """Documents in it."""
    foreign: bool = False
    """Another program made it, in the same database; it can be read, not written."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A document of a collection. Metadata may be nested; no key holds a dot or begins with `$`."""

    id: str
    text: str
    metadata: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EntryHit:
    """An entry and the cosine of its vector to the query, -1..1."""

    entry: Entry
    cosine: float


@dataclass(frozen=True, slots=True)
class EntryPage:
    """A part of what matches, and how much matches in all."""

    entries: tuple[Entry, ...]
    total: int


@dataclass(frozen=True, slots=True)
class ProviderHealth:
    """The health of a provider. Counts and sizes are None where it does not know them."""

    status: Status
    checked: datetime
    latency_ms: float
    error: str | None = None
    collections: int | None = None
    storage_bytes: int | None = None


class Provider(Protocol):
    """Keeps collections. Order is by id (code points), so that pages neither overlap nor leave gaps.

    Every method but `collections`, `collection` and `create` raises NotFoundError for an unknown collection.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    async def collections(self) -> list[Collection]:
        """All collections, by name."""

    async def collection(self, name: str) -> Collection | None: ...

    async def create(self, collection: Collection) -> bool:
        """Make an empty collection; False, and no change, where the name exists."""

    async def drop(self, name: str) -> None:
        """Remove a collection with all that is in it."""

    async def replace_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection: ...

    async def merge_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        """Set these keys and keep the others, as one step."""

    async def upsert(self, name: str, entries: Sequence[Entry], vectors: Matrix) -> None:
        """Store entries with their vectors, one row each, atomically; an existing id is replaced.

        The ids of one call are distinct. The first one binds the collection to its dimension. Raises: InvalidInputError
        (of another dimension).
        """

    async def entries(self, name: str, where: Clause, *, limit: int, offset: int = 0) -> EntryPage: ...

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of the given entries; unknown ones are left out."""

    async def search(self, name: str, vector: Vector, *, limit: int, where: Clause) -> list[EntryHit]:
        """The nearest first, equal ones by id. Raises: InvalidInputError (the vector is of another dimension)."""

    async def delete(self, name: str, id_: str) -> bool:
        """Remove one entry; False where it is unknown."""

    async def empty(self, name: str) -> int:
        """Remove all entries atomically; the collection, its metadata and its dimension stay. Returns how many."""

    async def values(self, name: str, path: tuple[str, ...]) -> list[Json]:
        """The distinct values other than null of a field; those of a list count one by one. In no order."""

    async def health(self) -> ProviderHealth:
        """How it is; never raises."""


@runtime_checkable
class BulkCalls(Protocol):
    """Optional calls of a provider that make work on many documents cheap; without them it is read page by page."""

    async def ids(self, name: str, where: Clause) -> list[str]:
        """The ids of all entries that a clause lets through, in order."""

    async def get(self, name: str, ids: Sequence[str]) -> dict[str, Entry]:
        """The given entries; unknown ones are left out."""

    async def delete_many(self, name: str, ids: Sequence[str], where: Clause) -> int:
        """Remove those of these entries that a clause still lets through; returns how many."""


@runtime_checkable
class Switching(Protocol):
    """A provider whose collections can be reindexed: built beside the old vectors, then put in their place."""

    async def switch(self, name: str, built: str) -> bool:
        """Put the entries of the collection `built`, with its metadata and dimension, in place of those of `name`.

        Readers see the old entries or the new ones, never a mix; labels and date stay, and `built` is removed. False,
        and no change, where the provider detects that the two do not hold the same documents.
        """


@dataclass(frozen=True, slots=True)
class KeywordScore:
    """How an entry answers a query by keywords: its BM25, and the share (0..1) of the query's idf that it holds."""

    bm25: float
    share: float


@runtime_checkable
class KeywordProvider(Protocol):
    """A provider with a keyword index; of the others, documents are read and scored (`collections/searching.py`)."""

    async def keyword_scores(
        self, name: str, text: str, where: Clause, *, limit: int, also: Sequence[str] = ()
    ) -> dict[str, KeywordScore]:
        """The `limit` entries of highest BM25 that a clause admits, equal ones by id, and the scores of `also`."""
