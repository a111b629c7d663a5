"""Queries on a collection in memory: which entries pass a filter, and which vectors are nearest.

A filter is evaluated on the columns of the fields that it uses: once per distinct value, not per entry.
"""

import heapq
import json
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rag_context.domain import clauses
from rag_context.domain.documents import Json
from rag_context.domain.vectors import Vector
from rag_context.domain.where import compares
from rag_context.stores.sqlite.memory.vector_scan import Mask, ReadVectors, Rows, Vectors, in_order

FEW = 0.125
"""Up to this share of the entries, sorting those that match costs less than ordering all of them."""

_SPARE_VALUES = 1024
"""Unused values of a field that are kept at least."""

_MISSING = 0

_NUMBERS = (int, float)
_TEXTS = (str,)


class _Order(NamedTuple):
    """The codes of the first `size` values, those of some types only, by value; as a list and as an array."""

    size: int
    listed: list[int]
    codes: Rows


_EMPTY = _Order(0, [], np.empty(0, dtype=np.intp))


class FieldColumn:
    """The values of one field, row by row; each distinct one is kept once and numbered. Missing and null are 0."""

    def __init__(self, size: int = 0) -> None:
        self._code_of: dict[Hashable, int] = {None: _MISSING}
        self._values: list[Json] = [None]
        self._lists: list[int] = []
        self._orders: dict[tuple[type, ...], _Order] = {}
        self._codes = np.zeros(max(size, 64), dtype=np.int32)
        self._size = size

    @property
    def has_mostly_unused_values(self) -> bool:
        """Whether most of its values are of deleted entries: values are numbered for good."""
        return len(self._values) > 2 * self._size + _SPARE_VALUES

    def append(self, values: Sequence[Json]) -> None:
        end = self._size + len(values)
        if end > len(self._codes):
            # At least doubled, so that copying stays linear over all appends.
            self._codes = np.pad(self._codes, (0, max(len(self._codes), end - len(self._codes))))
        start, self._size = self._size, end
        self.put(range(start, end), values)

    def put(self, rows: Sequence[int], values: Sequence[Json]) -> None:
        self._codes[rows] = [self._number(value) for value in values]

    def move_last_to(self, row: int) -> None:
        """Remove `row` by moving the last row into its place."""
        self._size -= 1
        self._codes[row] = self._codes[self._size]

    def compared(self, operator: clauses.Operator, value: clauses.Scalar) -> Mask:
        """`(n,)`, the rows whose value stands in this relation to `value`."""
        match operator:
            case clauses.Operator.EQUAL:
                return self._equal(value)
            case clauses.Operator.NOT_EQUAL:
                return ~self._equal(value)
            case clauses.Operator.EXISTS:
                return ~self._equal(None) if value else self._equal(None)
            case clauses.Operator.CONTAINS:
                return self._containing(value)
            case _:
                return self._ordered(operator, value)

    def among(self, values: Iterable[clauses.Scalar]) -> Mask:
        allowed = np.zeros(len(self._values), dtype=np.bool_)
        for value in values:
            if (code := self._code_of.get(_identity(value))) is not None:
                allowed[code] = True
        return self._rows_with(allowed)

    def distinct(self) -> list[Json]:
        """The strings, numbers and booleans that some row has, those in lists one by one."""
        present = np.flatnonzero(np.bincount(self._codes[: self._size], minlength=1)).tolist()
        found: dict[Hashable, Json] = {}
        for code in present:
            value = self._values[code]
            for element in value if isinstance(value, list) else (value,):
                if isinstance(element, bool | int | float | str):
                    found[_identity(element)] = element
        return list(found.values())

    def _equal(self, value: clauses.Scalar) -> Mask:
        """Rows whose value equals this one (null: those without a value)."""
        mask: Mask = self._codes[: self._size] == self._code_of.get(_identity(value), -1)
        return mask

    def _containing(self, value: clauses.Scalar) -> Mask:
        allowed = np.zeros(len(self._values), dtype=np.bool_)
        if isinstance(value, str):
            allowed[:] = [isinstance(found, str) and value in found for found in self._values]
        for code in self._lists:
            allowed[code] = compares(clauses.Operator.CONTAINS, self._values[code], value)
        return self._rows_with(allowed)

    def _ordered(self, operator: clauses.Operator, value: clauses.Scalar) -> Mask:
        """Rows whose value stands in this relation to one: numbers among numbers, texts among texts."""
        allowed = np.zeros(len(self._values), dtype=np.bool_)
        if value is None or isinstance(value, bool):
            return self._rows_with(allowed)
        order = self._order_of(_TEXTS if isinstance(value, str) else _NUMBERS)
        first = bisect_left(order.listed, value, key=self._comparable)
        last = bisect_right(order.listed, value, lo=first, key=self._comparable)
        match operator:
            case clauses.Operator.GREATER:
                codes = order.codes[last:]
            case clauses.Operator.AT_LEAST:
                codes = order.codes[first:]
            case clauses.Operator.LESS:
                codes = order.codes[:first]
            case _:
                codes = order.codes[:last]
        allowed[codes] = True
        return self._rows_with(allowed)

    def _rows_with(self, allowed: Mask) -> Mask:
        mask: Mask = allowed[self._codes[: self._size]]
        return mask

    def _order_of(self, kinds: tuple[type, ...]) -> _Order:
        """The values of these types in order."""
        size, order = len(self._values), self._orders.get(kinds, _EMPTY)
        if order.size < size:
            new = [code for code in range(order.size, size) if self._values[code].__class__ in kinds]
            # The earlier ones are in order already, which this sort makes use of. By class, not by `isinstance`: a
            # boolean is an integer to Python, and is no number in a filter.
            listed = sorted(order.listed + new, key=self._comparable)
            # Queries of several threads may come here at once: each puts a whole order in place, and any will do.
            order = self._orders[kinds] = _Order(size, listed, np.array(listed, dtype=np.intp))
        return order

    def _comparable(self, code: int) -> Any:
        """The value of a code, all of whose neighbours in an order are of its kind."""
        return self._values[code]

    def _number(self, value: Json) -> int:
        identity = _identity(value)
        code = self._code_of.get(identity)
        if code is None:
            code = self._code_of[identity] = len(self._values)
            self._values.append({} if isinstance(value, dict) else value)
            if isinstance(value, list):
                self._lists.append(code)
        return code


def _identity(value: Json) -> Hashable:
    """A key that is equal for values that no filter distinguishes: 1 and 1.0, any two objects; but not 1 and true."""
    if isinstance(value, bool):
        return (value,)
    if isinstance(value, list):
        return ("list", json.dumps(value))
    if isinstance(value, dict):
        return ("object",)
    return value


class ScoredEntry(NamedTuple):
    """An entry by its number in the file, and its cosine to the query."""

    seq: int
    cosine: float


class IdOrder:
    """The rank of every row in the order of the ids; computed when it is first needed."""

    def __init__(self) -> None:
        self.ranks: NDArray[np.intp] | None = None

    def ranks_of(self, ids: Sequence[str]) -> NDArray[np.intp]:
        """`(n,)`: for each row how many ids come before its own (by code points)."""
        # Read once: queries share this object, and each may be the first to need it.
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
    vectors: Vectors
    columns: Mapping[clauses.Path, FieldColumn]
    order: IdOrder

    def matching(self, where: clauses.Clause, limit: int, offset: int) -> tuple[list[int], int]:
        rows = np.flatnonzero(self.mask(where))
        return [self.seqs[row] for row in self._page(rows, limit, offset)], len(rows)

    def matching_ids(self, where: clauses.Clause) -> list[str]:
        return sorted([self.ids[row] for row in np.flatnonzero(self.mask(where)).tolist()])

    def nearest(self, vector: Vector, where: clauses.Clause, limit: int, read: ReadVectors) -> list[ScoredEntry]:
        """The entries of highest cosine to `vector` (`(dim,) float32`), equal ones by id.

        `read` is for vectors that are not in memory.
        """
        if limit < 1:
            return []
        among = None if where == clauses.EVERYTHING else self.mask(where)
        query = np.ascontiguousarray(vector, dtype=np.float32)
        scores, rows = self.vectors.nearest(query, limit, among, lambda rows: read([self.seqs[row] for row in rows]))
        return [ScoredEntry(self.seqs[row], cosine) for cosine, row in in_order(scores, rows, self.ids, limit)]

    def mask(self, clause: clauses.Clause) -> Mask:
        """`(n,)`: which entries a clause lets through."""
        match clause:
            case clauses.Comparison(path, operator, value):
                return self.columns[path].compared(operator, value)
            case clauses.Membership(path, values):
                return self.columns[path].among(values)
            case clauses.Conjunction(parts):
                masks = [self.mask(part) for part in parts]
                return np.logical_and.reduce(masks) if masks else np.ones(len(self.ids), dtype=np.bool_)
            case clauses.Disjunction(parts):
                masks = [self.mask(part) for part in parts]
                return np.logical_or.reduce(masks) if masks else np.zeros(len(self.ids), dtype=np.bool_)
            case clauses.Negation(part):
                return ~self.mask(part)

    def _page(self, rows: Rows, limit: int, offset: int) -> list[int]:
        end = offset + limit
        if self.order.ranks is None and len(rows) <= FEW * len(self.ids):
            return heapq.nsmallest(end, rows.tolist(), key=self.ids.__getitem__)[offset:]
        ranks = self.order.ranks_of(self.ids)[rows]
        if end < len(rows):
            first = np.argpartition(ranks, end)[:end]
            rows, ranks = rows[first], ranks[first]
        page: list[int] = rows[np.argsort(ranks)][offset:end].tolist()
        return page


def paths_of(clause: clauses.Clause) -> Iterator[clauses.Path]:
    match clause:
        case clauses.Comparison(path) | clauses.Membership(path):
            yield path
        case clauses.Conjunction(parts) | clauses.Disjunction(parts):
            for part in parts:
                yield from paths_of(part)
        case clauses.Negation(part):
            yield from paths_of(part)
