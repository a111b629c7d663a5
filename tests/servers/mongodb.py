"""A MongoDB for tests: SecantusDB (its wire protocol over WiredTiger) behind a proxy that adds text indexes.

    python -m tests.servers.mongodb --data DIR [--port P] [--replica-set NAME] [--fast]

prints its port once it listens, and serves until it is killed.

What it acknowledged survives `kill -9`, except with --fast. With RAG_TEST_MONGODB_URI set, tests use that server
instead, in databases of their own that are dropped afterwards.
"""

import argparse
import asyncio
import gc
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pymongo
from secantus import SecantusDBServer  # type: ignore[import-untyped]

from tests.servers.mongodb_text import text_proxy
from tests.servers.process import HOST, ServerProcess, free_port

REAL = "RAG_TEST_MONGODB_URI"

FAST = "--fast"
"""For servers whose data may be lost if the machine or the server is killed."""


@contextmanager
def mongodb_process(data: Path, *options: str) -> Iterator[ServerProcess]:
    """A server of one's own, to be killed, frozen and started again with the same data."""
    port = free_port()
    command = [sys.executable, "-m", "tests.servers.mongodb", "--data", str(data), "--port", str(port), *options]
    server = ServerProcess(command, port, data.with_suffix(".log"), lambda: _listens(port))
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def mongodb_server(data: Path) -> Iterator[str]:
    """The address of a server to share: the one of the environment, else one started for this.

    It is waited for with a long timeout: what is tested is not how busy the machine is.
    """
    if given := os.environ.get(REAL):
        yield given
        return
    with mongodb_process(data, FAST) as server:
        yield f"{uri_of(server.port)}&serverSelectionTimeoutMS=10000&minPoolSize=1"


def uri_of(port: int, database: str = "") -> str:
    """The address of a server on this machine."""
    return f"mongodb://{HOST}:{port}/{database}?directConnection=true"


@contextmanager
def mongodb_database(uri: str) -> Iterator[str]:
    """The address of a database that no one else uses; it is dropped at the end."""
    name = f"test_{uuid4().hex}"
    parts = urlsplit(uri)
    try:
        yield urlunsplit((parts.scheme, parts.netloc, f"/{name}", parts.query, ""))
    finally:
        with pymongo.MongoClient[dict[str, object]](uri) as client:
            client.drop_database(name)


def empty(uri: str) -> None:
    """Delete all documents of a database; its indexes, which are slow to make, stay."""
    with pymongo.MongoClient[dict[str, object]](uri) as client:
        database = client.get_default_database()
        for name in database.list_collection_names():
            if not name.startswith("_text"):
                database[name].delete_many({})


async def serve(data: Path, port: int, replica_set: str | None, *, syncs: bool) -> None:
    """Serve until the process ends."""
    engine = SecantusDBServer(port=0, storage_path=str(data), replica_set_name=replica_set, sync_on_commit=syncs)
    engine.start()
    try:
        async with text_proxy(port, engine.port) as listening:
            sys.stdout.write(f"{listening}\n")
            sys.stdout.flush()
            gc.freeze()  # a server of another language has no such pauses
            await asyncio.Event().wait()
    finally:
        engine.stop()


def _listens(port: int) -> bool:
    with socket.create_connection((HOST, port), timeout=5):
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description="A MongoDB for tests.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--replica-set", default=None)
    parser.add_argument(FAST, action="store_true")
    given = parser.parse_args()
    asyncio.run(serve(given.data, given.port, given.replica_set, syncs=not given.fast))


if __name__ == "__main__":
    main()
