"""The connection of a command that opens the index itself."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rag_context.contract.health import HealthResponse
from rag_context.contract.index import BulkLine, BulkReceipt
from rag_context.contract.search import SearchRequest, SearchResponse
from rag_context.contract.stats import StatsRequest, StatsResponse
from rag_context.errors import BackendError
from rag_context.logs import configure_logging
from rag_context.service.service import Service
from rag_context.settings import Loaded, Settings
from rag_context.wiring import open_service

MODEL_PATIENCE_S = 10.0
"""How long a command waits for the model to load before it begins (M-2)."""

BULK_PATIENCE_S = 120.0
"""How long a large document may take here, where no request waits for it."""


class InProcess:
    """This process has opened the index itself."""

    def __init__(self, service: Service, data_dir: Path) -> None:
        self._service = service
        self.place = f"the index in {data_dir}"
        self.batch = 1

    async def search(self, request: SearchRequest) -> SearchResponse:
        """Search here."""
        outcome = await self._service.search(request, request_id=new_request_id())
        return outcome.response

    async def bulk(self, lines: Sequence[BulkLine], on_receipt: Callable[[BulkReceipt], None]) -> None:
        """Index here, one after the other."""
        for line in lines:
            try:
                receipt = await self._service.bulk(line, request_id=new_request_id())
            except BackendError as error:
                receipt = BulkReceipt(status="rejected", source=line.source, reason=str(error))
            on_receipt(receipt)

    async def health(self) -> HealthResponse:
        """Examine the parts here."""
        return await self._service.health()

    async def stats(self, request: StatsRequest) -> StatsResponse:
        """Sum up here."""
        return await self._service.stats(request)


def new_request_id() -> str:
    """An id for a request made here, of the form that a server gives."""
    return os.urandom(12).hex()


@asynccontextmanager
async def open_in_process(loaded: Loaded) -> AsyncIterator[InProcess]:
    """The index, opened here, with its model loaded where it can be.

    Raises:
        ConfigurationError: The directory cannot be opened with these settings.
    """
    settings = loaded.settings
    configure_logging(settings.log.level if loaded.sources["log.level"] != "default" else "error")
    async with open_service(_patient(settings)) as service:
        await service.wait_ready(MODEL_PATIENCE_S)
        yield InProcess(service, settings.data_dir)


def _patient(settings: Settings) -> Settings:
    timeout_s = max(settings.indexing.timeout_s, BULK_PATIENCE_S)
    return settings.model_copy(update={"indexing": settings.indexing.model_copy(update={"timeout_s": timeout_s})})
