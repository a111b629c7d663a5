"""From an empty file, or an older one, to the newest form; and from an older analyser to this one's terms."""

import json
import sqlite3
import time
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path

from rag_context.domain.documents import CHAT, EPOCH, Chunk, Json, Origin, Span, microseconds, moment
from rag_context.domain.provenance import STARTED, earlier_origin, origins, stated_message_times, stated_time, time_at
from rag_context.domain.text import ANALYSER_VERSION, terms
from rag_context.errors import BackendUnavailableError, ForeignIndexError
from rag_context.stores.sqlite.document_rows import lenient
from rag_context.stores.sqlite.faults import COMPONENT, is_busy
from rag_context.stores.sqlite.memory.terms import packed
from rag_context.stores.sqlite.search_rollups import sum_up_again

APPLICATION_ID = 0x52414743
"""`RAGC`, in the header of every file of ours."""

PAGE_BYTES = 8192
"""Five vectors of 384 floats to a page; the usual 4096 would hold two and waste a quarter."""

SUMMED, PACKED, TIMED, ORIGINS = 2, 6, 7, 11
"""Versions from which files have what their predecessors get here."""

TIMEOUT_S = 4.0
RETRY_S = 0.02


_LOOK = """
SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)
FROM pragma_application_id, pragma_user_version
"""
"""One statement, so that all three are of one moment: another process may be making the file."""


def bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    """Migrate the file behind `connection` unless it is in the newest form; all of it or nothing.

    Raises:
        ForeignIndexError: the file is another program's, or newer than this program; it is unchanged.
        sqlite3.Error: it cannot be read or written.
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
        if 0 < version < SUMMED:
            sum_up_again(connection)
        if 0 < version < TIMED:
            _fill_event_times(connection)
        if 0 < version < ORIGINS:
            _find_origins(connection)
        if version > 0 and (version < PACKED or _found_analyser(connection) != ANALYSER_VERSION):
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

    Raises:
        OSError: it cannot be read.
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


_MAY_STATE_TIMES = f"""
SELECT d.key FROM documents AS d CROSS JOIN contents AS n ON n.document = d.key
WHERE d.content_type = '{CHAT}' OR substr(n.content, 1, 4) LIKE '%---%' OR d.extra LIKE '%"{STARTED}"%'
"""  # noqa: S608  (names of our own)
_STATED = """
SELECT d.content_type, d.extra, d.timestamp, n.content
FROM documents AS d CROSS JOIN contents AS n ON n.document = d.key WHERE d.key = ?
"""


def _fill_event_times(connection: sqlite3.Connection) -> None:
    with lenient(connection):
        for (key,) in connection.execute(_MAY_STATE_TIMES).fetchall():
            content_type, extra, indexed_at, content = connection.execute(_STATED, (key,)).fetchone()
            at = stated_time(content, content_type, _object(extra)) or moment(indexed_at)
            connection.execute("UPDATE documents SET occurred_at = ? WHERE key = ?", (microseconds(at), key))
            times = stated_message_times(content) if content_type == CHAT else ()
            chunks = connection.execute('SELECT key, start, "end" FROM chunks WHERE document = ?', (key,)).fetchall()
            connection.executemany(
                "UPDATE chunks SET occurred_at = ? WHERE key = ?",
                [(microseconds(time_at(times, start, end, at)), chunk) for chunk, start, end in chunks if times],
            )


_SPEAKERS = f"""
SELECT d.key, d.content_type, d.session_id, d.source, d.thread,
       (SELECT json_group_array(DISTINCT speaker) FROM chunks WHERE document = d.key AND d.content_type = '{CHAT}')
FROM documents AS d
"""  # noqa: S608


def _find_origins(connection: sqlite3.Connection) -> None:
    with lenient(connection):
        found = [
            (earlier_origin(kind, session, source, thread, set(filter(None, json.loads(speakers)))), key)
            for key, kind, session, source, thread, speakers in connection.execute(_SPEAKERS)
        ]
        connection.executemany("UPDATE documents SET origin = ? WHERE key = ?", found)
        connection.execute(
            """UPDATE chunks SET standing = 0, origin = d.origin FROM documents AS d WHERE d.key = chunks.document"""
        )
        conversations = [key for origin, key in found if origin is Origin.OWNER]
        for key in conversations:
            (content,) = connection.execute("SELECT content FROM contents WHERE document = ?", (key,)).fetchone()
            chunks = connection.execute(
                'SELECT key, start, "end", speaker FROM chunks WHERE document = ? ORDER BY position', (key,)
            ).fetchall()
            said = origins(content, CHAT, Origin.OWNER, [(start, end, speaker) for _, start, end, speaker in chunks])
            connection.executemany(
                "UPDATE chunks SET origin = ?, standing = ? WHERE key = ?",
                [(*each, chunk) for each, (chunk, *_) in zip(said, chunks, strict=True)],
            )


def _object(stored: str) -> dict[str, Json]:
    try:
        found = json.loads(stored)
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


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
