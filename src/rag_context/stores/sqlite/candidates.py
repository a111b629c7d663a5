"""`CandidateSource` over the embedded file: everything that a search reads after the embedding, in one thread call."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from rag_context.domain.search import ChunkRef, Filter, KeywordHit, Neighbours, Passage, VectorHit
from rag_context.domain.vectors import Vector
from rag_context.ports.reading import Snapshot
from rag_context.stores.sqlite.memory.following import Memory
from rag_context.stores.sqlite.memory.index import MemoryIndex
from rag_context.stores.sqlite.passages import read_passages
from rag_context.stores.sqlite.texts import SqliteTexts

T = TypeVar("T")


class SqliteCandidates:
    """`CandidateSource` over the embedded file.

    Args:
        memory: its chunks in memory.
        texts: its keyword index.
    """

    def __init__(self, memory: Memory, texts: SqliteTexts) -> None:
        self._memory = memory
        self._texts = texts

    async def read(self, work: Callable[[Snapshot], T], *, needs_vectors: bool) -> T:
        """Run `work` in a reading thread.

        Raises:
            BackendStartingError: what it needs is still being read into memory.
            BackendError: the file could not be read.
        """
        return await self._memory.read(
            lambda index, connection: work(_SqliteSnapshot(index, self._texts, connection)),
            needs_vectors=needs_vectors,
        )


class _SqliteSnapshot:
    """The index in memory and the file, neither of which changes meanwhile."""

    def __init__(self, index: MemoryIndex, texts: SqliteTexts, connection: sqlite3.Connection) -> None:
        self._index = index
        self._texts = texts
        self._connection = connection

    def vector_hits(self, vector: Vector, limit: int, where: Filter) -> Sequence[VectorHit]:
        return self._index.vector_hits(vector, limit, where)

    def cosines(self, vector: Vector, chunk_ids: Sequence[str]) -> Mapping[str, float]:
        return self._index.cosines(vector, chunk_ids)

    def keyword_scores(self, query: str, chunks: Sequence[ChunkRef]) -> Mapping[str, KeywordHit]:
        return self._texts.scores([chunk.id for chunk in chunks], query, self._index)

    def neighbours(self, chunk_ids: Sequence[str]) -> Mapping[str, Neighbours]:
        return self._index.neighbours(chunk_ids)

    def passages(self, chunk_ids: Sequence[str]) -> Mapping[str, Passage]:
        return read_passages(chunk_ids, self._connection) if chunk_ids else {}
