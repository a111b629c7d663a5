"""The supervisor of a server's workers: starts them, passes connections to them, restarts and stops them.

The listening socket is this process's alone. A socket that all workers listen on gives idle workers connections by
chance: of eight clients that connected at once, all eight went to one of two workers in three of ten trials. Here each
connection goes to the worker with the fewest, and none waits for a worker that is being restarted.
"""

import asyncio
import logging
import math
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_context.errors import RagContextError
from rag_context.resilience.deadline import set_within
from rag_context.server.worker_process import SupervisorEnd, WorkerEvent, WorkerReport, channel

logger = logging.getLogger(__name__)

FIRST_DELAY_S = 0.5
LAST_DELAY_S = 30.0
"""Delays before a worker that ended is started again: doubled each time, up to the last."""

STABLE_S = 60.0
"""After so long a worker's next end is taken for its first."""

STOP_S = 30.0
"""Longest wait for workers that stop; those that are left are killed."""

_DESCRIPTORS_S = 0.1
"""Pause where the process has no descriptor left for a connection."""


class ServerWorkerFailedError(RagContextError):
    """A worker cannot start. `status` is what the program exits with."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """Which of the workers of a server one is, from 1 on, and what they share besides the data directory."""

    number: int
    count: int
    folder: Path


@dataclass(slots=True, eq=False)
class _Worker:
    number: int
    start: Any
    link: SupervisorEnd | None = None
    process: Process | None = None
    connections: int = 0
    turn: int = 0
    """Grows with each connection: of workers with as many, the one whose last came first gets the next."""
    is_serving: bool = False
    is_ready: bool = False
    served: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it has served for the first time."""


class Supervisor:
    """Runs one worker per entry of `starts`, from `supervising` to its end.

    `command` starts a worker; the descriptor of its channel is appended.
    """

    def __init__(
        self,
        listener: socket.socket,
        command: Sequence[str],
        starts: Sequence[Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listener = listener
        self._command = (*command,)
        self._workers = [_Worker(number, start) for number, start in enumerate(starts, 1)]
        self._clock = clock
        self._stopping = asyncio.Event()
        self._failed = asyncio.Event()
        self._failure: ServerWorkerFailedError | None = None
        self._changed = asyncio.Event()
        """Set where a worker began to take connections."""
        self._turn = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def stopped(self) -> None:
        """Wait for a signal to stop. Raises: WorkerFailedError."""
        await self._until(self._stopping)

    async def begin(self) -> None:
        """Start the workers, the first one alone: it brings the index up to date. Returns when all serve, or at a stop.

        Raises: WorkerFailedError (one of them cannot start).
        """
        self._tasks.append(asyncio.create_task(self._accept(), name="accept"))
        for some in (self._workers[:1], self._workers[1:]):
            for worker in some:
                self._tasks.append(asyncio.create_task(self._keep(worker), name=f"worker {worker.number}"))
            for worker in some:
                await self._until(worker.served)

    def stop(self) -> None:
        """Begin to stop, as a signal does; the second time without waiting for requests that run."""
        if self._stopping.is_set():
            self._signal_all(signal.SIGINT)
        self._stopping.set()
        for worker in self._workers:
            if worker.link is not None:
                worker.link.ask_to_stop()

    async def end(self) -> None:
        if not self._stopping.is_set():
            self.stop()
        self._listener.close()
        accepting, *keeping = self._tasks
        accepting.cancel()  # first: a connection that is accepted now would find no worker
        if keeping:
            _, late = await asyncio.wait(keeping, timeout=STOP_S)
            if late:
                logger.error("%d workers did not stop within %.0f s and are killed", len(late), STOP_S)
                self._signal_all(signal.SIGKILL)
                await asyncio.wait(late)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _until(self, event: asyncio.Event) -> None:
        """Wait for an event, or a stop. Raises: WorkerFailedError."""
        waiting = [asyncio.create_task(each.wait()) for each in (event, self._stopping, self._failed)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        if self._failure is not None:
            raise self._failure

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                logger.warning("a connection cannot be accepted: %s", error)
                await asyncio.sleep(_DESCRIPTORS_S)
                continue
            with connection:
                await self._pass_on(connection)

    async def _pass_on(self, connection: socket.socket) -> None:
        """Give a connection to a worker; it and those after it wait while no worker serves."""
        while True:
            # Cleared first: a worker that begins to serve during this round ends the wait behind it.
            self._changed.clear()
            serving = [worker for worker in self._workers if worker.is_serving]
            # Ready ones first, then those with the fewest connections; turns spread clients that come at once.
            for worker in sorted(serving, key=lambda each: (not each.is_ready, each.connections, each.turn)):
                if worker.link is not None and worker.link.pass_on(connection):
                    worker.connections += 1
                    worker.turn = self._turn = self._turn + 1
                    return
            await set_within(self._changed, FIRST_DELAY_S)  # one that did not read may read again

    async def _keep(self, worker: _Worker) -> None:
        delay_s = FIRST_DELAY_S
        while not self._stopping.is_set():
            began = self._clock()
            failure = await self._run(worker)
            status = worker.process.returncode if worker.process is not None else None
            if self._stopping.is_set():
                return
            message = failure.message if failure is not None else f"worker {worker.number} ended with status {status}"
            # One that has never served fails for a reason that starting it again does not remove.
            if not worker.served.is_set():
                self._failure = self._failure or ServerWorkerFailedError(
                    message, failure.status if failure is not None else 1
                )
                self._failed.set()
                return
            if self._clock() - began >= STABLE_S:
                delay_s = FIRST_DELAY_S
            logger.error("%s; worker %d is started again in %.1f s", message, worker.number, delay_s)
            await set_within(self._stopping, delay_s)
            delay_s = min(2 * delay_s, LAST_DELAY_S)

    async def _run(self, worker: _Worker) -> WorkerReport | None:
        failure = None
        try:
            worker.link, theirs = channel()
            # Our copy of the worker's end is closed: while it is open, the stream of reports has no end.
            with theirs:
                # A session of its own: Ctrl-C reaches this process alone, which stops the workers in order.
                process = worker.process = await asyncio.create_subprocess_exec(
                    *self._command, str(theirs.fileno()), pass_fds=[theirs.fileno()], start_new_session=True
                )
            with suppress(OSError):  # of a process that has ended already; its status says more
                worker.link.send_start(worker.start)
            if self._stopping.is_set():
                worker.link.ask_to_stop()
            async for report in worker.link.reports():
                failure = report if report.event is WorkerEvent.FAILED else failure
                self._note(worker, report.event)
            await process.wait()
        except OSError as error:  # no memory, no descriptors: there may be some later
            failure = WorkerReport(WorkerEvent.FAILED, 1, f"worker {worker.number} cannot be started: {error}")
        finally:
            worker.is_serving = worker.is_ready = False
            worker.connections = 0
            if worker.link is not None:
                worker.link.close()
                worker.link = None
        return failure

    def _note(self, worker: _Worker, event: WorkerEvent) -> None:
        match event:
            case WorkerEvent.SERVING:
                worker.is_serving = True
                worker.served.set()
                self._changed.set()
                pid = worker.process.pid if worker.process is not None else 0
                logger.info("worker %d serves, process %d", worker.number, pid)
            case WorkerEvent.READY:
                worker.is_ready = True
                logger.info("worker %d is ready", worker.number)
                self._share()
            case WorkerEvent.CLOSED:
                worker.connections -= 1

    def _share(self) -> None:
        """Have clients connect again whose connections are more than a worker's share.

        Clients keep their connections, and those that came before a worker was ready would never come to it.
        """
        ready = [worker for worker in self._workers if worker.is_ready]
        share = math.ceil(sum(worker.connections for worker in ready) / len(ready))
        for worker in ready:
            if worker.link is not None and worker.connections > share:
                worker.link.end_some(worker.connections - share)

    def _signal_all(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.process is not None and worker.process.returncode is None:
                with suppress(ProcessLookupError):
                    worker.process.send_signal(number)


@asynccontextmanager
async def supervising(listener: socket.socket, module: str, starts: Sequence[Any]) -> AsyncIterator[Supervisor]:
    """Have the workers run for the time of the block; SIGTERM and SIGINT end `Supervisor.stopped`.

    The program of a worker is `module`. The listener is closed at the end.

    Raises: WorkerFailedError (a worker cannot start).
    """
    supervisor = Supervisor(listener, (sys.executable, "-m", module), starts)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    try:
        await supervisor.begin()
        yield supervisor
    finally:
        await supervisor.end()
