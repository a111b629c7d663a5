"""Vectors row by row in memory, and their cosines to a query.

Rows stand in blocks, so that the matrix grows without being copied; the last row fills the place of one that
goes, so that it shrinks too. The owner of the rows must prevent reads while they change.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rag_context.domain.vectors import Matrix, Vector

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]

BLOCK_ROWS = 8192

FEW = 0.2
"""Up to this share of the rows, copying the matching ones out costs less than multiplying all of them."""


class Blocks:
    """A growing and shrinking `(n, dim) float32` matrix."""

    def __init__(self) -> None:
        self._blocks: list[Matrix] = []
        self._size = 0

    def reserve(self, rows: int, dimension: int) -> None:
        """Grow to so many rows; new ones are zero."""
        while len(self._blocks) * BLOCK_ROWS < rows:
            self._blocks.append(np.zeros((BLOCK_ROWS, dimension), dtype=np.float32))
        self._size = max(self._size, rows)

    def put(self, rows: Rows, vectors: Matrix) -> None:
        """Set rows that are there."""
        for number, of_block, places in by_block(rows):
            self._blocks[number][places] = vectors[of_block]

    def only(self, rows: Rows) -> "Blocks":
        """A copy with `rows` (ascending) alone."""
        copy = Blocks()
        for start in range(0, len(rows), BLOCK_ROWS):
            taken = self.take(rows[start : start + BLOCK_ROWS])
            copy.reserve(start + len(taken), taken.shape[1])
            copy.put(np.arange(start, start + len(taken)), taken)
        return copy

    def take(self, rows: Rows) -> Matrix:
        """`(len(rows), dim)`, a copy of `rows`."""
        taken = np.empty((len(rows), self._blocks[0].shape[1]), dtype=np.float32)
        for number, of_block, places in by_block(rows):
            taken[of_block] = self._blocks[number][places]
        return taken

    def move_last_to(self, row: int) -> None:
        """Remove `row` by moving the last row into its place."""
        last = self._size - 1
        self._blocks[row // BLOCK_ROWS][row % BLOCK_ROWS] = self._blocks[last // BLOCK_ROWS][last % BLOCK_ROWS]
        if last % BLOCK_ROWS == 0:
            self._blocks.pop()
        self._size = last

    def scores(self, query: Vector, rows: Rows | None) -> Vector:
        """Cosines of `rows` (ascending), or of all, to `query` (`(dim,) float32`, contiguous).

        `vecdot` takes each row by itself: equal vectors get equal cosines wherever they stand, and no thread pool of
        a BLAS competes with the threads that search (with two busy cores it made a search 30 times as slow).
        """
        if rows is not None and len(rows) <= FEW * self._size:
            return self.scores_of(query, rows)
        scores = np.empty(self._size, dtype=np.float32)
        for number, block in enumerate(self._blocks):
            start = number * BLOCK_ROWS
            end = min(start + BLOCK_ROWS, self._size)
            np.vecdot(block[: end - start], query, out=scores[start:end])
        return scores if rows is None else scores[rows]

    def scores_of(self, query: Vector, rows: Rows) -> Vector:
        """`(len(rows),)` cosines of `rows`, which ascend."""
        scores = np.empty(len(rows), dtype=np.float32)
        for number, start, end in runs(rows, len(self._blocks)):
            vectors = self._blocks[number].take(rows[start:end] - number * BLOCK_ROWS, axis=0)
            np.vecdot(vectors, query, out=scores[start:end])
        return scores


def by_block(rows: Rows) -> Iterator[tuple[int, Mask, Rows]]:
    """The number of each block that has some of `rows`, which of them, and their places in it."""
    numbers = rows // BLOCK_ROWS
    for number in np.unique(numbers).tolist():
        of_block = numbers == number
        yield number, of_block, rows[of_block] - number * BLOCK_ROWS


def runs(rows: Rows, blocks: int) -> Iterator[tuple[int, int, int]]:
    """For each of so many blocks that has some of `rows`, which ascend: its number, and where they start and end."""
    cuts = np.searchsorted(rows, np.arange(blocks + 1) * BLOCK_ROWS).tolist()
    for number, (start, end) in enumerate(pairwise(cuts)):
        if start < end:
            yield number, start, end


def best(scores: NDArray[np.floating], limit: int) -> Rows:
    """The indices of the highest `limit` scores, and of all that equal the last of them."""
    surplus = len(scores) - limit
    if surplus <= 0 or limit < 1:
        return np.arange(len(scores) if limit > 0 else 0)
    return np.flatnonzero(scores >= np.partition(scores, surplus)[surplus])


def in_order(scores: NDArray[np.floating], rows: Rows, ids: Sequence[str], limit: int) -> list[tuple[float, int]]:
    """Score and row of the best `limit`, best first, equal ones by id; `ids` are those of all rows there are."""
    named = zip((-scores).tolist(), [ids[row] for row in rows], rows.tolist(), strict=True)
    return [(-negative, row) for negative, _, row in sorted(named)[:limit]]
