"""A call of our own API as data: which operation with which fields, and how they travel.

Every call is made of a declaration: `call_of` of an operation, `route_call` of an address of collections and providers.
A batch of `bulk` is one request, so that memory stays flat. One that is interrupted is not sent again as a whole: the
receipts that arrived are kept, and the rest is sent.
"""

import json
import os
import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from rag_context.api.index import BulkLine, BulkReceipt, VersionsRequest, VersionsResponse
from rag_context.api.operations import Access, Operation, Request, Response
from rag_context.api.parsing import Detail, invalid_input
from rag_context.api.wire import WireRequest
from rag_context.domain.documents import Json
from rag_context.errors import InvalidInputError

if TYPE_CHECKING:  # the declarations of collections load numpy, which a command that only searches does without
    from rag_context.api.operations.routes import Route

Answer = TypeVar("Answer")

BulkLike: TypeAlias = BulkLine | Mapping[str, object]
"""A document for `bulk`; a mapping has the fields of `BulkLine`, in camelCase or snake_case."""

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


BULK = Call("/bulk", bytes, writes=True)
"""Where batches go."""

NDJSON = {"Content-Type": "application/x-ndjson"}


def call_of(operation: Operation[Request, Response], fields: Mapping[str, object] | Request) -> Call[Response]:
    """Run an operation, with a request or with the fields of one. Raises: InvalidInputError."""
    request = fields if isinstance(fields, WireRequest) else request_of(operation.request, fields)
    writes = operation.access in (Access.ADD, Access.WRITE)
    return Call(operation.path, operation.response.model_validate_json, _body(request), writes=writes)


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
    read = route.operation.response.model_validate_json
    return Call(path + encoded, read, sent, route.method, route.repeatable)


def missing(versions: Mapping[str, str]) -> Call[VersionsResponse]:
    """Ask which of these documents are not there with the given content hash."""
    body = _body(VersionsRequest(versions=dict(versions)))
    return Call("/bulk/versions", VersionsResponse.model_validate_json, body)


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


def _body(request: WireRequest) -> bytes:
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


BATCH = 64
BATCH_BYTES = 1 << 20
"""A batch ends with the document that brings it above this size."""

Item = TypeVar("Item")

Documents: TypeAlias = Iterable[BulkLike]
AsyncDocuments: TypeAlias = AsyncIterable[BulkLike] | Iterable[BulkLike]
"""What `bulk` takes."""


@dataclass(slots=True)
class Batch:
    """Documents for one request. What is wrong by itself is not sent; its receipt has its position."""

    first: int
    """Number of its first document, counted from 1 over all batches."""
    sources: list[str | None] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    rejected: dict[int, BulkReceipt] = field(default_factory=dict)
    received: list[BulkReceipt] = field(default_factory=list)
    on_receipt: Callable[[int, BulkReceipt], None] | None = None
    """Called with every receipt as it arrives, and the position of its line among those sent."""
    _rest: bytearray = field(default_factory=bytearray)

    @property
    def is_full(self) -> bool:
        return len(self.sources) >= BATCH or self.size > BATCH_BYTES

    @property
    def unanswered(self) -> Sequence[bytes]:
        return self.lines[len(self.received) :]

    def add(self, document: BulkLike) -> None:
        self.sources.append(_source(document))
        try:
            if not isinstance(document, BulkLine | Mapping):
                raise InvalidInputError("Not a JSON object")  # noqa: TRY301
            line = _body(document if isinstance(document, BulkLine) else request_of(BulkLine, document)) + b"\n"
        except InvalidInputError as error:
            details = Detail.list_of(error.details) or None
            position = len(self.sources) - 1
            self.rejected[position] = BulkReceipt(status="rejected", reason=str(error), details=details)
            return
        self.lines.append(line)
        self.size += len(line)

    def begin(self) -> bytes:
        self._rest.clear()  # of a receipt that was cut off: its line is among the unanswered
        return b"".join(self.unanswered)

    def take(self, chunk: bytes) -> None:
        """Read what arrived. Raises: ValueError (it is no receipt)."""
        # A chunk may end within a receipt; its beginning waits for the rest.
        *ended, rest = bytes(self._rest + chunk).split(b"\n")
        self._rest[:] = rest
        for line in ended:
            if line:
                receipt = BulkReceipt.model_validate_json(line)
                self.received.append(receipt)
                if self.on_receipt is not None:
                    self.on_receipt(len(self.received) - 1, receipt)

    def receipts(self) -> Iterator[BulkReceipt]:
        arrived = iter(self.received)
        for position, source in enumerate(self.sources):
            receipt = self.rejected.get(position) or next(arrived)
            yield receipt.model_copy(update={"line": self.first + position, "source": receipt.source or source})


def _source(document: object) -> str | None:
    if isinstance(document, BulkLine):
        return document.source
    source = document.get("source") if isinstance(document, Mapping) else None
    return source if isinstance(source, str) else None


async def async_each(items: AsyncIterable[Item] | Iterable[Item]) -> AsyncIterator[Item]:
    """What comes one after the other, awaited where it has to be."""
    if isinstance(items, Iterable):
        for item in items:
            yield item
        return
    async for item in items:
        yield item
