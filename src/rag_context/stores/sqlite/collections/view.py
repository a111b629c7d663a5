"""Queries on a collection in memory: which entries pass a filter, and which vectors are nearest."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rag_context.domain.clauses import (
    EVERYTHING,
    Clause,
    Comparison,
    Conjunction,
    Disjunction,
    Membership,
    Negation,
    Operator,
    Path,
    Scalar,
)
from rag_context.domain.documents import Json
from rag_context.domain.vectors import Vector
from rag_context.stores.sqlite.collections.columns import FieldColumn
from rag_context.stores.sqlite.engine.vectors import Mask, ReadVectors, Rows, Vectors, in_order

FEW = 0.125
"""Up to this share of the entries, sorting those that match costs less than ordering all of them."""


class ScoredEntry(NamedTuple):
    """An entry by its number in the file, and its cosine to the query."""

    seq: int
    cosine: float


class IdOrder:
    """The place of every row in the order of the ids; made when it is first needed."""

    def __init__(self) -> None:
        self.ranks: NDArray[np.intp] | None = None

    def forget(self) -> None:
        """The rows have changed."""
        self.ranks = None

    def made(self, ids: Sequence[str]) -> NDArray[np.intp]:
        """`(n,)`: for each row how many ids come before its own (by code points)."""
        ranks = self.ranks
        if ranks is None:
            order = sorted(range(len(ids)), key=ids.__getitem__)
            ranks = np.empty(len(order), dtype=np.intp)
            ranks[order] = np.arange(len(order))
            self.ranks = ranks
        return ranks


@dataclass(frozen=True, slots=True)
class CollectionView:
    """The entries of a collection row by row, with the columns that a query needs. They must not change meanwhile."""

    ids: Sequence[str]
    seqs: Sequence[int]
    rows: Mapping[str, int]
    """The row of every id."""
    vectors: Vectors
    columns: Mapping[Path, FieldColumn]
    order: IdOrder

    def matching(self, where: Clause, limit: int, offset: int) -> tuple[list[int], int]:
        """The numbers of a page of the entries that `where` lets through, by id; and how many there are."""
        rows = np.flatnonzero(self.mask(where))
        return [self.seqs[row] for row in self._page(rows, limit, offset)], len(rows)

    def matching_ids(self, where: Clause) -> list[str]:
        """The ids of the entries that `where` lets through, in order."""
        return sorted([self.ids[row] for row in np.flatnonzero(self.mask(where)).tolist()])

    def nearest(self, vector: Vector, where: Clause, limit: int, read: ReadVectors) -> list[ScoredEntry]:
        """The entries of highest cosine to `vector` (`(dim,) float32`), equal ones by id.

        `read` is for vectors that are not in memory.
        """
        if limit < 1:
            return []
        among = None if where == EVERYTHING else self.mask(where)
        query = np.ascontiguousarray(vector, dtype=np.float32)
        scores, rows = self.vectors.nearest(query, limit, among, lambda rows: read([self.seqs[row] for row in rows]))
        return [ScoredEntry(self.seqs[row], cosine) for cosine, row in in_order(scores, rows, self.ids, limit)]

    def values(self, path: Path) -> list[Json]:
        """The distinct values of a field."""
        return self.columns[path].distinct()

    def mask(self, clause: Clause) -> Mask:
        """`(n,)`: which entries a clause lets through."""
        match clause:
            case Comparison(path, operator, value):
                return _compared(self.columns[path], operator, value)
            case Membership(path, values):
                return self.columns[path].among(values)
            case Conjunction(parts):
                masks = [self.mask(part) for part in parts]
                return np.logical_and.reduce(masks) if masks else np.ones(len(self.ids), dtype=np.bool_)
            case Disjunction(parts):
                masks = [self.mask(part) for part in parts]
                return np.logical_or.reduce(masks) if masks else np.zeros(len(self.ids), dtype=np.bool_)
            case Negation(part):
                return ~self.mask(part)

    def _page(self, rows: Rows, limit: int, offset: int) -> list[int]:
        end = offset + limit
        if self.order.ranks is None and len(rows) <= FEW * len(self.ids):
            return heapq.nsmallest(end, rows.tolist(), key=self.ids.__getitem__)[offset:]
        ranks = self.order.made(self.ids)[rows]
        if end < len(rows):
            first = np.argpartition(ranks, end)[:end]
            rows, ranks = rows[first], ranks[first]
        page: list[int] = rows[np.argsort(ranks)][offset:end].tolist()
        return page


def paths_of(clause: Clause) -> Iterator[Path]:
    """The fields that a clause uses."""
    match clause:
        case Comparison(path) | Membership(path):
            yield path
        case Conjunction(parts) | Disjunction(parts):
            for part in parts:
                yield from paths_of(part)
        case Negation(part):
            yield from paths_of(part)


def _compared(column: FieldColumn, operator: Operator, value: Scalar) -> Mask:
    match operator:
        case Operator.EQUAL:
            return column.equal(value)
        case Operator.NOT_EQUAL:
            return ~column.equal(value)
        case Operator.EXISTS:
            return column.existing() if value else ~column.existing()
        case Operator.CONTAINS:
            return column.containing(value)
        case _:
            return column.ordered(operator, value)
