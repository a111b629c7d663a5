"""`VectorStore` over the embedded file: exact cosines over the index in memory."""

import json
import sqlite3
from collections.abc import Sequence
from functools import partial

import numpy as np

from rag_context.domain.search import Filter, Passage, VectorHit
from rag_context.domain.vectors import Vector
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.memory.following import Memory
from rag_context.stores.sqlite.passages import read_passages

_VECTORS = """
SELECT c.id, v.vector FROM json_each(?) AS asked
CROSS JOIN chunks AS c ON c.id = asked.value
CROSS JOIN vectors AS v ON v.chunk = c.key
"""


class SqliteVectors:
    """`VectorStore` over the embedded file.

    Args:
        database: the file.
        memory: its chunks in memory.
    """

    def __init__(self, database: Database, memory: Memory) -> None:
        self._database = database
        self._memory = memory

    @property
    def made_by(self) -> str | None:
        """Fingerprint of the model of the vectors in use; None while it is not known. No I/O."""
        return self._memory.made_by

    async def search(self, vector: Vector, *, limit: int, where: Filter) -> list[VectorHit]:
        """The chunks of highest cosine to `vector` (`(dim,) float32`), best first, equal ones by chunk id.

        Raises:
            BackendDataError: the index has vectors of another dimension, or the file is not usable.
            BackendError: the file could not be read.
        """
        return await self._memory.read(
            lambda index, _connection: index.vector_hits(vector, limit, where), needs_vectors=True
        )

    async def score(self, vector: Vector, chunk_ids: Sequence[str]) -> dict[str, float]:
        """Exact cosines of the given chunks to `vector` (`(dim,) float32`); those without a vector are left out.

        Raises:
            BackendError: as `search`.
        """
        if not chunk_ids:
            return {}
        return await self._memory.read(lambda index, _connection: index.cosines(vector, chunk_ids), needs_vectors=True)

    async def passages(self, chunk_ids: Sequence[str]) -> dict[str, Passage]:
        """The passages that exist, by chunk id: the same file holds them.

        Raises:
            BackendError: the file could not be read.
        """
        if not chunk_ids:
            return {}
        return await self._database.read(partial(read_passages, list(chunk_ids)))

    async def vectors(self, chunk_ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors (`(dim,) float32`) of the given chunks; those without are left out.

        Raises:
            BackendError: the file could not be read.
        """
        return await self._database.read(partial(_read_vectors, list(chunk_ids)))

    async def ping(self) -> str:
        """Read the file; returns one line for people.

        Raises:
            BackendError: the vectors cannot be read.
        """
        await self._memory.loaded()
        return await self._memory.read(
            lambda index, _connection: f"{index.vectors} vectors of dimension {index.dimension or '?'} in memory",
            needs_vectors=True,
        )


def _read_vectors(chunk_ids: Sequence[str], connection: sqlite3.Connection) -> dict[str, Vector]:
    """The vectors (`(dim,) float32`) of the given chunks; those without are left out."""
    rows = connection.execute(_VECTORS, (json.dumps(chunk_ids),))
    return {id_: np.frombuffer(blob, dtype="<f4").astype(np.float32, copy=False) for id_, blob in rows}
