"""What may stand in the query strings of collections: numbers, truth, ids and filters are texts there."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError

from rag_context.api.collections import DEFAULT_PAGE, MAX_PAGE, QUERY_CHARS, UNCONFIRMED
from rag_context.api.wire import Otherwise, PlainRequest, Sentences

_DIGITS = 100


def _number(value: Any) -> Any:
    """A number as it stands in an address."""
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit():
        return int(value[:_DIGITS])
    return value


def _truth(value: Any) -> Any:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _ids_of(text: str) -> list[str]:
    """Ids as they stand in an address. Raises: ValueError."""
    if not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    found = json.loads(text)
    if not all(isinstance(id_, str) for id_ in found):
        raise ValueError("not ids")
    return list(found)


def _ids(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        found = _ids_of(value)
    except (ValueError, TypeError, RecursionError):
        found = []
    if not 0 < len(found) <= MAX_PAGE:
        raise PydanticCustomError(
            "sentence",
            "ids must be 1 to {most} ids with commas between them, or a JSON array of them",
            {"most": MAX_PAGE},
        )
    return found


def _field_path(field: str) -> str:
    if not all(field.split(".")):
        raise PydanticCustomError(
            "sentence", "field must name a metadata field, such as doc_type or author.name: no part of it is empty"
        )
    return field


class NoFields(PlainRequest):
    """Nothing may stand in the query string."""


class ConnectionFields(PlainRequest):
    """What may stand in every query string of a collection."""

    connection: Annotated[str, Field(description="Id of the collection's connection"), Otherwise("default")] = "default"


class MetadataFields(ConnectionFields):
    """How metadata is put."""

    merge: Annotated[
        bool,
        Field(description="Set the given keys and keep the others, instead of replacing all"),
        BeforeValidator(_truth),
    ] = False


class DocumentsFields(ConnectionFields):
    """Which documents, and which part of them."""

    where: Annotated[str | None, Field(description="Only documents whose metadata matches this filter, as JSON")] = None
    limit: Annotated[
        int,
        Field(ge=1, description=f"Maximum number of documents; more than {MAX_PAGE} are {MAX_PAGE}"),
        BeforeValidator(_number),
    ] = DEFAULT_PAGE
    offset: Annotated[
        int, Field(ge=0, description="Number of matching documents to skip"), BeforeValidator(_number)
    ] = 0
    ids: Annotated[
        list[str] | None,
        BeforeValidator(_ids),
        WithJsonSchema(
            {
                "type": "string",
                "description": f"Only these documents: up to {MAX_PAGE} ids with commas between them, or a JSON array",
            }
        ),
    ] = None
    include: Annotated[
        Literal["embeddings"] | None, Field(description="embeddings: return the documents' vectors too")
    ] = None

    @model_validator(mode="after")
    def _check_one_way(self) -> Self:
        if self.ids is not None and (self.where is not None or self.offset):
            raise PydanticCustomError("exactly_one", "Name ids, or where and offset, not both")
        return self


class DeleteFields(ConnectionFields):
    """Which documents to delete, and how sure the caller is."""

    sentences: ClassVar[Mapping[str, Sentences]] = {"where": Sentences("where required")}

    where: Annotated[str, Field(description="The documents whose metadata matches this filter, as JSON")]
    dry_run: Annotated[
        bool, Field(description="Only report what would be deleted, and delete nothing"), BeforeValidator(_truth)
    ] = False
    confirm: Annotated[
        bool,
        Field(description=f"Delete also more than {UNCONFIRMED} documents, or more than half of the collection"),
        BeforeValidator(_truth),
    ] = False


class ValuesFields(ConnectionFields):
    """Of which field."""

    sentences: ClassVar[Mapping[str, Sentences]] = {"field": Sentences("field required")}

    field: Annotated[
        str,
        Field(
            min_length=1,
            max_length=QUERY_CHARS,
            description="A metadata field; a.b is the field b of the object a",
            json_schema_extra={"pattern": r"^[^.]+(\.[^.]+)*$"},
        ),
        AfterValidator(_field_path),
    ]
