"""Vector search: the matrix in memory, and how it follows the file."""

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from rag_context.domain.search import Filter, Passage, VectorHit
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendStartingError
from rag_context.stores.sqlite.columns import StoredVector
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.faults import COMPONENT
from rag_context.stores.sqlite.matrix import VectorMatrix
from rag_context.stores.sqlite.passages import read_passages

_STORED = """
SELECT c.id, d.id, c.position, t.project, t.branch, t.path_hash, d.content_type, d.session_id, d.source,
       d.category, d.game, d.tags, d.thread, d.timestamp, v.vector
FROM vectors AS v
CROSS JOIN chunks AS c ON c.key = v.chunk
CROSS JOIN documents AS d ON d.key = c.document
CROSS JOIN tenants AS t ON t.key = d.tenant
WHERE v.seq > ?
ORDER BY v.seq
"""

_VECTORS = """
SELECT c.id, v.vector FROM json_each(?) AS asked
CROSS JOIN chunks AS c ON c.id = asked.value
CROSS JOIN vectors AS v ON v.chunk = c.key
"""

_BATCH = 256

LOADING_S = 0.2
"""How long a query waits for vectors that are not in memory yet."""

AT_ONCE = 256
"""Up to so many rows are multiplied on the event loop: a thread would take longer."""

T = TypeVar("T")


@dataclass(slots=True)
class _Loaded:
    """A matrix and how far it has followed the file. Changed by one thread at a time."""

    generation: int
    version: int
    last_vector: int
    last_deletion: int
    made_by: str | None
    matrix: VectorMatrix = field(default_factory=VectorMatrix)


class SqliteVectors:
    """`VectorStore` over the embedded file: exact cosines over a matrix that is loaded once and then follows.

    Every search first compares the file's version with the matrix's, so that it finds all writes that any process
    had acknowledged before it began. Loading is left to the database's watcher; searches wait for it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changing = threading.Lock()
        self._loaded: _Loaded | None = None
        self._loading = False

    @property
    def made_by(self) -> str | None:
        """Fingerprint of the model of the vectors in use; None while it is not known. No I/O."""
        loaded = self._loaded
        return None if loaded is None else loaded.made_by

    async def search(self, vector: Vector, *, limit: int, where: Filter) -> list[VectorHit]:
        """The chunks of highest cosine to `vector` (`(dim,) float32`), best first, equal ones by chunk id.

        Raises:
            BackendDataError: the index has vectors of another dimension, or the file is not usable.
            BackendError: the file could not be read.
        """
        return await self._ask(lambda matrix: matrix.search(vector, limit, where))

    async def score(self, vector: Vector, chunk_ids: Sequence[str]) -> dict[str, float]:
        """Exact cosines of the given chunks to `vector` (`(dim,) float32`); those without a vector are left out.

        Raises:
            BackendError: as `search`.
        """
        if not chunk_ids:
            return {}
        loaded = self._loaded
        if len(chunk_ids) <= AT_ONCE and loaded is not None and self._is_current(loaded):
            scores = loaded.matrix.score_now(vector, chunk_ids)
            if scores is not None:
                return scores
        return await self._ask(lambda matrix: matrix.score(vector, chunk_ids))

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
        await self._database.round()
        while self._loaded is None:
            await self._database.round()
        return await self._ask(lambda matrix: f"{len(matrix)} vectors of dimension {matrix.dimension or '?'} in memory")

    def follow(self, connection: sqlite3.Connection) -> None:
        """Load all vectors, or only the new ones; called by the watcher in a read snapshot."""
        with self._changing:
            loaded = self._loaded
            if loaded is not None and self._can_catch_up(loaded, connection):
                _catch_up(loaded, connection)
            else:
                self._loaded = None  # drop the old matrix first, to save memory
                self._loading = True
                try:
                    self._loaded = _load(self._database.file.generation, connection)
                finally:
                    self._loading = False

    async def _ask(self, question: Callable[[VectorMatrix], T]) -> T:
        """Run `question` on the updated matrix in a reading thread."""
        while True:
            await self._wait_loaded()
            answer = await self._database.read(partial(self._answer, question))
            if answer is not None:
                return answer[0]

    async def _wait_loaded(self) -> None:
        """Wait a moment for a small index; for a large one raise an error that does not count as a failure."""
        while self._loaded is None:
            try:
                async with asyncio.timeout(LOADING_S):
                    await self._database.round()
            except TimeoutError:
                if self._loading:
                    said = "the vectors are still being read into memory"
                    raise BackendStartingError(COMPONENT, said) from None

    def _answer(self, question: Callable[[VectorMatrix], T], connection: sqlite3.Connection) -> tuple[T] | None:
        """None if the matrix must be loaded again."""
        loaded = self._loaded
        if loaded is None:
            return None
        stored: int = connection.execute("SELECT version FROM totals").fetchone()[0]
        if loaded.version < stored or loaded.generation != self._database.file.generation:
            with self._changing:
                if not self._can_catch_up(loaded, connection):
                    if self._loaded is loaded:
                        self._loaded = None
                    return None
                _catch_up(loaded, connection)
        return (question(loaded.matrix),)

    def _is_current(self, loaded: _Loaded) -> bool:
        """Whether the matrix holds every change that this process knows of."""
        return loaded.generation == self._database.file.generation and loaded.version >= self._database.stored

    def _can_catch_up(self, loaded: _Loaded, connection: sqlite3.Connection) -> bool:
        forgotten: int = connection.execute("SELECT forgotten FROM totals").fetchone()[0]
        return loaded.generation == self._database.file.generation and forgotten <= loaded.last_deletion


def _load(generation: int, connection: sqlite3.Connection) -> _Loaded:
    loaded = _Loaded(generation, *_position(connection))
    rows = connection.execute(_STORED, (0,))
    while batch := rows.fetchmany(_BATCH):
        loaded.matrix.change((), [StoredVector(*row) for row in batch])
    return loaded


def _catch_up(loaded: _Loaded, connection: sqlite3.Connection) -> None:
    """Read everything first, so that an interrupted reader leaves the matrix unchanged."""
    version, last_vector, last_deletion, made_by = _position(connection)
    if version <= loaded.version:
        return
    deletions = connection.execute("SELECT chunk FROM deletions WHERE seq > ?", (loaded.last_deletion,))
    gone = [chunk for (chunk,) in deletions]
    new = [StoredVector(*row) for row in connection.execute(_STORED, (loaded.last_vector,))]
    if gone or new:
        loaded.matrix.change(gone, new)
    loaded.version, loaded.last_vector, loaded.last_deletion = version, last_vector, last_deletion
    loaded.made_by = made_by


def _position(connection: sqlite3.Connection) -> tuple[int, int, int, str | None]:
    """The snapshot's version, its newest vector and deletion, and the fingerprint of its model."""
    row: tuple[int, int, int, str | None] = connection.execute(
        """SELECT version, (SELECT ifnull(max(seq), 0) FROM vectors),
                  max(forgotten, (SELECT ifnull(max(seq), 0) FROM deletions)),
                  (SELECT json_extract(value, '$.fingerprint') FROM meta WHERE name = 'model') FROM totals"""
    ).fetchone()
    return row


def _read_vectors(chunk_ids: Sequence[str], connection: sqlite3.Connection) -> dict[str, Vector]:
    """The vectors (`(dim,) float32`) of the given chunks; those without are left out."""
    rows = connection.execute(_VECTORS, (json.dumps(chunk_ids),))
    return {id_: np.frombuffer(blob, dtype="<f4").astype(np.float32, copy=False) for id_, blob in rows}
