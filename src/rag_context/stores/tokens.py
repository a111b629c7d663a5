"""Metadata as tokens: short texts, each of which states one fact about the value at a path.

An engine that can find documents by token answers `where` filters with them, with types kept apart: that
`author.year` is 1 and not "1" or true is one token, that there is a number at `author.year` another. So one index of
tokens serves every field. What tokens cannot express (the order of strings, a part of a string) they narrow down;
`where.matches` checks the rest.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypeAlias

from rag_context.domain import clauses
from rag_context.domain.documents import Json
from rag_context.ports.provider import Capabilities

CAPABILITIES = Capabilities(scanned_operators=("$contains", "$gt", "$gte", "$lt", "$lte"))
"""Of a provider with tokens: filters by parts and order of strings read documents, all others use the index."""

_LONGEST = 200
"""Characters of a token; a longer one is replaced by its digest."""

_EXACT_BELOW = 2**53
"""Of integers beyond it, several are one float."""

Bound: TypeAlias = Literal["gt", "gte", "lt", "lte"]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of these tokens."""

    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoneOf:
    """None of these tokens."""

    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """The number at a path, as the nearest float, on one side of another. False where there is none."""

    path: str
    bound: Bound
    value: float


@dataclass(frozen=True, slots=True)
class And:
    """All parts."""

    parts: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part."""

    parts: "tuple[Condition, ...]"


Condition: TypeAlias = AnyOf | NoneOf | Range | And | Or


@dataclass(frozen=True, slots=True)
class Narrowing:
    """A condition that lets through at least what a clause does; if `exact`, no more. None lets everything through."""

    condition: Condition | None
    exact: bool


_EVERYTHING = Narrowing(None, exact=True)
_ANYTHING = Narrowing(None, exact=False)
_NOTHING = Narrowing(AnyOf(("!",)), exact=True)  # no document has it: tokens begin with [ or #

_OPPOSITES: Mapping[clauses.Operator, clauses.Operator] = {
    clauses.Operator.GREATER: clauses.Operator.AT_MOST,
    clauses.Operator.AT_LEAST: clauses.Operator.LESS,
    clauses.Operator.LESS: clauses.Operator.AT_LEAST,
    clauses.Operator.AT_MOST: clauses.Operator.GREATER,
}
_BOUNDS: Mapping[clauses.Operator, tuple[Bound, Bound]] = {
    clauses.Operator.GREATER: ("gt", "gte"),
    clauses.Operator.AT_LEAST: ("gte", "gte"),
    clauses.Operator.LESS: ("lt", "lte"),
    clauses.Operator.AT_MOST: ("lte", "lte"),
}
"""How a number is compared: where floats are exact, and where they are not."""


def tokens_of(metadata: Mapping[str, Json]) -> list[str]:
    """All tokens of a document's metadata, each once."""
    return list(dict.fromkeys(fact for path, value in _walk(metadata, ()) for fact in _facts_at(path, value)))


def numbers_of(metadata: Mapping[str, Json]) -> dict[str, float]:
    """The nearest float of every number, by its dotted path."""
    return {
        dotted(path): _nearest(value)
        for path, value in _walk(metadata, ())
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def present(path: clauses.Path) -> str:
    """The token that states that there is a value other than null."""
    return _fact("+", path)


def narrow(clause: clauses.Clause) -> Narrowing:
    """The condition on an engine for a clause."""
    return _narrowed(clause, negated=False)


def _narrowed(clause: clauses.Clause, *, negated: bool) -> Narrowing:
    match clause:
        case clauses.Comparison(path, operator, value):
            return (_not_compared if negated else _compared)(path, operator, value)
        case clauses.Membership(path, values):
            tokens = tuple(_equal(path, value) for value in values if value is not None)
            kinds = [Narrowing(NoneOf(tokens) if negated else AnyOf(tokens), exact=True)] if tokens else []
            # A missing field equals null, so not being one of values with null among them means being there.
            if None in values:
                kinds.append(_compared(path, clauses.Operator.EXISTS, negated))
            return (_all if negated else _any)(kinds)
        case clauses.Conjunction(parts):
            return (_any if negated else _all)([_narrowed(part, negated=negated) for part in parts])
        case clauses.Disjunction(parts):
            return (_all if negated else _any)([_narrowed(part, negated=negated) for part in parts])
        case clauses.Negation(part):
            return _narrowed(part, negated=not negated)


def conditions_in(condition: Condition) -> int:
    """How many tokens and bounds a condition has."""
    match condition:
        case And(parts) | Or(parts):
            return sum(map(conditions_in, parts))
        case AnyOf(tokens) | NoneOf(tokens):
            return len(tokens)
        case Range():
            return 1


def dotted(path: clauses.Path) -> str:
    return ".".join(path)


def _compared(path: clauses.Path, operator: clauses.Operator, value: clauses.Scalar) -> Narrowing:
    match operator:
        case clauses.Operator.EQUAL if value is None:
            return Narrowing(NoneOf((present(path),)), exact=True)
        case clauses.Operator.EQUAL:
            return Narrowing(AnyOf((_equal(path, value),)), exact=True)
        case clauses.Operator.NOT_EQUAL:
            return _not_compared(path, clauses.Operator.EQUAL, value)
        case clauses.Operator.EXISTS:
            there = (present(path),)
            return Narrowing(AnyOf(there) if value else NoneOf(there), exact=True)
        case clauses.Operator.CONTAINS if isinstance(value, str):
            # An element of a list is a token; a part of a text is none, so every text at the path is read.
            return Narrowing(AnyOf((_element(path, value), _fact("text", path))), exact=False)
        case clauses.Operator.CONTAINS:
            return _NOTHING if value is None else Narrowing(AnyOf((_element(path, value),)), exact=True)
    if isinstance(value, str):
        return Narrowing(AnyOf((_fact("text", path),)), exact=False)
    if value is None or isinstance(value, bool):
        return _NOTHING
    within, exact = _within(path, operator, value)
    return Narrowing(And((AnyOf((_fact("number", path),)), within)), exact)


def _not_compared(path: clauses.Path, operator: clauses.Operator, value: clauses.Scalar) -> Narrowing:
    match operator:
        case clauses.Operator.EQUAL if value is None:
            return _compared(path, clauses.Operator.EXISTS, True)
        case clauses.Operator.EQUAL:
            return Narrowing(NoneOf((_equal(path, value),)), exact=True)
        case clauses.Operator.NOT_EQUAL:
            return _compared(path, clauses.Operator.EQUAL, value)
        case clauses.Operator.EXISTS:
            return _compared(path, operator, not value)
        case clauses.Operator.CONTAINS if value is not None:
            return Narrowing(NoneOf((_element(path, value),)), exact=not isinstance(value, str))
    if isinstance(value, str):
        return _ANYTHING
    if value is None or isinstance(value, bool):
        return _EVERYTHING
    # What is no number is on neither side of one: a comparison is false of it, and so its negation true.
    within, exact = _within(path, _OPPOSITES[operator], value)
    return Narrowing(Or((NoneOf((_fact("number", path),)), within)), exact)


def _within(path: clauses.Path, operator: clauses.Operator, value: float) -> tuple[Range, bool]:
    """A bound, and whether it lets through exactly what the comparison does."""
    exact = abs(value) < _EXACT_BELOW
    sharp, blunt = _BOUNDS[operator]
    return Range(dotted(path), sharp if exact else blunt, _nearest(value)), exact


def _all(parts: Sequence[Narrowing]) -> Narrowing:
    exact = all(part.exact for part in parts)
    conditions = tuple(part.condition for part in parts if part.condition is not None)
    if len(conditions) < 2:
        return Narrowing(conditions[0] if conditions else None, exact)
    return Narrowing(And(conditions), exact)


def _any(parts: Sequence[Narrowing]) -> Narrowing:
    if _EVERYTHING in parts:
        return _EVERYTHING
    if not parts:
        return _NOTHING
    exact = all(part.exact for part in parts)
    conditions = tuple(part.condition for part in parts if part.condition is not None)
    # One part that narrows nothing leaves nothing narrowed.
    if len(conditions) < len(parts):
        return _ANYTHING
    return Narrowing(conditions[0] if len(conditions) == 1 else Or(conditions), exact)


def _walk(found: Mapping[str, Json], above: clauses.Path) -> Iterator[tuple[clauses.Path, Json]]:
    """Every value other than null, objects before what is in them."""
    for key, value in found.items():
        if value is not None:
            yield (*above, key), value
        if isinstance(value, Mapping):
            yield from _walk(value, (*above, key))


def _facts_at(path: clauses.Path, value: Json) -> Iterable[str]:
    yield present(path)
    match value:
        case list():
            yield from (_element(path, each) for each in value if isinstance(each, str | int | float))
        case str():
            yield _equal(path, value)
            yield _fact("text", path)
        case bool():
            yield _equal(path, value)
        case int() | float():
            yield _equal(path, value)
            yield _fact("number", path)


def _equal(path: clauses.Path, value: clauses.Scalar) -> str:
    return _fact("=", path, value)


def _element(path: clauses.Path, value: clauses.Scalar) -> str:
    return _fact("has", path, value)


def _fact(kind: str, path: clauses.Path, *values: clauses.Scalar) -> str:
    """The text of a token: equal only for equal values, such as 1 and 1.0."""
    # 1.0 and 1 are equal in a filter, so they are one token; JSON would write two.
    plain = [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]
    text = json.dumps([kind, dotted(path), *plain], ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"#{sha256(text.encode()).hexdigest()}"


def _nearest(value: float) -> float:
    """The float nearest to a number, however large that is."""
    try:
        return float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -sys.float_info.max


def distinct(found: Iterable[Json]) -> list[Json]:
    """The distinct scalars other than null among values, those of lists one by one: 1 and 1.0 are one, true is not."""
    values: dict[tuple[bool, str | int | float], Json] = {}
    for value in found:
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str | int | float):
                values.setdefault((isinstance(each, bool), each), each)
    return list(values.values())
