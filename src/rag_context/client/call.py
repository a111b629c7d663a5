"""A call of our own API as data: which operation with which fields, and how they travel.

Every call is made of a declaration: `call_of` of an operation, `route_call` of an address of collections and providers.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import quote, urlencode

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from rag_context.api.operations import Access, Operation, Request, Response
from rag_context.api.parsing import invalid_input
from rag_context.api.wire import WireRequest
from rag_context.domain.documents import Json
from rag_context.errors import InvalidInputError

if TYPE_CHECKING:  # the declarations of collections load numpy, which a command that only searches does without
    from rag_context.api.operations.routes import Route

Answer = TypeVar("Answer")

DEFAULT_CONNECTION = "default"


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request: where it goes, what is sent, how the answer is read (ValueError: it is none)."""

    path: str
    read: Callable[[bytes], Answer]
    body: bytes | None = None
    method: str = "POST"
    repeatable: bool = True
    """Whether doing it twice leaves what doing it once does. Ids are computed, so that all but making a
    collection is: a document that is there already is `unchanged`, one that is gone already is no error."""
    writes: bool = False
    """Whether it may change what searches of the memory find."""
    answer: type[Answer] | None = None
    """The model that is returned as it is where this process performs the call; None: `read` makes the answer."""


BULK = Call("/bulk", bytes, writes=True)
"""Where batches go."""

NDJSON = {"Content-Type": "application/x-ndjson"}


def call_of(operation: Operation[Request, Response], fields: Mapping[str, object] | Request) -> Call[Response]:
    """Run an operation, with a request or with the fields of one. Raises: InvalidInputError."""
    request = fields if isinstance(fields, WireRequest) else request_of(operation.request, fields)
    return Call(
        operation.path,
        operation.response.model_validate_json,
        body_of(request),
        writes=operation.access in (Access.ADD, Access.WRITE),
        answer=operation.response,
    )


def tool_call(name: str, arguments: Mapping[str, object]) -> Call[dict[str, Json]]:
    """Run any tool of the server, with arguments and answer as they are on the wire. Raises: InvalidInputError."""
    try:
        body = json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"The arguments of {name!r} are not JSON: {error}") from None
    return Call(f"/tools/{step_of(name)}", json_object, body, writes=True)


def route_call(
    route: "Route[Response]",
    *names: str,
    connection: str = DEFAULT_CONNECTION,
    query: Mapping[str, object] | None = None,
    body: Mapping[str, object] | None = None,
) -> Call[Response]:
    """A call of a declared address; fields without a value are left out. Raises: InvalidInputError.

    `names` stand in the address, in its order; what is not a string in `query` stands there as JSON.
    """
    path = route.address(*map(step_of, names))
    fields = {} if connection == DEFAULT_CONNECTION else {"connection": connection}
    for name, value in (query or {}).items():
        if value is not None:
            fields[name] = value if isinstance(value, str) else _json(value).decode()
    try:
        encoded = f"?{urlencode(fields, quote_via=quote)}" if fields else ""
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"This cannot be part of a URL: {error}") from None
    sent = None if body is None else _json({key: value for key, value in body.items() if value is not None})
    answer = route.operation.response
    return Call(path + encoded, answer.model_validate_json, sent, route.method, route.repeatable, answer=answer)


def request_of(model: type[Request], fields: Mapping[str, object]) -> Request:
    values = {
        name: list(value) if isinstance(value, tuple | set | frozenset) else value for name, value in fields.items()
    }
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid_input(model, error) from None


def json_object(body: bytes) -> dict[str, Json]:
    value = json.loads(body)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  (an answer that cannot be read, like bad JSON)
    return value


def step_of(name: str) -> str:
    try:
        step = quote(name, safe="")
    except UnicodeEncodeError:
        step = ""
    if step in {"", ".", ".."}:
        raise InvalidInputError(f"{name!r} cannot be the name of anything here")
    return step


def body_of(request: WireRequest) -> bytes:
    return request.__pydantic_serializer__.to_json(request, by_alias=True, exclude_none=True)


def _json(value: object) -> bytes:
    try:
        return to_json(value, fallback=_plain)
    except (PydanticSerializationError, UnicodeEncodeError) as error:
        raise InvalidInputError(f"This is not JSON: {error}") from None


def _plain(value: object) -> object:
    """Arrays of numbers are lists."""
    listed = getattr(value, "tolist", None)
    if listed is None:
        raise TypeError(f"a {type(value).__name__} is no JSON")
    return listed()


_REQUEST_ID = re.compile(r"[!-~]{1,128}")


def request_id_of(requested: str | None) -> str:
    if requested is None:
        return os.urandom(12).hex()
    if not _REQUEST_ID.fullmatch(requested):
        raise InvalidInputError("request_id must be 1 to 128 printable ASCII characters without spaces")
    return requested


def headers_of(call: Call[Answer], request_id: str, key: str | None) -> dict[str, str]:
    headers = {"X-Request-ID": request_id, "User-Agent": "rag-context"}
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    return headers
