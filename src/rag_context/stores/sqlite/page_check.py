"""The check of all pages of the database file in the background.

SQLite checks a page when it reads it, so writes may go on for long beside damaged pages that none of them touches. All
pages are therefore read after a process has started, and again after the file was changed.
"""

import sqlite3
import threading
import time

from rag_context.errors import BackendError
from rag_context.stores.sqlite.damage import damaged, is_damage, stamp_of
from rag_context.stores.sqlite.database_file import DatabaseFile, Reader

CHECK_EVERY_S = 1.0
"""How long after its start, and after a check, a process looks: short commands end before, and no start is delayed."""

MOST_SHARE = 50
"""The pause after a check is at least so many times its duration: a large file costs no more than 2 % of a core."""


class PageCheck:
    """A thread that has SQLite check all pages of a file, at first and after each change of it."""

    def __init__(self, file: DatabaseFile, reader: Reader, every_s: float = CHECK_EVERY_S) -> None:
        self._every_s = every_s
        self._file = file
        self._reader = reader
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._checked: list[int] | None = None
        self._thread = threading.Thread(target=self._serve, name="rag-context-pages", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, even in the middle of a check, and wait for the thread. Blocks."""
        self._stop.set()
        self.interrupt()
        self._thread.join()

    def interrupt(self) -> None:
        """End a check that is under way; it is made again later."""
        with self._lock:
            if self._connection is not None:
                self._connection.interrupt()

    def _serve(self) -> None:
        damage = self._file.damage
        pause_s = self._every_s
        while not self._stop.wait(pause_s):
            pause_s = self._every_s
            # Before the check: what changes during it is checked again.
            stamp = stamp_of(self._file.path)
            if stamp is None or stamp == self._checked or damage.is_of(stamp):
                continue
            started = time.monotonic()
            try:
                with self._reader.lock:
                    problem = self._problem()
            except (BackendError, sqlite3.Error, OSError):  # locked, no descriptor, stopped: the next round tries again
                continue
            pause_s = max(self._every_s, MOST_SHARE * (time.monotonic() - started))
            self._checked = stamp
            if problem is not None:
                self._file.saw(problem)
            elif not damage.is_of(stamp):  # a read that met damage meanwhile knows better
                damage.clear()

    def _problem(self) -> sqlite3.Error | None:
        """The damage that SQLite finds. Raises: BackendError, sqlite3.Error, OSError (it could not look)."""
        try:
            connection = self._reader.connection()
            with self._lock:
                self._connection = connection
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            return error
        finally:
            with self._lock:
                self._connection = None
            self._reader.close_connection()  # with the pages that it has read
        return None if found == "ok" else damaged(str(found))
