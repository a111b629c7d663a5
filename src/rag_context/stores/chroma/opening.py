"""Opening and closing a Chroma."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rag_context.errors import BackendError, ConfigurationError
from rag_context.stores.chroma.server import ChromaServer
from rag_context.stores.chroma.vectors import ChromaVectors

if TYPE_CHECKING:
    from rag_context.stores.chroma.folder import ChromaFolder

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]")


@asynccontextmanager
async def open_chroma_server(url: str, collection: str) -> AsyncIterator[ChromaVectors]:
    """The collection on the server at `url`, which need not be there yet: calls fail until it is, and then work.

    Args:
        url: `http://` or `https://`, with user and password if a proxy requires them.
        collection: its name; made when it is missing.

    Raises:
        ConfigurationError: the address or the name cannot be used.
    """
    _check(collection)
    server = ChromaServer(url)
    try:
        yield ChromaVectors(server, collection)
    finally:
        await server.close()


@asynccontextmanager
async def open_chroma_dir(path: Path, collection: str) -> AsyncIterator[ChromaVectors]:
    """The collection in a folder, in this process; the only one that may use the folder.

    Takes some seconds, most of them for importing Chroma's library. A folder that cannot be opened now is no error
    here: calls raise `BackendError` until it can.

    Args:
        path: the folder, made when it is missing.
        collection: its name; made when it is missing.

    Raises:
        ConfigurationError: the name cannot be used.
    """
    _check(collection)
    folder = await asyncio.to_thread(_folder, path)
    try:
        with suppress(BackendError):
            await folder.open(collection)
        yield ChromaVectors(folder, collection)
    finally:
        await folder.close()


def _folder(path: Path) -> "ChromaFolder":
    from rag_context.stores.chroma.folder import ChromaFolder  # noqa: PLC0415  (it takes seconds)

    return ChromaFolder(path)


def _check(collection: str) -> None:
    if not _NAME.fullmatch(collection):
        raise ConfigurationError(
            f"stores.chroma_collection = {collection!r} is no name for a collection of Chroma: "
            "3 to 512 letters, digits, dots, dashes and underscores, a letter or digit at either end."
        )
