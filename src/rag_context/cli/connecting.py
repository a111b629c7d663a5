"""Where a command's work is done: by the running server of the data directory, or else in this process.

A server is found by the client, through the file that it keeps beside the index. The commands for collections use the
one HTTP interface both with and without a server, so that they do the same.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from rag_context import errors
from rag_context.api.operations import Operation, Request, Response
from rag_context.cli.console import safe
from rag_context.client import errors as client_errors
from rag_context.client.address import Address, announced_address
from rag_context.client.async_http import AsyncHttp, AsyncTransport
from rag_context.client.call import DEFAULT_CONNECTION, Answer, Call, call_of, request_id_of, route_call
from rag_context.settings import Loaded
from rag_context.settings.keys import location_of

if TYPE_CHECKING:  # what other methods than `run` need is imported there: most commands call no other
    from rag_context.api.index import BulkLine
    from rag_context.api.operations.routes import Route
    from rag_context.cli.local_connection import InProcess
    from rag_context.files.target import OnReceipt

_Wait: TypeAlias = Callable[[], Awaitable[bool]]

_TIMEOUT_S = 60.0
_BULK_TIMEOUT_S = 300.0
_COLLECTIONS_TIMEOUT_S = 150.0

Connection: TypeAlias = "Remote | InProcess"
"""What does the work of a command. All its methods raise `RagContextError` only."""

POLL_EVERY_S = 1.0
STALLED_S = 30.0
"""After so long without a completed document the health of the server counts: its model may be unavailable."""


class Remote:
    """The data directory's server does the work. Nothing is tried twice: a person decides that."""

    is_local = False
    """Whether this process has opened the index: perhaps no other process embeds what is pending."""

    def __init__(
        self, http: AsyncHttp, url: str, *, poll_every_s: float = POLL_EVERY_S, stalled_s: float = STALLED_S
    ) -> None:
        self._http = http
        self._poll_every_s = poll_every_s
        self._stalled_s = stalled_s
        self.place = f"the server at {url}"

    async def run(self, operation: Operation[Request, Response], request: Request) -> Response:
        return await self._send(call_of(operation, request))

    async def embed_pending(self, on_progress: Callable[[int, int], None]) -> int:
        """Follow the server's background work; give up once nothing has moved for a while, and the server is not well.

        One large document may take longer than that; health says when it takes too long.
        """
        from rag_context.api.maintenance import HealthRequest, ReindexRequest  # noqa: PLC0415
        from rag_context.api.operations.memory import HEALTH, REINDEX  # noqa: PLC0415

        status = ReindexRequest(status_only=True)
        total = left = (await self.run(REINDEX, status)).pending
        moved_at = time.monotonic()
        while left:
            if time.monotonic() - moved_at >= self._stalled_s:
                if not (await self.run(HEALTH, HealthRequest())).healthy:
                    break
                moved_at = time.monotonic()
            on_progress(total - left, total)
            await asyncio.sleep(self._poll_every_s)
            now = (await self.run(REINDEX, status)).pending
            if now < left:
                moved_at = time.monotonic()
            total, left = max(total, now), now
        return left

    async def bulk(self, lines: "Sequence[BulkLine]", on_receipt: "OnReceipt") -> None:
        from rag_context.client.batch import Batch  # noqa: PLC0415

        batch = Batch(1, on_receipt=on_receipt)
        for line in lines:
            batch.add(line)
        try:
            await self._http.send_batch(batch, request_id_of(None), _BULK_TIMEOUT_S)
        except client_errors.ClientError as error:
            raise failure_of(error, self.place) from error

    async def missing(self, versions: Mapping[str, str]) -> Collection[str]:
        from rag_context.client.batch import missing  # noqa: PLC0415

        return (await self._send(missing(versions))).missing

    async def remove(self, document_id: str) -> None:
        from rag_context.api.operations.memory import DELETE  # noqa: PLC0415

        await self.run(DELETE, DELETE.request(document_id=document_id))

    def sources(self, prefix: str) -> AsyncIterator[tuple[str, str]]:
        from rag_context.api.operations.memory import LIST  # noqa: PLC0415
        from rag_context.files.target import listed_below  # noqa: PLC0415

        return listed_below(prefix, partial(self.run, LIST))

    async def _send(self, call: Call[Answer]) -> Answer:
        try:
            return await self._http.send(call, request_id_of(None))
        except client_errors.ClientError as error:
            raise failure_of(error, self.place) from error


@asynccontextmanager
async def open_connection(loaded: Loaded) -> AsyncIterator[Connection]:
    """The running server of the data directory, or the directory itself. Raises: ConfigurationError."""
    async with open_http(announced_address(loaded.settings), _TIMEOUT_S) as http:
        url = await http.find()
        if url is not None:
            yield Remote(http, url)
            return
    # A command that leaves the work to a server starts faster without the model's and the stores' libraries.
    from rag_context.cli.local_connection import open_in_process  # noqa: PLC0415

    async with open_in_process(loaded) as connection:
        yield connection


async def answer_of(loaded: Loaded, operation: Operation[Request, Response], request: Request) -> Response:
    """What an operation answers, from wherever its work is done."""
    async with open_connection(loaded) as connection:
        return await connection.run(operation, request)


@asynccontextmanager
async def open_http(address: Address, timeout_s: float) -> AsyncIterator[AsyncHttp]:
    async with aclosing(AsyncHttp(address, timeout_s)) as http:
        yield http


def failure_of(error: client_errors.ClientError, place: str) -> errors.RagContextError:
    """The error that reports a failed call to a person; the exit status follows from its kind."""
    server = place[:1].upper() + place[1:]
    sentence = sentence_of(error)
    match error:
        case client_errors.AccessDeniedError():
            key = "a key that may do this" if error.status == 403 else "a key it knows"
            return errors.ConfigurationError(
                f"{server} rejected the request: {sentence}. Set RAG_CONTEXT_API_KEY to {key}."
            )
        case client_errors.ServerBusyError():
            return errors.BackendUnavailableError(
                client_errors.COMPONENT, f"{server} could not: {sentence}. Try again."
            )
        case client_errors.ServerUnreachableError() | client_errors.ServerTimeoutError():
            return errors.BackendUnavailableError(client_errors.COMPONENT, f"{server} went away.")
        case client_errors.InvalidResponseError():
            return errors.BackendDataError(
                client_errors.COMPONENT, f"{server} returned an invalid response: is it another version?"
            )
        case client_errors.ServerError():
            return errors.BackendError(client_errors.COMPONENT, f"{server} failed: {sentence}.")
        case client_errors.NotFoundError():
            return errors.NotFoundError(f"{sentence}.")
        case client_errors.ConflictError():
            return errors.ConflictError(f"{sentence}.")
        case client_errors.BadRequestError():
            return errors.InvalidInputError(f"{sentence}.", error.details)
    return errors.InvalidInputError(f"{sentence}.")


def sentence_of(error: client_errors.ClientError) -> str:
    return (error.server_message or f"HTTP {error.status}").rstrip(".")


class CollectionsClient:
    def __init__(self, http: AsyncTransport, place: str, wait_for_model: _Wait | None = None) -> None:
        self.place = place
        self._wait_for_model = wait_for_model
        self._http = http

    async def model_loaded(self) -> None:
        if self._wait_for_model is not None:
            await self._wait_for_model()

    async def send(
        self, route: "Route[Response]", fields: Mapping[str, Any], encoded_body: bytes | None = None
    ) -> Response:
        """Call an address with fields of its operation. Raises: RagContextError.

        Fields are by their Python names, others are ignored; `encoded_body` is a body that is JSON already.
        """
        connection = fields.get("connection", DEFAULT_CONNECTION)
        names = [fields[step.strip("{}")] for step in route.steps if step.startswith("{")]
        query = {name: fields[name] for name in route.query.model_fields if name in fields and name != "connection"}
        in_body = () if route.body is None else route.body.model_fields
        body = {name: fields[name] for name in in_body if name in fields} if in_body else None
        call = route_call(route, *names, connection=connection, query=query, body=body)
        if encoded_body is not None:
            call = replace(call, body=encoded_body)
        try:
            return await self._http.send(call, request_id_of(None))
        except client_errors.ServerBusyError as error:
            named = "" if connection == DEFAULT_CONNECTION else f" (connection {safe(connection)})"
            raise failure_of(error, f"{self.place}{named}") from error
        except client_errors.ClientError as error:
            raise failure_of(error, self.place) from error


@asynccontextmanager
async def open_client(loaded: Loaded) -> AsyncIterator[CollectionsClient]:
    async with open_http(announced_address(loaded.settings), _COLLECTIONS_TIMEOUT_S) as http:
        url = await http.find()
        if url is not None:
            yield CollectionsClient(http, f"the server at {url}")
            return
    async with _in_process(loaded) as (http, wait_for_model):
        yield CollectionsClient(http, f"the index in {location_of(loaded.settings)}", wait_for_model)


@asynccontextmanager
async def _in_process(loaded: Loaded) -> AsyncIterator[tuple[AsyncTransport, _Wait]]:
    # A command that leaves the work to a server starts faster without these.
    from rag_context.in_process import MODEL_WAIT_S  # noqa: PLC0415
    from rag_context.logs import configure_logging  # noqa: PLC0415
    from rag_context.memory.accesses import recorded_by  # noqa: PLC0415
    from rag_context.server.direct_calls import DirectCalls  # noqa: PLC0415
    from rag_context.wiring.opening import open_service  # noqa: PLC0415

    settings = loaded.settings
    configure_logging(settings.log.level if loaded.sources["log.level"] != "default" else "critical")
    async with open_service(settings) as service:
        with recorded_by(service.record_access):
            yield DirectCalls(service, settings), partial(service.wait_ready, MODEL_WAIT_S)
