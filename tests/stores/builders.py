"""Documents, chunks and vectors for the tests of stores; every id follows from what it is built from."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Protocol
from uuid import NAMESPACE_URL, uuid5

import numpy as np

from rag_context.domain.documents import DEFAULT_TENANT, Chunk, Document, MessageTime, Metadata, Origin, Span, Tenant
from rag_context.domain.search import ChunkRef
from rag_context.domain.vectors import Matrix, Vector
from rag_context.ports.reading import DocumentStore, KeywordIndex, MetricsStore, VectorStore
from rag_context.ports.writing import IndexWriter, ModelRegistry, Version

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DIMENSION = 16


class Documents(DocumentStore, IndexWriter, ModelRegistry, Protocol):
    """What every document store of ours can do."""


class Stores(Protocol):
    """An opened store, whatever is behind it."""

    @property
    def documents(self) -> Documents: ...
    @property
    def vectors(self) -> VectorStore: ...
    @property
    def texts(self) -> KeywordIndex: ...
    @property
    def metrics(self) -> MetricsStore: ...


def document(
    name: str,
    content: str = "Some text.",
    *,
    tenant: Tenant = DEFAULT_TENANT,
    content_type: str = "documentation",
    session_id: str = "session",
    source: str = "source.md",
    metadata: Metadata | None = None,
    timestamp: datetime = NOON,
    occurred_at: datetime | None = None,
    thread: str | None = None,
    similarity_hash: int = 0,
    message_times: tuple[MessageTime, ...] = (),
    origin: Origin = Origin.UNKNOWN,
) -> Document:
    return Document(
        id=str(uuid5(NAMESPACE_URL, name)),
        tenant=tenant,
        content_type=content_type,
        session_id=session_id,
        source=source,
        title=f"Title of {name}",
        content=content,
        content_hash=sha256(content.encode(errors="surrogatepass")).hexdigest(),
        timestamp=timestamp,
        occurred_at=occurred_at or timestamp,
        metadata=metadata or Metadata(),
        thread=thread,
        similarity_hash=similarity_hash,
        message_times=message_times,
        origin=origin,
    )


def refs(*chunk_ids: str) -> list[ChunkRef]:
    """The chunks by name, as ranking hands them over."""
    return [ChunkRef(id_, "document", 0, "documentation") for id_ in chunk_ids]


def chunks_of(
    document: Document, *texts: str, times: Sequence[datetime] = (), speakers: Sequence[str | None] = ()
) -> list[Chunk]:
    """One chunk per text, or one of the whole content; with `times` and `speakers` each has its own.

    What the owner says that begins with `Always` is a standing instruction.
    """
    made: list[Chunk] = []
    for position, text in enumerate(texts or (document.content,)):
        id_ = str(uuid5(NAMESPACE_URL, f"{document.id}:{position}:{text}"))
        made.append(
            Chunk(
                id_,
                document.id,
                position,
                text,
                Span(0, len(text), position + 1, position + 1, "A > B"),
                document.title,
                occurred_at=times[position] if times else document.occurred_at,
                speaker=speakers[position] if speakers else None,
                origin=document.origin,
                is_standing=document.origin is Origin.OWNER and text.startswith("Always"),
            )
        )
    return made


def unit_vectors(count: int, seed: int = 0, dimension: int = DIMENSION) -> Matrix:
    drawn = np.random.default_rng(seed).standard_normal((count, dimension))
    vectors: Matrix = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    return vectors


def axis(number: int) -> Vector:
    """A vector that no other axis has anything in common with."""
    vector: Vector = np.eye(DIMENSION, dtype=np.float32)[number]
    return vector


async def put(
    store: Stores,
    document: Document,
    *texts: str,
    vector: Vector | None = None,
    times: Sequence[datetime] = (),
    speakers: Sequence[str | None] = (),
) -> list[str]:
    """Write a document, each chunk with `vector`; returns the chunk ids."""
    chunks = chunks_of(document, *texts, times=times, speakers=speakers)
    vectors = None if vector is None else np.tile(vector, (len(chunks), 1))
    await store.documents.write(Version(document, chunks, vectors))
    return [chunk.id for chunk in chunks]


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def ids(hits: Sequence[object]) -> list[str]:
    return [hit.chunk.id for hit in hits]  # type: ignore[attr-defined]
