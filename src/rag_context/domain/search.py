"""What a search passes to the stores and what they return."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rag_context.domain.documents import DEFAULT_TENANT, FILTERED, Chunk, Described, FilterFields, Origin, Tenant

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Filter(FilterFields):
    """Which chunks a search may find. Every field narrows; None and () narrow nothing.

    `since <= t < until`, where t is when a chunk was said or written (`Chunk.occurred_at`); in lists of documents, when
    the document was.

    One of `agents` produced a document. Of `tags` it has all; of every group of `any_tags` it has at least one.
    Documents whose ids are in `without_documents` are left out. `standing` is for vector searches: only chunks that
    hold a standing instruction (`Chunk.is_standing`). `origins` are those that a chunk, in lists a document, may have;
    what has none, because an earlier version stored it, has none of them. `superseded_after` is for the tenant of
    superseded versions, which vector and keyword searches narrow to those that were current until later than it.
    """

    tenant: Tenant = DEFAULT_TENANT
    content_type: str | None = None
    session_id: str | None = None
    source: str | None = None
    source_prefix: str | None = None
    agents: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    any_tags: tuple[tuple[str, ...], ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    without_documents: tuple[str, ...] = ()
    standing: bool = False
    origins: tuple[Origin, ...] = ()
    superseded_after: datetime | None = None

    def equal(self) -> list[tuple[str, str]]:
        """The texts that have one value, by the names of the fields of documents and their metadata."""
        return [(name, value) for name in _EQUAL if (value := getattr(self, name)) is not None]


_EQUAL = ("content_type", "session_id", *FILTERED, "source")


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A chunk by name, with what ranking needs to know of it."""

    id: str
    document_id: str
    position: int
    content_type: str
    thread: str | None = None
    speaker: str | None = None
    occurred_us: int | None = field(default=None, compare=False)
    """When it was said or written, in microseconds since 1970; None where a store does not say so with its hits."""


class VectorHit(NamedTuple):
    """A chunk and its cosine to the query, -1..1."""

    chunk: ChunkRef
    cosine: float


class KeywordHit(NamedTuple):
    """A chunk, its BM25 score (0..) and the share of the query's idf mass that it holds (0..1)."""

    chunk: ChunkRef
    bm25: float
    share: float


@dataclass(frozen=True, slots=True)
class RawScores:
    """Raw scores of some chunks, column by column, each `(n,)`: what hits say one by one.

    A cosine is NaN where a chunk has no vector or its cosine is not known, the other two where they are not known.
    """

    cosines: Floats
    bm25: Floats
    shares: Floats

    @classmethod
    def unknown(cls, size: int) -> "RawScores":
        """Scores of `size` chunks, none of them known."""
        return cls(np.full(size, np.nan), np.full(size, np.nan), np.full(size, np.nan))

    @classmethod
    def joined(cls, *parts: "RawScores") -> "RawScores":
        """The scores of all parts, one after the other."""
        return cls(
            np.concatenate([part.cosines for part in parts]),
            np.concatenate([part.bm25 for part in parts]),
            np.concatenate([part.shares for part in parts]),
        )

    def take(self, rows: Sequence[int]) -> "RawScores":
        return RawScores(self.cosines[rows], self.bm25[rows], self.shares[rows])


class Neighbours(NamedTuple):
    before: ChunkRef | None = None
    after: ChunkRef | None = None


@dataclass(frozen=True, slots=True)
class Passage(Described):
    """A chunk with the fields of its document that a search returns."""

    chunk: Chunk
    document_id: str

    @property
    def occurred_at(self) -> datetime:
        """When it was said or written; `timestamp` is when it was indexed."""
        return self.chunk.occurred_at
