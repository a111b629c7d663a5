"""The four servers behind a memory, as processes of their own, each behind a proxy that goes wrong on command."""

import http.client
import socket
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.end_to_end.process import COMMAND, environment
from tests.servers.faults import Pass, ThreadedFaultProxy, fault_proxy_in_thread
from tests.servers.process import HOST, ServerProcess, free_port
from tests.servers.redis import redis_server

MODEL = "all-MiniLM-L6-v2"
DATABASE = "faults"
COLLECTION = "faults"


class Role(StrEnum):
    """What a server is to the memory; named as in its reports of health."""

    EMBEDDER = "embedder"
    VECTORS = "vectors"
    DOCUMENTS = "documents"
    CACHE = "cache"


@dataclass(frozen=True)
class Backend:
    """One server, and the proxy that the memory reaches it through."""

    role: Role
    process: ServerProcess
    proxy: ThreadedFaultProxy


@dataclass(frozen=True)
class Backends:
    """All four."""

    of: Mapping[Role, Backend]

    def __getitem__(self, role: Role) -> Backend:
        return self.of[role]

    @property
    def settings(self) -> dict[str, str]:
        """The environment of a memory that uses them."""
        return {
            "LM_STUDIO_URL": self[Role.EMBEDDER].proxy.url(),
            "RAG_CONTEXT_EMBEDDER__MODEL": MODEL,
            "QDRANT_URL": self[Role.VECTORS].proxy.url(),
            "RAG_CONTEXT_STORES__QDRANT_COLLECTION": COLLECTION,
            "MONGODB_URI": f"{self[Role.DOCUMENTS].proxy.url('mongodb')}/{DATABASE}?directConnection=true",
            "REDIS_URL": f"{self[Role.CACHE].proxy.url('redis')}/0",
        }

    def lift(self) -> None:
        """End every fault of the proxies."""
        for backend in self.of.values():
            backend.proxy.fault = Pass()


@contextmanager
def backends(folder: Path) -> Iterator[Backends]:
    """The four servers, running; killed at the end. What they keep on disk is below `folder`."""
    with ExitStack() as stack:
        stores = {
            Role.EMBEDDER: _embedder(folder),
            Role.VECTORS: vectors_process(folder),
            Role.DOCUMENTS: _documents(folder),
        }
        for server in stores.values():
            stack.callback(server.kill)
        with ThreadPoolExecutor() as starting:
            list(starting.map(ServerProcess.start, stores.values()))
        servers = {**stores, Role.CACHE: stack.enter_context(redis_server())}
        yield Backends(
            {
                role: Backend(role, server, stack.enter_context(fault_proxy_in_thread(server.host, server.port)))
                for role, server in servers.items()
            }
        )


def _embedder(folder: Path) -> ServerProcess:
    port = free_port()
    command = [COMMAND, "embed-server", "--port", str(port), "--workers", "2"]
    return ServerProcess(command, port, folder / "embedder.log", lambda: _is_ok(port, "/v1/models"), environment())


def vectors_process(folder: Path) -> ServerProcess:
    port = free_port()
    command = [sys.executable, "-m", "tests.faults.qdrant", "--port", str(port), "--data", str(folder / "qdrant")]
    return ServerProcess(command, port, folder / "qdrant.log", lambda: _is_ok(port, "/readyz"))


def _documents(folder: Path) -> ServerProcess:
    port = free_port()
    command = [sys.executable, "-m", "tests.servers.mongodb", "--port", str(port), "--data", str(folder / "mongodb")]
    return ServerProcess(command, port, folder / "mongodb.log", lambda: _listens(port))


def _is_ok(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    finally:
        connection.close()


def _listens(port: int) -> bool:
    with socket.create_connection((HOST, port), timeout=5):
        return True
