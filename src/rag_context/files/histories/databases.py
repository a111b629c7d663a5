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
    """How a client keeps sessions: queries of their ids with versions that grow, and of the JSON lines of `:id`."""

    sessions: str
    lines: str


OPENCODE = Database(
    sessions="SELECT id, time_updated FROM session",
    # Tool output may be megabytes: parts of other types are not read.
    lines="""
        SELECT json_object('sessionId', id, 'title', title, 'cwd', directory,
            'driver', CASE WHEN parent_id IS NULL THEN '' ELSE 'subagent' END)
        FROM session WHERE id = :id
        UNION ALL SELECT line FROM (
            -- A fork gives the messages that it copies new ids, and leaves their times.
            SELECT json_object('id', '' || time_created, 'timestamp', time_created,
                'role', CASE WHEN json_extract(data, '$.summary') IS 1
                    THEN 'system' ELSE json_extract(data, '$.role') END,
                'content', (
                    SELECT json_group_array(json_object(
                        'type', json_extract(data, '$.type'),
                        'text', CASE WHEN json_extract(data, '$.type') = 'text' THEN json_extract(data, '$.text') END))
                    FROM (SELECT data FROM part WHERE message_id = message.id ORDER BY id)
                    WHERE json_extract(data, '$.type') IN ('text', 'reasoning')
                        AND json_extract(data, '$.synthetic') IS NOT 1)) AS line
            FROM message WHERE session_id = :id ORDER BY time_created, id)
    """,
)

GOOSE = Database(
    sessions="SELECT id, CAST(strftime('%s', updated_at) AS INTEGER) FROM sessions",
    lines="""
        SELECT json_object('sessionId', id, 'title', description, 'cwd', working_dir) FROM sessions WHERE id = :id
        UNION ALL SELECT line FROM (
            SELECT json_object('role', role, 'id', '' || id, 'timestamp', created_timestamp,
                'content', json(content_json)) AS line
            FROM messages WHERE session_id = :id AND json_valid(content_json) ORDER BY created_timestamp, id)
    """,
)

CURSOR = Database(
    # Values may be null, and the keys are a range of the index: of a table of gigabytes only these rows are read.
    sessions="""
        SELECT substr(key, 14), json_extract(CAST(value AS TEXT), '$.lastUpdatedAt') FROM cursorDiskKV
        WHERE key >= 'composerData:' AND key < 'composerData;' AND json_valid(CAST(value AS TEXT))
    """,
    lines="""
        WITH composer AS (
            SELECT CAST(value AS TEXT) AS value FROM cursorDiskKV WHERE key = 'composerData:' || :id
        ), bubble AS (
            SELECT header.key AS number, CAST(stored.value AS TEXT) AS value
            FROM composer, json_each(composer.value, '$.fullConversationHeadersOnly') AS header
            JOIN cursorDiskKV AS stored
                ON stored.key = 'bubbleId:' || :id || ':' || json_extract(header.value, '$.bubbleId')
            WHERE json_valid(CAST(stored.value AS TEXT))
            UNION ALL
            SELECT each.key, each.value FROM composer, json_each(composer.value, '$.conversation') AS each
        )
        SELECT json_object('sessionId', :id, 'title', json_extract(value, '$.name'),
            'cwd', (SELECT max(json_extract(value, '$.workspaceProjectDir')) FROM bubble))
        FROM composer
        UNION ALL SELECT line FROM (
            SELECT json_object('id', json_extract(value, '$.bubbleId'),
                'role', CASE json_extract(value, '$.type') WHEN 1 THEN 'user' WHEN 2 THEN 'assistant' END,
                'timestamp', coalesce(json_extract(value, '$.createdAt'), json_extract(value, '$.timestamp')),
                'content', json_extract(value, '$.text')) AS line
            FROM bubble ORDER BY number)
    """,
)

WARP = Database(
    sessions="SELECT conversation_id, max(CAST(strftime('%s', start_ts) AS INTEGER)) FROM ai_queries GROUP BY 1",
    # Answers are in a binary format: only the prompts are read.
    lines="""
        SELECT json_object('sessionId', :id, 'cwd', max(working_directory)) FROM ai_queries
        WHERE conversation_id = :id
        UNION ALL SELECT line FROM (
            SELECT json_object('role', 'user', 'id', exchange_id, 'timestamp', start_ts,
                'content', json_extract(input, '$[0].Query.text')) AS line
            FROM ai_queries
            WHERE conversation_id = :id AND json_extract(input, '$[0].Query.text') IS NOT NULL ORDER BY start_ts)
    """,
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
    return "\n".join(line for (line,) in _rows(connection, database.lines, {"id": id_}) if line).encode()


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
