"""The vectors of rows: in float32; where there are many, also as 8-bit integers; where there are very many, only so.

A scan of the integers reads a quarter of the memory, and finds the few rows that can be among the best; those alone
are scored in float32. The result is the same, because each row has an upper bound of its cosine. A row `x` is kept as
`s * c`, with `c` integers of -127 to 127, and `e = x - s * c` is missing. For a query `q`, rounded in the same way to
`t * d` with the rest `f`,

    x . q  =  s * t * (c . d)  +  (s * c) . f  +  e . q  <=  s * t * (c . d)  +  |s * c| |f|  +  |e| |q|

by Cauchy and Schwarz. No row whose bound is below the exact cosines of `limit` other rows is among the best `limit`.
With 384 dimensions the last two terms are some .013 together, so that few more rows than `limit` are left. Where there
are very many rows, these few are read from the file.

Rows stand in blocks, so that the matrix grows without being copied; the last row fills the place of one that goes, so
that it shrinks too. The owner of the rows must prevent reads while they change.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numkong import cdist
from numpy.typing import NDArray

from rag_context.domain.vectors import Matrix, Vector

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]

BLOCK_ROWS = 8192

FEW = 0.2
"""Up to this share of the rows, copying the matching ones out costs less than multiplying all of them."""

QUANTISED_FROM = 10_000
"""Rows from which on there are integers: from some 8 000 on a scan of them takes less time than one in float32."""

IN_MEMORY_BYTES = 1 << 30
"""Float32 that is kept in memory: 699 050 rows of 384 dimensions."""

AT_ONCE = 2048
"""Rows that are read from the file in one step."""

NARROW = 1000
"""Up to so many matching rows are scored in float32 at once."""

COLUMNS = 4
LEAST_HEIGHT = 8
"""So many columns for each score to find, if each gets so many scores: to sort all in part takes five to thirteen times
as long for 10 000 to a million different ones, and some hundred times where most are equal."""

LARGEST_CODE = 127

LEAST, MOST = 1e-9, 1e9
"""Between these the greatest number of a vector must be, else it is zero or damaged."""

ReadVectors = Callable[[Sequence[int]], Matrix]
"""`(n, dim) float32`, the stored vectors with these sequence numbers."""

ReadRows = Callable[[Rows], Matrix]
"""`(len(rows), dim) float32`, the stored vectors of rows, which ascend."""


def matrix_of(stored: Sequence[bytes], dimension: int) -> Matrix:
    """`(n, dimension) float32`, vectors as the file has them."""
    return np.frombuffer(b"".join(stored), dtype="<f4").reshape(-1, dimension)


def vector_of(stored: bytes) -> Vector:
    return np.frombuffer(stored, dtype="<f4").astype(np.float32, copy=False)


class Blocks:
    """A growing and shrinking `(n, dim) float32` matrix."""

    def __init__(self) -> None:
        self._blocks: list[Matrix] = []
        self._size = 0

    def reserve(self, rows: int, dimension: int) -> None:
        while len(self._blocks) * BLOCK_ROWS < rows:
            self._blocks.append(np.zeros((BLOCK_ROWS, dimension), dtype=np.float32))
        self._size = max(self._size, rows)

    def put(self, rows: Rows, vectors: Matrix) -> None:
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
    # Of many, first those that reach the limit-th highest of some columns' maxima, which so many scores do.
    columns = COLUMNS * limit
    if (height := len(scores) // columns) >= LEAST_HEIGHT:
        highest = scores[: height * columns].reshape(height, columns).max(axis=0)
        rows = np.flatnonzero(scores >= np.partition(highest, columns - limit)[columns - limit])
        if limit <= len(rows) < len(scores):
            return rows[best(scores[rows], limit)]
    return np.flatnonzero(scores >= np.partition(scores, surplus)[surplus])


def in_order(scores: NDArray[np.floating], rows: Rows, ids: Sequence[str], limit: int) -> list[tuple[float, int]]:
    """Score and row of the best `limit`, best first, equal ones by id; `ids` are those of all rows there are."""
    named = zip((-scores).tolist(), [ids[row] for row in rows], rows.tolist(), strict=True)
    return [(-negative, row) for negative, _, row in sorted(named)[:limit]]


class _Rounded(NamedTuple):
    """`codes * scales[:, np.newaxis]` is about the vectors; none is longer than `norm`, and no rest than `error`."""

    codes: NDArray[np.int8]
    scales: Vector
    norm: float
    error: float


def _rounded(vectors: Matrix) -> _Rounded:
    """The error is infinite where a vector cannot be rounded: then its bound is infinite too, and it is scored."""
    # Each vector has a scale of its own: a common one would round short vectors to zero.
    largest = np.abs(vectors).max(axis=1)
    usable = (largest >= LEAST) & (largest <= MOST)  # neither is true of NaN
    codes, error = np.empty(vectors.shape, dtype=np.int8), 0.0
    if not usable.all():
        error = 0.0 if (usable | (largest == 0.0)).all() else np.inf
        vectors, largest = np.where(usable[:, np.newaxis], vectors, 0.0), np.where(usable, largest, 1.0)
    scales = largest / np.float32(LARGEST_CODE)
    rest = np.rint(vectors / scales[:, np.newaxis])
    codes[:] = rest
    rest *= scales[:, np.newaxis]
    rest -= vectors
    norm, missing = (float(np.sqrt(np.vecdot(each, each).max())) for each in (vectors, rest))
    return _Rounded(codes, scales, norm, max(error, missing))


class _Block:
    """`BLOCK_ROWS` rows. `norm` and `error` only grow: after a row is replaced they may be more than is necessary."""

    __slots__ = ("codes", "error", "norm", "scales")

    def __init__(self, dimension: int) -> None:
        self.codes = np.zeros((BLOCK_ROWS, dimension), dtype=np.int8)
        self.scales = np.zeros(BLOCK_ROWS, dtype=np.float32)
        self.norm = self.error = 0.0

    def put(self, rows: Rows, vectors: Matrix) -> None:
        rounded = _rounded(vectors)
        self.codes[rows], self.scales[rows] = rounded.codes, rounded.scales
        # One bound for the whole block: a number for each row would be read with every scan, and tell little more.
        self.norm, self.error = max(self.norm, rounded.norm), max(self.error, rounded.error)

    def copy_row(self, row: int, other: "_Block", other_row: int) -> None:
        self.codes[row], self.scales[row] = other.codes[other_row], other.scales[other_row]
        self.norm, self.error = max(self.norm, other.norm), max(self.error, other.error)

    def bounds(self, query: _Rounded, rows: Rows, out: Vector) -> None:
        """Write the bounds of `rows`, which ascend and of which there is at least one."""
        slack = (self.norm + self.error) * query.error + self.error * query.norm
        # Sums of `dim` products in float32, here and in the exact cosine, are off by less than this.
        slack += 2.0 * self.codes.shape[1] * float(np.finfo(np.float32).eps) * (self.norm + self.error) * query.norm
        if not np.isfinite(slack):
            out[:] = np.inf
            return
        # All rows up to the last one, which needs no copy, or copies of the few that match.
        last = int(rows[-1]) + 1
        if len(rows) <= FEW * last:
            cdist(query.codes, self.codes.take(rows, axis=0), "dot", out=out[np.newaxis])
            out *= self.scales[rows]
        else:
            products = out if len(rows) == last else np.empty(last, dtype=np.float32)
            cdist(query.codes, self.codes[:last], "dot", out=products[np.newaxis])
            products *= self.scales[:last]
            if products is not out:
                products.take(rows, out=out)
        out *= query.scales[0]
        out += np.float32(slack)


class Vectors:
    """A growing and shrinking `(n, dim)` matrix, searched by cosine. Its owner prevents reads while it changes.

    With the number of rows `expected`, too many are never held in float32.
    """

    def __init__(self, expected: int = 0) -> None:
        self._expected = expected
        self._exact: Blocks | None = Blocks()
        self._rounded: list[_Block] = []
        self._size = 0

    def reserve(self, rows: int, dimension: int) -> None:
        """Grow to so many rows; new ones are zero."""
        is_large = 4 * max(rows, self._expected) * dimension > IN_MEMORY_BYTES
        # The integers first: they are made of the float32 rows, which a large matrix then drops.
        if rows >= QUANTISED_FROM or is_large or self._rounded:
            self._reserve_rounded(rows, dimension)
        self._size = max(self._size, rows)
        if is_large:
            self._exact = None
        if self._exact is not None:
            self._exact.reserve(rows, dimension)

    def put(self, rows: Rows, vectors: Matrix) -> None:
        if self._exact is not None:
            self._exact.put(rows, vectors)
        if self._rounded:
            self._round(rows, vectors)

    def append(self, vectors: Matrix) -> None:
        start, end = self._size, self._size + len(vectors)
        self.reserve(end, vectors.shape[1])
        self.put(np.arange(start, end), vectors)

    def move_last_to(self, row: int) -> None:
        self._size -= 1
        if not self._size:  # the next rows are held as those of a new matrix are
            self._exact, self._rounded, self._expected = Blocks(), [], 0
            return
        if self._exact is not None:
            self._exact.move_last_to(row)
        if self._rounded:
            last = self._size % BLOCK_ROWS
            self._rounded[row // BLOCK_ROWS].copy_row(row % BLOCK_ROWS, self._rounded[-1], last)
            if not last:
                self._rounded.pop()

    def only(self, rows: Rows) -> "Vectors":
        """A copy with `rows` (ascending) alone."""
        copy = Vectors()
        copy._size = len(rows)
        copy._exact = None if self._exact is None else self._exact.only(rows)
        if self._exact is None or len(rows) >= QUANTISED_FROM:
            for start in range(0, len(rows), BLOCK_ROWS):
                copy._rounded.append(self._rounded_only(rows[start : start + BLOCK_ROWS]))
        return copy

    def nearest(self, query: Vector, limit: int, among: Mask | None, read: ReadRows) -> tuple[Vector, Rows]:
        """The exact cosines and rows of the best `limit`, and of all that equal the last of them; rows ascend.

        Of the rows `among` (`(n,)`; None: of all), to `query` (`(dim,) float32`, contiguous); `read` is for vectors
        that are not in memory.
        """
        rows = np.arange(self._size) if among is None else np.flatnonzero(among)
        if not len(rows):
            return np.empty(0, dtype=np.float32), rows
        # Below that the bounds would cost more than the multiplications that they save.
        if self._rounded and len(rows) > max(NARROW, limit):
            rows = self._contenders(query, limit, rows, read)
        all_or_some = None if len(rows) == self._size else rows
        scores = self.scores_of(query, rows, read) if self._exact is None else self._exact.scores(query, all_or_some)
        highest = best(scores, limit)
        return scores[highest], rows[highest]

    def scores_of(self, query: Vector, rows: Rows, read: ReadRows) -> Vector:
        """`(len(rows),)` exact cosines of `rows`, which ascend, to `query` (`(dim,) float32`, contiguous)."""
        if self._exact is not None:
            return self._exact.scores_of(query, rows)
        scores = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            np.vecdot(read(rows[part]), query, out=scores[part])
        return scores

    def _contenders(self, query: Vector, limit: int, rows: Rows, read: ReadRows) -> Rows:
        """Those of `rows`, more than `limit`, that can be among their best `limit`."""
        rounded, bounds = _rounded(query[np.newaxis]), np.empty(len(rows), dtype=np.float32)
        for number, start, end in runs(rows, len(self._rounded)):
            self._rounded[number].bounds(rounded, rows[start:end] - number * BLOCK_ROWS, bounds[start:end])
        # Any `limit` rows would do for the least cosine; those of the highest bounds exclude most of the others.
        promising = rows[best(bounds, limit)[:limit]]
        least = self.scores_of(query, promising, read).min()
        # With a damaged vector among them there is no least cosine, and nothing is excluded.
        return rows[bounds >= least] if np.isfinite(least) else rows

    def _reserve_rounded(self, rows: int, dimension: int) -> None:
        """The first time, round what is there."""
        unrounded = 0 if self._rounded or self._exact is None else self._size
        while len(self._rounded) * BLOCK_ROWS < rows:
            self._rounded.append(_Block(dimension))
        for start in range(0, unrounded, BLOCK_ROWS):
            earlier = np.arange(start, min(start + BLOCK_ROWS, unrounded))
            if self._exact is not None:
                self._round(earlier, self._exact.take(earlier))

    def _round(self, rows: Rows, vectors: Matrix) -> None:
        for number, of_block, places in by_block(rows):
            self._rounded[number].put(places, vectors[of_block])

    def _rounded_only(self, rows: Rows) -> _Block:
        """A block of these rows."""
        copy = _Block(self._rounded[0].codes.shape[1])
        for number, of_block, places in by_block(rows):
            block, new_places = self._rounded[number], np.flatnonzero(of_block)
            copy.codes[new_places], copy.scales[new_places] = block.codes[places], block.scales[places]
            copy.norm, copy.error = max(copy.norm, block.norm), max(copy.error, block.error)
        return copy
