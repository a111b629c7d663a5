"""A memory over one PostgreSQL server, and the faults of that server: real ones, but for those of the wire."""

import asyncio
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import asyncpg

from tests.end_to_end.process import served
from tests.faults.backends import Role
from tests.faults.fault_cases import KEYWORDS_ONLY, NOTHING, UNAFFECTED, Expected
from tests.faults.harness import MemoryHarness
from tests.servers.faults import (
    Drip,
    Fault,
    Garbage,
    HalfBody,
    HangAfter,
    Pass,
    Refuse,
    Reset,
    ThreadedFaultProxy,
    fault_proxy_in_thread,
)
from tests.servers.postgres import FAST, execute, postgres_process, query, url_of
from tests.servers.process import ServerProcess

DISK_MIB = 256
OPTIONS = (*FAST, "-c", "max_connections=24", "-c", "min_wal_size=32MB", "-c", "max_wal_size=64MB")

OURS = "application_name = 'rag-context'"
"""The memory's connections in `pg_stat_activity`."""

LOOK_S = 0.01


class PostgresFault(StrEnum):
    """What goes wrong, in the words of the table."""

    REFUSED = "refuses connections"
    HANGS = "accepts requests and never responds"
    RESET = "resets every connection"
    SLOW = "responds one byte at a time"
    GARBAGE = "returns garbage"
    HALF = "closes the connection in the middle of a response"
    KILLED = "is killed and restarted later"
    RESTARTED = "has just been restarted"
    FROZEN = "is stopped (SIGSTOP)"
    CROWDED = "has no connection left but those that are open"
    EXHAUSTED = "has no connection left"
    FULL = "has no space left"
    WAITS = "waits for a standby that is gone, with every commit"
    READ_ONLY = "accepts no writes, as a standby"
    LOCKED = "another session has locked the documents"
    VECTORS_LOCKED = "another session has locked the vectors"
    WRITES_LOCKED = "another session locks writes out"
    CANCELLED = "cancels a statement of each search and write"
    TERMINATED = "has just ended all connections"


ON_THE_WIRE: Mapping[PostgresFault, Fault] = {
    PostgresFault.REFUSED: Refuse(),
    PostgresFault.HANGS: HangAfter(),
    PostgresFault.RESET: Reset(),
    PostgresFault.SLOW: Drip(),
    PostgresFault.GARBAGE: Garbage(),
    PostgresFault.HALF: HalfBody(),
}

_NOTHING = Expected(3, NOTHING, None, "503", 503, "unavailable", healthy=False)
_NO_WRITES = replace(UNAFFECTED, index="503", health="degraded", healthy=False)
_BOTH: Mapping[str, str] = {Role.DOCUMENTS: "unavailable", Role.VECTORS: "unavailable"}
_DOCUMENTS: Mapping[str, str] = {Role.DOCUMENTS: "unavailable"}
_VECTORS: Mapping[str, str] = {Role.VECTORS: "unavailable"}
_WRITES: Mapping[str, str] = {Role.DOCUMENTS: "degraded"}
_LOCKED = "Another session has locked the index"


@dataclass(frozen=True, slots=True)
class PostgresCase:
    """One fault, and what it may do to the memory: nothing but this."""

    kind: PostgresFault
    expected: Expected
    statuses: Mapping[str, str]
    says: str = ""

    @property
    def padding(self) -> str:
        """What makes a document so long that it fits nowhere but in new pages."""
        return " Chapter and verse, line by line." * 500 if self.kind is PostgresFault.FULL else ""

    @property
    def name(self) -> str:
        return f"postgres-{self.kind.name.lower()}"


POSTGRES_CASES = (
    PostgresCase(PostgresFault.REFUSED, _NOTHING, _BOTH, "cannot be reached"),
    PostgresCase(PostgresFault.HANGS, _NOTHING, _BOTH),
    PostgresCase(PostgresFault.RESET, _NOTHING, _BOTH),
    PostgresCase(PostgresFault.SLOW, _NOTHING, _BOTH),
    PostgresCase(PostgresFault.GARBAGE, _NOTHING, _BOTH),
    PostgresCase(PostgresFault.HALF, _NOTHING, _BOTH),
    PostgresCase(PostgresFault.KILLED, _NOTHING, _BOTH),
    PostgresCase(PostgresFault.RESTARTED, UNAFFECTED, {}),
    PostgresCase(PostgresFault.FROZEN, _NOTHING, _BOTH, "did not answer in time"),
    PostgresCase(PostgresFault.CROWDED, UNAFFECTED, {}),
    PostgresCase(PostgresFault.EXHAUSTED, _NOTHING, _BOTH, "raise its max_connections"),
    PostgresCase(PostgresFault.FULL, _NO_WRITES, _WRITES, "No space left for PostgreSQL"),
    PostgresCase(PostgresFault.WAITS, _NO_WRITES, _WRITES, "Writes fail"),
    PostgresCase(PostgresFault.READ_ONLY, _NO_WRITES, _WRITES, "is read-only, as a standby is"),
    PostgresCase(PostgresFault.LOCKED, replace(_NOTHING, stats=200), _DOCUMENTS, _LOCKED),
    PostgresCase(
        PostgresFault.VECTORS_LOCKED, replace(_NOTHING, level=2, warning=KEYWORDS_ONLY, stats=200), _VECTORS, _LOCKED
    ),
    PostgresCase(PostgresFault.WRITES_LOCKED, _NO_WRITES, _WRITES, _LOCKED),
    PostgresCase(PostgresFault.CANCELLED, UNAFFECTED, {}),
    PostgresCase(PostgresFault.TERMINATED, UNAFFECTED, {}),
)


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A server, the proxy that the memory reaches it through, and the disk of its own that it has, if any."""

    process: ServerProcess
    proxy: ThreadedFaultProxy
    disk: Path | None

    @property
    def url(self) -> str:
        """Where tests reach it, faults of the wire or not."""
        return url_of(self.process.port)


@dataclass
class PostgresHarness(MemoryHarness):
    """A memory over a PostgreSQL server."""

    server: PostgresServer


@contextmanager
def postgres_harness(folder: Path, **settings: str) -> Iterator[PostgresHarness]:
    """A healthy memory over a server of its own, both stopped with the block."""
    data_dir = folder / "postgres"
    data_dir.mkdir()
    with (
        small_disk(DISK_MIB) as disk,
        postgres_process(*OPTIONS, inside=disk) as process,
        fault_proxy_in_thread(process.host, process.port) as proxy,
    ):
        chosen = {"DATABASE_URL": url_of(proxy.port), **settings}
        with served(data_dir, **chosen) as memory:
            made = PostgresHarness(memory, chosen, data_dir, PostgresServer(process, proxy, disk))
            made.fill()
            yield made


@contextmanager
def fault(server: PostgresServer, kind: PostgresFault) -> Iterator[None]:
    """The server with this fault, until the end of the block."""
    with ExitStack() as stack:
        if (on_the_wire := ON_THE_WIRE.get(kind)) is not None:
            stack.callback(setattr, server.proxy, "fault", Pass())
            server.proxy.fault = on_the_wire
        else:
            _FAULTS[kind](server, stack)
        yield


def _killed(server: PostgresServer, stack: ExitStack) -> None:
    server.process.kill()
    stack.callback(server.process.start)


def _restarted(server: PostgresServer, _stack: ExitStack) -> None:
    server.process.restart()


def _frozen(server: PostgresServer, stack: ExitStack) -> None:
    server.process.freeze()
    stack.callback(server.process.thaw)


def _crowded(server: PostgresServer, stack: ExitStack) -> None:
    others = stack.enter_context(_Sessions(server.url))
    others.fill()


def _exhausted(server: PostgresServer, stack: ExitStack) -> None:
    others = stack.enter_context(_Sessions(server.url))
    others.fill()
    while others.end_ours():
        others.fill()


def _full(server: PostgresServer, stack: ExitStack) -> None:
    if server.disk is None:
        raise NotImplementedError("a disk can be filled only by who may mount one")
    filler = server.disk / "filler"
    stack.callback(filler.unlink)
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


def _waits(server: PostgresServer, stack: ExitStack) -> None:
    _set(server, "synchronous_standby_names", "nobody")
    stack.callback(_set, server, "synchronous_standby_names", "")


def _read_only(server: PostgresServer, stack: ExitStack) -> None:
    _set(server, "default_transaction_read_only", "on")
    stack.callback(_set, server, "default_transaction_read_only", "off")


def _set(server: PostgresServer, setting: str, value: str) -> None:
    execute(
        server.url,
        "SET default_transaction_read_only = off",
        f"ALTER SYSTEM SET {setting} = '{value}'",
        "SELECT pg_reload_conf()",
    )


def _locked(server: PostgresServer, stack: ExitStack) -> None:
    stack.enter_context(_Sessions(server.url)).lock("documents", "ACCESS EXCLUSIVE")


def _vectors_locked(server: PostgresServer, stack: ExitStack) -> None:
    stack.enter_context(_Sessions(server.url)).lock("vectors_0", "ACCESS EXCLUSIVE")


def _writes_locked(server: PostgresServer, stack: ExitStack) -> None:
    stack.enter_context(_Sessions(server.url)).lock("documents", "SHARE")


def _terminated(server: PostgresServer, _stack: ExitStack) -> None:
    execute(server.url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")


def _cancelled(server: PostgresServer, stack: ExitStack) -> None:
    """Again and again: a lock, which a statement waits for, is cancelled for, and finds gone when it is repeated."""
    stop = threading.Event()
    sessions = stack.enter_context(_Sessions(server.url))
    thread = threading.Thread(target=_cancel_until, args=(server, sessions, stop))
    thread.start()
    stack.callback(thread.join)
    stack.callback(stop.set)


def _cancel_until(server: PostgresServer, sessions: "_Sessions", stop: threading.Event) -> None:
    cancel = f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE {OURS} AND wait_event_type = 'Lock'"
    while not stop.is_set():
        sessions.lock("documents", "ACCESS EXCLUSIVE")
        while not stop.is_set() and not query(server.url, cancel):
            stop.wait(LOOK_S)
        sessions.unlock()
        stop.wait(1.0)


_FAULTS: Mapping[PostgresFault, Callable[[PostgresServer, ExitStack], None]] = {
    PostgresFault.KILLED: _killed,
    PostgresFault.RESTARTED: _restarted,
    PostgresFault.FROZEN: _frozen,
    PostgresFault.CROWDED: _crowded,
    PostgresFault.EXHAUSTED: _exhausted,
    PostgresFault.FULL: _full,
    PostgresFault.WAITS: _waits,
    PostgresFault.READ_ONLY: _read_only,
    PostgresFault.LOCKED: _locked,
    PostgresFault.VECTORS_LOCKED: _vectors_locked,
    PostgresFault.WRITES_LOCKED: _writes_locked,
    PostgresFault.CANCELLED: _cancelled,
    PostgresFault.TERMINATED: _terminated,
}


class _Sessions:
    """Sessions of another program that stays connected; ended with the block."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runner = asyncio.Runner()
        self._sessions: list[asyncpg.Connection] = []

    def __enter__(self) -> "_Sessions":
        self._open()
        return self

    def __exit__(self, *_exc: object) -> None:
        for session in self._sessions:
            session.terminate()
        self._runner.close()

    def fill(self) -> None:
        """Take every connection that the server has left."""
        with suppress(asyncpg.TooManyConnectionsError):
            while True:
                self._open()

    def end_ours(self) -> int:
        """End the memory's connections; returns how many there were."""
        statement = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}"
        return len(self._runner.run(self._sessions[0].fetch(statement)))

    def lock(self, table: str, mode: str) -> None:
        """Lock a table until `unlock`."""
        self._runner.run(self._sessions[0].execute(f"BEGIN; LOCK TABLE rag_context.{table} IN {mode} MODE"))

    def unlock(self) -> None:
        self._runner.run(self._sessions[0].execute("ROLLBACK"))

    def _open(self) -> None:
        self._sessions.append(self._runner.run(asyncpg.connect(self._url)))


@contextmanager
def small_disk(mib: int) -> Iterator[Path | None]:
    """A file system of so many megabytes; None where we may not mount one."""
    with tempfile.TemporaryDirectory(prefix="disk-") as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0755", "tmpfs", folder]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
            yield None
            return
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)
