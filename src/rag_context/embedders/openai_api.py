"""The HTTP client of an embedding server with OpenAI's API: responses as vectors, failures as our errors.

The servers differ most in their errors. LM Studio answers an unknown path with 200 and an `error`, which is a string
where others return an object; llama.cpp answers a text that is too long with 500, TEI with 413, vLLM
and OpenAI with 400.
"""

import asyncio
import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Literal

import httpx2
import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from rag_context._version import __version__
from rag_context.domain.documents import Json
from rag_context.domain.vectors import Matrix
from rag_context.embedders.model_vectors import PROBE
from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendRejectedError,
    BackendStartingError,
    BackendTimeoutError,
    BackendUnavailableError,
    ConfigurationError,
)
from rag_context.resilience.bodies import AT_ONCE, read_body

COMPONENT = "embedder"
_MESSAGE_CHARS = 200

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


class InputTooLongError(BackendRejectedError):
    """A text is longer than the server accepts."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP reply, read to its end; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Question:
    """The parts of a request that an error's message may show. `public` where the texts are not the user's."""

    server: str
    model: str
    texts: int
    public: bool
    with_key: bool


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors as the server made them, `(n, dim) float32`, and the name it gave its model."""

    vectors: Matrix
    model: str | None


def read_vectors(reply: Reply, question: Question) -> Embedded:
    """Read the vectors of a reply, in the order of the texts.

    Raises:
        BackendError: the reply has no vectors; the class of the error tells whether a retry may help.
    """
    payload = _payload(reply)
    data = payload.get("data")
    if reply.status != HTTPStatus.OK or not isinstance(data, list):
        raise _failure(reply, payload, question)
    if len(data) != question.texts:
        raise BackendDataError(COMPONENT, f"{question.server} returned {len(data)} vectors for {question.texts} texts")
    rows: list[NDArray[np.float32] | None] = [None] * len(data)
    for place, item in enumerate(data):
        fields = item if isinstance(item, dict) else {}
        index = fields.get("index", place)
        if type(index) is not int or not 0 <= index < len(rows) or rows[index] is not None:
            raise BackendDataError(COMPONENT, f"{question.server} returned vectors that are not numbered from 0")
        rows[index] = _numbers(fields.get("embedding"), question.server)
    found = [row for row in rows if row is not None]
    if len({len(row) for row in found}) != 1:
        raise BackendDataError(COMPONENT, f"{question.server} returned vectors of several dimensions")
    name = payload.get("model")
    return Embedded(np.stack(found), name if isinstance(name, str) else None)


def read_models(reply: Reply) -> list[str]:
    """The ids in a list of models; empty if the reply is not such a list."""
    data = _payload(reply).get("data") if reply.status == HTTPStatus.OK else None
    names = [item.get("id") for item in data if isinstance(item, dict)] if isinstance(data, list) else []
    return [name for name in names if isinstance(name, str)]


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """The seconds in a reply's Retry-After, a number or a date; None if it has no valid one."""
    value = headers.get("retry-after", "").strip()
    try:
        if value.replace(".", "", 1).isdigit():
            return float(value)
        return max((parsedate_to_datetime(value) - now).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return None


def _payload(reply: Reply) -> dict[str, Json]:
    """The JSON object in a reply; empty if it has none."""
    try:
        value: Json = from_json(reply.body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _numbers(value: Json, server: str) -> NDArray[np.float32]:
    """One vector, from numbers or from base64 of little-endian float32."""
    try:
        if isinstance(value, str):
            numbers = np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32)
        else:
            with np.errstate(over="ignore"):  # values beyond float32 become infinite, and are rejected as such
                numbers = np.array(value, np.float64).astype(np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise BackendDataError(COMPONENT, f"{server} returned an invalid vector") from error
    if numbers.ndim != 1 or not len(numbers):
        raise BackendDataError(
            COMPONENT,
            f"{server} did not return one vector per text: turn on pooling there, by mean or as its model requires",
        )
    return numbers


def _failure(reply: Reply, payload: dict[str, Json], question: Question) -> BackendError:
    """The error for a reply without vectors."""
    message, code = _complaint(payload)
    detail = f" ({reply.status}{_quoted(message, code, question)})"
    server, status = question.server, reply.status
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        advice = "rejects the key in embedder.api_key" if question.with_key else "requires a key: set embedder.api_key"
        return BackendRejectedError(COMPONENT, f"{server} {advice} ({status})")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        wait_s = retry_after(reply.headers, datetime.now(UTC))
        return BackendUnavailableError(
            COMPONENT, f"{server} accepts no more requests now{detail}", retry_after_s=wait_s
        )
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or _TOO_LONG.search(f"{message} {code}"):
        return InputTooLongError(COMPONENT, f"{server} does not accept a text of this length{detail}")
    if status == HTTPStatus.SERVICE_UNAVAILABLE and _LOADING.search(message):
        return BackendStartingError(COMPONENT, f"{server} is still loading its model{detail}")
    if _NO_MODEL.search(f"{message} {code}".replace("_", " ")):
        advice = "load it there, or set embedder.model to one that it has"
        return BackendUnavailableError(
            COMPONENT, f"{server} has no embedding model {question.model!r}{detail}: {advice}"
        )
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _LATER:
        return BackendUnavailableError(COMPONENT, f"{server} failed{detail}")
    if status == HTTPStatus.OK and not (message or code):
        return BackendDataError(COMPONENT, f"{server} returned no vectors: check embedder.url")
    if (
        status in {HTTPStatus.OK, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}
        or status < HTTPStatus.BAD_REQUEST
    ):
        return BackendRejectedError(
            COMPONENT, f"{server} has no embeddings at this address{detail}: check embedder.url"
        )
    return BackendRejectedError(COMPONENT, f"{server} rejected the request{detail}")


def _complaint(payload: dict[str, Json]) -> tuple[str, str]:
    """The message and the code of an error, in any of its forms."""
    error = payload.get("error", payload)
    if not isinstance(error, dict):
        return str(error or ""), ""
    message = error.get("message") or error.get("detail") or ""
    codes = (error.get("code"), error.get("type"), error.get("error_type"))
    return str(message), next((code for code in codes if isinstance(code, str)), "")


def _quoted(message: str, code: str, question: Question) -> str:
    """The server's own message; only for public texts, because servers repeat what they were sent."""
    if question.public and message:
        return f": {message[:_MESSAGE_CHARS]!r}"
    return f": {code[:_MESSAGE_CHARS]!r}" if re.fullmatch(r"[\w.-]+", code) else ""


CONNECTIONS = 20
CONNECT_S = 5.0
KEEP_ALIVE_S = 60.0
BODY_BYTES = 1 << 20
"""Bytes of a response for everything but vectors: names, errors, a list of models."""

NUMBER_BYTES = 40
"""A number in JSON takes 25 bytes at most, and may be indented. Longer responses are rejected."""

MOST_DIMENSIONS = 8192
"""Numbers in a vector of a model that is not known yet."""

EncodingFormat = Literal["float", "base64"]

_VERSIONED = re.compile(r"/v\d[^/]*(/|$)")


class EmbeddingApi:
    """`POST /v1/embeddings` and `GET /v1/models` of one server.

    Args:
        url: its address, with or without `/v1`.
        model: the name of the model.
        api_key: sent as a bearer token.
        timeout_s: longest wait for a whole answer.
        encoding_format: sent with every request if given; some servers do not know the field.

    Raises:
        ConfigurationError: The address or the key cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        encoding_format: EncodingFormat | None = None,
    ) -> None:
        self._base = _base(url)
        self.server = f"the embedding server at {_origin(self._base)}"
        self._model = model
        self._with_key = api_key is not None
        self._timeout_s = timeout_s
        self._fields = {} if encoding_format is None else {"encoding_format": encoding_format}
        self._client = httpx2.AsyncClient(
            headers={
                "User-Agent": f"rag-context/{__version__}",
                "Accept-Encoding": "identity",  # decompression costs more than it saves, and is unbounded
                **_authorization(api_key),
            },
            timeout=httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            limits=httpx2.Limits(max_connections=CONNECTIONS, keepalive_expiry=KEEP_ALIVE_S),
            trust_env=False,
        )

    async def embed(self, texts: Sequence[str], dimension: int = MOST_DIMENSIONS) -> Embedded:
        """The server's vectors of these texts.

        Args:
            texts: what to embed.
            dimension: the greatest length of a vector; far longer responses are not read.

        Raises:
            BackendError: the server returned no vectors.
        """
        # Some servers reject an empty text; a space is as empty to every model.
        fields = {"model": self._model, "input": [text or " " for text in texts], **self._fields}
        # A lone surrogate is legal in a Python text but in no encoding.
        body = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
        reply = await self._exchange("POST", "embeddings", body, BODY_BYTES + len(texts) * dimension * NUMBER_BYTES)
        public = all(text == PROBE for text in texts) and not self._base.query  # which may hold a key
        question = Question(self.server, self._model, len(texts), public=public, with_key=self._with_key)
        if len(reply.body) <= AT_ONCE:
            return read_vectors(reply, question)
        return await asyncio.to_thread(read_vectors, reply, question)

    async def models(self) -> list[str]:
        """The names of the models that the server lists; empty where it has no list. Raises: BackendError."""
        return read_models(await self._exchange("GET", "models", None, BODY_BYTES))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _exchange(self, method: str, path: str, body: bytes | None, limit: int) -> Reply:
        url = self._base.copy_with(path=self._base.path + path)
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream(method, url, content=body, headers=headers) as response,
            ):
                encoding = response.headers.get("content-encoding", "")
                answered = await read_body(response.aiter_raw(), encoding, limit)
                return Reply(response.status_code, response.headers, answered)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise BackendTimeoutError(COMPONENT, f"{self.server} did not answer in time") from error
        except AttributeError as error:  # uvloop: a connection reset while it was made has no socket, which anyio reads
            raise BackendUnavailableError(COMPONENT, f"{self.server} cannot be reached (reset)") from error
        except httpx2.TransportError as error:
            reason = str(error) or type(error).__name__
            raise BackendUnavailableError(COMPONENT, f"{self.server} cannot be reached ({reason})") from error
        except ValueError as error:
            raise BackendDataError(COMPONENT, f"{self.server} returned an invalid response: {error}") from error


def _base(url: str) -> httpx2.URL:
    """The base address of `embeddings`, with its version, which is `/v1` unless the address names one."""
    try:
        parsed = httpx2.URL(url.strip())
    except (httpx2.InvalidURL, ValueError) as error:
        message = "embedder.url is not a valid address: check its port and its characters"
        raise ConfigurationError(message) from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ConfigurationError("embedder.url must be an http:// or https:// address")
    path = parsed.path.rstrip("/").removesuffix("/embeddings")
    return parsed.copy_with(path=f"{path if _VERSIONED.search(path) else f'{path}/v1'}/")


def _origin(url: httpx2.URL) -> str:
    """An address as messages show it: without user, password, path and query."""
    return str(url.copy_with(userinfo=b"", path="/", query=None, fragment=None)).rstrip("/")


def _authorization(api_key: str | None) -> dict[str, str]:
    if api_key is None:
        return {}
    key = api_key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigurationError("embedder.api_key contains characters that an HTTP header cannot carry")
    return {"Authorization": f"Bearer {key}"}
