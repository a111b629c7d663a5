"""`serve` and `embed-server`: the index over HTTP, and the bundled model over HTTP, until they are stopped."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer
from rich.text import Text

from rag_context._version import __version__
from rag_context.api.discovery import Announcement, is_every_address, server_url
from rag_context.api.index import FileReceipt
from rag_context.api.operations import Access
from rag_context.api.wire import Vocabulary
from rag_context.cli.command_line import ExitCode
from rag_context.cli.console import Screen
from rag_context.cli.index_files import open_sync
from rag_context.cli.local_connection import InProcess
from rag_context.cli.shared_options import Chosen, Config, DataDir, load, load_available
from rag_context.cli.watch import watched
from rag_context.errors import RagContextError
from rag_context.files.file_reading import Labels
from rag_context.files.folder_sync import FolderSync, Gone
from rag_context.files.watching import Follower
from rag_context.logs import configure_logging
from rag_context.server.app import create_app
from rag_context.server.embedding_routes import EmbeddingApp
from rag_context.server.options import ApiKey, ServerOptions, hash_key
from rag_context.server.running import announced, bind, bound_address
from rag_context.server.running import run as run_loop
from rag_context.server.running import serve as serve_app
from rag_context.service.service import Service
from rag_context.settings import EmbedderSettings, LogSettings, Settings
from rag_context.wiring import OnMismatch, open_service
from rag_context.wiring.index_embedder import open_embedder

logger = logging.getLogger(__name__)

FLUSH_S = 5.0
"""How long changed files may take to be indexed once the server has to stop."""

OWN_KEY = "api_key"
"""Name, in logs, of the key of `server.api_key`."""


def serve(
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on (server.host).")] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="Port; 0 selects a free one (server.port).")] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error (log.level).")
    ] = None,
    reindex: Annotated[
        bool, typer.Option("--reindex", help="Re-embed the index if another model made its vectors.")
    ] = False,
    watch: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="Index this folder and follow its changes; may be given several times."),
    ] = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Serve HTTP until SIGTERM or Ctrl-C."""
    flags = {"server.host": host, "server.port": port, "log.level": log_level, "data_dir": data_dir}
    raise typer.Exit(run(Chosen(config, flags), reindex=reindex, watch=watch or ()))


def run(chosen: Chosen, *, reindex: bool, watch: Sequence[Path] = ()) -> ExitCode:
    """Serve until SIGTERM or Ctrl-C."""
    screen = Screen()
    settings = load_available(chosen).settings
    roots = watched(watch)
    start_logging(settings.log)
    options = server_options(settings)
    with closing(bind(options)) as listener:
        options = replace(options, port=listener.getsockname()[1])
        on_mismatch = OnMismatch.REINDEX if reindex else OnMismatch.REJECT
        run_loop(_serve(settings, options, listener, on_mismatch, roots, screen))
    return ExitCode.OK


async def _serve(
    settings: Settings,
    options: ServerOptions,
    listener: socket.socket,
    on_mismatch: OnMismatch,
    roots: Sequence[Path],
    screen: Screen,
) -> None:
    url = server_url(options.host, options.port)
    host, port = listener.getsockname()[:2]
    bound = bound_address(host, port)
    place = f"{url} (every address of this machine, {bound})" if is_every_address(host) else url
    async with open_service(settings, on_mismatch) as service:
        if on_mismatch is OnMismatch.REINDEX and service.collections is not None:
            service.collections.maintenance.begin_reindexing()
        app = create_app(service, options)
        async with announced(settings.data_dir, Announcement(os.getpid(), url, options.instance_id, bound)):
            screen.note(
                Text.assemble(
                    (f"rag-context {__version__}", "bold"),
                    f" at {place}, index in {settings.data_dir}. Ctrl-C stops it.",
                )
            )
            async with _following(roots, service, settings), _keeping_projects(service):
                await serve_app(app, [listener], options)


@asynccontextmanager
async def _following(roots: Sequence[Path], service: Service, settings: Settings) -> AsyncIterator[None]:
    """Index files and follow their changes for the time of the block; what has changed until its end is indexed."""
    if not roots:
        yield
        return

    @asynccontextmanager
    async def reached() -> AsyncIterator[FolderSync]:
        connection = InProcess(service, settings.data_dir, settings.indexing.concurrency)
        with open_sync(connection, settings, Labels(), Gone.REMOVE, _log_change) as sync:
            yield sync

    def ready() -> None:
        logger.info("watching %s", ", ".join(map(str, roots)))

    def trouble(error: RagContextError, wait_s: float) -> None:
        logger.warning("changed files wait %.0f s: %s", wait_s, error)

    stop = asyncio.Event()
    following = asyncio.create_task(Follower(roots, reached, ready, trouble).run(stop), name="watch")
    following.add_done_callback(_log_end)
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait({following}, timeout=FLUSH_S)
        following.cancel()
        await asyncio.wait({following})


@asynccontextmanager
async def _keeping_projects(service: Service) -> AsyncIterator[None]:
    """Follow projects again that were followed before, and end old ones, for the time of the block."""
    if service.projects is None:
        yield
        return
    keeping = asyncio.create_task(service.projects.housekeeping.run(), name="projects")
    keeping.add_done_callback(_log_end)
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})


def _log_change(receipt: FileReceipt) -> None:
    if receipt.status != "unchanged" and not receipt.is_skipped:
        logger.info("%s %s%s", receipt.status, receipt.source, f": {receipt.reason}" if receipt.reason else "")


def _log_end(following: "asyncio.Task[None]") -> None:
    if not following.cancelled() and (error := following.exception()) is not None:
        logger.error("%s ended: %s", following.get_name(), error, exc_info=error)


def server_options(settings: Settings) -> ServerOptions:
    """The options of the HTTP server, from the settings."""
    server = settings.server
    keys = [ApiKey.parse(key.name, key.hash, Access(key.access)) for key in server.api_keys]
    if server.api_key is not None:
        keys.append(ApiKey.parse(OWN_KEY, hash_key(server.api_key.get_secret_value())))
    return ServerOptions(
        host=server.host,
        port=server.port,
        allowed_hosts=server.allowed_hosts,
        api_keys=tuple(keys),
        vocabulary=Vocabulary.extended(settings.vocabulary.content_types, settings.vocabulary.categories),
        instance_id=uuid4().hex,
        body_bytes=server.max_body_bytes,
        index_body_bytes=server.max_index_body_bytes,
        collection_body_bytes=server.max_collection_body_bytes,
        bulk_concurrency=settings.indexing.concurrency,
        rate_per_s=server.requests_per_s,
    )


def start_logging(log: LogSettings) -> None:
    """Log as the settings say, for people where stderr is a terminal."""
    style = log.format
    if style == "auto":
        style = "console" if sys.stderr.isatty() else "json"
    configure_logging(log.level, style)


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
    raise typer.Exit(run_embed_server(Chosen(config, flags), port=port))


def run_embed_server(chosen: Chosen, *, port: int) -> ExitCode:
    """Serve until SIGTERM or Ctrl-C."""
    settings = load(chosen).settings
    start_logging(settings.log)
    options = replace(server_options(settings), port=port, body_bytes=BODY_BYTES)
    with closing(bind(options)) as listener:
        options = replace(options, port=listener.getsockname()[1])
        bundled = settings.model_copy(update={"embedder": EmbedderSettings(workers=settings.embedder.workers)})
        run_loop(_serve_embeddings(bundled, options, listener))
    return ExitCode.OK


async def _serve_embeddings(settings: Settings, options: ServerOptions, listener: socket.socket) -> None:
    url = server_url(options.host, options.port)
    async with open_embedder(settings) as embedder:
        Screen().note(
            Text.assemble((f"rag-context {__version__}", "bold"), f" embeds at {url}/v1/embeddings. Ctrl-C stops it.")
        )
        await serve_app(EmbeddingApp(embedder, options), [listener], options)
