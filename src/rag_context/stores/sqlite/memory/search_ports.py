"""The ports of the read path over the index in memory: `VectorStore`, `KeywordIndex` and `CandidateSource`."""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from rag_context.domain.documents import Tenant
from rag_context.domain.reports import counted
from rag_context.domain.search import ChunkRef, Filter, KeywordHit, Passage, VectorHit
from rag_context.domain.vectors import Vector
from rag_context.ports.reading import CandidateRequest, Snapshot
from rag_context.stores.sql_documents import read_passages
from rag_context.stores.sql_journal import completed
from rag_context.stores.sqlite.database import Database, reading, reads
from rag_context.stores.sqlite.document_rows import SqliteTables
from rag_context.stores.sqlite.memory.following import CATCH_UP_S, IndexInMemory
from rag_context.stores.sqlite.memory.vector_scan import vector_of

_VECTORS = """
SELECT c.id, v.vector FROM json_each(?) AS requested
CROSS JOIN chunks AS c ON c.id = requested.value
CROSS JOIN vectors AS v ON v.chunk = c.key
"""

T = TypeVar("T")


def read_vectors(connection: sqlite3.Connection, chunk_ids: Sequence[str]) -> dict[str, Vector]:
    """The vectors (`(dim,) float32`) of the given chunks; those without are left out."""
    rows = connection.execute(_VECTORS, (json.dumps(list(chunk_ids)),))
    return {id_: vector_of(blob) for id_, blob in rows}


class SqliteVectors:
    """`VectorStore` over the embedded file."""

    def __init__(self, database: Database, memory: IndexInMemory) -> None:
        self._database = database
        self._memory = memory

    @property
    def made_by(self) -> str | None:
        return self._memory.made_by

    async def search(self, vector: Vector, *, limit: int, where: Filter) -> list[VectorHit]:
        return await self._memory.read(lambda at: at.vector_hits(vector, limit, where), needs_vectors=True)

    async def score(self, vector: Vector, chunk_ids: Sequence[str]) -> dict[str, float]:
        if not chunk_ids:
            return {}
        return await self._memory.read(
            lambda at: at.index.cosines(vector, chunk_ids, at.stored_vectors), needs_vectors=True
        )

    @reading
    def passages(self, connection: sqlite3.Connection, chunk_ids: Sequence[str]) -> dict[str, Passage]:
        return completed(read_passages(SqliteTables(connection), chunk_ids))

    vectors = reads(read_vectors)

    async def ping(self) -> str:
        await self._memory.loaded()
        return await self._memory.read(
            lambda at: f"{counted(at.index.vectors, 'vector')} of dimension {at.index.dimension or '?'} in memory",
            needs_vectors=True,
        )


class SqliteTexts:
    """`KeywordIndex` over the embedded file."""

    def __init__(self, memory: IndexInMemory) -> None:
        self._memory = memory

    async def search(self, query: str, *, limit: int, where: Filter) -> list[KeywordHit]:
        return await self._memory.read(lambda at: at.keyword_hits(query, limit, where), needs_vectors=False)

    async def score(self, query: str, chunks: Sequence[ChunkRef], *, tenant: Tenant) -> dict[str, KeywordHit]:
        if not chunks:
            return {}
        ids = [chunk.id for chunk in chunks]
        return await self._memory.read(lambda at: at.index.keyword_scores(query, ids, tenant), needs_vectors=False)

    async def conversations(self, query: str, threads: Sequence[str], *, tenant: Tenant) -> Mapping[str, float]:
        return await self._memory.read(lambda at: at.conversations(query, threads, tenant), needs_vectors=False)


class SqliteCandidates:
    """`CandidateSource` over the embedded file."""

    def __init__(self, memory: IndexInMemory, *, needs_vectors: bool) -> None:
        self._memory = memory
        self._needs_vectors = needs_vectors

    @property
    def is_remote(self) -> bool:
        return False

    async def prepare(self, query: str, tenant: Tenant) -> None:
        """There is nothing to prepare."""

    async def read(self, _requested: Callable[[], CandidateRequest], work: Callable[[Snapshot], T]) -> T:
        return await self._memory.read(work, needs_vectors=self._needs_vectors, timeout_s=CATCH_UP_S)
