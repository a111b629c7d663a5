"""Schemas as models read them: without what only a validator needs, and some clients refuse."""

from typing import Any

from rag_context.contract.schema import Schema

_FOR_VALIDATORS = frozenset({"propertyNames"})
_CONTROL = "\\u00"


def for_models(schema: Schema) -> Schema:
    """`schema` without the patterns against control characters and the bounds of free keys; the door checks both."""
    simple = _simple(schema)
    assert isinstance(simple, dict)  # noqa: S101  (a schema of a model is an object)
    return simple


def _simple(node: Any) -> Any:
    if isinstance(node, list):
        return [_simple(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: _simple(value) for key, value in node.items() if not _is_for_validators(key, value)}


def _is_for_validators(key: str, value: Any) -> bool:
    return key in _FOR_VALIDATORS or (key == "pattern" and isinstance(value, str) and _CONTROL in value)
