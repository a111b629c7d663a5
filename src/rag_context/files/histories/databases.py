"""Sessions that clients keep in SQLite, as the lines of a file: one JSON object for the session, then its messages.

A client's database is never opened where it could be changed. Without a log beside it, it is opened immutable, by
which SQLite creates no file and takes no lock; with one, a client may be writing: database and log are copied first.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from rag_context.files.formats.exchange import ConversionError

Connection: TypeAlias = sqlite3.Connection

MAX_COPIED_BYTES = 4 << 30
"""Most bytes of a database with a log that are copied."""

_TRIES = 3
_WAL_HEADER_BYTES = 32


@dataclass(frozen=True, slots=True)
class Database:
    """How a client keeps sessions: a query of their ids with versions that grow, and the file of that for the lines of
    `:id`, each a JSON object."""

    sessions: str
    lines: str


OPENCODE = Database(sessions="SELECT id, time_updated FROM session", lines="opencode.sql")

GOOSE = Database(sessions="SELECT id, CAST(strftime('%s', updated_at) AS INTEGER) FROM sessions", lines="goose.sql")

CURSOR = Database(
    # Values may be null, and the keys are a range of the index: of a table of gigabytes only these rows are read.
    sessions="""
        SELECT substr(key, 14), json_extract(CAST(value AS TEXT), '$.lastUpdatedAt') FROM cursorDiskKV
        WHERE key >= 'composerData:' AND key < 'composerData;' AND json_valid(CAST(value AS TEXT))
    """,
    lines="cursor.sql",
)

WARP = Database(
    sessions="SELECT conversation_id, max(CAST(strftime('%s', start_ts) AS INTEGER)) FROM ai_queries GROUP BY 1",
    lines="warp.sql",
)


@contextmanager
def opened(path: Path) -> Iterator[Connection]:
    """A client's database, read as it is now, without a change to its files. Raises: ConversionError."""
    try:
        if _size(_log(path)) == 0:
            with closing(_connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1")) as connection:
                yield connection
            return
        with tempfile.TemporaryDirectory(prefix="rag-context-") as folder:
            copy = _copied(path, Path(folder))
            with closing(_connect(copy.as_uri())) as connection:
                yield connection
    except (sqlite3.Error, OSError) as error:
        raise ConversionError(f"cannot be read: {error}") from error


def sessions(connection: Connection, database: Database) -> list[tuple[str, int]]:
    """The id of each session, and a number that grows when it changes. Raises: ConversionError."""
    return [(str(id_), int(version or 0)) for id_, version in _rows(connection, database.sessions, {}) if id_]


def session_lines(connection: Connection, database: Database, id_: str) -> bytes:
    """A session as lines of JSON. Raises: ConversionError."""
    return "\n".join(line for (line,) in _rows(connection, _query(database.lines), {"id": id_}) if line).encode()


@cache
def _query(file: str) -> str:
    return Path(__file__).with_name("sessions_sql").joinpath(file).read_text("utf-8")


def _rows(connection: Connection, sql: str, values: dict[str, str]) -> list[tuple[Any, ...]]:
    try:
        return connection.execute(sql, values).fetchall()
    except sqlite3.Error as error:
        raise ConversionError(f"cannot be read: {error}") from error


def _connect(uri: str) -> Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=1.0, check_same_thread=False)
    connection.execute("PRAGMA query_only = ON")
    # What a damaged or hostile file declares is not run.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


def _copied(path: Path, folder: Path) -> Path:
    """A copy with its log, of one moment. Raises: ConversionError, OSError."""
    if _size(path) + _size(_log(path)) > MAX_COPIED_BYTES:
        raise ConversionError(f"larger than {MAX_COPIED_BYTES} bytes while its client writes to it")
    copy = folder / "copy.db"
    for _ in range(_TRIES):
        before = _moment(path)
        shutil.copyfile(path, copy)
        shutil.copyfile(_log(path), _log(copy))
        # A log that only grew is sound: frames behind its last commit do not count. One that began again is not.
        if before == _moment(path):
            return copy
    raise ConversionError("its client is writing to it; it is read again later")


def _moment(path: Path) -> tuple[int, int, bytes]:
    status = path.stat()
    with _log(path).open("rb") as log:
        return status.st_mtime_ns, status.st_size, log.read(_WAL_HEADER_BYTES)


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
