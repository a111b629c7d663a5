"""Reads a `where` filter: strictly, because a condition that is misunderstood lets the wrong documents through."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

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
from rag_context.errors import FieldError, InvalidInputError
from rag_context.where.metadata import MAX_DEPTH, is_unicode, refused_number, shown

MAX_LEVELS = 32
"""`$and`, `$or` and `$not` within each other."""

MAX_CONDITIONS = 10_000
"""Of a whole filter, with every value of a list counted."""

MAX_FIELDS = 64
"""Different ones in a filter."""

MAX_CHARACTERS = 1_000_000
"""Of a filter that comes as text."""

_COMPARISONS = tuple(operator.value for operator in Operator)
_KNOWN = ("$and", "$or", "$not", *_COMPARISONS, "$in", "$nin")
_ORDER = (Operator.GREATER, Operator.AT_LEAST, Operator.LESS, Operator.AT_MOST)


def parse(where: object) -> Clause:
    """Read a filter.

    Args:
        where: JSON as text, or what JSON was read into. None and `{}` let everything through.

    Raises:
        InvalidInputError: it is malformed, or means nothing; names the operator or field at fault.
    """
    value = _read(where) if isinstance(where, str) else where
    if value is None:
        return EVERYTHING
    if not isinstance(value, Mapping):
        _refuse("must be a JSON object")
    return _Reader().filter(value, 0)


def _read(text: str) -> object:
    if len(text) > MAX_CHARACTERS:
        _refuse(f"is longer than {MAX_CHARACTERS} characters")
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except RecursionError:
        _refuse(f"is nested deeper than {MAX_LEVELS} levels")
    except ValueError:
        _refuse("must be valid JSON")


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Of two conditions under one key, JSON would keep the last and lose the other."""
    key = _twice(pairs)
    if key is not None:
        _refuse_double(key)
    return dict(pairs)


def _twice(pairs: list[tuple[str, object]]) -> str | None:
    counts = Counter(key for key, _ in pairs)
    return None if len(counts) == len(pairs) else counts.most_common(1)[0][0]


def _refuse_double(key: str) -> NoReturn:
    _refuse(f"has {shown(key)} twice; put both conditions into $and")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _refuse(reason: str) -> NoReturn:
    message = f"Invalid 'where' filter: {reason}"
    raise InvalidInputError(message, [FieldError("where", message)])


class _Reader:
    """Reads one filter, and counts what it holds."""

    def __init__(self) -> None:
        self._conditions = 0
        self._fields: set[str] = set()

    def filter(self, where: Mapping[object, object], level: int) -> Clause:
        """All keys of an object at once: implicit AND."""
        return _all(self._entry(key, value, level) for key, value in where.items())

    def _entry(self, key: object, value: object, level: int) -> Clause:
        if not isinstance(key, str):
            _refuse(f"has a key that is a {type(key).__name__}; keys are strings")
        match key:
            case "$and":
                return _all(self._filters(key, value, level))
            case "$or":
                return Disjunction(tuple(self._filters(key, value, level)))
            case "$not":
                return Negation(self._nested(key, value, level, self.filter))
        if key in _KNOWN:
            _refuse(f'{key!r} needs a field: {{"field": {{"{key}": ...}}}}')
        if key.startswith("$"):
            _refuse_operator(key)
        self._fields.add(key)
        if len(self._fields) > MAX_FIELDS:
            _refuse(f"asks for more than {MAX_FIELDS} fields")
        return self._conditions_of(_path(key), value, level)

    def _filters(self, operator: str, value: object, level: int) -> list[Clause]:
        if not isinstance(value, list) or not value:
            _refuse(f"{operator!r} takes a list of at least one filter")
        return [self._nested(operator, part, level, self.filter) for part in value]

    def _nested(
        self, operator: str, value: object, level: int, read: Callable[[Mapping[object, object], int], Clause]
    ) -> Clause:
        if level == MAX_LEVELS:
            _refuse(f"is nested deeper than {MAX_LEVELS} levels")
        if not isinstance(value, Mapping) or not value:
            _refuse(f"{operator!r} takes filters, which are JSON objects that are not empty")
        return read(value, level + 1)

    def _conditions_of(self, path: Path, value: object, level: int) -> Clause:
        field = ".".join(path)
        if isinstance(value, list):
            _refuse(f"{shown(field)} is compared with a list; use $in (one of these) or $contains (a list holds this)")
        if not isinstance(value, Mapping):
            return Comparison(path, Operator.EQUAL, self._scalar(value))
        if not value:
            _refuse(f"{shown(field)} has no condition")
        return _all(self._condition(path, operator, asked, level) for operator, asked in value.items())

    def _condition(self, path: Path, operator: object, value: object, level: int) -> Clause:
        match operator:
            case "$in":
                return self._membership(path, operator, value)
            case "$nin":
                return Negation(self._membership(path, operator, value))
            case "$not":
                return Negation(
                    self._nested(operator, value, level, lambda of, deeper: self._conditions_of(path, of, deeper))
                )
        field = ".".join(path)
        if operator in _COMPARISONS:
            return self._comparison(path, Operator(operator), value)
        if operator in _KNOWN:
            _refuse(f"{operator!r} does not stand below a field; write it around the condition of {shown(field)}")
        if isinstance(operator, str) and operator.startswith("$"):
            _refuse_operator(operator)
        _refuse(f"{shown(field)} is compared with an object; a field in it is {shown(f'{field}.{operator}')}")

    def _comparison(self, path: Path, operator: Operator, value: object) -> Comparison:
        if isinstance(value, list | Mapping):
            _refuse(f"{operator.value!r} does not take a list or an object")
        scalar = self._scalar(value)
        is_bool = isinstance(scalar, bool)
        if operator is Operator.EXISTS and not is_bool:
            _refuse("'$exists' takes true or false")
        if operator in _ORDER and (is_bool or scalar is None):
            _refuse(f"{operator.value!r} takes a number or a string")
        if operator is Operator.CONTAINS and scalar is None:
            _refuse("'$contains' takes a string, a number, true or false")
        return Comparison(path, operator, scalar)

    def _membership(self, path: Path, operator: str, value: object) -> Membership:
        if not isinstance(value, list):
            _refuse(f"{operator!r} takes a list")
        self._count()
        if any(isinstance(element, list | Mapping) for element in value):
            _refuse(f"{operator!r} takes a list of strings, numbers, booleans and nulls")
        return Membership(path, tuple([self._scalar(element) for element in value]))

    def _scalar(self, value: object) -> Scalar:
        self._count()
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            if not is_unicode(value):
                _refuse("holds half a surrogate pair, which is not a character")
            return value
        if not isinstance(value, int | float):
            _refuse(f"holds a {type(value).__name__}, which JSON does not have")
        reason = refused_number(value)
        if reason is not None:
            _refuse(f"a number in it {reason}")
        return value

    def _count(self) -> None:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            _refuse(f"has more than {MAX_CONDITIONS} conditions")


def _all(parts: Iterable[Clause]) -> Clause:
    found = tuple(parts)
    return found[0] if len(found) == 1 else Conjunction(found)


def _path(field: str) -> Path:
    path = tuple(field.split("."))
    if not is_unicode(field) or any(not step or step.startswith("$") for step in path):
        _refuse(f"{shown(field)} is not a field; no part of its path is empty or begins with '$'")
    if len(path) > MAX_DEPTH:
        _refuse(f"{shown(field)} is nested deeper than {MAX_DEPTH} levels")
    return path


def _refuse_operator(operator: str) -> NoReturn:
    _refuse(f"unknown operator {shown(operator)}; there are {', '.join(_KNOWN)}")
