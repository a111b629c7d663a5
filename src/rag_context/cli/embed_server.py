"""`embed-server`: the bundled model over HTTP, until it is told to stop."""

import socket
from contextlib import closing
from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from rag_context._version import __version__
from rag_context.api.discovery import server_url
from rag_context.cli.console import Screen
from rag_context.cli.exits import ExitCode
from rag_context.cli.options import Chosen, Config, DataDir, load
from rag_context.cli.serve import server_options, start_logging
from rag_context.server.embedding_routes import EmbeddingApp
from rag_context.server.options import ServerOptions
from rag_context.server.running import bind, serve
from rag_context.server.running import run as run_loop
from rag_context.settings import EmbedderSettings, Settings
from rag_context.wiring.embedder import open_embedder

BODY_BYTES = 16 << 20
"""Largest body of a request: as many texts as the API takes in one call, each of the model's window."""


def embed_server(
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on (server.host).")] = None,
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="Port; 0 selects a free one.")] = 8080,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Texts embedded at once (embedder.workers).")] = None,
    api_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Key that clients must send (server.api_key).")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error (log.level).")
    ] = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Serve the bundled embedding model by itself, with OpenAI's API, until SIGTERM or Ctrl-C.

    Several servers can share one such model, and so can any OpenAI client. No index is opened. A key is better given
    in the environment (RAG_CONTEXT_API_KEY) than on the command line, which other users of the machine can see.
    """
    flags = {
        "server.host": host,
        "server.api_key": api_key,
        "embedder.workers": workers,
        "log.level": log_level,
        "data_dir": data_dir,
    }
    raise typer.Exit(run(Chosen(config, flags), port=port))


def run(chosen: Chosen, *, port: int) -> ExitCode:
    """Serve until SIGTERM or Ctrl-C."""
    settings = load(chosen).settings
    start_logging(settings.log)
    options = replace(server_options(settings), port=port, body_bytes=BODY_BYTES)
    with closing(bind(options)) as listener:
        options = replace(options, port=listener.getsockname()[1])
        bundled = settings.model_copy(update={"embedder": EmbedderSettings(workers=settings.embedder.workers)})
        run_loop(_serve(bundled, options, listener))
    return ExitCode.OK


async def _serve(settings: Settings, options: ServerOptions, listener: socket.socket) -> None:
    url = server_url(options.host, options.port)
    async with open_embedder(settings) as embedder:
        Screen().note(
            Text.assemble((f"rag-context {__version__}", "bold"), f" embeds at {url}/v1/embeddings. Ctrl-C stops it.")
        )
        await serve(EmbeddingApp(embedder, options), [listener], options)
