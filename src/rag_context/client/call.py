"""A call of our own API as data, and how one is made of an operation; `calls` has one for each thing to ask."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from rag_context.api.index import BulkLine, VersionsRequest, VersionsResponse
from rag_context.api.operations import Operation, Request, Response
from rag_context.api.parsing import invalid_input
from rag_context.api.wire import WireRequest
from rag_context.domain.documents import Json
from rag_context.errors import InvalidInputError

Answer = TypeVar("Answer")

BulkLike: TypeAlias = BulkLine | Mapping[str, object]
"""A document for `bulk`; a mapping has the fields of `BulkLine`, in camelCase or snake_case."""


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One question: where it goes, what is sent, how the answer is read (ValueError: it is none)."""

    path: str
    read: Callable[[bytes], Answer]
    body: bytes | None = None
    method: str = "POST"
    repeatable: bool = True
    """Whether doing it twice leaves what doing it once does. Ids are computed, so that all but making a
    collection is: a document that is there already is `unchanged`, one that is gone already is no error."""


BULK = Call("/bulk", bytes)
"""Where batches go, see `batches`."""

NDJSON = {"Content-Type": "application/x-ndjson"}


def run(operation: Operation[Request, Response], request: Request) -> Call[Response]:
    """Run an operation with a request that is checked already."""
    return Call(operation.path, operation.response.model_validate_json, _body(request))


def missing(versions: Mapping[str, str]) -> Call[VersionsResponse]:
    """Ask which of these documents are not there with the given content hash."""
    body = _body(VersionsRequest(versions=dict(versions)))
    return Call("/bulk/versions", VersionsResponse.model_validate_json, body)


def bulk_line(document: BulkLike) -> bytes:
    """A line of a bulk stream. Raises: InvalidInputError."""
    if not isinstance(document, BulkLine | Mapping):
        raise InvalidInputError("Not a JSON object")
    line = document if isinstance(document, BulkLine) else request_of(BulkLine, document)
    return _body(line) + b"\n"


def request_of(model: type[Request], fields: Mapping[str, object]) -> Request:
    """A request, checked. Raises: InvalidInputError."""
    given = {
        name: list(value) if isinstance(value, tuple | set | frozenset) else value for name, value in fields.items()
    }
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise invalid_input(model, error) from None


def json_object(body: bytes) -> dict[str, Json]:
    """An answer that no model describes. Raises: ValueError."""
    value = json.loads(body)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  (an answer that cannot be read, like bad JSON)
    return value


def step_of(name: str) -> str:
    """A name as a step of an address. Raises: InvalidInputError, where no address can hold it."""
    try:
        step = quote(name, safe="")
    except UnicodeEncodeError:
        step = ""
    if step in {"", ".", ".."}:
        raise InvalidInputError(f"{name!r} cannot be the name of anything here")
    return step


def _body(request: WireRequest) -> bytes:
    return request.__pydantic_serializer__.to_json(request, by_alias=True, exclude_none=True)
