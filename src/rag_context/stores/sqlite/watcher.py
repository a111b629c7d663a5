"""The thread that watches the file for other processes' writes, and for its recovery after failures."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress

from rag_context.errors import BackendError, BackendUnavailableError
from rag_context.stores.sqlite.connections import DatabaseFile
from rag_context.stores.sqlite.faults import COMPONENT, is_fault, translated

INTERVAL_S = 0.25
LONGEST_INTERVAL_S = 4.0
"""After failures the pauses double up to this; a caller's request is answered at once."""

logger = logging.getLogger(__name__)


class Watcher:
    """Reads the file every quarter of a second, and at once on request.

    Args:
        file: the file.
        look: called with a connection inside a read snapshot; may take long, and is interrupted by `close`.
    """

    def __init__(self, file: DatabaseFile, look: Callable[[sqlite3.Connection], None]) -> None:
        self._file = file
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._waiting: list[asyncio.Future[None]] = []
        self._reader = file.reader()
        self._connection: sqlite3.Connection | None = None
        self._closing = False
        self._failed = False
        self._thread = threading.Thread(target=self._serve, name="rag-context-watcher", daemon=True)
        self._thread.start()

    async def round(self) -> None:
        """Wait for the end of the round under way, or of a new one.

        Raises:
            BackendError: the file cannot be used; the next round tries again.
        """
        if self._closing:
            raise BackendUnavailableError(COMPONENT, f"{self._file.path.name!r} was closed.")
        future: asyncio.Future[None] = self._loop.create_future()
        with self._lock:
            self._waiting.append(future)
        self._wake.set()
        await future

    def close(self) -> None:
        """Stop, even in the middle of a round, and wait for the thread. Blocks."""
        self._closing = True
        self._wake.set()
        with self._lock:
            if self._connection is not None:
                self._connection.interrupt()
        self._thread.join()

    def _serve(self) -> None:
        pause_s = INTERVAL_S
        while not self._closing:
            # Before the round, so that a request during it starts another one without a pause.
            self._wake.clear()
            error = self._try_round()
            if error is not None and not self._failed:
                logger.warning("%s cannot be used: %s", self._file.path.name, error)
            elif error is None and self._failed:
                logger.warning("%s can be used again", self._file.path.name)
            self._failed = error is not None
            self._release(error)
            pause_s = INTERVAL_S if error is None else min(2 * pause_s, LONGEST_INTERVAL_S)
            self._wake.wait(pause_s)
        self._release(BackendUnavailableError(COMPONENT, f"{self._file.path.name!r} was closed."))
        self._reader.close()

    def _try_round(self) -> Exception | None:
        try:
            self._file.notice_replacement()
            connection = self._reader.connection()
            with self._lock:
                self._connection = connection
            try:
                connection.execute("BEGIN")
                self._look(connection)
            finally:
                with self._lock:
                    self._connection = None
                connection.rollback()
            self._reader.is_intact()  # otherwise the next round opens the file again
        except BackendError as error:
            self._reader.close()
            return error
        except Exception as error:  # noqa: BLE001  (a thread's edge: the error belongs to those who wait)
            self._reader.close()
            return translated(error, self._file.path) if is_fault(error) else error
        self._reader.release()
        return None

    def _release(self, error: Exception | None) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if waiting:
            with suppress(RuntimeError):  # the loop was closed while a caller waited
                self._loop.call_soon_threadsafe(_settle, waiting, error)


def _settle(waiting: list[asyncio.Future[None]], error: Exception | None) -> None:
    for future in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
