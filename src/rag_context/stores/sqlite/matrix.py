"""All vectors in memory: exact search under any filter, and nothing to tune.

Rows stand in blocks, so that the matrix grows without being copied; the last row fills the place of one that
goes, so that it shrinks too. Readers share it, a change has it to itself: no search sees half a change.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import numpy as np

from rag_context.errors import BackendDataError
from rag_context.stores.sqlite.columns import Columns, Rows, StoredVector
from rag_context.stores.sqlite.faults import COMPONENT
from rag_context.types import Filter, Matrix, Vector, VectorHit

BLOCK_ROWS = 8192

FEW = 0.2
"""Up to this share of the rows, copying the matching ones out costs less than multiplying all of them."""


class Gate:
    """Many may read or one may write; a writer that waits lets no new reader in."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._readers = 0
        self._writers = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Share."""
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
        """Share without waiting; False where somebody writes. `leave` ends it."""
        with self._condition:
            if self._writers:
                return False
            self._readers += 1
            return True

    def leave(self) -> None:
        """End what `enter_now` began."""
        with self._condition:
            self._readers -= 1
            self._condition.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Have it alone. Writers must not come two at a time: their owner sees to that."""
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
        self._gate = Gate()
        self._dimension: int | None = None
        self._blocks: list[Matrix] = []
        self._columns = Columns()
        self._ids: list[str] = []
        self._rows: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def dimension(self) -> int | None:
        """Length of the vectors; None while there is none."""
        return self._dimension

    def change(self, gone: Sequence[str], new: Sequence[StoredVector]) -> None:
        """Take the chunks `gone` out and put `new` in, which must not be there, as one step for every reader.

        Raises:
            BackendDataError: the vectors differ in length.
        """
        with self._gate.writing():
            for chunk in gone:
                self._remove(chunk)
            if new:
                self._append(new)

    def search(self, vector: Vector, limit: int, where: Filter) -> list[VectorHit]:
        """The `limit` chunks of highest cosine to `vector` (`(dim,) float32`), equal ones by chunk id.

        Raises:
            BackendDataError: `vector` has another dimension than the index.
        """
        with self._gate.reading():
            if not self._ids or limit < 1:
                return []
            query = self._checked(vector)
            rows = self._columns.matching(where)
            if rows is not None and not len(rows):
                return []
            scores = self._scores(query, rows)
            best = _best(scores, limit)
            found = best if rows is None else rows[best]
            named = zip((-scores[best]).tolist(), [self._ids[row] for row in found], found.tolist(), strict=True)
            order = sorted(named)[:limit]
            return [VectorHit(self._columns.reference(row, chunk), -negative) for negative, chunk, row in order]

    def score(self, vector: Vector, chunks: Sequence[str]) -> dict[str, float]:
        """Cosines of `chunks` to `vector` (`(dim,) float32`); chunks without a vector are left out.

        Raises:
            BackendDataError: `vector` has another dimension than the index.
        """
        with self._gate.reading():
            return self._score(vector, chunks)

    def score_now(self, vector: Vector, chunks: Sequence[str]) -> dict[str, float] | None:
        """As `score`, without ever waiting; None where the matrix is being changed."""
        if not self._gate.enter_now():
            return None
        try:
            return self._score(vector, chunks)
        finally:
            self._gate.leave()

    def _score(self, vector: Vector, chunks: Sequence[str]) -> dict[str, float]:
        if not self._ids:
            return {}
        query = self._checked(vector)
        known = {chunk: self._rows[chunk] for chunk in chunks if chunk in self._rows}
        order = sorted(known, key=known.__getitem__)
        scores = self._scores_of(query, np.array([known[chunk] for chunk in order], dtype=np.intp))
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
        for taken in range(0, len(new), BLOCK_ROWS):
            self._copy_in(start + taken, vectors[taken : taken + BLOCK_ROWS])
        self._columns.append(new)
        self._ids.extend([row.chunk for row in new])
        self._rows.update(zip((row.chunk for row in new), range(start, start + len(new)), strict=True))

    def _copy_in(self, start: int, vectors: Matrix) -> None:
        """At most one block's worth, which may begin in one block and end in the next."""
        while len(vectors):
            block, offset = divmod(start, BLOCK_ROWS)
            if block == len(self._blocks):
                self._blocks.append(np.empty((BLOCK_ROWS, vectors.shape[1]), dtype=np.float32))
            fits = min(len(vectors), BLOCK_ROWS - offset)
            self._blocks[block][offset : offset + fits] = vectors[:fits]
            start, vectors = start + fits, vectors[fits:]

    def _remove(self, chunk: str) -> None:
        row = self._rows.pop(chunk, None)
        if row is None:
            return
        last = len(self._ids) - 1
        self._columns.move_last_to(row)
        moved = self._ids.pop()
        if row != last:
            self._blocks[row // BLOCK_ROWS][row % BLOCK_ROWS] = self._blocks[last // BLOCK_ROWS][last % BLOCK_ROWS]
            self._ids[row] = moved
            self._rows[moved] = row
        if last % BLOCK_ROWS == 0:
            self._blocks.pop()
        if last == 0:
            self._dimension = None

    def _scores(self, query: Vector, rows: Rows | None) -> Vector:
        """Cosines of `rows` (ascending), or of all.

        `vecdot` takes each row by itself: equal vectors get equal cosines wherever they stand, and no thread pool of
        a BLAS competes with the threads that search (with two busy cores it made a search 30 times as slow).
        """
        size = len(self._ids)
        if rows is not None and len(rows) <= FEW * size:
            return self._scores_of(query, rows)
        scores = np.empty(size, dtype=np.float32)
        for number, block in enumerate(self._blocks):
            start = number * BLOCK_ROWS
            end = min(start + BLOCK_ROWS, size)
            np.vecdot(block[: end - start], query, out=scores[start:end])
        return scores if rows is None else scores[rows]

    def _scores_of(self, query: Vector, rows: Rows) -> Vector:
        """`(len(rows),)` cosines of `rows`, which ascend."""
        scores = np.empty(len(rows), dtype=np.float32)
        cuts = np.searchsorted(rows, np.arange(len(self._blocks) + 1) * BLOCK_ROWS).tolist()
        for number, (start, end) in enumerate(pairwise(cuts)):
            if start < end:
                vectors = self._blocks[number].take(rows[start:end] - number * BLOCK_ROWS, axis=0)
                np.vecdot(vectors, query, out=scores[start:end])
        return scores


def _best(scores: Vector, limit: int) -> Rows:
    """Where the highest `limit` scores are, and all that equal the last of them."""
    surplus = len(scores) - limit
    if surplus <= 0:
        return np.arange(len(scores))
    return np.flatnonzero(scores >= np.partition(scores, surplus)[surplus])
