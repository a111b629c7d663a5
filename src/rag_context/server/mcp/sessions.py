"""The MCP sessions that were opened: a row each, in memory, or in a file that the workers of one server share."""

import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

IDLE_S = 24 * 3600.0
"""A session that was not used for so long is forgotten."""

MAX_SESSIONS = 1000
"""Sessions of one key that are remembered; of more, those that were not used for longest are forgotten."""

_ID_BYTES = 24
_BUSY_S = 5.0
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS sessions (
    turn INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, used_s REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS sessions_by_use ON sessions (owner, used_s);
"""
"""Not synchronous: the sessions end with the server, and so does the file."""


class Sessions:
    """The sessions that were opened, by the key that opened them: another key cannot use them.

    Args:
        clock: seconds, the same in all processes that share the file.
        file: where they are kept; None: in memory, for this process alone.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, file: Path | None = None) -> None:
        self._clock = clock
        self._rows = sqlite3.connect(file or ":memory:", timeout=_BUSY_S, isolation_level=None)
        self._rows.executescript(_SCHEMA)

    def close(self) -> None:
        """Forget them, or leave them to the other processes."""
        self._rows.close()

    def open(self, key: str | None) -> str:
        """A new session of a key; None where no key is needed."""
        session, owner, now = secrets.token_urlsafe(_ID_BYTES), _owner(key), self._clock()
        with self._rows as rows:
            rows.execute("BEGIN IMMEDIATE")
            rows.execute("DELETE FROM sessions WHERE owner = ? AND used_s < ?", (owner, now - IDLE_S))
            rows.execute("INSERT INTO sessions (id, owner, used_s) VALUES (?, ?, ?)", (session, owner, now))
            # Of two with the same time the one that was opened first goes first.
            rows.execute(
                """DELETE FROM sessions WHERE turn IN (
                    SELECT turn FROM sessions WHERE owner = ? ORDER BY used_s DESC, turn DESC LIMIT -1 OFFSET ?)""",
                (owner, MAX_SESSIONS),
            )
        return session

    def enter(self, session: str, key: str | None) -> bool:
        """Whether there is such a session of this key; it counts as used, then."""
        now = self._clock()
        used = self._rows.execute(
            "UPDATE sessions SET used_s = ? WHERE id = ? AND owner = ? AND used_s >= ?",
            (now, session, _owner(key), now - IDLE_S),
        )
        return used.rowcount > 0

    def end(self, session: str, key: str | None) -> bool:
        """Forget a session; False where there is none."""
        ended = self._rows.execute("DELETE FROM sessions WHERE id = ? AND owner = ?", (session, _owner(key)))
        return ended.rowcount > 0


def _owner(key: str | None) -> str:
    """No key is not a key without a name."""
    return "" if key is None else f"key {key}"


@contextmanager
def open_sessions(file: Path | None) -> Iterator[Sessions]:
    """The sessions in a file, or in memory, for the time of the block."""
    with closing(Sessions(file=file)) as sessions:
        yield sessions
