"""The Qdrant stub with its points on disk: what it acknowledged survives `kill -9`, and its disk can be full.

python -m tests.faults.qdrant --port P --data DIR    serve on 127.0.0.1 until killed
"""

import argparse
import asyncio
import gc
import socket
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import uvicorn
from qdrant_client import AsyncQdrantClient, models
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.servers.qdrant import StubServer, create_app

_connect = sqlite3.connect


def _without_disk_sync(*arguments: Any, **options: Any) -> sqlite3.Connection:
    """A file that survives the end of the process, not of the machine.

    The client's local mode waits for the disk after every point, and no one is answered meanwhile.
    """
    connection: sqlite3.Connection = _connect(*arguments, **options)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


async def serve(data: Path, port: int) -> None:
    """Serve until the process ends."""
    kept = StubServer(memory=AsyncQdrantClient(path=str(data)))
    for each in (await kept.memory.get_collections()).collections:
        params = (await kept.memory.get_collection(each.name)).config.params
        kept.made[each.name] = models.CreateCollection(vectors=params.vectors)
        kept.indexes[each.name] = {}
    app = create_app(kept)
    app.add_exception_handler(sqlite3.OperationalError, _full)
    listener = socket.create_server(("127.0.0.1", port))
    gc.freeze()  # a server of another language has no such pauses
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each answer waits for an acknowledgement
    await uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off")).serve(sockets=[listener])


def _full(request: Request, error: Exception) -> Response:
    """As Qdrant says it."""
    reason = "Service internal error: No space left on device: WAL buffer size exceeds available disk space"
    return JSONResponse({"status": {"error": reason}, "time": 0.0001}, 500)


def main() -> None:
    parser = argparse.ArgumentParser(description="A stand-in for a Qdrant server, on disk.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    asked = parser.parse_args()
    sqlite3.connect = _without_disk_sync  # type: ignore[assignment]
    warnings.simplefilter("ignore")  # local mode has no payload indexes, and says so again and again
    asyncio.run(serve(asked.data, asked.port))


if __name__ == "__main__":
    main()
