"""Schemas as models read them: what to send, without the bounds that the server checks anyway.

A list of tools is part of every conversation, and paid for in tokens. Some clients also reject what only a validator
needs: `propertyNames`, patterns against control characters, `additionalProperties` (outside of Gemini's subset).
"""

from collections.abc import Collection
from typing import Any

from rag_context.api.schema import Schema

_FOR_VALIDATORS = frozenset(
    [
        "additionalProperties",
        "propertyNames",
        "pattern",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "title",
        "not",
        "contains",
        "const",
    ]
)


def for_models(schema: Schema, without: Collection[str] = ()) -> Schema:
    """The schema of a request in short.

    Args:
        schema: the whole of it.
        without: properties that are accepted and not listed.
    """
    simple = _simple({key: value for key, value in schema.items() if key != "description"})
    assert isinstance(simple, dict)  # noqa: S101  (a schema of a model is an object)
    simple["properties"] = {name: node for name, node in simple.get("properties", {}).items() if name not in without}
    return simple


def for_clients(schema: Schema) -> Schema:
    """The schema of an answer without what strict clients reject."""
    simple = _simple(schema)
    assert isinstance(simple, dict)  # noqa: S101  (a schema of a model is an object)
    return simple


def _simple(node: Any) -> Any:
    if isinstance(node, list):
        return [_simple(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "properties" in node and isinstance(node["properties"], dict):
        properties = {name: _simple(value) for name, value in node["properties"].items()}
        return {**_simple({key: value for key, value in node.items() if key != "properties"}), "properties": properties}
    return {
        key: _simple(value) for key, value in node.items() if key not in _FOR_VALIDATORS and not _is_idle(key, value)
    }


def _is_idle(key: str, value: Any) -> bool:
    """A default that goes without saying."""
    return key == "default" and value is False
