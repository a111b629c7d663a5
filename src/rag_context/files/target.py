"""What documents are sent to: an index in this process, or a server.

It stands apart from `sending`, so that a command that reads no files starts faster.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from rag_context.api.index import BulkLine, BulkReceipt
from rag_context.api.stored_documents import MAX_LISTED, ListRequest, ListResponse

OnReceipt = Callable[[int, BulkReceipt], None]
"""Called with the receipt of a line, by its position in the batch."""


class IndexTarget(Protocol):
    """An index that documents are sent to. All methods raise `RagContextError` only."""

    async def bulk(self, lines: Sequence[BulkLine], on_receipt: OnReceipt) -> None:
        """Index documents; `on_receipt` is called for each one as soon as it is stored or rejected."""

    async def missing(self, versions: Mapping[str, str]) -> Collection[str]:
        """Those of the documents that are not stored with the given content hash."""

    async def remove(self, document_id: str) -> None:
        """Delete a document, if it exists."""

    def sources(self, prefix: str) -> AsyncIterator[tuple[str, str]]:
        """Source and id of every document whose source begins like this."""


async def listed_below(
    prefix: str, listing: Callable[[ListRequest], Awaitable[ListResponse]]
) -> AsyncIterator[tuple[str, str]]:
    """Source and id of every document whose source begins like this, read page by page."""
    request = ListRequest(source=f"{prefix}*", limit=MAX_LISTED)
    while True:
        page = await listing(request)
        for each in page.documents:
            yield each.source, each.document_id
        if page.next_cursor is None:
            return
        request = request.model_copy(update={"cursor": page.next_cursor})
