"""Opens what documents of other programs are taken over from."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rag_context.errors import ConfigurationError, InvalidInputError
from rag_context.ports.foreign import ForeignSource
from rag_context.settings import Settings

COLLECTION = "p4nth30n_context"
"""The collection of passages that is read where none is named: that of the programs whose form is taken over."""


@dataclass(frozen=True, slots=True)
class AdoptionOrigin:
    """One place to read, whose records may be passages of documents. One that is not requested may be missing.

    `mark_adopted` is called with the number of records once all are in the index; None where that does not read it.
    """

    source: ForeignSource
    has_passages: bool
    is_requested: bool
    mark_adopted: Callable[[int], Awaitable[None]] | None = None


async def open_origins(
    settings: Settings,
    stack: AsyncExitStack,
    *,
    mongodb: str | None = None,
    qdrant: str | None = None,
    chroma: str | None = None,
    collection: str | None = None,
) -> list[AdoptionOrigin]:
    """Open what the caller named, or what the settings name: documents first, then passages.

    Raises:
        InvalidInputError: nothing is named.
        ConfigurationError: an address is invalid, or a client is not installed.
    """
    is_requested = bool(qdrant or collection)
    if not any((mongodb, qdrant, chroma)):
        mongodb, qdrant = settings.stores.mongodb_uri, settings.stores.qdrant_url
    found: list[AdoptionOrigin] = []
    if mongodb:
        found.append(await _mongodb(settings, mongodb, stack))
    if qdrant:
        points = await _points(settings, qdrant, collection or COLLECTION, stack)
        found.append(AdoptionOrigin(points, True, is_requested))
    if chroma is not None:
        found.append(await _chroma(chroma, collection or COLLECTION, stack))
    if not found:
        raise InvalidInputError(
            "There is nothing to read: name a source with --mongodb, --qdrant or --chroma, or set MONGODB_URI or"
            " QDRANT_URL."
        )
    return found


async def _mongodb(settings: Settings, uri: str, stack: AsyncExitStack) -> AdoptionOrigin:
    await _imported("rag_context.stores.mongodb", "pymongo", "mongodb")
    from rag_context.stores.mongodb.other_documents import open_other_documents  # noqa: PLC0415  (an extra)

    stores = settings.stores
    documents = await stack.enter_async_context(
        open_other_documents(uri, documents=stores.mongodb_documents, metrics=stores.mongodb_metrics)
    )
    is_ours = stores.documents == "mongodb" and uri == stores.mongodb_uri
    return AdoptionOrigin(documents, False, True, documents.mark_adopted if is_ours else None)


async def _points(settings: Settings, url: str, collection: str, stack: AsyncExitStack) -> ForeignSource:
    await _imported("rag_context.stores.qdrant", "qdrant_client", "qdrant")
    from rag_context.stores.qdrant.qdrant_vectors import open_other_points  # noqa: PLC0415  (an extra)

    stores = settings.stores
    return await stack.enter_async_context(
        open_other_points(
            url,
            collection,
            api_key=stores.qdrant_api_key.get_secret_value() if stores.qdrant_api_key else None,
            transport=stores.qdrant_transport,
            grpc_port=stores.qdrant_grpc_port,
        )
    )


async def _chroma(place: str, collection: str, stack: AsyncExitStack) -> AdoptionOrigin:
    is_address = place.startswith(("http://", "https://"))
    if not is_address:
        await _imported("chromadb", "chromadb", "chroma")
        if not await asyncio.to_thread(Path(place).is_dir):
            raise InvalidInputError(f"--chroma takes an address or a folder, and {place!r} is neither.")
    await _imported("rag_context.stores.chroma", "numpy", "chroma")
    from rag_context.stores.chroma.chroma_vectors import open_other_rows  # noqa: PLC0415  (an extra)

    where = place if is_address else Path(place)
    return AdoptionOrigin(await stack.enter_async_context(open_other_rows(where, collection)), True, True)


async def _imported(module: str, library: str, extra: str) -> None:
    if find_spec(library) is None:
        raise ConfigurationError(f"This needs a client that is not installed: `pip install 'rag-context[{extra}]'`.")
    await asyncio.to_thread(import_module, module)  # seconds, not on the loop
