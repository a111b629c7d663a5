"""One worker of `serve`, started by its supervisor: `python -m rag_context.cli.worker DESCRIPTOR`."""

import asyncio
import socket
import sys
from contextlib import suppress

from rag_context.cli.command_line import ExitCode, exit_code, tune_interpreter
from rag_context.cli.serve import Start, start_logging
from rag_context.cli.serving import looking_after, opened
from rag_context.errors import RagContextError
from rag_context.server.app import create_app
from rag_context.server.running import run
from rag_context.server.workers.channel import Event, Report, WorkerEnd
from rag_context.server.workers.peers import Peers, inner_app, shared
from rag_context.server.workers.worker import WorkerServer
from rag_context.service.service import Service

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
            start_logging(start.settings.log, start.place.number if start.place is not None else None)
            try:
                run(_serve(start, link))
            except RagContextError as error:
                link.report(Report(Event.FAILED, exit_code(error), str(error)))
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
