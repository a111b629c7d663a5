"""The memory for programs: over HTTP (`Client`, `AsyncClient`), in this process (`open_context`), and through a queue
(`BackgroundIndexer`). The names below load what they need when they are first used."""

from importlib import import_module

TYPE_CHECKING = False  # as in `typing`; a command that only sends over HTTP loads no more than that
if TYPE_CHECKING:
    from rag_context.api.index import BulkLine, BulkReceipt
    from rag_context.client.async_client import AsyncClient
    from rag_context.client.background import BackgroundIndexer, Failure, QueueFullError
    from rag_context.client.blocking_client import Client
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
    from rag_context.client.parameters import CollectionDocument, Filters, IndexOptions, SearchOptions, TenantOptions
    from rag_context.client.repeats import Retries
    from rag_context.domain.documents import Metadata
    from rag_context.in_process import open_context

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

_MODULES = {
    "rag_context.api.index": ("BulkLine", "BulkReceipt"),
    "rag_context.client.async_client": ("AsyncClient",),
    "rag_context.client.blocking_client": ("Client",),
    "rag_context.client.background": ("BackgroundIndexer", "Failure", "QueueFullError"),
    "rag_context.in_process": ("open_context",),
    "rag_context.client.repeats": ("Retries",),
    "rag_context.domain.documents": ("Metadata",),
    "rag_context.client.errors": tuple(name for name in __all__ if name.endswith("Error") and name != "QueueFullError"),
}
"""Where the names are; the others are in `client.parameters`."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((each for each, names in _MODULES.items() if name in names), "rag_context.client.parameters")
    value = globals()[name] = getattr(import_module(module), name)
    return value
