"""Where the commands for collections are answered: by the running server, or by the same application in this process.

Both speak the one HTTP interface, so that a command does the same with and without a server.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx2

from rag_context.cli.connection import find_server, key_header
from rag_context.cli.console import safe
from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendUnavailableError,
    ConfigurationError,
    ConflictError,
    FieldError,
    InvalidInputError,
    NotFoundError,
    RagContextError,
)
from rag_context.settings import Loaded

_COMPONENT = "server"
_TIMEOUT = httpx2.Timeout(150.0, connect=5.0)
_HERE = "http://localhost"

Answer = dict[str, Any]
_Wait = Callable[[], Awaitable[bool]]


class CollectionsClient:
    """Asks for collections.

    Args:
        client: reaches the application.
        place: who answers, for people.
        connection: id of the connection that is meant; None: the default one.
        wait_for_model: waits until texts can be embedded, where that is up to this process.
    """

    def __init__(
        self, client: httpx2.AsyncClient, place: str, connection: str | None, wait_for_model: _Wait | None = None
    ) -> None:
        self.place = place
        self._wait_for_model = wait_for_model
        self._client = client
        self._fields = {} if connection is None else {"connection": connection}
        self._asked = place if connection is None else f"{place} (connection {safe(connection)})"

    async def model_loaded(self) -> None:
        """Wait a while for the model, where it loads in this process."""
        if self._wait_for_model is not None:
            await self._wait_for_model()

    async def ask(self, method: str, *steps: str, fields: Mapping[str, str | None] | None = None) -> Answer:
        """Send a request without a body. Raises: RagContextError."""
        return await self._send(method, steps, fields or {}, None)

    async def tell(
        self, method: str, *steps: str, body: object, fields: Mapping[str, str | None] | None = None
    ) -> Answer:
        """Send a request with a body: JSON, or the bytes of it. Raises: RagContextError."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self._send(method, steps, fields or {}, content)

    async def _send(
        self, method: str, steps: tuple[str, ...], fields: Mapping[str, str | None], content: bytes | None
    ) -> Answer:
        path = "/" + "/".join(quote(step, safe="") for step in steps)
        own = self._fields if steps[0] == "collections" else {}
        wanted = {name: value for name, value in {**own, **fields}.items() if value is not None}
        headers = {} if content is None else {"Content-Type": "application/json"}
        try:
            reply = await self._client.request(method, path, params=wanted, content=content, headers=headers)
        except httpx2.HTTPError as error:
            raise BackendUnavailableError(_COMPONENT, f"{_sentence(self.place)} went away.") from error
        try:
            answer = reply.json()
        except ValueError as error:
            raise BackendDataError(
                _COMPONENT, f"{_sentence(self.place)} answered something else than expected: is it another version?"
            ) from error
        if not reply.is_success:
            raise self._refused(reply.status_code, answer)
        found: Answer = answer
        return found

    def _refused(self, status: int, answer: Any) -> RagContextError:
        told = answer if isinstance(answer, dict) else {}
        sentence = str(told.get("error", f"HTTP {status}")).rstrip(".")
        details = [FieldError(str(one.get("field")), str(one.get("message"))) for one in told.get("details", ())]
        place = _sentence(self.place)
        match status:
            case 401 | 403:
                return ConfigurationError(
                    f"{place} refused: {sentence}. Set RAG_CONTEXT_API_KEY to a key that it knows and that may do this."
                )
            case 404:
                return NotFoundError(f"{sentence}.")
            case 409:
                return ConflictError(f"{sentence}.")
            case 429 | 503:
                asked = _sentence(self._asked)
                return BackendUnavailableError(_COMPONENT, f"{asked} could not: {sentence}. Try again.")
        if status < 500:
            return InvalidInputError(f"{sentence}.", details)
        return BackendError(_COMPONENT, f"{place} failed: {sentence}.")


@asynccontextmanager
async def open_client(loaded: Loaded, connection: str | None) -> AsyncIterator[CollectionsClient]:
    """The running server of the data directory, or the directory itself.

    Raises:
        ConfigurationError: The directory cannot be opened with these settings.
    """
    async with httpx2.AsyncClient(timeout=_TIMEOUT, trust_env=False) as client:
        url = await find_server(client, loaded.settings.data_dir)
        if url is not None:
            client.base_url = httpx2.URL(url)
            client.headers.update(key_header(loaded.settings))
            yield CollectionsClient(client, f"the server at {url}", connection)
            return
    async with _in_process(loaded) as (client, wait_for_model):
        yield CollectionsClient(client, f"the index in {loaded.settings.data_dir}", connection, wait_for_model)


@asynccontextmanager
async def _in_process(loaded: Loaded) -> AsyncIterator[tuple[httpx2.AsyncClient, _Wait]]:
    # A command that leaves the work to a server starts faster without these.
    from rag_context.cli.in_process import MODEL_PATIENCE_S  # noqa: PLC0415
    from rag_context.logs import configure_logging  # noqa: PLC0415
    from rag_context.server.app import create_app  # noqa: PLC0415
    from rag_context.server.options import ServerOptions  # noqa: PLC0415
    from rag_context.wiring import open_service  # noqa: PLC0415

    settings = loaded.settings
    configure_logging(settings.log.level if loaded.sources["log.level"] != "default" else "critical")
    async with open_service(settings) as service:
        options = ServerOptions(collection_body_bytes=settings.server.max_collection_body_bytes)
        transport = httpx2.ASGITransport(create_app(service, options))
        async with httpx2.AsyncClient(transport=transport, base_url=_HERE, timeout=None) as client:
            yield client, partial(service.wait_ready, MODEL_PATIENCE_S)


def _sentence(place: str) -> str:
    return place[:1].upper() + place[1:]
