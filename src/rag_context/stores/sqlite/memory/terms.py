"""The terms of chunks, column by column: exact BM25 scores of all chunks of a tenant at once.

Each tenant has postings and statistics of its own: what others store is neither read nor counted. A term is a number of
64 bits, the hash of its text (`text.term_key`).

Like the segments of Lucene, postings stand in sorted pieces. New ones come to a small unsorted tail; a full tail
becomes a piece, and of too many pieces the smallest neighbours become one, so that every posting is sorted a few times
only.

BM25 of all chunks is added up term by term: the same numbers, to the last bit, as `text.bm25` gives for one chunk.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rag_context.domain import text
from rag_context.domain.documents import CHAT
from rag_context.stores.sqlite.memory.vector_scan import Mask

Rows = NDArray[np.int32]
Keys = NDArray[np.uint64]
Counts = NDArray[np.uint16]

MOST_PIECES = 8
"""A term is searched in each of them, which takes some microseconds."""

TAIL = 65_536
"""Postings that are looked through one by one; looking through all of them takes some 30 microseconds."""


def packed(words: Sequence[str]) -> bytes:
    """The terms of a chunk as they are stored: each distinct one and its count."""
    return text.packed_terms(words)[1]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Postings by term: those of `terms[i]` are `starts[i]` to `starts[i + 1]`, their rows ascend."""

    terms: Keys
    starts: NDArray[np.int64]
    rows: Rows
    counts: Counts

    def of(self, term: int) -> tuple[Rows, Counts] | None:
        number = int(np.searchsorted(self.terms, np.uint64(term)))
        if number == len(self.terms) or int(self.terms[number]) != term:
            return None
        start, end = self.starts[number], self.starts[number + 1]
        return self.rows[start:end], self.counts[start:end]


@dataclass(frozen=True, slots=True)
class _Unsorted:
    """One term, row and count for each posting; rows ascend."""

    terms: Keys
    rows: Rows
    counts: Counts

    def sorted(self) -> _Piece:
        order = _order(self.terms)
        terms = self.terms[order]
        first = np.flatnonzero(np.concatenate(([True], terms[1:] != terms[:-1])))
        return _Piece(terms[first], np.append(first, len(terms)), self.rows[order], self.counts[order])


def _order(terms: Keys) -> NDArray[np.intp]:
    """The places of the postings by term, those of a term in the order they have: their rows keep ascending."""
    # Numbers are sorted several times faster than places, so the place takes the lowest bits of the number.
    bits = np.uint64(len(terms).bit_length())
    keys = terms >> bits << bits
    keys |= np.arange(len(terms), dtype=np.uint64)
    keys.sort()
    keys &= ~(~np.uint64(0) << bits)
    order = keys.astype(np.intp)
    ordered = terms[order]
    if (ordered[1:] < ordered[:-1]).any():  # terms that differ in those bits alone
        return np.argsort(terms, kind="stable")
    return order


class Postings:
    """Which rows hold each term, and how often. Its owner prevents reads while it changes."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self._tail: list[_Unsorted] = []
        self._tail_size = 0

    def __len__(self) -> int:
        return self._tail_size + sum(len(piece.rows) for piece in self._pieces)

    def append(self, first_row: int, stored: Sequence[object]) -> None:
        """Add the terms of new rows, `packed`, from `first_row` on; damaged ones, which `check` finds, are none."""
        packs = [
            each if isinstance(each, bytes) and not len(each) % text.STORED_TERMS.itemsize else b"" for each in stored
        ]
        sizes = [len(each) // text.STORED_TERMS.itemsize for each in packs]
        records = np.frombuffer(b"".join(packs), dtype=text.STORED_TERMS)
        if not len(records):
            return
        rows = np.repeat(np.arange(first_row, first_row + len(stored), dtype=np.int32), sizes)
        self._tail.append(_Unsorted(records["term"].astype(np.uint64), rows, records["count"].astype(np.uint16)))
        self._tail_size += len(records)
        if self._tail_size >= TAIL:
            self._pieces.append(self._whole_tail().sorted())
            self._tail, self._tail_size = [], 0
            # Merged only now: merging at each piece would copy all postings again and again.
            while len(self._pieces) > MOST_PIECES:
                # Two neighbours, the smallest, so that rows keep ascending from piece to piece.
                sizes = [len(one.rows) + len(two.rows) for one, two in pairwise(self._pieces)]
                first = sizes.index(min(sizes))
                self._pieces[first : first + 2] = [_merged(*self._pieces[first : first + 2])]

    def of(self, term: str) -> Iterator[tuple[Rows, Counts]]:
        """The rows that hold `term`, and how often, in one or several parts."""
        key = text.term_key(term)
        for piece in self._pieces:
            found = piece.of(key)
            if found is not None:
                yield found
        # Not sorted: that would be repeated after each write, and looking through it once is cheap.
        if self._tail_size:
            tail = self._whole_tail()
            places = np.flatnonzero(tail.terms == np.uint64(key))
            if len(places):
                yield tail.rows[places], tail.counts[places]

    def renumber(self, new_rows: Rows) -> None:
        """Move every row to its place in `new_rows`, which ascends; those at -1 go."""
        pieces = [
            _Unsorted(np.repeat(piece.terms, np.diff(piece.starts)), piece.rows, piece.counts) for piece in self._pieces
        ]
        moved = [_moved(piece, new_rows) for piece in pieces]
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
    """Term by term the rows of `one`, then those of `other`, which are all greater. Nothing is sorted again."""
    terms = np.union1d(one.terms, other.terms)
    sizes, parts = np.zeros(len(terms), dtype=np.int64), []
    for piece in (one, other):
        numbers = np.searchsorted(terms, piece.terms)
        parts.append((piece, numbers, sizes[numbers]))  # before them are those of the other piece
        sizes[numbers] += np.diff(piece.starts)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    rows, counts = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.uint16)
    for piece, numbers, before in parts:
        # Where each posting goes: the start of its term in the result, and how far it is from that in its piece.
        targets = np.repeat(starts[numbers] + before - piece.starts[:-1], np.diff(piece.starts))
        targets += np.arange(len(targets))
        rows[targets], counts[targets] = piece.rows, piece.counts
    return _Piece(terms, starts, rows, counts)


def _moved(postings: _Unsorted, new_rows: Rows) -> _Unsorted:
    rows = new_rows[postings.rows]
    kept = rows >= 0
    return _Unsorted(postings.terms[kept], rows[kept], postings.counts[kept])


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the scores need of all `n` rows: the chunks of a tenant, or the documents of a collection."""

    live: Mask | None
    """`(n,)`, which rows count; None: all."""
    chunks: int
    k1: Floats
    """`(n,)`, saturation."""
    norm: Floats
    """`(n,)`, length normalisation."""

    @classmethod
    def of(
        cls, lengths: NDArray[np.int32], live: Mask | None, is_conversation: Mask, chunks: int, average_length: float
    ) -> "Statistics":
        """Computed once for each state of the index, from arrays `(n,)`; `chunks` is how many rows count."""
        messages = text.profile_for(CHAT, average_length)
        k1 = np.where(is_conversation, messages.k1, text.PROSE.k1)
        b = np.where(is_conversation, messages.b, text.PROSE.b)
        return cls(live, chunks, k1, text.length_norm(lengths.astype(np.float64), k1, b, average_length))


@dataclass(frozen=True, slots=True)
class KeywordScores:
    """The scores `(n,)` of all rows; `shares` of the query's idf mass, 0..1."""

    bm25: Floats
    shares: Floats


class TenantTerms:
    """The chunks of one tenant, dead ones too, each by its place among them. Its owner prevents reads meanwhile."""

    def __init__(self) -> None:
        self.postings = Postings()
        self._rows: Rows = np.empty(0, dtype=np.int32)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def rows(self) -> Rows:
        """`(n,)`, their rows in the index, ascending."""
        return self._rows[: self._size]

    def append(self, rows: Rows, stored: Sequence[bytes]) -> None:
        """Add chunks, which are behind all others in the index, with their terms, `packed`."""
        self.postings.append(self._size, stored)
        end = self._size + len(rows)
        if end > len(self._rows):
            # At least doubled, so that copying stays linear over all appends.
            self._rows = np.pad(self._rows, (0, max(end - len(self._rows), len(self._rows))))
        self._rows[self._size : end] = rows
        self._size = end

    def renumber(self, new_rows: Rows) -> None:
        """Move every chunk to its row in `new_rows`, which ascends; those at -1 go."""
        moved = new_rows[self.rows]
        kept = moved >= 0
        places = np.where(kept, np.cumsum(kept, dtype=np.int32) - 1, -1).astype(np.int32)
        self._rows, self._size = moved[kept], int(kept.sum())
        self.postings.renumber(places)


def scores_of_all(query: str, postings: Postings, statistics: Statistics) -> KeywordScores:
    """Score all rows."""
    size = len(statistics.norm)
    scores, shares, total = np.zeros(size), np.zeros(size), 0.0
    k1, norm = statistics.k1, statistics.norm
    # In the order of the query, as `text.bm25` adds: floating-point sums depend on the order in their last bit.
    for term, times in Counter(text.query_terms(query)).items():
        found = list(postings.of(term))
        if statistics.live is not None:
            found = [(rows[kept], counts[kept]) for rows, counts in found for kept in [statistics.live[rows]]]
        frequency = sum(len(rows) for rows, _ in found)
        idf = text.inverse_document_frequency(statistics.chunks, frequency)
        total += idf
        for rows, counts in found:
            places = rows.astype(np.intp)  # numpy indexes by these in a third of the time
            # No row occurs twice among the rows of one part, so adding by index loses nothing.
            scores[places] += text.saturated(counts.astype(np.float64), k1.take(places), norm.take(places)) * (
                idf * times
            )
            shares[places] += idf
    if total > 0.0:
        # Rounding can carry the sum of all terms slightly above the total.
        np.minimum(shares / total, 1.0, out=shares)
    return KeywordScores(scores, shares)


def scores_of_groups(
    query: str, postings: Postings, chunks: int, groups: NDArray[np.intp], lengths: NDArray[np.int32]
) -> Floats:
    """`text.conversation_bm25` of groups of rows; `chunks` is how many rows count.

    `groups` `(n,)` has the number of each row's group, from 1, and 0 for rows of other groups; `lengths` `(n,)` how
    many terms each row has, and 0 where it does not count.
    """
    sizes = np.bincount(groups, weights=lengths.astype(np.float64))
    counted = Counter(text.query_terms(query))
    counts, weights = np.zeros((len(counted), len(sizes))), np.zeros(len(counted))
    for term, (word, times) in enumerate(counted.items()):
        frequency = 0
        for rows, found in postings.of(word):
            live = lengths[rows] > 0
            counts[term] += np.bincount(groups[rows[live]], weights=found[live], minlength=len(sizes))
            frequency += int(live.sum())
        weights[term] = text.inverse_document_frequency(chunks, frequency) * times
    return text.conversation_bm25(counts[:, 1:].T, sizes[1:].astype(np.float64), weights)
