"""What HTTP endpoints share: who may write, what a body may be, the fields of a query string."""

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from rag_context.api.failure import ErrorCode
from rag_context.api.operations import Access
from rag_context.errors import FieldError, InvalidInputError
from rag_context.server.messages import HttpRequest, Reply, RequestRejectedError

JSON_KINDS = ("application/json",)
SEND_JSON = "Send Content-Type: application/json"

Handler = Callable[[Scope, Receive], Awaitable[Reply]]


class Endpoint:
    """An ASGI endpoint from a function that returns a reply."""

    def __init__(self, handle: Handler) -> None:
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = await self._handle(scope, receive)
        await reply.send(send)


def query_fields(scope: Scope) -> dict[str, str]:
    """The fields of the query string. Raises: InvalidInputError where one is given twice."""
    fields: dict[str, str] = {}
    repeated = []
    for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name in fields:
            repeated.append(FieldError(name, f"{name} given twice"))
        fields[name] = value
    if repeated:
        raise InvalidInputError(repeated[0].message, repeated)
    return fields


def may_write(opened: HttpRequest) -> None:
    """Reject a key that may only read."""
    if opened.caller is None or opened.caller.access is not Access.WRITE:
        raise RequestRejectedError(403, ErrorCode.FORBIDDEN, "This API key may only read")


def check_media_type(opened: HttpRequest, kinds: tuple[str, ...], advice: str) -> None:
    """Reject a body of another media type, charset or coding than the route reads."""
    given = opened.header(b"content-type") or ""
    kind, _, parameters = given.lower().partition(";")
    kind = kind.strip()
    fits = kind in kinds or ("application/json" in kinds and kind.startswith("application/") and kind.endswith("+json"))
    charset = parameters.strip().removeprefix("charset=").strip('"')
    encoded = opened.header(b"content-encoding")
    if not fits or charset not in {"", "utf-8", "utf8"} or encoded not in {None, "identity"}:
        raise RequestRejectedError(415, ErrorCode.UNSUPPORTED_MEDIA_TYPE, f"{advice} (UTF-8, not compressed)")
