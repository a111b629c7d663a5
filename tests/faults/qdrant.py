"""The stand-in for Qdrant with its points on disk: what it acknowledged survives `kill -9`, and its disk can be full.

python -m tests.faults.qdrant --port P --data DIR    serve on 127.0.0.1 until killed
"""

import argparse
import asyncio
import gc
import resource
import socket
from pathlib import Path

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.servers.qdrant import StubServer, create_app
from tests.servers.qdrant_engine import Engine

_FULL = "Service internal error: No space left on device: WAL buffer size exceeds available disk space"


class DiskWatcher:
    """Rejects writes while files may not grow, as Qdrant does: it compares the free space with its log's size first.

    The engine would not notice: it writes through memory maps of files that are large enough already.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and resource.getrlimit(resource.RLIMIT_FSIZE)[0] == 0 and _writes(Request(scope)):
            answer: Response = JSONResponse({"status": {"error": _FULL}, "time": 0.0001}, 500)
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _writes(request: Request) -> bool:
    return request.method == "PUT" or request.url.path.endswith(("/points/delete", "/points/payload"))


async def serve(data: Path, port: int) -> None:
    """Serve until the process ends."""
    engine = Engine(data)
    made = dict(engine.load())
    app = create_app(StubServer(engine=engine, made=made, indexes={name: {} for name in made}))
    listener = socket.create_server(("127.0.0.1", port))
    gc.freeze()  # a server of another language has no such pauses
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each answer waits for an acknowledgement
    config = uvicorn.Config(DiskWatcher(app), log_level="warning", lifespan="off")
    await uvicorn.Server(config).serve(sockets=[listener])


def main() -> None:
    parser = argparse.ArgumentParser(description="A stand-in for a Qdrant server, on disk.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    asked = parser.parse_args()
    asked.data.mkdir(parents=True, exist_ok=True)
    asyncio.run(serve(asked.data, asked.port))


if __name__ == "__main__":
    main()
