"""Where this process sends documents that it read itself: to its own index."""

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from rag_context.api.index import BulkLine, BulkReceipt, VersionsRequest
from rag_context.api.stored_documents import DeleteRequest
from rag_context.errors import BackendError
from rag_context.files.sending import VersionOrder, sliced
from rag_context.files.target import OnReceipt, listed_below

if TYPE_CHECKING:
    from rag_context.memory.service import Service


class LocalTarget:
    def __init__(self, service: "Service", concurrency: int) -> None:
        self._service = service
        self._turn = asyncio.Semaphore(concurrency)
        self._order = VersionOrder()

    async def bulk(self, lines: Sequence[BulkLine], on_receipt: OnReceipt) -> None:
        """Index here, a slice at a time and a few slices at once; those of one source one after the other."""
        async with asyncio.TaskGroup() as group:
            for start, part in sliced(lines):
                await self._turn.acquire()
                task = group.create_task(self._keep(start, part, on_receipt, self._order.earlier(part)))
                self._order.begin(task, part)

    async def _keep(
        self, start: int, lines: Sequence[BulkLine], on_receipt: OnReceipt, earlier: set[asyncio.Future[None]]
    ) -> None:
        try:
            if earlier:
                await asyncio.wait(earlier)
            receipts = await self._service.bulk_all(lines, request_id=new_request_id())
        finally:
            self._turn.release()
        for place, receipt in enumerate(receipts):
            if isinstance(receipt, BackendError):
                source = lines[place].source
                receipt = BulkReceipt(status="rejected", source=source, reason=str(receipt), retryable=True)
            elif isinstance(receipt, Exception):
                raise receipt
            on_receipt(start + place, receipt)

    async def missing(self, versions: Mapping[str, str]) -> Collection[str]:
        return (await self._service.missing(VersionsRequest(versions=dict(versions)))).missing

    async def remove(self, document_id: str) -> None:
        await self._service.delete(DeleteRequest(document_id=document_id))

    def sources(self, prefix: str) -> AsyncIterator[tuple[str, str]]:
        return listed_below(prefix, self._service.listing)


def new_request_id() -> str:
    return os.urandom(12).hex()
