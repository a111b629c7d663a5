"""Running servers as validation sees them: every failure is one sentence, and nothing is tried twice.

Our own API is called through the client of ours. `Api` is for what others speak over HTTP: the OpenAI-compatible
addresses of an embedding server, which our own server has too, and the health of a Qdrant.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx2
from pydantic import SecretStr

from rag_context.api.index import IndexResponse
from rag_context.api.maintenance import HealthResponse
from rag_context.api.operations import Operation, Response, memory
from rag_context.api.search import SearchResponse
from rag_context.client.address import Address, api_key_of, server_url
from rag_context.client.async_http import AsyncHttp
from rag_context.client.call import Answer, Call, request_id_of
from rag_context.client.errors import ClientError
from rag_context.errors import BackendDataError, BackendError, BackendUnavailableError
from rag_context.settings import Settings, mask_url

_COMPONENT = "server"
READY_EVERY_S = 0.2

USUAL_PORT = 3000


@dataclass(frozen=True, slots=True)
class Api:
    client: httpx2.AsyncClient
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    async def reply(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx2.Response:
        try:
            reply = await self.client.request(
                method, f"{self.url.rstrip('/')}{path}", json=body, headers=dict(self.headers)
            )
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise BackendUnavailableError(
                _COMPONENT, f"{mask_url(self.url)} did not answer ({type(error).__name__})"
            ) from error
        if not reply.is_success:
            raise BackendError(_COMPONENT, f"{path} answered {reply.status_code}{_reason(reply)}")
        return reply

    async def models(self) -> list[str]:
        found = _json_of(await self.reply("GET", "/v1/models"), "/v1/models")
        rows = found.get("data") if isinstance(found, dict) else None
        names = [str(row["id"]) for row in rows or () if isinstance(row, dict) and "id" in row]
        if not names:
            raise BackendDataError(_COMPONENT, "No models loaded")
        return names

    async def embed(self, text: str, model: str) -> list[float]:
        reply = await self.reply("POST", "/v1/embeddings", {"input": text, "model": model})
        found = _json_of(reply, "/v1/embeddings")
        try:
            return [float(number) for number in found["data"][0]["embedding"]]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise BackendDataError(_COMPONENT, "/v1/embeddings answered something else than a vector") from error


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """Our own server; `api` has its OpenAI-compatible addresses."""

    http: AsyncHttp
    api: Api

    async def wait_ready(self, timeout_s: float) -> None:
        await _until(self._is_ready, timeout_s)

    async def health(self) -> HealthResponse:
        return await self.run(memory.HEALTH, {})

    async def search(self, **body: Any) -> SearchResponse:
        return await self.run(memory.SEARCH, body)

    @asynccontextmanager
    async def scratch(self) -> AsyncIterator["Scratch"]:
        """A tenant of its own, in which no agent searches; what was indexed there is deleted at the end.

        Raises: BackendError (whether the server can delete is not known).
        """
        listed = await self._send(Call("/tools", json.loads, method="GET"))
        rows = listed.get("tools", ()) if isinstance(listed, dict) else ()
        can_delete = any(isinstance(row, dict) and row.get("name") == memory.DELETE.name for row in rows)
        scratch = Scratch(self, f"validate-{uuid4().hex[:16]}", can_delete)
        try:
            yield scratch
        finally:
            await scratch.clean()

    async def run(self, operation: Operation[Any, Response], body: Mapping[str, Any]) -> Response:
        sent = json.dumps({key: value for key, value in body.items() if value is not None}).encode()
        return await self._send(Call(operation.path, operation.response.model_validate_json, sent))

    async def _is_ready(self) -> bool:
        try:
            await self._send(Call("/ready", bytes, method="GET"))
        except BackendUnavailableError:
            return True  # no server: no reason to wait
        except BackendError:
            return False
        return True

    async def _send(self, call: Call[Answer]) -> Answer:
        try:
            return await self.http.send(call, request_id_of(None))
        except ClientError as error:
            if error.status is None:
                kind = type(error.__cause__ or error).__name__
                raise BackendUnavailableError(
                    _COMPONENT, f"{mask_url(self.api.url)} did not answer ({kind})"
                ) from error
            if error.status < 300:
                raise BackendDataError(_COMPONENT, f"{call.path} returned an invalid response") from error
            reason = "" if error.server_message is None else f": {error.server_message}"
            raise BackendError(_COMPONENT, f"{call.path} answered {error.status}{reason}") from error


@asynccontextmanager
async def reached(settings: Settings, url: str | None, timeout_s: float) -> AsyncIterator[RemoteServer]:
    """The server at `url`; by default that of the data directory, else the one that these settings would start."""
    usual = server_url(settings.server.host, settings.server.port or USUAL_PORT)
    address = Address(url and url.rstrip("/"), settings.data_dir, usual, api_key_of(settings))
    async with (
        aclosing(AsyncHttp(address, timeout_s)) as http,
        httpx2.AsyncClient(timeout=timeout_s, trust_env=False) as client,
    ):
        yield RemoteServer(http, Api(client, url or await http.find() or usual, bearer(settings.server.api_key)))


def bearer(key: SecretStr | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}


@dataclass(slots=True)
class Scratch:
    server: RemoteServer
    project: str
    can_delete: bool
    sources: Counter[str] = field(default_factory=Counter)
    """How many documents were sent by source, whether or not an answer came."""
    left_behind: int = 0
    """Documents that could not be deleted; set by `clean`."""

    async def index(self, **body: Any) -> IndexResponse:
        self.sources[str(body["source"])] += 1
        return await self.server.run(memory.INDEX, {**body, "project": self.project})

    async def embedded(self, timeout_s: float) -> bool:
        """Wait until every document of the server has its vectors; False where that takes too long."""

        async def are_embedded() -> bool:
            return not (await self.server.health()).pending_documents

        return await _until(are_embedded, timeout_s)

    async def clean(self) -> None:
        for source, count in self.sources.items():
            body = {"source": source, "project": self.project, "confirm": True}
            try:
                gone = await self.server.run(memory.DELETE, body) if self.can_delete else None
            except BackendError:
                gone = None
            self.left_behind += count if gone is None else 0
        self.sources.clear()


async def _until(is_true: Callable[[], Awaitable[bool]], timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            while not await is_true():  # noqa: ASYNC110  (another process becomes ready)
                await asyncio.sleep(READY_EVERY_S)
    except TimeoutError:
        return False
    return True


def _json_of(reply: httpx2.Response, path: str) -> Any:
    try:
        return reply.json()
    except ValueError as error:
        raise BackendDataError(_COMPONENT, f"{path} answered no JSON") from error


def _reason(reply: httpx2.Response) -> str:
    try:
        message = reply.json().get("error")
    except (ValueError, AttributeError):
        return ""
    if isinstance(message, dict):
        message = message.get("message")
    return f": {message}" if isinstance(message, str) else ""
