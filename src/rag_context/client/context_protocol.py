"""What every way to the memory can do: over HTTP, or in this process."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Protocol, Unpack

from rag_context.api.index import BulkReceipt, IndexResponse
from rag_context.api.maintenance import HealthResponse, ReindexResponse, StatsResponse, TimeRange
from rag_context.api.search import SearchResponse
from rag_context.api.stored_documents import DeleteResponse, GetResponse, ListedDocument, ListResponse, SimilarResponse
from rag_context.client.async_collections import AsyncCollections
from rag_context.client.call import AsyncDocuments
from rag_context.client.calls import Filters, IndexOptions, SearchOptions, TenantOptions
from rag_context.domain.documents import Json


class Context(Protocol):
    """The memory. All methods raise `InvalidInputError` where the request is wrong, and `ClientError` otherwise.

    `request_id` is the correlation id of a call: it stands in the server's logs, in the answer and in errors, and is
    made up where none is given.
    """

    @property
    def collections(self) -> AsyncCollections:
        """Collections and their providers."""
        ...

    async def search(
        self, query: str, *, request_id: str | None = None, **options: Unpack[SearchOptions]
    ) -> SearchResponse:
        """Ask for the passages that answer a question.

        A degraded server answers too: `fallback_level` and `warning` say how. Only `strict=True` turns levels 3 and 4
        into a `ServerBusyError`.
        """
        ...

    async def search_fast(
        self, query: str, game: str | None = None, agent: str | None = None, *, request_id: str | None = None
    ) -> SearchResponse:
        """Ask for at most 3 passages; an answer of level 1 is remembered for five minutes."""
        ...

    async def index(
        self,
        content: str,
        *,
        content_type: str,
        session_id: str,
        source: str,
        request_id: str | None = None,
        **options: Unpack[IndexOptions],
    ) -> IndexResponse:
        """Store a document. The same text again changes nothing.

        The description of `rag_context_index` says which documents it replaces.
        """
        ...

    def bulk(self, documents: AsyncDocuments, *, request_id: str | None = None) -> AsyncIterator[BulkReceipt]:
        """Keep many documents; a receipt for each, in their order, as soon as its batch is done."""
        ...

    async def get(
        self, document_id: str, *, request_id: str | None = None, **tenant: Unpack[TenantOptions]
    ) -> GetResponse:
        """All of one document. Raises: NotFoundError."""
        ...

    async def list(
        self, *, limit: int = 20, cursor: str | None = None, request_id: str | None = None, **filters: Unpack[Filters]
    ) -> ListResponse:
        """One page of documents, newest first; `cursor` is the `next_cursor` of the page before."""
        ...

    def list_all(self, *, request_id: str | None = None, **filters: Unpack[Filters]) -> AsyncIterator[ListedDocument]:
        """All documents, newest first, page by page."""
        ...

    async def similar(
        self, document_id: str, *, limit: int = 5, request_id: str | None = None, **tenant: Unpack[TenantOptions]
    ) -> SimilarResponse:
        """The documents most like one. Raises: NotFoundError."""
        ...

    async def delete(
        self,
        *,
        document_id: str | None = None,
        source: str | None = None,
        session_id: str | None = None,
        dry_run: bool = False,
        confirm: bool = False,
        request_id: str | None = None,
        **tenant: Unpack[TenantOptions],
    ) -> DeleteResponse:
        """Remove the documents that exactly one of the first three names, or say which would; many need `confirm`."""
        ...

    async def reindex(
        self, *, force: bool = False, status_only: bool = False, request_id: str | None = None
    ) -> ReindexResponse:
        """Re-embed the whole index in the background, or report the progress."""
        ...

    async def health(self, *, request_id: str | None = None) -> HealthResponse:
        """How the system is."""
        ...

    async def stats(self, time_range: timedelta | TimeRange = "24h", *, request_id: str | None = None) -> StatsResponse:
        """What the searches of a span add up to; a timedelta is rounded up to 1h, 24h or 7d, and else is 30d."""
        ...

    async def call(self, tool: str, /, *, request_id: str | None = None, **arguments: object) -> dict[str, Json]:
        """Run any tool by its name, with arguments and answer as they are on the wire."""
        ...
