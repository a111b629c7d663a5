"""An entry of a collection as a point of Qdrant, and back; tokens as Qdrant's conditions."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias
from uuid import UUID, uuid5

from qdrant_client import models

from rag_context.domain.documents import Json
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendDataError
from rag_context.ports.provider import Entry
from rag_context.stores.qdrant.connection import COMPONENT
from rag_context.stores.tokens import And, AnyOf, Condition, NoneOf, Or, Range, numbers_of, tokens_of

ID = "id"
TEXT = "text"
METADATA = "metadata"
FACTS = "facts"
NUMBERS = "numbers"
PATH = "path"
VALUE = "value"

OF_AN_ENTRY = [ID, TEXT, METADATA]
"""The fields of an entry; all others only serve filters."""

_WORD = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD)
_NUMBER = models.FloatIndexParams(type=models.FloatIndexType.FLOAT)

INDEXES: Mapping[str, models.KeywordIndexParams | models.FloatIndexParams] = {
    FACTS: _WORD,
    f"{NUMBERS}[].{PATH}": _WORD,
    f"{NUMBERS}[].{VALUE}": _NUMBER,
}
"""The fields by which entries are found."""

_IDS = UUID("6f5ac0a2-6c1c-5a3e-8f0c-3f5f6f9d4b55")

_DIGITS = 22
"""Characters that one float of a vector takes as JSON, at most."""

Payload: TypeAlias = Mapping[str, Any]


def point_id(id_: str) -> str:
    """The point id of a text: Qdrant's ids are UUIDs."""
    return str(uuid5(_IDS, id_))


def point_of(entry: Entry, vector: Vector) -> models.PointStruct:
    """An entry with its vector, `(dim,) float32`. The metadata is kept as text, so that it comes back as it was."""
    numbers = [{PATH: path, VALUE: value} for path, value in numbers_of(entry.metadata).items()]
    payload = {
        ID: entry.id,
        TEXT: entry.text,
        METADATA: json.dumps(entry.metadata, ensure_ascii=False),
        FACTS: tokens_of(entry.metadata),
    }
    return models.PointStruct(
        id=point_id(entry.id), vector=vector.tolist(), payload=payload | ({NUMBERS: numbers} if numbers else {})
    )


def size_of(point: models.PointStruct) -> int:
    """An upper estimate of the bytes of a point in a request."""
    vector = point.vector if isinstance(point.vector, list) else []
    return len(vector) * _DIGITS + len(json.dumps(point.payload))


def entry_of(payload: Payload | None) -> Entry:
    """The entry that a point carries.

    Raises:
        BackendDataError: the payload is not one of ours.
    """
    payload = payload or {}
    text = payload.get(TEXT)
    if not isinstance(text, str):
        raise foreign()
    return Entry(id_of(payload), text, metadata_of(payload))


def id_of(payload: Payload | None) -> str:
    """The id of the entry that a point carries. Raises: BackendDataError."""
    found = (payload or {}).get(ID)
    if not isinstance(found, str):
        raise foreign()
    return found


def metadata_of(payload: Payload | None) -> dict[str, Json]:
    """The metadata of the entry that a point carries. Raises: BackendDataError."""
    try:
        found = json.loads((payload or {})[METADATA])
    except (KeyError, TypeError, ValueError) as error:
        raise foreign() from error
    if not isinstance(found, dict):
        raise foreign()
    return found


def foreign() -> BackendDataError:
    return BackendDataError(COMPONENT, "A point in one of Qdrant's collections was not stored by rag-context.")


def filter_of(condition: Condition | None) -> models.Filter | None:
    """A condition as a filter; None lets everything through."""
    return None if condition is None else models.Filter(must=[_condition(condition)])


def _condition(condition: Condition) -> models.Condition:
    match condition:
        case AnyOf(tokens):
            return models.FieldCondition(key=FACTS, match=models.MatchAny(any=list(tokens)))
        case NoneOf(tokens):
            excluded = models.FieldCondition(key=FACTS, match=models.MatchAny(any=list(tokens)))
            return models.Filter(must_not=[excluded])
        case Range(path, bound, value):
            inner: list[models.Condition] = [
                models.FieldCondition(key=PATH, match=models.MatchValue(value=path)),
                models.FieldCondition(key=VALUE, range=models.Range.model_validate({bound: value})),
            ]
            return models.NestedCondition(nested=models.Nested(key=NUMBERS, filter=models.Filter(must=inner)))
        case And(parts):
            return models.Filter(must=_conditions(parts))
        case Or(parts):
            return models.Filter(should=_conditions(parts))


def _conditions(parts: Iterable[Condition]) -> list[models.Condition]:
    return [_condition(part) for part in parts]
