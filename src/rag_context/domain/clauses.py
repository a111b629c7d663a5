"""A `where` filter as data: what metadata must be for a document of a collection to be let through.

Rules that hold on every provider: types never coerce (`true` is not 1, `"1"` is not 1; 1 is 1.0), null equals a
missing field, and only a comparison of two numbers or of two strings can be one of order.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool | None
Path: TypeAlias = tuple[str, ...]
"""The steps to a field: `("author", "name")` for `author.name`."""


class Operator(StrEnum):
    EQUAL = "$eq"
    NOT_EQUAL = "$ne"
    """True of a missing field, unless compared with null."""
    GREATER = "$gt"
    AT_LEAST = "$gte"
    LESS = "$lt"
    AT_MOST = "$lte"
    EXISTS = "$exists"
    """Whether there is a value other than null."""
    CONTAINS = "$contains"
    """A string holds a substring; a list holds an element."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field against one value; a bool for `EXISTS`."""

    path: Path
    operator: Operator
    value: Scalar


@dataclass(frozen=True, slots=True)
class Membership:
    """`$in`: a field equals one of the values. `$nin` is the `Negation` of it, and so true of a missing field."""

    path: Path
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Conjunction:
    """All parts hold; without any, everything is let through."""

    parts: "tuple[Clause, ...]" = ()


@dataclass(frozen=True, slots=True)
class Disjunction:
    """At least one part holds."""

    parts: "tuple[Clause, ...]"


@dataclass(frozen=True, slots=True)
class Negation:
    """The part does not hold."""

    part: "Clause"


Clause: TypeAlias = Comparison | Membership | Conjunction | Disjunction | Negation

EVERYTHING = Conjunction()
