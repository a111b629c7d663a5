"""The whole memory inside this process: the operations of a server, called without HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rag_context.client.async_client import AsyncClient
from rag_context.settings import Settings, load_settings

MODEL_WAIT_S = 10.0
"""How long opening waits for the model, so that the first search has both retrievers."""


@asynccontextmanager
async def open_context(settings: Settings | None = None, *, data_dir: Path | None = None) -> AsyncIterator[AsyncClient]:
    """Open the memory in this process; several processes may use one data directory at once.

    Args:
        settings: the configuration; else that of files and environment.
        data_dir: folder of the index; takes the place of the configured one.

    Raises: ConfigurationError (the configuration cannot work).
    """
    if settings is None:
        settings = load_settings(flags={"data_dir": data_dir}, cwd=Path.cwd()).settings
    elif data_dir is not None:
        settings = settings.model_copy(update={"data_dir": data_dir})
    # A client of a server, which has this name too, starts faster without the server, the model and the stores.
    from rag_context.server.direct_calls import DirectCalls  # noqa: PLC0415
    from rag_context.wiring.opening import open_service  # noqa: PLC0415

    async with open_service(settings) as service:
        await service.wait_ready(MODEL_WAIT_S)
        async with AsyncClient(transport=DirectCalls(service, settings)) as context:
            yield context
