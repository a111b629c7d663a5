"""All vectors in memory: exact search under any filter, and nothing to tune.

A read-write lock protects it: no search sees a partial change.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from rag_context.domain.search import Filter, VectorHit
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendDataError
from rag_context.stores.sqlite.blocks import Blocks, best
from rag_context.stores.sqlite.columns import Columns, StoredVector
from rag_context.stores.sqlite.faults import COMPONENT


class ReadWriteLock:
    """A read-write lock that prefers writers: a waiting writer blocks new readers."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._readers = 0
        self._writers = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Lock for reading."""
        with self._condition:
            while self._writers:
                self._condition.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._condition:
                self._readers -= 1
                self._condition.notify_all()

    def enter_now(self) -> bool:
        """Lock for reading without waiting; False while a writer has the lock. `leave` unlocks it."""
        with self._condition:
            if self._writers:
                return False
            self._readers += 1
            return True

    def leave(self) -> None:
        """Unlock after `enter_now`."""
        with self._condition:
            self._readers -= 1
            self._condition.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock for writing. The owner must ensure that there is only one writer at a time."""
        with self._condition:
            self._writers += 1
            while self._readers:
                self._condition.wait()
        try:
            yield
        finally:
            with self._condition:
                self._writers -= 1
                self._condition.notify_all()


class VectorMatrix:
    """Vectors with their columns. Safe to use from several threads, changed by one at a time."""

    def __init__(self) -> None:
        self._lock = ReadWriteLock()
        self._dimension: int | None = None
        self._vectors = Blocks()
        self._columns = Columns()
        self._ids: list[str] = []
        self._rows: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def dimension(self) -> int | None:
        """Dimension of the vectors; None while there is none."""
        return self._dimension

    def change(self, gone: Sequence[str], new: Sequence[StoredVector]) -> None:
        """Remove the chunks `gone` and add `new`, which must not exist, atomically for every reader.

        Raises:
            BackendDataError: the vectors differ in length, or their metadata is damaged; none of them was added.
        """
        with self._lock.writing():
            for chunk in gone:
                self._remove(chunk)
            if new:
                self._append(new)

    def search(self, vector: Vector, limit: int, where: Filter) -> list[VectorHit]:
        """The `limit` chunks of highest cosine to `vector` (`(dim,) float32`), equal ones by chunk id.

        Raises:
            BackendDataError: `vector` has another dimension than the index.
        """
        with self._lock.reading():
            if not self._ids or limit < 1:
                return []
            query = self._checked(vector)
            rows = self._columns.matching(where)
            if rows is not None and not len(rows):
                return []
            scores = self._vectors.scores(query, rows)
            highest = best(scores, limit)
            found = highest if rows is None else rows[highest]
            named = zip((-scores[highest]).tolist(), [self._ids[row] for row in found], found.tolist(), strict=True)
            order = sorted(named)[:limit]
            return [VectorHit(self._columns.reference(row, chunk), -negative) for negative, chunk, row in order]

    def score(self, vector: Vector, chunks: Sequence[str]) -> dict[str, float]:
        """Cosines of `chunks` to `vector` (`(dim,) float32`); chunks without a vector are left out.

        Raises:
            BackendDataError: `vector` has another dimension than the index.
        """
        with self._lock.reading():
            return self._score(vector, chunks)

    def score_now(self, vector: Vector, chunks: Sequence[str]) -> dict[str, float] | None:
        """As `score`, without ever waiting; None while the matrix is being changed."""
        if not self._lock.enter_now():
            return None
        try:
            return self._score(vector, chunks)
        finally:
            self._lock.leave()

    def _score(self, vector: Vector, chunks: Sequence[str]) -> dict[str, float]:
        if not self._ids:
            return {}
        query = self._checked(vector)
        known = {chunk: self._rows[chunk] for chunk in chunks if chunk in self._rows}
        order = sorted(known, key=known.__getitem__)
        scores = self._vectors.scores_of(query, np.array([known[chunk] for chunk in order], dtype=np.intp))
        return dict(zip(order, scores.tolist(), strict=True))

    def _checked(self, vector: Vector) -> Vector:
        if vector.shape != (self._dimension,):
            raise BackendDataError(
                COMPONENT, f"The query's vector has shape {vector.shape}, the index has dimension {self._dimension}."
            )
        return np.ascontiguousarray(vector, dtype=np.float32)

    def _append(self, new: Sequence[StoredVector]) -> None:
        dimension = len(new[0].vector) // 4 if self._dimension is None else self._dimension
        if any(len(row.vector) != 4 * dimension for row in new):
            raise BackendDataError(COMPONENT, f"A stored vector is not of dimension {dimension}; run a reindex.")
        self._dimension = dimension
        vectors = np.frombuffer(b"".join([row.vector for row in new]), dtype="<f4").reshape(len(new), dimension)
        start = len(self._ids)
        try:
            self._columns.append(new)
        except (TypeError, ValueError, OverflowError):  # its message may contain stored data
            raise BackendDataError(COMPONENT, "A stored document is damaged; run `rag-context check`.") from None
        self._vectors.append(vectors)
        self._ids.extend([row.chunk for row in new])
        self._rows.update(zip((row.chunk for row in new), range(start, start + len(new)), strict=True))

    def _remove(self, chunk: str) -> None:
        row = self._rows.pop(chunk, None)
        if row is None:
            return
        last = len(self._ids) - 1
        self._columns.move_last_to(row)
        self._vectors.move_last_to(row)
        moved = self._ids.pop()
        if row != last:
            self._ids[row] = moved
            self._rows[moved] = row
        if last == 0:
            self._dimension = None
