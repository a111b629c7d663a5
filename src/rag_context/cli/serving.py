"""What a process of `serve` does: opens the service, and follows files and projects while it answers.

The process of `serve` itself calls `serve_here`. With several workers its supervisor starts each of them as
`python -m rag_context.cli.serving DESCRIPTOR`, which runs `main`.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

from rag_context.agents.answering import HookAnswers
from rag_context.agents.histories import FOLLOWED_AFTER_S, HistorySync, choice_of, open_histories
from rag_context.api.index import FileReceipt, HistoryReceipt
from rag_context.cli.command_line import ExitCode, exit_code, tune_interpreter
from rag_context.cli.index_files import open_sync
from rag_context.cli.local_connection import InProcess
from rag_context.cli.serve import Start
from rag_context.errors import RagContextError
from rag_context.files.file_reading import Labels
from rag_context.files.folder_sync import FolderSync, Gone
from rag_context.files.histories.places import watched
from rag_context.files.watching import Follower
from rag_context.logs import configure_logging
from rag_context.memory.accesses import recorded_by
from rag_context.memory.background_maintenance import Duties
from rag_context.memory.service import Service
from rag_context.server.app import create_app
from rag_context.server.hook_socket import answering_hooks
from rag_context.server.peers import Peers, answering, shared
from rag_context.server.running import run, serve
from rag_context.server.worker_process import WorkerEnd, WorkerEvent, WorkerReport, WorkerServer
from rag_context.wiring import local_files, model_adapters, opening

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
    on_mismatch = model_adapters.OnMismatch.REINDEX if start.is_reindexing else model_adapters.OnMismatch.REJECT
    async with opening.open_service(start.settings, on_mismatch, duties) as service:
        if start.is_first and start.is_reindexing and service.collections is not None:
            service.collections.maintenance.begin_reindexing()
        with recorded_by(service.record_access), service.counting_log_records():
            yield service


@asynccontextmanager
async def looking_after(service: Service, start: Start) -> AsyncIterator[None]:
    """Follow files, sessions and projects, and answer hooks, for the time of the block, unless another worker does."""
    if not start.is_first:
        yield
        return

    async def hooks() -> HookAnswers:
        assert service.hooks is not None  # noqa: S101  (every service that settings open has them)
        return service.hooks

    async with AsyncExitStack() as stack:
        for follower in _followers(service, start):
            stop = asyncio.Event()
            # What has changed until the end of the block is indexed too.
            await stack.enter_async_context(_running("watch", follower.run(stop), stop))
        if service.projects is not None:
            await stack.enter_async_context(_running("projects", service.projects.housekeeping.run()))
        await stack.enter_async_context(answering_hooks(start.settings.data_dir, "serve", hooks))
        yield


def _followers(service: Service, start: Start) -> Iterator[Follower]:
    """What indexes files, and takes in sessions of agents, as they change."""
    settings = start.settings

    @asynccontextmanager
    async def files() -> AsyncIterator[FolderSync]:
        with open_sync(InProcess(service, settings), settings, Labels(), Gone.REMOVE, _log_change) as sync:
            yield sync

    @asynccontextmanager
    async def sessions() -> AsyncIterator[HistorySync]:
        with (
            local_files.open_history_manifest(settings.data_dir) as manifest,
            open_histories(InProcess(service, settings), manifest, choice_of(settings), _log_session) as histories,
        ):
            yield HistorySync(histories)

    def trouble(error: RagContextError, wait_s: float) -> None:
        logger.warning("changed files wait %.0f s: %s", wait_s, error)

    if start.roots:
        names = ", ".join(map(str, start.roots))
        yield Follower(start.roots, files, lambda: logger.info("watching %s", names), trouble)
    if settings.history.follow:
        ready = partial(logger.info, "following sessions of agents")
        yield Follower(watched(), sessions, ready, trouble, debounce_s=FOLLOWED_AFTER_S)


@asynccontextmanager
async def _running(
    name: str, work: Coroutine[Any, Any, None], stop: asyncio.Event | None = None
) -> AsyncIterator[None]:
    """Run a task for the time of the block; one that heeds `stop` has a while to end, the others are cancelled."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_end)
    try:
        yield
    finally:
        if stop is not None:
            stop.set()
            await asyncio.wait({task}, timeout=FLUSH_S)
        task.cancel()
        await asyncio.wait({task})


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
        inner = answering(service, app.router, options)
        server = WorkerServer(app, inner, peers.file(peers.number), link, options, lambda: _ready(service))
        async with looking_after(service, start):
            await server.serve(sockets=[])


async def _ready(service: Service) -> None:
    """Wait until a search would be answered at level 1."""
    while not await service.wait_ready(_READY_S):  # noqa: ASYNC110  (the model was tried, and failed to load)
        await asyncio.sleep(TRY_EVERY_S)


if __name__ == "__main__":
    sys.exit(main())
