"""A field of every entry of a collection, as numbers: a filter is evaluated once per distinct value, not per entry."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rag_context.domain.clauses import Operator, Scalar
from rag_context.domain.documents import Json
from rag_context.stores.sqlite.engine.vectors import Mask, Rows
from rag_context.where import compares

_MISSING = 0
_SPARE_VALUES = 1024

_NUMBERS = (int, float)
_TEXTS = (str,)


class _Order(NamedTuple):
    """The numbers of the first `known` values, those of some types only, by value."""

    known: int
    listed: list[int]
    codes: Rows


_NONE = _Order(0, [], np.empty(0, dtype=np.intp))


class FieldColumn:
    """The values of one field, row by row; each distinct one is kept once and numbered. Missing and null are 0.

    Args:
        size: how many rows there are, all of them missing so far.
    """

    def __init__(self, size: int = 0) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._values: list[Json] = [None]
        self._lists: list[int] = []
        self._orders: dict[tuple[type, ...], _Order] = {}
        self._codes = np.zeros(max(size, 64), dtype=np.int32)
        self._size = size

    @property
    def is_worn(self) -> bool:
        """Whether most of its values are of deleted entries."""
        return len(self._values) > 2 * self._size + _SPARE_VALUES

    def append(self, values: Sequence[Json]) -> None:
        """Add rows."""
        end = self._size + len(values)
        if end > len(self._codes):
            grown = np.zeros(max(2 * len(self._codes), end), dtype=np.int32)
            grown[: self._size] = self._codes[: self._size]
            self._codes = grown
        start, self._size = self._size, end
        self.put(range(start, end), values)

    def put(self, rows: Sequence[int], values: Sequence[Json]) -> None:
        """Set the values of rows that are there."""
        self._codes[rows] = [self._number(value) for value in values]

    def move_last_to(self, row: int) -> None:
        """Remove `row` by moving the last row into its place."""
        self._size -= 1
        self._codes[row] = self._codes[self._size]

    def equal(self, value: Scalar) -> Mask:
        """Rows whose value equals this one (null: those without a value)."""
        code = self._numbers.get(_identity(value), -1) if value is not None else _MISSING
        mask: Mask = self._codes[: self._size] == code
        return mask

    def among(self, values: Iterable[Scalar]) -> Mask:
        """Rows whose value equals one of these."""
        allowed = np.zeros(len(self._values), dtype=np.bool_)
        for value in values:
            code = self._numbers.get(_identity(value)) if value is not None else _MISSING
            if code is not None:
                allowed[code] = True
        return self._taken(allowed)

    def existing(self) -> Mask:
        """Rows that have a value."""
        mask: Mask = self._codes[: self._size] != _MISSING
        return mask

    def containing(self, value: Scalar) -> Mask:
        """Rows whose text holds this one, or whose list has this element."""
        held = np.zeros(len(self._values), dtype=np.bool_)
        if isinstance(value, str):
            held[:] = [isinstance(found, str) and value in found for found in self._values]
        for code in self._lists:
            held[code] = compares(Operator.CONTAINS, self._values[code], value)
        return self._taken(held)

    def ordered(self, operator: Operator, value: Scalar) -> Mask:
        """Rows whose value stands in this relation to one: numbers among numbers, texts among texts."""
        allowed = np.zeros(len(self._values), dtype=np.bool_)
        if value is None or isinstance(value, bool):
            return self._taken(allowed)
        order = self._order_of(_TEXTS if isinstance(value, str) else _NUMBERS)
        first = bisect_left(order.listed, value, key=self._comparable)
        last = bisect_right(order.listed, value, lo=first, key=self._comparable)
        match operator:
            case Operator.GREATER:
                codes = order.codes[last:]
            case Operator.AT_LEAST:
                codes = order.codes[first:]
            case Operator.LESS:
                codes = order.codes[:first]
            case _:
                codes = order.codes[:last]
        allowed[codes] = True
        return self._taken(allowed)

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

    def _taken(self, allowed: Mask) -> Mask:
        mask: Mask = allowed[self._codes[: self._size]]
        return mask

    def _order_of(self, kinds: tuple[type, ...]) -> _Order:
        """The values of these types in order; the earlier order is a good beginning for sorting."""
        known, order = len(self._values), self._orders.get(kinds, _NONE)
        if order.known < known:
            new = [code for code in range(order.known, known) if self._values[code].__class__ in kinds]
            listed = sorted(order.listed + new, key=self._comparable)
            order = self._orders[kinds] = _Order(known, listed, np.array(listed, dtype=np.intp))
        return order

    def _comparable(self, code: int) -> Any:
        """The value of a code, all of whose neighbours in an order are of its kind."""
        return self._values[code]

    def _number(self, value: Json) -> int:
        if value is None:
            return _MISSING
        identity = _identity(value)
        code = self._numbers.get(identity)
        if code is None:
            code = self._numbers[identity] = len(self._values)
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
