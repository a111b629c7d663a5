"""What a writer says about a document: read from a request, and given back in an answer."""

import json
import math
from typing import Annotated, Any

from pydantic import ConfigDict, Field, JsonValue, model_validator
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError

from rag_context.api.wire import MAX_TAGS, Label, Tag, WireRequest
from rag_context.domain.documents import Json, Metadata

METADATA_BYTES = 16 * 1024
KEY_CHARS = 128
_KEY_PATTERN = r"^[^\u0000]*$"


class MetadataFields(WireRequest):
    """What is said about a document. Further keys are kept and returned, and cannot be filtered on."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"propertyNames": {"maxLength": KEY_CHARS, "pattern": _KEY_PATTERN}},
    )
    __pydantic_extra__: dict[str, JsonValue]

    agent: Annotated[Label | None, Field(description="Agent that produced the content")] = None
    tags: Annotated[list[Tag] | None, Field(max_length=MAX_TAGS, description="Tags to filter by later")] = None
    category: Annotated[Label | None, Field(description="Any category; searches filter by the known ones")] = None
    game: Annotated[Label | None, Field(description="Game the content is about")] = None
    decision_id: Annotated[Label | None, Field(description="Identifier of the decision recorded here")] = None

    @model_validator(mode="after")
    def _check_further_keys(self) -> "MetadataFields":
        further = self.__pydantic_extra__
        for key in [key for key, value in further.items() if value is None]:
            del further[key]
        for key, value in further.items():
            if len(key) > KEY_CHARS or "\0" in key:
                raise PydanticCustomError(
                    "metadata_key", f"metadata keys must be at most {KEY_CHARS} characters, no NUL"
                )
            if not _finite(value):
                raise PydanticCustomError(
                    "metadata_number", "metadata holds a number that JSON cannot (NaN or infinite)"
                )
        if _size(self) > METADATA_BYTES:
            raise PydanticCustomError("metadata_size", "metadata too large (max 16 KiB as JSON)")
        return self

    def to_metadata(self) -> Metadata:
        """The same in the domain's words; empty strings are no values."""
        return Metadata(
            agent=self.agent or None,
            tags=tuple(dict.fromkeys(self.tags or ())),
            category=self.category or None,
            game=self.game or None,
            decision_id=self.decision_id or None,
            extra=dict(self.__pydantic_extra__),
        )


def metadata_json(metadata: Metadata) -> dict[str, Json]:
    """What an answer says of a document: keys without a value are left out."""
    known: dict[str, Json] = {
        "agent": metadata.agent,
        "tags": list(metadata.tags) or None,
        "category": metadata.category,
        "game": metadata.game,
        "decisionId": metadata.decision_id,
    }
    return {**metadata.extra, **{key: value for key, value in known.items() if value is not None}}


ReturnedMetadata = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "description": "Metadata of the document; keys without a value are absent",
            "properties": {
                "agent": {"type": "string"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "category": {"type": "string"},
                "game": {"type": "string"},
                "decisionId": {"type": "string"},
            },
            "additionalProperties": True,
        }
    ),
]


def _finite(value: JsonValue) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(map(_finite, value))
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    return True


def _size(metadata: MetadataFields) -> int:
    whole = metadata.model_dump(by_alias=True, exclude_none=True)
    return len(json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode())
