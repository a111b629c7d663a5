"""The memory that AI agents share. The names below are imported on first use."""

from rag_context._version import __version__

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all else here
if TYPE_CHECKING:
    from rag_context.client import AsyncClient, BackgroundIndexer, Client, Metadata, open_context

__all__ = ["AsyncClient", "BackgroundIndexer", "Client", "Metadata", "__version__", "open_context"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module("rag_context.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
