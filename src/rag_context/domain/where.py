"""The `where` language: from JSON to a `Clause`, and the one plain meaning of a `Clause` that every provider has.

`parse` reads a filter, strictly, because a condition that is misunderstood lets the wrong documents through. `matches`
applies it to metadata. `check_metadata` rejects values that could not be stored exactly, or that no filter can express.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from rag_context.domain import clauses
from rag_context.domain.documents import Json
from rag_context.errors import FieldError, InvalidInputError

MAX_DEPTH = 32
"""Objects and lists within each other, the metadata itself included."""

MAX_VALUES = 10_000
MAX_CHARACTERS = 1_000_000
"""Of all keys and texts of metadata together; of a filter that comes as text."""

MAX_BITS = 1024
"""Of an integer: as large as the largest float."""

SHOWN = 60
"""Characters of a name that a message repeats."""


def check_metadata(metadata: Mapping[str, Json], field: str = "metadata") -> None:
    """Check that metadata can be stored exactly and filtered; `field` is what messages call it.

    Nested objects are reached as `a.b`; therefore a key holds no dot, is not empty and does not begin with `$`. Raises:
    InvalidInputError (says where).
    """
    _Check(field).mapping(metadata, "", 1)


def _number_problem(value: float) -> str | None:
    """Why a number cannot be stored or filtered; None where it can."""
    if isinstance(value, int):
        return f"is an integer of more than {MAX_BITS} bits" if value.bit_length() > MAX_BITS else None
    return None if math.isfinite(value) else "is NaN or infinite; only finite numbers are allowed"


def is_unicode(text: str) -> bool:
    """Whether `text` can be written as UTF-8: lone surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    """A name from outside as messages show it: quoted and cut."""
    return repr(name if len(name) <= SHOWN else f"{name[:SHOWN]}…")


class _Check:
    """One walk through one document's metadata."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._values = self._characters = 0

    def mapping(self, found: Mapping[str, Json], path: str, depth: int) -> None:
        self._deepen(path, depth)
        for key, value in found.items():
            self._key(key, path)
            self._value(value, f"{path}.{key}", depth)

    def _value(self, value: object, path: str, depth: int) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            self._reject("", f"has more than {MAX_VALUES} values")
        if isinstance(value, str):
            self._text(value, path)
        elif isinstance(value, int | float):
            reason = _number_problem(value)
            if reason is not None:
                self._reject(path, reason)
        elif isinstance(value, Mapping):
            self.mapping(value, path, depth + 1)
        elif isinstance(value, list):
            self._deepen(path, depth + 1)
            for position, element in enumerate(value):
                self._value(element, f"{path}[{position}]", depth + 1)
        elif value is not None:
            self._reject(path, f"is a {type(value).__name__}, which JSON does not have")

    def _key(self, key: object, path: str) -> None:
        if not isinstance(key, str):
            self._reject(path, f"has a key that is a {type(key).__name__}; keys are strings")
        elif not key:
            self._reject(path, "has an empty key")
        elif "." in key or key.startswith("$"):
            self._reject(path, f"has the key {_shown(key)}; a key holds no dot and does not begin with '$'")
        else:
            self._text(key, path)

    def _text(self, text: str, path: str) -> None:
        self._characters += len(text)
        if self._characters > MAX_CHARACTERS:
            self._reject("", f"has more than {MAX_CHARACTERS} characters")
        if not is_unicode(text):
            self._reject(path, "holds half a surrogate pair, which is not a character")

    def _deepen(self, path: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            self._reject(path, f"is nested deeper than {MAX_DEPTH} levels")

    def _reject(self, path: str, reason: str) -> None:
        field = (self._field + path)[: len(self._field) + SHOWN].encode("ascii", "backslashreplace").decode()
        raise InvalidInputError(f"{field} {reason}.", [FieldError(field, f"{reason}.")])


MAX_LEVELS = 32
"""`$and`, `$or` and `$not` within each other."""

MAX_CONDITIONS = 10_000
"""Of a whole filter, with every value of a list counted."""
MAX_FIELDS = 64
"""Different ones in a filter."""

_COMPARISONS = tuple(operator.value for operator in clauses.Operator)
_OPERATORS = ("$and", "$or", "$not", *_COMPARISONS, "$in", "$nin")
_OPERATOR_NAMES = ", ".join(_OPERATORS)
_ORDER = (clauses.Operator.GREATER, clauses.Operator.AT_LEAST, clauses.Operator.LESS, clauses.Operator.AT_MOST)


def parse(where: object) -> clauses.Clause:
    """Read a filter, of JSON or as text; None and `{}` let everything through. Raises: InvalidInputError."""
    value = _read(where) if isinstance(where, str) else where
    if value is None:
        return clauses.EVERYTHING
    if not isinstance(value, Mapping):
        _reject("must be a JSON object")
    return _ClauseReader().filter(value, 0)


def _read(text: str) -> object:
    if len(text) > MAX_CHARACTERS:
        _reject(f"is longer than {MAX_CHARACTERS} characters")
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except RecursionError:
        _reject(f"is nested deeper than {MAX_LEVELS} levels")
    except ValueError:
        _reject("must be valid JSON")


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Of two conditions under one key, JSON would keep the last and lose the other."""
    counts = Counter(key for key, _ in pairs)
    if len(counts) < len(pairs):
        _reject(f"has {_shown(counts.most_common(1)[0][0])} twice; put both conditions into $and")
    return dict(pairs)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _reject(reason: str) -> NoReturn:
    message = f"Invalid 'where' filter: {reason}"
    raise InvalidInputError(message, [FieldError("where", message)])


class _ClauseReader:
    """Reads one filter, and counts what it holds."""

    def __init__(self) -> None:
        self._conditions = 0
        self._fields: set[str] = set()

    def filter(self, where: Mapping[object, object], level: int) -> clauses.Clause:
        """The conjunction of all entries of an object."""
        return _all(self._entry(key, value, level) for key, value in where.items())

    def _entry(self, key: object, value: object, level: int) -> clauses.Clause:
        if not isinstance(key, str):
            _reject(f"has a key that is a {type(key).__name__}; keys are strings")
        match key:
            case "$and":
                return _all(self._filters(key, value, level))
            case "$or":
                return clauses.Disjunction(tuple(self._filters(key, value, level)))
            case "$not":
                return clauses.Negation(self._nested(key, value, level, self.filter))
        if key in _OPERATORS:
            _reject(f'{key!r} needs a field: {{"field": {{"{key}": ...}}}}')
        if key.startswith("$"):
            _reject(f"unknown operator {_shown(key)}; there are {_OPERATOR_NAMES}")
        self._fields.add(key)
        if len(self._fields) > MAX_FIELDS:
            _reject(f"asks for more than {MAX_FIELDS} fields")
        return self._conditions_of(_path(key), value, level)

    def _filters(self, operator: str, value: object, level: int) -> list[clauses.Clause]:
        if not isinstance(value, list) or not value:
            _reject(f"{operator!r} takes a list of at least one filter")
        return [self._nested(operator, part, level, self.filter) for part in value]

    def _nested(
        self, operator: str, value: object, level: int, read: Callable[[Mapping[object, object], int], clauses.Clause]
    ) -> clauses.Clause:
        if level == MAX_LEVELS:
            _reject(f"is nested deeper than {MAX_LEVELS} levels")
        if not isinstance(value, Mapping) or not value:
            _reject(f"{operator!r} takes filters, which are JSON objects that are not empty")
        return read(value, level + 1)

    def _conditions_of(self, path: clauses.Path, value: object, level: int) -> clauses.Clause:
        field = ".".join(path)
        if isinstance(value, list):
            _reject(f"{_shown(field)} is compared with a list; use $in (one of these) or $contains (a list holds this)")
        if not isinstance(value, Mapping):
            return clauses.Comparison(path, clauses.Operator.EQUAL, self._scalar(value))
        if not value:
            _reject(f"{_shown(field)} has no condition")
        return _all(self._condition(path, operator, operand, level) for operator, operand in value.items())

    def _condition(self, path: clauses.Path, operator: object, value: object, level: int) -> clauses.Clause:
        match operator:
            case "$in":
                return self._membership(path, operator, value)
            case "$nin":
                return clauses.Negation(self._membership(path, operator, value))
            case "$not":
                return clauses.Negation(
                    self._nested(operator, value, level, lambda of, deeper: self._conditions_of(path, of, deeper))
                )
        field = ".".join(path)
        if operator in _COMPARISONS:
            return self._comparison(path, clauses.Operator(operator), value)
        if operator in _OPERATORS:
            _reject(f"{operator!r} cannot be below a field; write it around the condition of {_shown(field)}")
        if isinstance(operator, str) and operator.startswith("$"):
            _reject(f"unknown operator {_shown(operator)}; there are {_OPERATOR_NAMES}")
        _reject(f"{_shown(field)} is compared with an object; a field in it is {_shown(f'{field}.{operator}')}")

    def _comparison(self, path: clauses.Path, operator: clauses.Operator, value: object) -> clauses.Comparison:
        if isinstance(value, list | Mapping):
            _reject(f"{operator.value!r} does not take a list or an object")
        scalar = self._scalar(value)
        is_bool = isinstance(scalar, bool)
        if operator is clauses.Operator.EXISTS and not is_bool:
            _reject("'$exists' takes true or false")
        if operator in _ORDER and (is_bool or scalar is None):
            _reject(f"{operator.value!r} takes a number or a string")
        if operator is clauses.Operator.CONTAINS and scalar is None:
            _reject("'$contains' takes a string, a number, true or false")
        return clauses.Comparison(path, operator, scalar)

    def _membership(self, path: clauses.Path, operator: str, value: object) -> clauses.Membership:
        if not isinstance(value, list):
            _reject(f"{operator!r} takes a list")
        self._count()
        if any(isinstance(element, list | Mapping) for element in value):
            _reject(f"{operator!r} takes a list of strings, numbers, booleans and nulls")
        return clauses.Membership(path, tuple([self._scalar(element) for element in value]))

    def _scalar(self, value: object) -> clauses.Scalar:
        self._count()
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            if not is_unicode(value):
                _reject("holds half a surrogate pair, which is not a character")
            return value
        if not isinstance(value, int | float):
            _reject(f"holds a {type(value).__name__}, which JSON does not have")
        reason = _number_problem(value)
        if reason is not None:
            _reject(f"a number in it {reason}")
        return value

    def _count(self) -> None:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            _reject(f"has more than {MAX_CONDITIONS} conditions")


def _all(parts: Iterable[clauses.Clause]) -> clauses.Clause:
    found = tuple(parts)
    return found[0] if len(found) == 1 else clauses.Conjunction(found)


def _path(field: str) -> clauses.Path:
    path = tuple(field.split("."))
    if not is_unicode(field) or any(not step or step.startswith("$") for step in path):
        _reject(f"{_shown(field)} is not a field; no part of its path is empty or begins with '$'")
    if len(path) > MAX_DEPTH:
        _reject(f"{_shown(field)} is nested deeper than {MAX_DEPTH} levels")
    return path


def matches(clause: clauses.Clause, metadata: Mapping[str, Json]) -> bool:
    match clause:
        case clauses.Comparison(path, operator, value):
            return compares(operator, value_at(metadata, path), value)
        case clauses.Membership(path, values):
            found = value_at(metadata, path)
            return any(equals(found, value) for value in values)
        case clauses.Conjunction(parts):
            return all(matches(part, metadata) for part in parts)
        case clauses.Disjunction(parts):
            return any(matches(part, metadata) for part in parts)
        case clauses.Negation(part):
            return not matches(part, metadata)


def value_at(metadata: Mapping[str, Json], path: clauses.Path) -> Json:
    """The value at `path`; None where there is none. Elements of lists are not reached."""
    *outer, last = path
    for step in outer:
        inner = metadata.get(step)
        if not isinstance(inner, Mapping):
            return None
        metadata = inner
    return metadata.get(last)


def compares(operator: clauses.Operator, found: Json, value: clauses.Scalar) -> bool:
    """Whether a value that was found (None: missing) stands in this relation to the one of the filter."""
    match operator:
        case clauses.Operator.EQUAL:
            return equals(found, value)
        case clauses.Operator.NOT_EQUAL:
            return not equals(found, value)
        case clauses.Operator.EXISTS:
            return (found is not None) is value
        case clauses.Operator.CONTAINS:
            if isinstance(found, str):
                return isinstance(value, str) and value in found
            if isinstance(found, list):
                return value is not None and any(equals(element, value) for element in found)
            return False
        case clauses.Operator.GREATER:
            return _order(found, value) == 1
        case clauses.Operator.AT_LEAST:
            return _order(found, value) in (0, 1)
        case clauses.Operator.LESS:
            return _order(found, value) == -1
        case clauses.Operator.AT_MOST:
            return _order(found, value) in (-1, 0)


def equals(found: Json, value: clauses.Scalar) -> bool:
    """Equality without coercion: `true` is not 1, 1 is 1.0, a list or an object equals nothing."""
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    return found == value  # Python compares an int with a float exactly


def _order(found: Json, value: clauses.Scalar) -> int | None:
    """-1, 0 or 1 among numbers and among strings (by code points); None where there is no order."""
    if isinstance(found, bool) or isinstance(value, bool):
        return None
    if isinstance(found, str) and isinstance(value, str):
        return (found > value) - (found < value)
    if isinstance(found, int | float) and isinstance(value, int | float):
        return (found > value) - (found < value)
    return None
