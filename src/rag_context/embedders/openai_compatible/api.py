"""The HTTP client of an embedding server: one pool of connections, with all failures mapped to our errors."""

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Literal

import httpx2

from rag_context._version import __version__
from rag_context.embedders.fingerprint import PROBE
from rag_context.embedders.openai_compatible.answers import Embedded, Question, Reply, read_models, read_vectors
from rag_context.errors import BackendDataError, BackendTimeoutError, BackendUnavailableError, ConfigurationError
from rag_context.resilience.bodies import AT_ONCE, read_body

COMPONENT = "embedder"
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
