"""What a process of `serve` does: opens the service, and follows files and projects while it answers.

The process of `serve` itself calls `serve_here`. With several workers its supervisor starts each of them as
`python -m rag_context.cli.serving DESCRIPTOR`, which runs `main`.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

from rag_context.agents.answering import HookAnswers
from rag_context.agents.histories import FOLLOWED_AFTER_S, HistorySync, choice_of, open_histories
from rag_context.api.index import FileReceipt, HistoryReceipt
from rag_context.cli.command_line import ExitCode, exit_code
from rag_context.cli.index_files import open_sync
from rag_context.cli.interpreter import tune_interpreter
from rag_context.cli.local_connection import InProcess
from rag_context.cli.serve_start import Start
from rag_context.errors import RagContextError
from rag_context.files.file_reading import Labels
from rag_context.files.folder_sync import FolderSync, Gone
from rag_context.files.histories.places import watched
from rag_context.files.watching import Follower
from rag_context.logs import configure_logging
from rag_context.memory.accesses import recorded_by
from rag_context.memory.service import Service
from rag_context.server.app import create_app
from rag_context.server.hook_socket import answering_hooks
from rag_context.server.peers import Peers, inner_app, shared
from rag_context.server.running import run, serve
from rag_context.server.worker_process import WorkerEnd, WorkerEvent, WorkerReport, WorkerServer
from rag_context.settings import Settings
from rag_context.wiring.local_files import HISTORIES_NAME, open_file_manifest
from rag_context.wiring.opening import Duties, OnMismatch, open_service

logger = logging.getLogger("rag_context.cli.serving")  # also where this module is run as `__main__`

FLUSH_S = 5.0
"""How long changed files may take to be indexed once the server has to stop."""


async def serve_here(start: Start, listener: socket.socket, announced: AbstractAsyncContextManager[None]) -> None:
    """Serve on a listening socket in this process alone; `announced` is entered once the index is open."""
    async with opened(start) as service:
        app = create_app(service, start.options)
        async with announced, looking_after(service, start):
            await serve(app, [listener], start.options)


@asynccontextmanager
async def opened(start: Start) -> AsyncIterator[Service]:
    """The service of a process, which looks after the index unless another worker does."""
    duties = Duties.ALL if start.is_first else Duties.OWN
    on_mismatch = OnMismatch.REINDEX if start.is_reindexing else OnMismatch.REJECT
    async with open_service(start.settings, on_mismatch, duties) as service:
        if start.is_first and start.is_reindexing and service.collections is not None:
            service.collections.maintenance.begin_reindexing()
        with recorded_by(service.record_access):
            yield service


@asynccontextmanager
async def looking_after(service: Service, start: Start) -> AsyncIterator[None]:
    if not start.is_first:
        yield
        return

    async def hooks() -> HookAnswers:
        assert service.hooks is not None  # noqa: S101  (every service that settings open has them)
        return service.hooks

    async with (
        _following(start.roots, service, start.settings),
        _following_sessions(service, start.settings),
        _keeping_projects(service),
        answering_hooks(start.settings.data_dir, "serve", hooks),
    ):
        yield


@asynccontextmanager
async def _following(roots: Sequence[Path], service: Service, settings: Settings) -> AsyncIterator[None]:
    """Index files and follow their changes for the time of the block; what has changed until its end is indexed."""
    if not roots:
        yield
        return

    @asynccontextmanager
    async def reached() -> AsyncIterator[FolderSync]:
        connection = InProcess(service, settings)
        with open_sync(connection, settings, Labels(), Gone.REMOVE, _log_change) as sync:
            yield sync

    def ready() -> None:
        logger.info("watching %s", ", ".join(map(str, roots)))

    async with _followed(Follower(roots, reached, ready, _trouble)):
        yield


@asynccontextmanager
async def _following_sessions(service: Service, settings: Settings) -> AsyncIterator[None]:
    """Take in sessions of agents as they go on, for the time of the block, where the settings say so."""
    if not settings.history.follow:
        yield
        return

    @asynccontextmanager
    async def reached() -> AsyncIterator[HistorySync]:
        connection = InProcess(service, settings)
        with (
            open_file_manifest(settings.data_dir, HISTORIES_NAME) as manifest,
            open_histories(connection, manifest, choice_of(settings), _log_session) as histories,
        ):
            yield HistorySync(histories)

    def ready() -> None:
        logger.info("following sessions of agents")

    async with _followed(Follower(watched(), reached, ready, _trouble, debounce_s=FOLLOWED_AFTER_S)):
        yield


def _trouble(error: RagContextError, wait_s: float) -> None:
    logger.warning("changed files wait %.0f s: %s", wait_s, error)


@asynccontextmanager
async def _followed(follower: Follower) -> AsyncIterator[None]:
    """Follow for the time of the block, and until the changes before its end are indexed."""
    stop = asyncio.Event()
    following = asyncio.create_task(follower.run(stop), name="watch")
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


def _log_session(receipt: HistoryReceipt) -> None:
    if receipt.status in ("new", "grown", "rejected"):
        logger.info("session %s of %s: %s", receipt.session_id, receipt.client, receipt.reason or receipt.status)


def _log_end(following: "asyncio.Task[None]") -> None:
    if not following.cancelled() and (error := following.exception()) is not None:
        logger.error("%s ended: %s", following.get_name(), error, exc_info=error)


_READY_S = 60.0
TRY_EVERY_S = 1.0


def main() -> ExitCode:
    """Serve what the supervisor passes on, until it requests the stop, or ends."""
    with socket.socket(fileno=int(sys.argv[1])) as sock:
        sock.set_inheritable(False)  # a process that this one starts would keep it open beyond our end
        link = WorkerEnd(sock)
        with suppress(EOFError, ConnectionError):
            start: Start = link.receive_start()
            tune_interpreter()
            log, worker = start.settings.log, start.place.number if start.place is not None else None
            configure_logging(log.level, log.format, worker=worker)
            try:
                run(_serve(start, link))
            except RagContextError as error:
                link.report(WorkerReport(WorkerEvent.FAILED, exit_code(error), str(error)))
                return exit_code(error)
    return ExitCode.OK


async def _serve(start: Start, link: WorkerEnd) -> None:
    assert start.place is not None  # noqa: S101  (the supervisor sets it)
    peers, options = Peers(start.place), start.options
    async with opened(start) as service:
        app = create_app(shared(service, peers), options, front=peers.front)
        inner = inner_app(service, app.router, options)
        server = WorkerServer(app, inner, peers.file(peers.number), link, options, lambda: _ready(service))
        async with looking_after(service, start):
            await server.serve(sockets=[])


async def _ready(service: Service) -> None:
    """Wait until a search would be answered at level 1."""
    while not await service.wait_ready(_READY_S):  # noqa: ASYNC110  (the model was tried, and failed to load)
        await asyncio.sleep(TRY_EVERY_S)


if __name__ == "__main__":
    sys.exit(main())
