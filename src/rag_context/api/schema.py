"""How wire models are published as JSON Schema 2020-12: plain types, no null, no title, everything inline."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

Schema = dict[str, Any]


class _Plain(GenerateJsonSchema):
    """pydantic's generator without `null`, which is accepted as absent but not advertised, and without titles."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        if described.get("default", ...) is None:
            del described["default"]
        return described

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def json_schema(model: type[BaseModel], mode: Literal["validation", "serialization"]) -> Schema:
    """The published schema of `model`, without any `$ref`."""
    schema = model.model_json_schema(by_alias=True, schema_generator=_Plain, mode=mode)
    definitions = schema.pop("$defs", {})
    inlined = _inline(schema, definitions)
    assert isinstance(inlined, dict)  # noqa: S101  (a schema of a model is an object)
    return inlined


def _inline(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if reference is not None:
        target = definitions[reference.rpartition("/")[2]]
        return {**_inline(target, definitions), **{k: v for k, v in node.items() if k != "$ref"}}
    # A model's own title repeats its Python name; a property may be called "title".
    return {
        key: {name: _inline(sub, definitions) for name, sub in value.items()}
        if key == "properties"
        else _inline(value, definitions)
        for key, value in node.items()
        if key != "title" or not isinstance(value, str)
    }
