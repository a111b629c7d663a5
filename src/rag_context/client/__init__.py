"""The memory for programs: over HTTP (`Client`, `AsyncClient`), in this process (`open_context`), and behind their
backs (`BackgroundIndexer`)."""

from rag_context.api.index import BulkLine, BulkReceipt
from rag_context.client._async.client import AsyncClient
from rag_context.client._sync.client import Client
from rag_context.client.background import BackgroundIndexer, Failure, QueueFullError
from rag_context.client.calls import Filters, IndexOptions, SearchOptions, TenantOptions
from rag_context.client.collection_calls import CollectionDocument
from rag_context.client.context import Context
from rag_context.client.errors import (
    AccessDeniedError,
    BadRequestError,
    ClientError,
    ConflictError,
    InvalidResponseError,
    NotFoundError,
    ServerBusyError,
    ServerError,
    ServerTimeoutError,
    ServerUnreachableError,
)
from rag_context.client.in_process import open_context
from rag_context.client.retries import Retries
from rag_context.domain.documents import Metadata

__all__ = [
    "AccessDeniedError",
    "AsyncClient",
    "BackgroundIndexer",
    "BadRequestError",
    "BulkLine",
    "BulkReceipt",
    "Client",
    "ClientError",
    "CollectionDocument",
    "ConflictError",
    "Context",
    "Failure",
    "Filters",
    "IndexOptions",
    "InvalidResponseError",
    "Metadata",
    "NotFoundError",
    "QueueFullError",
    "Retries",
    "SearchOptions",
    "ServerBusyError",
    "ServerError",
    "ServerTimeoutError",
    "ServerUnreachableError",
    "TenantOptions",
    "open_context",
]
