"""The terms of chunks, column by column: exact BM25 scores of all chunks at once.

A term is a number of 64 bits, the hash of its text: two of a million differing terms share one with a probability of
one in thirty million, and no dictionary has to be kept, loaded or agreed on between processes.

Like the segments of Lucene, postings stand in sorted pieces. New ones come to a small unsorted tail; a full tail
becomes a piece, and two pieces of similar size become one, so that every posting is sorted a few times only.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int32]
Keys = NDArray[np.uint64]
Counts = NDArray[np.uint16]

STORED = np.dtype([("term", "<u8"), ("count", "<u2")])
"""How a chunk's distinct terms are stored in the file, ascending."""

MOST_COUNTED = 65_535

TAIL = 65_536
"""Postings that are looked through one by one; looking through all of them takes some 30 microseconds."""


@lru_cache(maxsize=65_536)
def term_key(term: str) -> int:
    """The number that stands for a term."""
    return int.from_bytes(blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def packed(words: Sequence[str]) -> bytes:
    """The terms of a chunk as they are stored: each distinct one and its count."""
    counted = sorted((term_key(word), min(count, MOST_COUNTED)) for word, count in Counter(words).items())
    return np.array(counted, dtype=STORED).tobytes()


def is_packed(stored: object) -> bool:
    """Whether a value from the file can be terms."""
    return isinstance(stored, bytes) and len(stored) % STORED.itemsize == 0


@dataclass(frozen=True, slots=True)
class _Piece:
    """Postings by term: those of `terms[i]` are `starts[i]` to `starts[i + 1]`, their rows ascend."""

    terms: Keys
    starts: NDArray[np.int64]
    rows: Rows
    counts: Counts

    def of(self, term: int) -> tuple[Rows, Counts] | None:
        place = int(np.searchsorted(self.terms, np.uint64(term)))
        if place == len(self.terms) or int(self.terms[place]) != term:
            return None
        start, end = self.starts[place], self.starts[place + 1]
        return self.rows[start:end], self.counts[start:end]


@dataclass(frozen=True, slots=True)
class _Unsorted:
    """One term, row and count for each posting; rows ascend."""

    terms: Keys
    rows: Rows
    counts: Counts

    def sorted(self) -> _Piece:
        order = np.argsort(self.terms, kind="stable")  # rows of a term keep ascending
        terms = self.terms[order]
        first = np.flatnonzero(np.concatenate(([True], terms[1:] != terms[:-1])))
        return _Piece(terms[first], np.append(first, len(terms)), self.rows[order], self.counts[order])


class Postings:
    """Which rows hold each term, and how often. Its owner prevents reads while it changes."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self._tail: list[_Unsorted] = []
        self._tail_size = 0

    def __len__(self) -> int:
        return self._tail_size + sum(len(piece.rows) for piece in self._pieces)

    def append(self, first_row: int, stored: Sequence[bytes]) -> None:
        """Add the terms of new rows, `packed`, from `first_row` on."""
        stored = [each if is_packed(each) else b"" for each in stored]  # `check` finds damaged ones
        sizes = [len(each) // STORED.itemsize for each in stored]
        records = np.frombuffer(b"".join(stored), dtype=STORED)
        if not len(records):
            return
        rows = np.repeat(np.arange(first_row, first_row + len(stored), dtype=np.int32), sizes)
        self._tail.append(_Unsorted(records["term"].astype(np.uint64), rows, records["count"].astype(np.uint16)))
        self._tail_size += len(records)
        if self._tail_size >= TAIL:
            self._pieces.append(self._whole_tail().sorted())
            self._tail, self._tail_size = [], 0
            while len(self._pieces) > 1 and len(self._pieces[-2].rows) < 2 * len(self._pieces[-1].rows):
                last = self._pieces.pop()
                self._pieces[-1] = _merged(self._pieces[-1], last)

    def of(self, term: str) -> Iterator[tuple[Rows, Counts]]:
        """The rows that hold `term`, and how often, in one or several parts."""
        key = term_key(term)
        for piece in self._pieces:
            found = piece.of(key)
            if found is not None:
                yield found
        if self._tail_size:
            tail = self._whole_tail()
            places = np.flatnonzero(tail.terms == np.uint64(key))
            if len(places):
                yield tail.rows[places], tail.counts[places]

    def renumber(self, new_rows: Rows) -> None:
        """Move every row to its place in `new_rows`, which ascends; those at -1 go."""
        moved = [_moved(_unsorted(piece), new_rows) for piece in self._pieces]
        self._pieces = [each.sorted() for each in moved if len(each.rows)]
        tail = _moved(self._whole_tail(), new_rows) if self._tail else None
        self._tail, self._tail_size = ([], 0) if tail is None else ([tail], len(tail.rows))

    def _whole_tail(self) -> _Unsorted:
        """Searches run side by side; each may join the parts, with the same result."""
        tail = self._tail
        if len(tail) > 1:
            tail = self._tail = [_joined(tail)]
        return tail[0]


def _joined(parts: Sequence[_Unsorted]) -> _Unsorted:
    return _Unsorted(
        np.concatenate([part.terms for part in parts]),
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.counts for part in parts]),
    )


def _merged(one: _Piece, other: _Piece) -> _Piece:
    """The sort finds two sorted runs, which takes it linear time."""
    return _joined([_unsorted(one), _unsorted(other)]).sorted()


def _unsorted(piece: _Piece) -> _Unsorted:
    return _Unsorted(np.repeat(piece.terms, np.diff(piece.starts)), piece.rows, piece.counts)


def _moved(postings: _Unsorted, new_rows: Rows) -> _Unsorted:
    rows = new_rows[postings.rows]
    kept = rows >= 0
    return _Unsorted(postings.terms[kept], rows[kept], postings.counts[kept])
