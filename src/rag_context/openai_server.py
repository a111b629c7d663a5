"""A server with OpenAI's API (LM Studio, Ollama, llama.cpp, vLLM, OpenAI): HTTP to it, failures as errors, and chat.

The servers differ most in their errors. LM Studio answers an unknown path with 200 and an `error`, which is a string
where others return an object; llama.cpp answers a text that is too long with 500, TEI with 413, vLLM
and OpenAI with 400.
"""

import asyncio
import json
import re
import zlib
from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import httpx2
from pydantic_core import from_json

from rag_context import errors
from rag_context._version import __version__
from rag_context.domain.documents import Json

CONNECTIONS = 20
CONNECT_S = 5.0
KEEP_ALIVE_S = 60.0

AT_ONCE = 64 << 10
"""Bytes that are decompressed or parsed on the event loop: handing so few to a thread would take longer."""

_ANY_HEADER = 47
"""`wbits` with which zlib reads the header of gzip and its own."""

_MESSAGE_CHARS = 200
_VERSIONED = re.compile(r"/v\d[^/]*(/|$)")
_TOO_LONG = re.compile(
    r"(?<!took )too (large|long)|context.?(length|size|window)|max(imum)? (sequence|input|token)|less than \d+ tokens",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"no models? (is |are )?(currently )?loaded|model.{0,100}(not found|does not exist|not exist|not loaded)|"
    r"failed to load model|not embedding|not support embeddings|unload",
    re.IGNORECASE | re.DOTALL,
)
_LOADING = re.compile(r"loading|starting|not ready|warming", re.IGNORECASE)
_LATER = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.FAILED_DEPENDENCY, HTTPStatus.TOO_EARLY}
)
"""4xx statuses that are temporary: the same request may work later."""


class InputTooLongError(errors.BackendRejectedError):
    """A text is longer than the server accepts."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a server is used for.

    Args:
        component: the name of the model behind its port, in errors and breakers.
        section: the settings with its address, key and model, which messages advise to check.
        kind: of server and model, such as "embedding".
        path: of the requests, below the version.
        result: what a valid reply has, in the plural or uncountable.
        version: the part of the path that is added to an address without a version; empty where the API has none.
    """

    component: str
    section: str
    kind: str
    path: str
    result: str
    version: str = "v1"


@dataclass(frozen=True, slots=True)
class ModelReply:
    """An HTTP reply, read to its end; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def payload(self) -> dict[str, Json]:
        """The JSON object in it; empty if it has none."""
        try:
            value: Json = from_json(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


class OpenAIServer:
    """One model on one server, whose address may end with `/v1` and the path.

    Raises: ConfigurationError (it is unusable).
    """

    def __init__(self, url: str, use: Use, *, model: str, api_key: str | None, timeout_s: float) -> None:
        self._use = use
        self._base = _base(url, use)
        origin = self._base.copy_with(userinfo=b"", path="/", query=None, fragment=None)
        self.name = f"the {use.kind} server at {str(origin).rstrip('/')}"  # without user, password, path and query
        self._model = model
        self._with_key = api_key is not None
        self._timeout_s = timeout_s
        self._client = httpx2.AsyncClient(
            headers={
                "User-Agent": f"rag-context/{__version__}",
                "Accept-Encoding": "identity",  # decompression costs more than it saves, and is unbounded
                **_authorization(api_key, use),
            },
            timeout=httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            limits=httpx2.Limits(max_connections=CONNECTIONS, keepalive_expiry=KEEP_ALIVE_S),
            trust_env=False,
        )

    async def post(self, fields: Mapping[str, object], limit: int) -> ModelReply:
        """The reply to a request for the model, of any status and at most `limit` bytes. Raises: BackendError."""
        # A lone surrogate is legal in a Python text but in no encoding.
        body = json.dumps({"model": self._model, **fields}, ensure_ascii=False).encode("utf-8", "replace")
        return await self._exchange("POST", self._use.path, body, limit)

    async def get(self, path: str, limit: int) -> ModelReply:
        """The reply of any status, of at most `limit` bytes. Raises: BackendError."""
        return await self._exchange("GET", path, None, limit)

    async def close(self) -> None:
        await self._client.aclose()

    async def _exchange(self, method: str, path: str, body: bytes | None, limit: int) -> ModelReply:
        component = self._use.component
        url = self._base.copy_with(path=self._base.path + path)
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream(method, url, content=body, headers=headers) as response,
            ):
                encoding = response.headers.get("content-encoding", "")
                answered = await read_body(response.aiter_raw(), encoding, limit)
                return ModelReply(response.status_code, response.headers, answered)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise errors.BackendTimeoutError(component, f"{self.name} did not answer in time") from error
        except AttributeError as error:  # uvloop: a connection reset while it was made has no socket, which anyio reads
            raise errors.BackendUnavailableError(component, f"{self.name} cannot be reached (reset)") from error
        except httpx2.TransportError as error:
            reason = str(error) or type(error).__name__
            raise errors.BackendUnavailableError(component, f"{self.name} cannot be reached ({reason})") from error
        except ValueError as error:
            raise errors.BackendDataError(component, f"{self.name} returned an invalid response: {error}") from error

    def failure(self, reply: ModelReply, payload: dict[str, Json], *, public: bool = False) -> errors.BackendError:
        """The error for a reply without a result; its class tells whether a retry may help.

        `public`: the request had no text of a user, so that the server's message can be repeated.
        """
        component, section, name, status = self._use.component, self._use.section, self.name, reply.status
        message, code = _complaint(payload)
        # Servers repeat what they were sent, and the query of an address may be a key.
        quoted = _quoted(message if public and not self._base.query else "", code)
        detail = f" ({status}{quoted})"
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            advice = f"rejects the key in {section}" if self._with_key else f"requires a key: set {section}"
            return errors.BackendRejectedError(component, f"{name} {advice}.api_key ({status})")
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            wait_s = retry_after(reply.headers, datetime.now(UTC))
            return errors.BackendUnavailableError(
                component, f"{name} accepts no more requests now{detail}", retry_after_s=wait_s
            )
        # Before the 5xx statuses: llama.cpp has 500 for it, which would be tried again and open a breaker.
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or _TOO_LONG.search(f"{message} {code}"):
            return InputTooLongError(component, f"{name} does not accept a text of this length{detail}")
        if status == HTTPStatus.SERVICE_UNAVAILABLE and _LOADING.search(message):
            return errors.BackendStartingError(component, f"{name} is still loading its model{detail}")
        if _NO_MODEL.search(f"{message} {code}".replace("_", " ")):
            problem = f"{name} has no {self._use.kind} model {self._model!r}{detail}"
            return errors.BackendUnavailableError(
                component, f"{problem}: load it there, or set {section}.model to one that it has"
            )
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _LATER:
            return errors.BackendUnavailableError(component, f"{name} failed{detail}")
        return self._misdirected(status, detail, complains=bool(message or code))

    def _misdirected(self, status: int, detail: str, *, complains: bool) -> errors.BackendError:
        """The error for a status that another address may not have."""
        use, check = self._use, f"check {self._use.section}.url"
        if status == HTTPStatus.OK and not complains:
            return errors.BackendDataError(use.component, f"{self.name} returned no {use.result}: {check}")
        if status < HTTPStatus.BAD_REQUEST or status in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
            problem = f"{self.name} has no /{use.path} at this address{detail}"
            return errors.BackendRejectedError(use.component, f"{problem}: {check}")
        return errors.BackendRejectedError(use.component, f"{self.name} rejected the request{detail}")


CHAT = Use("chat model", section="chat", kind="chat", path="chat/completions", result="text")
MAX_CHAT_BYTES = 4 << 20
"""Longer responses are rejected."""


class OpenAIChat:
    """`POST /v1/chat/completions` of one server; fits `ports.ChatModel`.

    Raises: ConfigurationError (it is unusable).
    """

    def __init__(self, url: str, *, model: str, api_key: str | None = None, timeout_s: float = 60.0) -> None:
        self._http = OpenAIServer(url, CHAT, model=model, api_key=api_key, timeout_s=timeout_s)

    async def complete(self, instructions: str, message: str) -> str:
        """The model's answer. Raises: BackendError."""
        fields = {
            "messages": [{"role": "system", "content": instructions}, {"role": "user", "content": message}],
            "temperature": 0,
            "stream": False,
        }
        reply = await self._http.post(fields, MAX_CHAT_BYTES)
        payload = reply.payload()
        match payload:
            case {"choices": [{"message": {"content": str(text)}}, *_]} if (
                reply.status == HTTPStatus.OK and text.strip()
            ):
                return text.strip()
        raise self._http.failure(reply, payload)

    async def close(self) -> None:
        await self._http.close()


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """The seconds in a reply's Retry-After, a number or a date; None if it has no valid one."""
    value = headers.get("retry-after", "").strip()
    try:
        if value.replace(".", "", 1).isdigit():
            return float(value)
        return max((parsedate_to_datetime(value) - now).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return None


def _complaint(payload: dict[str, Json]) -> tuple[str, str]:
    """The message and the code of an error, in any of its forms."""
    error = payload.get("error", payload)
    if not isinstance(error, dict):
        return str(error or ""), ""
    message = error.get("message") or error.get("detail") or ""
    codes = (error.get("code"), error.get("type"), error.get("error_type"))
    return str(message), next((code for code in codes if isinstance(code, str)), "")


def _quoted(message: str, code: str) -> str:
    if message:
        return f": {message[:_MESSAGE_CHARS]!r}"
    return f": {code[:_MESSAGE_CHARS]!r}" if re.fullmatch(r"[\w.-]+", code) else ""


def _base(url: str, use: Use) -> httpx2.URL:
    """The base address of the requests, with its version, which is `/v1` unless the address names one."""
    try:
        parsed = httpx2.URL(url.strip())
    except (httpx2.InvalidURL, ValueError) as error:
        message = f"{use.section}.url is not a valid address: check its port and its characters"
        raise errors.ConfigurationError(message) from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise errors.ConfigurationError(f"{use.section}.url must be an http:// or https:// address")
    path = parsed.path.rstrip("/").removesuffix(f"/{use.path}")
    if use.version and not _VERSIONED.search(path):
        path = f"{path}/{use.version}"
    return parsed.copy_with(path=f"{path}/")


def _authorization(api_key: str | None, use: Use) -> dict[str, str]:
    if api_key is None:
        return {}
    key = api_key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise errors.ConfigurationError(f"{use.section}.api_key contains characters that an HTTP header cannot carry")
    return {"Authorization": f"Bearer {key}"}


async def read_body(parts: AsyncIterable[bytes], encoding: str, limit: int) -> bytes:
    """The whole body, of at most `limit` bytes before and after decompression. Raises: ValueError."""
    body = bytearray()
    async for part in parts:
        body += part
        if len(body) > limit:
            raise ValueError(f"more than {limit} bytes")
    match encoding.strip().lower():
        case "" | "identity":
            return bytes(body)
        case "gzip" | "x-gzip" | "deflate":
            return await asyncio.to_thread(_inflated, bytes(body), limit)
        case _:
            raise ValueError("bytes that cannot be decoded")


def _inflated(body: bytes, limit: int) -> bytes:
    if not body:  # a reply without a body may still name an encoding
        return body
    inflate = zlib.decompressobj(_ANY_HEADER)
    try:
        inflated = inflate.decompress(body, limit + 1)
    except zlib.error as error:
        raise ValueError("bytes that cannot be decoded") from error
    if len(inflated) > limit:
        raise ValueError(f"more than {limit} bytes")
    if not inflate.eof:
        raise ValueError("bytes that cannot be decoded")
    return inflated
