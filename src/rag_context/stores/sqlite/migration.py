"""From an empty file, or an older one, to the newest form; and from an older analyser to this one's terms."""

import sqlite3
import time
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path

from rag_context.domain.documents import EPOCH, Chunk, Span
from rag_context.domain.text import ANALYSER_VERSION, terms
from rag_context.errors import BackendUnavailableError, ForeignIndexError
from rag_context.ports.reading import completed
from rag_context.stores.sql_documents import find_origins
from rag_context.stores.sqlite.document_rows import SqliteTables, lenient
from rag_context.stores.sqlite.faults import COMPONENT, is_busy
from rag_context.stores.sqlite.memory.terms import packed

APPLICATION_ID = 0x52414743
"""`RAGC`, in the header of every file of ours."""

PAGE_BYTES = 8192
"""Five vectors of 384 floats to a page; the usual 4096 would hold two and waste a quarter."""

OLDEST, ORIGINS = 7, 11
"""The oldest version that is brought up to date, and the one from which files have what their predecessors get here."""

TIMEOUT_S = 4.0
RETRY_S = 0.02

_LOOK = """
SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)
FROM pragma_application_id, pragma_user_version
"""
"""One statement, so that all three are of one moment: another process may be making the file."""

_ORIGINS_OF_DOCUMENTS = """
UPDATE chunks SET origin = d.origin FROM documents AS d WHERE d.key = chunks.document AND chunks.origin IS NULL
"""


def bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    """Migrate the file behind `connection` unless it is in the newest form; all of it or nothing.

    Raises: ForeignIndexError (the file is another program's, or newer than this program; it is unchanged),
    sqlite3.Error (it cannot be read or written).
    """
    deadline = time.monotonic() + TIMEOUT_S
    while _found_version(connection, path) != len(_migrations()) or _found_analyser(connection) != ANALYSER_VERSION:
        try:
            _upgrade(connection, path)
        except sqlite3.OperationalError as error:
            # Another process is migrating: SQLite does not wait for the switch to WAL mode, so we do.
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
            time.sleep(RETRY_S)


def _upgrade(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _found_version(connection, path)
        for script in _migrations()[version:]:
            for statement in _statements(script):
                connection.execute(statement)
        if 0 < version < ORIGINS:
            connection.execute("UPDATE chunks SET standing = 0")
            with lenient(connection):
                completed(find_origins(SqliteTables(connection)))
            connection.execute(_ORIGINS_OF_DOCUMENTS)
        if version > 0 and _found_analyser(connection) != ANALYSER_VERSION:
            _analyse_again(connection)
        connection.execute(
            "INSERT INTO meta VALUES ('analyser', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (str(ANALYSER_VERSION),),
        )
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(_migrations())}")
        connection.execute("COMMIT")
    finally:
        connection.rollback()


_MAGIC = b"SQLite format 3\0"
_HEAD_BYTES = 100


def sqlite_version() -> str:
    """The version of SQLite that this Python has."""
    return sqlite3.sqlite_version


def file_problem(path: Path) -> str | None:
    """What the head of a database file shows to be wrong, without opening it; None where nothing is, or no file is.

    Raises: OSError (it cannot be read).
    """
    if not path.exists():
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if len(head) < _HEAD_BYTES:  # all that there is may still be in the write-ahead log
        return None if path.with_name(f"{path.name}-wal").exists() or not head else "is truncated"
    if not head.startswith(_MAGIC):
        return "is damaged, or no database"
    page = int.from_bytes(head[16:18], "big")
    pages, version, application = (int.from_bytes(head[at : at + 4], "big") for at in (28, 60, 68))
    if path.stat().st_size < pages * (65536 if page == 1 else page):
        return "is truncated"
    if application not in (0, APPLICATION_ID):
        return "is another program's database"
    if version > len(_migrations()):
        return f"was written by a newer rag-context (schema {version})"
    return None


def is_foreign_file(path: Path) -> bool:
    """Whether there is a file that another program wrote. Raises: BackendUnavailableError where it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise BackendUnavailableError(COMPONENT, f"{str(path)!r} cannot be read: {error.strerror}.") from error
    if len(head) < _HEAD_BYTES:
        return bool(head)
    pages, application = int.from_bytes(head[28:32], "big"), int.from_bytes(head[68:72], "big")
    # A file of one page has no table: a process of ours ended while it made the file.
    return not head.startswith(_MAGIC) or (application != APPLICATION_ID and (application != 0 or pages > 1))


def _found_version(connection: sqlite3.Connection, path: Path) -> int:
    """Number of migrations that the file has had; 0 for an empty one."""
    application, version, tables = connection.execute(_LOOK).fetchone()
    if application == 0 and version == 0 and tables == 0:
        return 0
    if application != APPLICATION_ID:
        raise ForeignIndexError(
            COMPONENT, f"{str(path)!r} is another program's database; move it or choose another path."
        )
    if version > len(_migrations()):
        raise ForeignIndexError(
            COMPONENT, f"{str(path)!r} was written by a newer rag-context (schema {version}); upgrade this one."
        )
    if 0 < version < OLDEST:
        raise ForeignIndexError(
            COMPONENT,
            f"{str(path)!r} is in an early form (schema {version}) that is no longer read: export it with the version "
            "that wrote it, and import that.",
        )
    return int(version)


def _found_analyser(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM meta WHERE name = 'analyser'").fetchone()
    return 0 if row is None else int(row[0])


def _analyse_again(connection: sqlite3.Connection) -> None:
    rows = connection.execute("SELECT chunk, text, context FROM passages").fetchall()
    for key, text, context in rows:
        words = terms(Chunk("", "", 0, text, Span(0, 0, 0, 0), context, occurred_at=EPOCH).searchable)
        connection.execute("UPDATE passages SET terms = ? WHERE chunk = ?", (packed(words), key))
        connection.execute("UPDATE chunks SET length = ? WHERE key = ?", (len(words), key))
    connection.execute(
        """UPDATE totals SET version = version + 1, chunks_epoch = chunks_epoch + 1,
           terms = (SELECT ifnull(sum(length), 0) FROM chunks)"""
    )


@cache
def _migrations() -> tuple[str, ...]:
    folder = resources.files("rag_context.stores.sqlite").joinpath("migrations")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(file.read_text(encoding="utf-8") for file in files)


def _statements(script: str) -> Iterator[str]:
    """The statements one by one: `executescript` would commit before the first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
