"""Vectors row by row in memory, and their cosines to a query.

Rows stand in blocks, so that the matrix grows without being copied; the last row fills the place of one that
goes, so that it shrinks too. The owner of the rows must prevent reads while they change.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rag_context.domain.vectors import Matrix, Vector

Rows = NDArray[np.intp]

BLOCK_ROWS = 8192

FEW = 0.2
"""Up to this share of the rows, copying the matching ones out costs less than multiplying all of them."""


class Blocks:
    """A growing and shrinking `(n, dim) float32` matrix."""

    def __init__(self) -> None:
        self._blocks: list[Matrix] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, vectors: Matrix) -> None:
        """Add rows of the same length."""
        for taken in range(0, len(vectors), BLOCK_ROWS):
            self._copy_in(vectors[taken : taken + BLOCK_ROWS])

    def reserve(self, rows: int, dimension: int) -> None:
        """Grow to so many rows; new ones are zero."""
        while len(self._blocks) * BLOCK_ROWS < rows:
            self._blocks.append(np.zeros((BLOCK_ROWS, dimension), dtype=np.float32))
        self._size = max(self._size, rows)

    def put(self, rows: Rows, vectors: Matrix) -> None:
        """Set rows that are there."""
        numbers = rows // BLOCK_ROWS
        for number in np.unique(numbers).tolist():
            of_block = numbers == number
            self._blocks[number][rows[of_block] - number * BLOCK_ROWS] = vectors[of_block]

    def only(self, rows: Rows) -> "Blocks":
        """A copy with `rows` (ascending) alone."""
        copy = Blocks()
        for start in range(0, len(rows), BLOCK_ROWS):
            copy.append(self.take(rows[start : start + BLOCK_ROWS]))
        return copy

    def take(self, rows: Rows) -> Matrix:
        """`(len(rows), dim)`, a copy of `rows`."""
        numbers = rows // BLOCK_ROWS
        taken = np.empty((len(rows), self._blocks[0].shape[1]), dtype=np.float32)
        for number in np.unique(numbers).tolist():
            of_block = numbers == number
            taken[of_block] = self._blocks[number][rows[of_block] - number * BLOCK_ROWS]
        return taken

    def move_last_to(self, row: int) -> None:
        """Remove `row` by moving the last row into its place."""
        last = self._size - 1
        if row != last:
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
        cuts = np.searchsorted(rows, np.arange(len(self._blocks) + 1) * BLOCK_ROWS).tolist()
        for number, (start, end) in enumerate(pairwise(cuts)):
            if start < end:
                vectors = self._blocks[number].take(rows[start:end] - number * BLOCK_ROWS, axis=0)
                np.vecdot(vectors, query, out=scores[start:end])
        return scores

    def _copy_in(self, vectors: Matrix) -> None:
        """At most one block's worth, which may begin in one block and end in the next."""
        while len(vectors):
            block, offset = divmod(self._size, BLOCK_ROWS)
            if block == len(self._blocks):
                self._blocks.append(np.empty((BLOCK_ROWS, vectors.shape[1]), dtype=np.float32))
            fits = min(len(vectors), BLOCK_ROWS - offset)
            self._blocks[block][offset : offset + fits] = vectors[:fits]
            self._size, vectors = self._size + fits, vectors[fits:]


def best(scores: NDArray[np.floating], limit: int) -> Rows:
    """The indices of the highest `limit` scores, and of all that equal the last of them."""
    surplus = len(scores) - limit
    if surplus <= 0:
        return np.arange(len(scores))
    return np.flatnonzero(scores >= np.partition(scores, surplus)[surplus])
