"""A call of our own API as data: what is sent, what its reply says, or what error it or its absence is.

`calls` and `collection_calls` have one for each operation. A batch of `bulk` is one request, so that memory stays flat.
One that is interrupted is not sent again as a whole: the receipts that arrived are kept, and the rest is sent.
"""

import json
import os
import re
import ssl
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import ValidationError

from rag_context.api.index import BulkLine, BulkReceipt, VersionsRequest, VersionsResponse
from rag_context.api.operations import Operation, Request, Response
from rag_context.api.parsing import Detail, invalid_input
from rag_context.api.wire import WireRequest
from rag_context.client.errors import (
    AccessDeniedError,
    BadRequestError,
    ClientError,
    ConflictError,
    InvalidResponseError,
    NotFoundError,
    ServerBusyError,
    ServerError,
    ServerTimeoutError,
    ServerUnreachableError,
)
from rag_context.domain.documents import Json
from rag_context.errors import FieldError, InvalidInputError
from rag_context.settings import mask_url

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
"""Where batches go."""

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
    values = {
        name: list(value) if isinstance(value, tuple | set | frozenset) else value for name, value in fields.items()
    }
    try:
        return model.model_validate(values)
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


_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_BY_STATUS: dict[int, type[ClientError]] = {
    401: AccessDeniedError,
    403: AccessDeniedError,
    404: NotFoundError,
    409: ConflictError,
    429: ServerBusyError,
    503: ServerBusyError,
}
_GATEWAY = (502, 504)
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout)


def request_id_of(requested: str | None) -> str:
    """The id of a call: the caller's, or a new one.

    Raises:
        InvalidInputError: It cannot stand in a header.
    """
    if requested is None:
        return os.urandom(12).hex()
    if not _REQUEST_ID.fullmatch(requested):
        raise InvalidInputError("request_id must be 1 to 128 printable ASCII characters without spaces")
    return requested


def headers_of(call: Call[Answer], request_id: str, key: str | None) -> dict[str, str]:
    """What goes with a call."""
    headers = {"X-Request-ID": request_id}
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    return headers


class Body:
    """What arrives of a reply, all of it within a time that begins with its head: a trickle is no better than silence.

    Args:
        reply: the reply, of which no more than the head has arrived.
        within_s: seconds for the rest.
        clock: monotonic seconds.
    """

    def __init__(self, reply: httpx2.Response, within_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.reply = reply
        self.content = bytearray()
        self._clock = clock
        self._ends = clock() + within_s

    def take(self, part: bytes) -> None:
        """Add what has arrived. Raises: httpx2.ReadTimeout."""
        self.content += part
        if self._clock() > self._ends:
            raise httpx2.ReadTimeout("the answer trickles in", request=self.reply.request)


def answer_of(call: Call[Answer], body: Body, request_id: str) -> Answer:
    """What a reply says. Raises: ClientError."""
    content = bytes(body.content)
    if not body.reply.is_success:
        raise error_of(body.reply, content, request_id)
    try:
        return call.read(content)
    except ValueError as error:
        raise unreadable(body.reply, request_id) from error


def unreadable(reply: httpx2.Response, request_id: str) -> InvalidResponseError:
    """An answer of another form than ours."""
    return InvalidResponseError(
        f"{site(reply.url)} returned an invalid response: is it another server, or another version?",
        request_id=request_id,
        status=reply.status_code,
    )


def error_of(reply: httpx2.Response, content: bytes, request_id: str) -> ClientError:
    """What a reply other than 2xx means."""
    status = reply.status_code
    fields = _fields(content)
    message, code = fields.get("error"), fields.get("code")
    server_message = message if isinstance(message, str) else None
    sentence = server_message or f"{site(reply.url)} answered HTTP {status}{_onward(reply)}"
    if status in _GATEWAY:
        return unreachable(f"{site(reply.url)} did not reach the server", request_id, sent=True, status=status)
    kind = _BY_STATUS.get(status)
    if kind is None:
        kind = ServerError if status >= 500 else BadRequestError if status >= 400 else InvalidResponseError
    return kind(
        sentence,
        request_id=str(fields.get("requestId") or request_id),
        status=status,
        code=code if isinstance(code, str) else None,
        details=_details(fields.get("details")),
        retry_after_s=_seconds(reply.headers.get("retry-after")),
        server_message=server_message,
    )


def no_answer(error: Exception, url: str, request_id: str) -> ClientError:
    """What a failure on the way means."""
    server = site(url)
    sent = not isinstance(error, _NEVER_SENT)
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return ServerUnreachableError(f"{server} is not an http:// or https:// address", request_id=request_id)
    if isinstance(error, httpx2.TimeoutException) and sent:
        return ServerTimeoutError(f"{server} did not answer in time", request_id=request_id)
    if not sent and (reason := _tls_failure(error)) is not None:
        return unreachable(f"There is no TLS connection to {server}: {reason}", request_id, sent=False)
    if sent:
        return unreachable(f"The connection to {server} broke before the answer was complete", request_id, sent=True)
    return unreachable(
        f"No server answers at {server}: start one with `rag-context serve`, or say where it is", request_id, sent=False
    )


def unreachable(message: str, request_id: str, *, sent: bool, status: int | None = None) -> ServerUnreachableError:
    """Nothing that answers for a call."""
    error = ServerUnreachableError(message, request_id=request_id, status=status)
    error.sent = sent
    return error


def site(url: httpx2.URL | str) -> str:
    """The scheme, host and port of an address, without its path and any password."""
    return re.sub(r"(?<=[^:/])/.*", "", mask_url(str(url)))


def _tls_failure(error: BaseException | None) -> str | None:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        if isinstance(error, ssl.SSLError):
            return error.reason or "the handshake failed"
        error = error.__cause__ or error.__context__
    return None


def _onward(reply: httpx2.Response) -> str:
    request = reply.next_request
    return "" if request is None else f" and sends callers on to {site(request.url)}: give that address"


def _fields(content: bytes) -> dict[str, object]:
    try:
        body = json.loads(content)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _details(details: object) -> tuple[FieldError, ...]:
    found = details if isinstance(details, list) else []
    return tuple(FieldError(str(d.get("field", "")), str(d.get("message", ""))) for d in found if isinstance(d, dict))


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", value.strip()) else None


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
        """Lines of which no receipt has arrived."""
        return self.lines[len(self.received) :]

    def add(self, document: BulkLike) -> None:
        """Take one more document."""
        self.sources.append(_source(document))
        try:
            line = bulk_line(document)
        except InvalidInputError as error:
            details = Detail.list_of(error.details) or None
            position = len(self.sources) - 1
            self.rejected[position] = BulkReceipt(status="rejected", reason=str(error), details=details)
            return
        self.lines.append(line)
        self.size += len(line)

    def begin(self) -> bytes:
        """The body of a request for what is unanswered."""
        self._rest.clear()  # of a receipt that was cut off: its line is among the unanswered
        return b"".join(self.unanswered)

    def take(self, chunk: bytes, reply: httpx2.Response, request_id: str) -> None:
        """Read what arrived. Raises: InvalidResponseError."""
        # A chunk may end within a receipt; its beginning waits for the rest.
        *ended, rest = bytes(self._rest + chunk).split(b"\n")
        self._rest[:] = rest
        for line in ended:
            if line:
                self._receive(line, reply, request_id)

    def _receive(self, line: bytes, reply: httpx2.Response, request_id: str) -> None:
        try:
            receipt = BulkReceipt.model_validate_json(line)
        except ValueError as error:
            raise unreadable(reply, request_id) from error
        self.received.append(receipt)
        if self.on_receipt is not None:
            self.on_receipt(len(self.received) - 1, receipt)

    def receipts(self) -> Iterator[BulkReceipt]:
        """A receipt for every document, in their order."""
        arrived = iter(self.received)
        for position, source in enumerate(self.sources):
            receipt = self.rejected.get(position) or next(arrived)
            yield receipt.model_copy(update={"line": self.first + position, "source": receipt.source or source})


def _source(document: object) -> str | None:
    if isinstance(document, BulkLine):
        return document.source
    source = document.get("source") if isinstance(document, Mapping) else None
    return source if isinstance(source, str) else None


def each(items: Iterable[Item]) -> Iterator[Item]:
    """What comes one after the other: for a client of threads."""
    return iter(items)


async def async_each(items: AsyncIterable[Item] | Iterable[Item]) -> AsyncIterator[Item]:
    """What comes one after the other, awaited where it has to be: for a client of coroutines."""
    if isinstance(items, Iterable):
        for item in items:
            yield item
        return
    async for item in items:
        yield item
