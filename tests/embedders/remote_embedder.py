"""An embedder over a server, opened and closed with a block."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rag_context.embedders.openai_embedder import OpenAIEmbedder

TIMEOUT_S = 30.0


@asynccontextmanager
async def embedder_over(
    url: str, *, model: str = "stub", wait: bool = True, **fields: Any
) -> AsyncIterator[OpenAIEmbedder]:
    """The embedder, once it knows whether the server is there; nothing is checked on the side unless requested."""
    embedder = OpenAIEmbedder(url, model=model, **{"check_every_s": 3600.0, "first_retry_s": 0.01, **fields})
    await embedder.start()
    try:
        if wait:
            await embedder.ready(TIMEOUT_S)
        yield embedder
    finally:
        await embedder.close()
