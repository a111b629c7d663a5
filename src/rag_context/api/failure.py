"""The one shape of every error."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from rag_context.api.wire import WireResponse
from rag_context.errors import FieldError


class ErrorCode(StrEnum):
    """What went wrong, for programs."""

    INVALID_INPUT = "INVALID_INPUT"
    UNAUTHORIZED = "UNAUTHORIZED"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    MODEL_NOT_FOUND = "MODEL_NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    REQUEST_TIMEOUT = "REQUEST_TIMEOUT"
    CONFLICT = "CONFLICT"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    UNSUPPORTED_MEDIA_TYPE = "UNSUPPORTED_MEDIA_TYPE"
    RATE_LIMITED = "RATE_LIMITED"
    CIRCUIT_OPEN = "CIRCUIT_OPEN"
    PROJECT_NOT_ACTIVATED = "PROJECT_NOT_ACTIVATED"
    EXTERNAL_DOCS_NOT_CONFIGURED = "EXTERNAL_DOCS_NOT_CONFIGURED"
    EXTERNAL_DOCS_NOT_PROMOTABLE = "EXTERNAL_DOCS_NOT_PROMOTABLE"
    DOCUMENT_NOT_FOUND = "DOCUMENT_NOT_FOUND"
    INVALID_DOC_TYPE = "INVALID_DOC_TYPE"
    SCHEMA_VALIDATION_FAILED = "SCHEMA_VALIDATION_FAILED"
    EMBEDDING_SERVICE_ERROR = "EMBEDDING_SERVICE_ERROR"
    DATABASE_ERROR = "DATABASE_ERROR"
    FILE_SYSTEM_ERROR = "FILE_SYSTEM_ERROR"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    OVERLOADED = "OVERLOADED"


class Detail(WireResponse):
    """One field and what is wrong with it."""

    field: Annotated[str, Field(description="Path of the field, such as metadata.tags[0]; empty: the whole body")]
    message: str

    @classmethod
    def list_of(cls, errors: Sequence[FieldError]) -> list["Detail"]:
        """The same on the wire."""
        return [cls.model_construct(field=error.field, message=error.message) for error in errors]


class ErrorResponse(WireResponse):
    """Why there is no answer. 5xx also say that the caller should go on without context."""

    error: Annotated[str, Field(description="Message for people")]
    code: ErrorCode
    details: Annotated[list[Detail] | None, Field(description="All invalid fields")] = None
    request_id: str
    fallback: bool | None = None
    fallback_level: Annotated[int | None, Field(ge=1, le=4)] = None
