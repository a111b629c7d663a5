"""What a reply of the server says, or what error it or its absence is."""

import json
import re
import ssl
import time
from collections.abc import Callable, Sequence

import httpx2

from rag_context.client import errors
from rag_context.client.call import Answer, Call
from rag_context.errors import FieldError
from rag_context.settings import mask_url

_BY_STATUS: dict[int, type[errors.ClientError]] = {
    401: errors.AccessDeniedError,
    403: errors.AccessDeniedError,
    404: errors.NotFoundError,
    409: errors.ConflictError,
    429: errors.ServerBusyError,
    503: errors.ServerBusyError,
}
_GATEWAY = (502, 504)
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout)


class Body:
    """What arrives of a reply, all within a time that begins with its head: a trickle is no better than silence."""

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
    content = bytes(body.content)
    if not body.reply.is_success:
        raise error_of(body.reply, content, request_id)
    try:
        return call.read(content)
    except ValueError as error:
        raise unreadable(body.reply, request_id) from error


def unreadable(reply: httpx2.Response, request_id: str) -> errors.InvalidResponseError:
    return errors.InvalidResponseError(
        f"{site(reply.url)} returned an invalid response: is it another server, or another version?",
        request_id=request_id,
        status=reply.status_code,
    )


def error_of(reply: httpx2.Response, content: bytes, request_id: str) -> errors.ClientError:
    status = reply.status_code
    if status in _GATEWAY:
        return unreachable(f"{site(reply.url)} did not reach the server", request_id, sent=True, status=status)
    onward = reply.next_request
    elsewhere = "" if onward is None else f" and sends callers on to {site(onward.url)}: give that address"
    sentence = f"{site(reply.url)} answered HTTP {status}{elsewhere}"
    fields = _fields(content)
    message, code = fields.get("error"), fields.get("code")
    return failed(
        status,
        str(fields.get("requestId") or request_id),
        message=message if isinstance(message, str) else None,
        code=code if isinstance(code, str) else None,
        details=_details(fields.get("details")),
        retry_after_s=_seconds(reply.headers.get("retry-after")),
        otherwise=sentence,
    )


def failed(
    status: int,
    request_id: str,
    *,
    message: str | None,
    code: str | None,
    details: Sequence[FieldError],
    retry_after_s: float | None,
    otherwise: str = "",
) -> errors.ClientError:
    kind = _BY_STATUS.get(status)
    if kind is None:
        kind = (
            errors.ServerError
            if status >= 500
            else errors.BadRequestError
            if status >= 400
            else errors.InvalidResponseError
        )
    return kind(
        message or otherwise,
        request_id=request_id,
        status=status,
        code=code,
        details=details,
        retry_after_s=retry_after_s,
        server_message=message,
    )


def no_answer(error: Exception, url: str, request_id: str) -> errors.ClientError:
    server = site(url)
    sent = not isinstance(error, _NEVER_SENT)
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return errors.ServerUnreachableError(f"{server} is not an http:// or https:// address", request_id=request_id)
    if isinstance(error, httpx2.TimeoutException) and sent:
        return errors.ServerTimeoutError(f"{server} did not answer in time", request_id=request_id)
    if not sent and (reason := _tls_failure(error)) is not None:
        return unreachable(f"There is no TLS connection to {server}: {reason}", request_id, sent=False)
    if sent:
        return unreachable(f"The connection to {server} broke before the answer was complete", request_id, sent=True)
    return unreachable(
        f"No server answers at {server}: start one with `rag-context serve`, or say where it is", request_id, sent=False
    )


def unreachable(
    message: str, request_id: str, *, sent: bool, status: int | None = None
) -> errors.ServerUnreachableError:
    error = errors.ServerUnreachableError(message, request_id=request_id, status=status)
    error.sent = sent
    return error


def site(url: httpx2.URL | str) -> str:
    return re.sub(r"(?<=[^:/])/.*", "", mask_url(str(url)))


def _tls_failure(error: BaseException | None) -> str | None:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        if isinstance(error, ssl.SSLError):
            return error.reason or "the handshake failed"
        error = error.__cause__ or error.__context__
    return None


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
