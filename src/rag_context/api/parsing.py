"""A request is parsed from bytes, or rejected with every field error at once; and the one shape of all errors.

Messages are sentences that people can act on.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from rag_context.api.wire import PATH_HASH_CHARS, PATH_HASH_PATTERN, Sentences, WireRequest, WireResponse, about
from rag_context.errors import FieldError, InvalidInputError, joined


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


CODES: Mapping[int, ErrorCode] = {
    400: ErrorCode.INVALID_INPUT,
    401: ErrorCode.UNAUTHORIZED,
    403: ErrorCode.FORBIDDEN,
    404: ErrorCode.NOT_FOUND,
    405: ErrorCode.METHOD_NOT_ALLOWED,
    408: ErrorCode.REQUEST_TIMEOUT,
    409: ErrorCode.CONFLICT,
    413: ErrorCode.PAYLOAD_TOO_LARGE,
    415: ErrorCode.UNSUPPORTED_MEDIA_TYPE,
    429: ErrorCode.RATE_LIMITED,
    431: ErrorCode.PAYLOAD_TOO_LARGE,
    500: ErrorCode.INTERNAL_ERROR,
    503: ErrorCode.SERVICE_UNAVAILABLE,
}
"""What a status says to programs, where the error is no more special."""


class Detail(WireResponse):
    """One field and what is wrong with it."""

    field: Annotated[str, about("Path of the field, such as metadata.tags[0]; empty: the whole body")]
    message: str

    @classmethod
    def list_of(cls, errors: Sequence[FieldError]) -> list["Detail"]:
        return [cls.model_construct(field=error.field, message=error.message) for error in errors]


class ErrorResponse(WireResponse):
    """Why there is no answer. 5xx also say that the caller should go on without context."""

    error: Annotated[str, about("Message for people")]
    code: ErrorCode
    details: Annotated[list[Detail] | None, about("All invalid fields")] = None
    request_id: str
    fallback: bool | None = None
    fallback_level: Annotated[int | None, Field(ge=1, le=4)] = None


MAX_DETAILS = 100
_NAME_CHARS = 64
_SUMMARY = 3

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "string_type": "a string",
    "list_type": "an array",
    "too_short": "an array that is not empty",
    "model_type": "an object",
    "dict_type": "an object",
    "instant": "a time with offset as in RFC 3339, such as 2026-01-31T12:00:00Z",
    "datetime_type": "a time with offset as in RFC 3339, such as 2026-01-31T12:00:00Z",
}

Request = TypeVar("Request", bound=WireRequest)


def read_json(model: type[Request], body: bytes) -> Request:
    """Read a request from a JSON body.

    Raises: InvalidInputError (with one detail per field at fault, or per key that an object has twice).
    """
    try:
        request = model.model_validate_json(body, by_alias=True, by_name=False)
    except ValidationError as error:
        raise invalid_input(model, error) from None
    if details := [FieldError(key, f"{key} given twice") for key in repeated_keys(body)]:
        raise InvalidInputError("; ".join(detail.message for detail in details[:_SUMMARY]), details)
    return request


def repeated_keys(body: bytes) -> list[str]:
    """Keys that some object of valid JSON has twice, at any depth; a parser keeps the last and says nothing."""
    found: dict[str, None] = {}

    def note(pairs: list[tuple[str, object]]) -> None:
        if len(pairs) > 1 and len({key for key, _ in pairs}) < len(pairs) and len(found) < MAX_DETAILS:
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    found[key[:_NAME_CHARS]] = None
                seen.add(key)

    json.loads(body, object_pairs_hook=note, parse_int=str)  # as a text, a number may have any length
    return list(found)[:MAX_DETAILS]


def read_fields(model: type[Request], fields: Mapping[str, Any]) -> Request:
    """Read a request from fields already parsed, such as those of a query string. Raises: InvalidInputError."""
    try:
        return model.model_validate(fields, by_alias=True, by_name=False)
    except ValidationError as error:
        raise invalid_input(model, error) from None


def invalid_input(model: type[WireRequest], error: ValidationError) -> InvalidInputError:
    found = error.errors(include_url=False, include_context=True)
    problems = [FieldError(_path(item["loc"]), _message(model, item)) for item in found]
    return InvalidInputError(joined([problem.message for problem in problems]), problems[:MAX_DETAILS])


def _path(location: Sequence[str | int]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part[:_NAME_CHARS]}" if path else part[:_NAME_CHARS]
    return path


def _message(model: type[WireRequest], item: ErrorDetails) -> str:
    kind, context = item["type"], item.get("ctx", {})
    path = _path(item["loc"])
    if kind == "json_invalid":
        return f"Not valid JSON: {context['error']}"
    if kind == "exactly_one":
        return item["msg"]
    if not item["loc"]:
        return "Not a JSON object"
    if kind == "extra_forbidden":
        return _unknown(model, str(item["loc"][-1])[:_NAME_CHARS])
    sentences = _sentences(model, item["loc"])
    if kind == "missing" or (item["input"] is None and len(item["loc"]) == 1):
        return sentences.empty or f"{path} required"
    if item["input"] is None:
        return f"{path} must not be null"
    if kind in {"string_too_short", "string_pattern_mismatch"}:
        return _about_text(path, sentences, str(item["input"]), context)
    if kind == "string_too_long":
        return sentences.long or f"{path} too long (max {context['max_length']} characters)"
    if kind == "sentence" or kind.startswith("metadata_"):
        return item["msg"]
    return f"{path} must be {_expected(kind, context)}"


def _about_text(path: str, sentences: Sentences, text: str, context: Mapping[str, Any]) -> str:
    if "\0" in text:
        return f"{path} must not hold the NUL character"
    if not text.strip():
        return sentences.empty or f"{path} must not be empty; leave it out instead"
    if context.get("pattern") == PATH_HASH_PATTERN or context.get("min_length") == PATH_HASH_CHARS:
        return f"{path} must be {PATH_HASH_CHARS} hexadecimal digits in lower case"
    if "min_length" in context:
        return f"{path} too short (min {context['min_length']} characters)"
    return f"{path} must not hold control characters"


def _expected(kind: str, context: Mapping[str, Any]) -> str:
    match kind:
        case "greater_than_equal":
            return f"at least {context['ge']:g}"
        case "less_than_equal":
            return f"at most {context['le']:g}"
        case "too_long":
            return f"an array of at most {context['max_length']} items"
        case "literal_error" | "enum":
            return f"one of {context['expected']}"
    return _EXPECTED.get(kind, "of another form")


def _unknown(model: type[WireRequest], name: str) -> str:
    names = [field.alias or key for key, field in model.model_fields.items()]
    near = difflib.get_close_matches(name.replace("_", "").lower(), [k.lower() for k in names], n=1, cutoff=0.7)
    for candidate in names:
        if near and candidate.lower() == near[0]:
            return f"Unknown field {name!r}; did you mean {candidate!r}?"
    if not names:
        return f"Unknown field {name!r}; there are none"
    return f"Unknown field {name!r}; known are {', '.join(names)}"


def _sentences(model: type[WireRequest], location: Sequence[str | int]) -> Sentences:
    if len(location) == 1:
        for name, field in model.model_fields.items():
            if location[0] in {name, field.alias}:
                return model.sentences.get(name, Sentences())
    return Sentences()
