"""Where the commands for collections are answered: by the running server, or by the same application in this process.

Both speak the one HTTP interface, so that a command does the same with and without a server.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import httpx2

from rag_context.cli.connection import failure_of, open_http
from rag_context.cli.console import safe
from rag_context.client._async.http import AsyncHttp
from rag_context.client.address import Address, announced_address
from rag_context.client.call import Call, json_object, step_of
from rag_context.client.errors import ClientError, ServerBusyError
from rag_context.client.replies import request_id_of
from rag_context.settings import Loaded

_TIMEOUT_S = 150.0
_HERE = "http://localhost"

Answer = dict[str, Any]
_Wait = Callable[[], Awaitable[bool]]


class CollectionsClient:
    """Asks for collections.

    Args:
        http: reaches the application.
        place: who answers, for people.
        connection: id of the connection that is meant; None: the default one.
        wait_for_model: waits until texts can be embedded, where that is up to this process.
    """

    def __init__(
        self, http: AsyncHttp, place: str, connection: str | None, wait_for_model: _Wait | None = None
    ) -> None:
        self.place = place
        self._wait_for_model = wait_for_model
        self._http = http
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
        path = "/" + "/".join(map(step_of, steps))
        own = self._fields if steps[0] == "collections" else {}
        wanted = {name: value for name, value in {**own, **fields}.items() if value is not None}
        call = Call(f"{path}?{urlencode(wanted, quote_via=quote)}" if wanted else path, json_object, content, method)
        try:
            return await self._http.send(call, request_id_of(None))
        except ClientError as error:
            raise failure_of(error, self._asked if isinstance(error, ServerBusyError) else self.place) from error


@asynccontextmanager
async def open_client(loaded: Loaded, connection: str | None) -> AsyncIterator[CollectionsClient]:
    """The running server of the data directory, or the directory itself.

    Raises:
        ConfigurationError: The directory cannot be opened with these settings.
    """
    async with open_http(announced_address(loaded.settings), _TIMEOUT_S) as http:
        url = await http.find()
        if url is not None:
            yield CollectionsClient(http, f"the server at {url}", connection)
            return
    async with _in_process(loaded) as (http, wait_for_model):
        yield CollectionsClient(http, f"the index in {loaded.settings.data_dir}", connection, wait_for_model)


@asynccontextmanager
async def _in_process(loaded: Loaded) -> AsyncIterator[tuple[AsyncHttp, _Wait]]:
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
        async with aclosing(AsyncHttp(Address(_HERE, None, None, None), _TIMEOUT_S, transport)) as http:
            yield http, partial(service.wait_ready, MODEL_PATIENCE_S)
