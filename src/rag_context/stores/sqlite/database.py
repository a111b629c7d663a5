"""The database in use: reading threads, the writing thread, and the state of the index."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rag_context.errors import BackendTimeoutError, BackendUnavailableError
from rag_context.stores.sqlite.connections import LEAST_FREE_BYTES, DatabaseFile
from rag_context.stores.sqlite.faults import COMPONENT
from rag_context.stores.sqlite.mark import IndexSize
from rag_context.stores.sqlite.watcher import Watcher
from rag_context.stores.sqlite.workers import Readers
from rag_context.stores.sqlite.writer import STATE, Writer

T = TypeVar("T")

READERS = 4

PROBE_BYTES = LEAST_FREE_BYTES // 2
"""Written to test whether a file that rejected a write accepts one again."""

_PROBE = "INSERT INTO meta VALUES ('probe', {value}) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


class Database:
    """One SQLite file, opened by its threads when they first need it; `close` ends them all.

    Args:
        file: the file; created if it is missing. If it is damaged, locked or deleted, every call raises until it is
            usable again.
        lock_timeout_s: how long a write waits for other processes that write.
    """

    def __init__(self, file: DatabaseFile, *, lock_timeout_s: float) -> None:
        self.file = file
        self._version = 0
        self._base = 0
        self._generation = 0
        self._name: str | None = None
        self._stored = 0
        self._version_lock = threading.Lock()
        self._followers: list[Callable[[sqlite3.Connection], None]] = []
        self._readers = Readers(self.file, READERS)
        self._writer = Writer(self.file, self._publish, lock_timeout_s)
        self._watcher: Watcher | None = None

    @property
    def version(self) -> int:
        """Grows with every change of the index that this process knows of."""
        return self._version

    @property
    def stored(self) -> int:
        """The newest count of the file itself that this process knows of."""
        return self._stored

    @property
    def stamp(self) -> str | None:
        """Identifies this state of this file in every process; None before the file was read."""
        with self._version_lock:
            return None if self._name is None else f"{self._name}:{self._stored}"

    def follow(self, *followers: Callable[[sqlite3.Connection], None]) -> None:
        """Start looking at the file; each follower is called with a connection in every round."""
        self._followers.extend(followers)
        self._watcher = Watcher(self.file, self._look)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a reading thread, in one snapshot.

        Raises:
            BackendError: the file could not be read.
        """
        return await self._readers.run(work)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in the writing thread; what it changed is on disk when this returns. It may run twice.

        Raises:
            BackendError: nothing was changed.
        """
        return await self._writer.submit(work)

    def post(self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """As `write`, without back-pressure and without waiting."""
        return self._writer.post(work)

    async def try_write(self) -> None:
        """Write something that changes nothing of the index.

        After a rejected write it is as large as a large document, because a small one may fit on a full disk.

        Raises:
            BackendError: a write would fail now; the message has the reason.
        """
        shortage = await asyncio.to_thread(self.file.shortage)
        try:
            if self._writer.refused is not None and shortage is None:
                await self.write(partial(_write_much, PROBE_BYTES))
                self._writer.clear_failure()
            await self.write(_write_little)
        except BackendTimeoutError:  # another process writes
            raise
        except BackendUnavailableError as error:
            obstacle = await asyncio.to_thread(self.file.obstacle)
            raise BackendUnavailableError(COMPONENT, obstacle or str(error)) from error
        if shortage is not None:
            raise BackendUnavailableError(COMPONENT, shortage)

    async def round(self) -> None:
        """Wait until the file was read.

        Raises:
            BackendError: it cannot be used.
        """
        if self._watcher is not None:
            await self._watcher.round()

    async def close(self) -> None:
        """Commit the queued writes and close every connection."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        self._readers.close()
        self._writer.close()

    def _look(self, connection: sqlite3.Connection) -> None:
        version, *size = connection.execute(STATE).fetchone()
        (name,) = connection.execute("SELECT max(value) FROM meta WHERE name = 'index'").fetchone()
        self._publish(version, IndexSize(*size))
        with self._version_lock:
            self._name = name
        for follower in self._followers:
            follower(connection)

    def _publish(self, stored: int, size: IndexSize) -> None:
        """Keep the file's version, which starts again when the file is replaced."""
        if self.file.mark is not None:
            self.file.mark.note(size)
        with self._version_lock:
            if self._generation != self.file.generation:
                self._generation = self.file.generation
                self._base = self._version + 1
                self._name = None
                self._stored = 0
            self._stored = max(self._stored, stored)
            self._version = max(self._version, self._base + stored)


def _write_little(connection: sqlite3.Connection) -> None:
    connection.execute(_PROBE.format(value="hex(randomblob(8))"))


def _write_much(size: int, connection: sqlite3.Connection) -> None:
    connection.execute(_PROBE.format(value="randomblob(?)"), (size,))
