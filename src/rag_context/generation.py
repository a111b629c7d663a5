"""A chat model behind an OpenAI-compatible API: LM Studio, Ollama, llama.cpp, vLLM, OpenAI."""

import asyncio
import json
import re
from collections.abc import Mapping
from http import HTTPStatus

import httpx2
from pydantic_core import from_json

from rag_context._version import __version__
from rag_context.domain.documents import Json
from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendRejectedError,
    BackendTimeoutError,
    BackendUnavailableError,
    ConfigurationError,
)
from rag_context.resilience.bodies import read_body

COMPONENT = "chat model"
CONNECT_S = 5.0
MAX_BODY_BYTES = 4 << 20
"""Longer responses are rejected."""

_VERSIONED = re.compile(r"/v\d[^/]*(/|$)")


class OpenAIChat:
    """`POST /v1/chat/completions` of one server; fits `ports.ChatModel`.

    Args:
        url: its address, with or without `/v1`.
        model: the name of the model.
        api_key: sent as a bearer token.
        timeout_s: longest wait for a whole response.

    Raises:
        ConfigurationError: The address or the key cannot be used.
    """

    def __init__(self, url: str, *, model: str, api_key: str | None = None, timeout_s: float = 60.0) -> None:
        self._url = _address(url)
        self._server = f"the chat server at {_origin(self._url)}"
        self._model = model
        self._timeout_s = timeout_s
        self._client = httpx2.AsyncClient(
            headers={
                "User-Agent": f"rag-context/{__version__}",
                "Content-Type": "application/json",
                "Accept-Encoding": "identity",
                **_authorization(api_key),
            },
            timeout=httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            trust_env=False,
        )

    async def complete(self, instructions: str, message: str) -> str:
        """The model's answer. Raises: BackendError."""
        fields = {
            "model": self._model,
            "messages": [{"role": "system", "content": instructions}, {"role": "user", "content": message}],
            "temperature": 0,
            "stream": False,
        }
        # A lone surrogate is legal in a Python text but in no encoding.
        body = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream("POST", self._url, content=body) as response,
            ):
                encoding = response.headers.get("content-encoding", "")
                answered = await read_body(response.aiter_raw(), encoding, MAX_BODY_BYTES)
                status, payload = response.status_code, _payload(answered)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise BackendTimeoutError(COMPONENT, f"{self._server} did not answer in time") from error
        except AttributeError as error:  # uvloop: a connection reset while it was made has no socket, which anyio reads
            raise BackendUnavailableError(COMPONENT, f"{self._server} cannot be reached (reset)") from error
        except httpx2.TransportError as error:
            reason = str(error) or type(error).__name__
            raise BackendUnavailableError(COMPONENT, f"{self._server} cannot be reached ({reason})") from error
        except ValueError as error:
            raise BackendDataError(COMPONENT, f"{self._server} returned an invalid response: {error}") from error
        return self._answer(status, payload)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _answer(self, status: int, payload: Mapping[str, Json]) -> str:
        match payload:
            case {"choices": [{"message": {"content": str() as text}}, *_]} if status == HTTPStatus.OK and text.strip():
                return text.strip()
        raise self._failure(status)

    def _failure(self, status: int) -> BackendError:
        if status == HTTPStatus.OK:
            return BackendDataError(COMPONENT, f"{self._server} returned no text: check chat.url")
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return BackendRejectedError(COMPONENT, f"{self._server} rejects the key in chat.api_key ({status})")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
            return BackendUnavailableError(COMPONENT, f"{self._server} failed ({status})")
        return BackendRejectedError(
            COMPONENT, f"{self._server} rejected the request ({status}): check chat.url and chat.model"
        )


def _payload(body: bytes) -> Mapping[str, Json]:
    """The JSON object in a reply; empty if it has none."""
    try:
        value: Json = from_json(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _address(url: str) -> httpx2.URL:
    """The address of completions: below the version, which is `/v1` unless the address names one."""
    try:
        parsed = httpx2.URL(url.strip())
    except (httpx2.InvalidURL, ValueError) as error:
        message = "chat.url is not a valid address: check its port and its characters"
        raise ConfigurationError(message) from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ConfigurationError("chat.url must be an http:// or https:// address")
    path = parsed.path.rstrip("/").removesuffix("/chat/completions")
    base = path if _VERSIONED.search(path) else f"{path}/v1"
    return parsed.copy_with(path=f"{base}/chat/completions")


def _origin(url: httpx2.URL) -> str:
    """An address as messages show it: without user, password, path and query."""
    return str(url.copy_with(userinfo=b"", path="/", query=None, fragment=None)).rstrip("/")


def _authorization(api_key: str | None) -> dict[str, str]:
    if api_key is None:
        return {}
    key = api_key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigurationError("chat.api_key contains characters that an HTTP header cannot carry")
    return {"Authorization": f"Bearer {key}"}
