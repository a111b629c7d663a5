"""A Chroma in this process, whose library is imported when a folder is opened: that takes seconds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rag_context.stores.chroma.folder import ChromaFolder


@asynccontextmanager
async def open_folder(path: Path) -> "AsyncIterator[ChromaFolder]":
    """A Chroma in this process, over a folder that its first call opens."""
    folder = await asyncio.to_thread(_folder, path)
    try:
        yield folder
    finally:
        await folder.close()


def _folder(path: Path) -> "ChromaFolder":
    from rag_context.stores.chroma.folder import ChromaFolder  # noqa: PLC0415  (it takes seconds)

    return ChromaFolder(path)
