"""What a `Clause` means: the reference that every provider is held to."""

from collections.abc import Mapping

from rag_context.domain.clauses import (
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


def matches(clause: Clause, metadata: Mapping[str, Json]) -> bool:
    """Whether a document with this metadata is let through."""
    match clause:
        case Comparison(path, operator, value):
            return compares(operator, value_at(metadata, path), value)
        case Membership(path, values):
            found = value_at(metadata, path)
            return any(equals(found, value) for value in values)
        case Conjunction(parts):
            return all(matches(part, metadata) for part in parts)
        case Disjunction(parts):
            return any(matches(part, metadata) for part in parts)
        case Negation(part):
            return not matches(part, metadata)


def value_at(metadata: Mapping[str, Json], path: Path) -> Json:
    """What stands at `path`; None where nothing does. Lists are not walked into."""
    *outer, last = path
    for step in outer:
        inner = metadata.get(step)
        if not isinstance(inner, Mapping):
            return None
        metadata = inner
    return metadata.get(last)


def compares(operator: Operator, found: Json, value: Scalar) -> bool:
    """Whether a value that was found (None: missing) stands in this relation to the one of the filter."""
    match operator:
        case Operator.EQUAL:
            return equals(found, value)
        case Operator.NOT_EQUAL:
            return not equals(found, value)
        case Operator.EXISTS:
            return (found is not None) is value
        case Operator.CONTAINS:
            return _contains(found, value)
        case Operator.GREATER:
            return _order(found, value) == 1
        case Operator.AT_LEAST:
            return _order(found, value) in (0, 1)
        case Operator.LESS:
            return _order(found, value) == -1
        case Operator.AT_MOST:
            return _order(found, value) in (-1, 0)


def equals(found: Json, value: Scalar) -> bool:
    """Equality without coercion: `true` is not 1, 1 is 1.0, a list or an object equals nothing."""
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    return found == value  # Python compares an int with a float exactly


def _contains(found: Json, value: Scalar) -> bool:
    if isinstance(found, str):
        return isinstance(value, str) and value in found
    if isinstance(found, list):
        return value is not None and any(equals(element, value) for element in found)
    return False


def _order(found: Json, value: Scalar) -> int | None:
    """-1, 0 or 1 among numbers and among strings (by code points); None where there is no order."""
    if isinstance(found, bool) or isinstance(value, bool):
        return None
    if isinstance(found, str) and isinstance(value, str):
        return (found > value) - (found < value)
    if isinstance(found, int | float) and isinstance(value, int | float):
        return (found > value) - (found < value)
    return None
