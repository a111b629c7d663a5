"""The connection of a command that opens the index itself."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from rag_context.api import handlers, index, maintenance
from rag_context.api.operations import Operation, Request, Response, memory
from rag_context.domain.journal import acting
from rag_context.errors import BackendError
from rag_context.files.target import OnReceipt
from rag_context.logs import configure_logging
from rag_context.memory.accesses import recorded_by
from rag_context.memory.hook_service import LocalTarget, new_request_id
from rag_context.memory.service import Service
from rag_context.settings import Loaded, Settings
from rag_context.settings.keys import location_of
from rag_context.wiring.opening import open_service

MODEL_WAIT_S = 10.0
"""How long a command waits for the model to load before it begins (M-2)."""

_WITHOUT_MODEL = frozenset(
    operation.name
    for operation in (
        *(memory.GET, memory.LIST, memory.DELETE, memory.STATS, memory.INJECTIONS, memory.CLEAR_QUERIES),
        *(memory.HISTORY, memory.LOG, memory.UNDO, memory.FORGET, memory.REVIEW, memory.DECIDE),
    )
)

CLI = "cli"
"""Who changes something by a command, in the log of changes."""

BULK_TIMEOUT_S = 120.0
"""How long a large document may take here, where no request waits for it."""


class InProcess(LocalTarget):
    is_local = True

    def __init__(self, service: Service, settings: Settings) -> None:
        super().__init__(service, settings.indexing.concurrency)
        self._handlers = service.handlers()
        self._has_waited = False
        self.place = f"the index in {location_of(settings)}"

    async def run(
        self, operation: Operation[Request, Response], request: Request, context: handlers.CallContext | None = None
    ) -> Response:
        if operation.name not in _WITHOUT_MODEL:
            await self._wait_ready()
        with acting(CLI):
            response = await self._handlers[operation.name](request, context or handlers.CallContext(new_request_id()))
        assert isinstance(response, operation.response)  # noqa: S101  (what the operation declares)
        return response

    async def embed_pending(self, on_progress: Callable[[int, int], None]) -> int:
        if await self._pending():
            with suppress(BackendError):
                await self._wait_ready()
                await self._service.reindexing.restore([], on_progress)
        return await self._pending()

    async def _pending(self) -> int:
        async def ignore(_done: int, _total: int) -> None:
            return

        return (await self._service.reindexing.reindex(maintenance.ReindexRequest(status_only=True), ignore)).pending

    async def bulk(self, lines: Sequence[index.BulkLine], on_receipt: OnReceipt) -> None:
        await self._wait_ready()
        await super().bulk(lines, on_receipt)

    async def _wait_ready(self) -> None:
        if not self._has_waited:
            await self._service.wait_ready(MODEL_WAIT_S)
            self._has_waited = True


@asynccontextmanager
async def open_in_process(loaded: Loaded) -> AsyncIterator[InProcess]:
    settings = loaded.settings
    configure_logging(settings.log.level if loaded.sources["log.level"] != "default" else "error")
    async with open_service(with_bulk_timeout(settings)) as service:
        with recorded_by(service.record_access):
            yield InProcess(service, settings)


def with_bulk_timeout(settings: Settings) -> Settings:
    timeout_s = max(settings.indexing.timeout_s, BULK_TIMEOUT_S)
    return settings.model_copy(update={"indexing": settings.indexing.model_copy(update={"timeout_s": timeout_s})})
