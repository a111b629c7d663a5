"""What a machine keeps beside the index: files that it has read, projects that it follows, what its agents were shown.

Each table has a small SQLite file; a damaged one, or one of another version, is created again. While it cannot be used,
the table is in memory, and is written once the file can be. Nothing is raised: what fails is logged.
"""

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from rag_context.domain import documents
from rag_context.domain.documents import FileEntry, FileStamp, ProjectRecord, Tenant, microseconds, moment, utc_now
from rag_context.domain.reports import Injection
from rag_context.stores.sqlite.faults import is_access_fault

FILES_NAME = "files.db"
HISTORIES_NAME = "histories.db"
"""As the former, of the conversations that agents' clients keep."""

MESSAGES_NAME = "messages.db"
"""Which of those holds each message."""

PROJECTS_NAME = "projects.db"
INJECTIONS_NAME = "injections.db"

VERSION = 1
"""Of all tables; one of another version is created again, empty."""

PRUNE_S = 3600.0
RETRY_S = 1.0
"""How often a file that could not be used is tried again."""

_PAGE = 500
_ALL = (1 << 64) - 1

_Row: TypeAlias = tuple[Any, ...]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Schema:
    """A table: its columns as CREATE TABLE has them, separated by commas, and what comes behind them."""

    name: str
    fields: str
    timeout_s: float
    without_file: str
    when_lost: str = ""
    constraints: str = ""
    options: str = ""
    indexes: tuple[str, ...] = ()

    @property
    def columns(self) -> str:
        return ", ".join(field.split()[0] for field in self.fields.split(","))

    @property
    def statements(self) -> tuple[str, ...]:
        return f"CREATE TABLE {self.name} ({self.fields}{self.constraints}) {self.options}", *self.indexes


class _Table:
    """A table in the database at `path`, which the first call opens. Used by several threads and processes."""

    def __init__(self, path: Path, schema: _Schema, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._schema = schema
        self._clock = clock
        # SQLite ends the process where a connection is closed under a statement of another thread.
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._is_in_file = False
        self._has_erased = True
        """Whether the file's log holds nothing that was deleted."""
        self._unwritten: list[tuple[str, list[_Row]]] = []
        """What was changed in memory, in order; the file gets it when it can be used."""
        self._retry_at = 0.0
        self._is_closed = False
        self._has_failed = False

    def close(self) -> None:
        """Close the file, after the calls under way; later ones find and change nothing."""
        with self._lock:
            if self._unwritten:
                self._retry_at = 0.0
                self._opened()
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()

    def rows(self, condition: str, values: _Row = ()) -> list[_Row] | None:
        """The rows that `condition` (from WHERE or ORDER on) selects; None if they cannot be read."""
        sql = f"SELECT {self._schema.columns} FROM {self._schema.name} {condition}"  # noqa: S608
        try:
            with self._lock:
                if self._is_closed:
                    return None
                connection = self._opened()
                if not self._has_erased:
                    self._erase(connection)
                return connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            self.log(f"cannot be read: {error}")
            return None

    def put(self, rows: Iterable[_Row]) -> None:
        self.write(self._insert(), rows)

    def write(self, sql: str, rows: Iterable[_Row]) -> None:
        """Run a statement for each row of values, all in one transaction."""
        changed = list(rows)
        with self._lock:
            if self._is_closed:
                return
            try:
                try:
                    self._change(sql, changed)
                except sqlite3.Error as error:
                    if not (self._is_in_file and is_access_fault(error)):
                        raise
                    self._leave_file(error)
                    self._change(sql, changed)
            except sqlite3.Error as error:
                self.log(f"cannot be written, so {self._schema.without_file}: {error}")

    def log(self, problem: str) -> None:
        """Log a problem: the first as a warning, since others may follow for every file or every second."""
        logger.log(logging.DEBUG if self._has_failed else logging.WARNING, "%s %s", self._path.name, problem)
        self._has_failed = True

    def _change(self, sql: str, rows: list[_Row]) -> None:
        with self._opened() as connection:
            connection.executemany(sql, rows)
        if not self._is_in_file:
            self._unwritten.append((sql, rows))
        elif sql.startswith("DELETE"):
            self._erase(connection)

    def _erase(self, connection: sqlite3.Connection) -> None:
        """Empty the log, in which deleted rows would stay; while another process reads, the next call tries again."""
        (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._has_erased = not is_busy

    def _opened(self) -> sqlite3.Connection:
        connection = self._connection
        if connection is None or (not self._is_in_file and self._clock() >= self._retry_at):
            try:
                connection = self._up_to_date()
            except (sqlite3.Error, OSError) as error:
                connection = connection or self._fallen_back(error)
                self._retry_at = self._clock() + RETRY_S
            self._connection = connection
        return connection

    def _up_to_date(self) -> sqlite3.Connection:
        """The file, with what was changed while it could not be used. Raises: sqlite3.Error, OSError."""
        connection = self._created()
        try:
            with connection:
                for sql, rows in self._unwritten:
                    connection.executemany(sql, rows)
        except sqlite3.Error:
            connection.close()
            raise
        self._has_erased = not self._unwritten
        self._unwritten = []
        self._is_in_file = True
        if self._connection is not None:
            self._connection.close()
            logger.warning("%s can be used again", self._path.name)
            self._has_failed = False
        return connection

    def _leave_file(self, error: sqlite3.Error) -> None:
        """Go on in memory: the file can be read, but not written."""
        if self._connection is not None:
            self._connection.close()
        self._is_in_file = False
        self._connection = self._fallen_back(error)
        self._retry_at = self._clock() + RETRY_S

    def _fallen_back(self, error: Exception) -> sqlite3.Connection:
        """A table in memory, with the file's rows as far as they can be read without writing beside it."""
        self.log(f"cannot be used for now, so {self._schema.without_file} until it can: {error}")
        memory = self._prepared(":memory:")
        with suppress(sqlite3.Error):
            source = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
            with closing(source), memory:
                rows = source.execute(f"SELECT {self._schema.columns} FROM {self._schema.name}")  # noqa: S608
                memory.executemany(self._insert(), rows)
        return memory

    def _insert(self) -> str:
        marks = ", ".join("?" * len(self._schema.columns.split()))
        return f"INSERT OR REPLACE INTO {self._schema.name} ({self._schema.columns}) VALUES ({marks})"  # noqa: S608

    def _created(self) -> sqlite3.Connection:
        """The file, created if it is missing, and again if it is damaged. Raises: sqlite3.Error, OSError."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return self._prepared(self._path)
        except sqlite3.OperationalError:  # locked, or no space: deleting the file would not help
            raise
        except sqlite3.DatabaseError:
            if self._schema.when_lost:
                logger.warning("%s is damaged and was created again: %s", self._path.name, self._schema.when_lost)
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            return self._prepared(self._path)

    def _prepared(self, path: Path | str) -> sqlite3.Connection:
        name = self._schema.name
        if isinstance(path, Path):
            _keep_private(path)
        connection = sqlite3.connect(path, timeout=self._schema.timeout_s, check_same_thread=False)
        try:
            connection.executescript(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON;"
            )
            # Reading the version first waits for no other process: one may be stopped in the middle of a write.
            if _version(connection) != VERSION:
                connection.execute("BEGIN IMMEDIATE")
                if _version(connection) != VERSION:
                    connection.execute(f"DROP TABLE IF EXISTS {name}")
                    for statement in self._schema.statements:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {VERSION}")
                connection.commit()
            # A file may be damaged behind a sound header: only reading a row's columns shows it.
            connection.execute(f"SELECT {self._schema.columns} FROM {name} LIMIT 1").fetchone()  # noqa: S608
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _keep_private(path: Path) -> None:
    """Create the file if it is missing, and deny others to read it and its log. Raises: OSError."""
    # SQLite would leave the rights to the umask. A file that is there is not opened: closing it would end the locks of
    # this process's other connections.
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        with suppress(FileNotFoundError, PermissionError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


_FILES = _Schema(
    name="files",
    fields="""path TEXT PRIMARY KEY, size INTEGER NOT NULL, modified_ns INTEGER NOT NULL, changed_ns INTEGER NOT NULL,
        inode INTEGER NOT NULL, read_ns INTEGER NOT NULL, digest BLOB NOT NULL, recipe BLOB NOT NULL,
        is_named INTEGER NOT NULL, documents TEXT NOT NULL""",
    options="WITHOUT ROWID",
    indexes=("CREATE INDEX files_by_digest ON files (digest)",),
    timeout_s=10.0,
    without_file="files are read again",
)


class _OnFile:
    _table: _Table

    def close(self) -> None:
        self._table.close()


class SqliteFileManifest(_OnFile):
    """Fits `FileManifest`: the result of reading each file. It only saves work: without it all files are read again."""

    def __init__(self, data_dir: Path, name: str = FILES_NAME) -> None:
        self._table = _Table(data_dir / name, _FILES)

    def entries(self, paths: Collection[str]) -> dict[str, FileEntry]:
        rows = self._table.rows("WHERE path IN (SELECT value FROM json_each(?))", (json.dumps(list(paths)),))
        return {entry.path: entry for entry in map(_file_entry, rows or ())}

    def below(self, path: str) -> Iterator[FileEntry]:
        yield from self.entries([path]).values()
        # "0" comes directly after "/": the paths below a folder are a range of the primary key.
        last, end = path.rstrip("/") + "/", path.rstrip("/") + "0"
        while rows := self._table.rows("WHERE path > ? AND path < ? ORDER BY path LIMIT ?", (last, end, _PAGE)):
            yield from map(_file_entry, rows)
            last = rows[-1][0]

    def with_digest(self, digest: bytes, limit: int) -> list[FileEntry]:
        rows = self._table.rows("WHERE digest = ? AND digest <> x'' LIMIT ?", (digest, limit))
        return list(map(_file_entry, rows or ()))

    def put(self, entries: Collection[FileEntry]) -> None:
        self._table.put(map(_file_row, entries))

    def forget(self, paths: Collection[str]) -> None:
        self._table.write("DELETE FROM files WHERE path = ?", ((path,) for path in paths))


_MESSAGES = _Schema(
    name="messages",
    fields="key TEXT PRIMARY KEY, session TEXT NOT NULL, path TEXT NOT NULL",
    options="WITHOUT ROWID",
    timeout_s=10.0,
    without_file="messages that a fork repeats are stored again",
)


class SqliteHistoryManifest(SqliteFileManifest):
    """Fits `HistoryManifest`. Keys are digests: no text of a message is kept here."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir, HISTORIES_NAME)
        self._messages = _Table(data_dir / MESSAGES_NAME, _MESSAGES)

    def close(self) -> None:
        super().close()
        self._messages.close()

    def holders(self, keys: Collection[str]) -> dict[str, tuple[str, str]]:
        rows = self._messages.rows("WHERE key IN (SELECT value FROM json_each(?))", (json.dumps(list(keys)),))
        return {key: (session, path) for key, session, path in rows or ()}

    def claim(self, session: str, path: str, keys: Collection[str]) -> None:
        self._messages.write("INSERT OR IGNORE INTO messages VALUES (?, ?, ?)", ((key, session, path) for key in keys))

    def release(self, paths: Collection[str]) -> None:
        self._messages.write("DELETE FROM messages WHERE path = ?", ((path,) for path in paths))


def open_file_manifest(data_dir: Path) -> closing[SqliteFileManifest]:
    """The manifest of a data directory, which is closed when the block ends."""
    return closing(SqliteFileManifest(data_dir))


def open_history_manifest(data_dir: Path) -> closing[SqliteHistoryManifest]:
    """The same of the sessions of agents."""
    return closing(SqliteHistoryManifest(data_dir))


def _file_row(entry: FileEntry) -> _Row:
    stamp = entry.stamp
    # Inodes have 64 bits, and integers in SQLite a sign.
    inode = stamp.inode - (1 << 64) if stamp.inode >> 63 else stamp.inode
    made = json.dumps([[each.source, each.id, each.content_hash] for each in entry.documents])
    return (
        *(entry.path, stamp.size, stamp.modified_ns, stamp.changed_ns, inode, entry.read_ns),
        *(entry.digest, entry.settings_hash, int(entry.is_named), made),
    )


def _file_entry(row: _Row) -> FileEntry:
    path, size, modified_ns, changed_ns, inode, read_ns, digest, settings_hash, is_named, made = row
    return FileEntry(
        path=path,
        stamp=FileStamp(size, modified_ns, changed_ns, inode & _ALL),
        read_ns=read_ns,
        digest=digest,
        settings_hash=settings_hash,
        is_named=bool(is_named),
        documents=tuple(documents.FileDocument(*each) for each in json.loads(made)),
    )


_PROJECTS = _Schema(
    name="projects",
    fields="""project TEXT NOT NULL, branch TEXT NOT NULL, path_hash TEXT NOT NULL, root TEXT NOT NULL,
        config_path TEXT NOT NULL, last_used TEXT NOT NULL, is_followed INTEGER NOT NULL, is_forced INTEGER NOT NULL,
        gone_since TEXT""",
    constraints=", PRIMARY KEY (project, branch, path_hash)",
    options="WITHOUT ROWID",
    timeout_s=5.0,
    without_file="activations end with this process",
    when_lost="projects are followed after their next activation",
)
_OF_TENANT = "WHERE project = ? AND branch = ? AND path_hash = ?"


class SqliteProjectRegistry(_OnFile):
    """Fits `ProjectRegistry`: the projects of files that this machine works on."""

    def __init__(self, data_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = _Table(data_dir / PROJECTS_NAME, _PROJECTS, clock)

    def records(self) -> list[ProjectRecord]:
        try:
            return [_record(row) for row in self._table.rows("ORDER BY last_used DESC") or ()]
        except ValueError as error:
            self._table.log(f"cannot be read: {error}")
            return []

    def has(self, tenant: Tenant) -> bool | None:
        rows = self._table.rows(_OF_TENANT, tenant.names)
        return None if rows is None else bool(rows)

    def put(self, record: ProjectRecord) -> None:
        gone_since = record.gone_since.isoformat() if record.gone_since is not None else None
        flags = int(record.is_followed), int(record.is_forced)
        used = record.last_used.isoformat()
        self._table.put([(*record.tenant.names, record.root, record.config_path, used, *flags, gone_since)])

    def note_used(self, times: Mapping[Tenant, datetime]) -> None:
        sql = f"UPDATE projects SET last_used = max(last_used, ?) {_OF_TENANT}"  # noqa: S608
        self._table.write(sql, [(at.isoformat(), *tenant.names) for tenant, at in times.items()])

    def note_gone(self, tenant: Tenant, since: datetime | None) -> None:
        sql = f"UPDATE projects SET gone_since = ? {_OF_TENANT}"  # noqa: S608
        self._table.write(sql, [(since.isoformat() if since is not None else None, *tenant.names)])

    def forget(self, tenants: Collection[Tenant]) -> None:
        self._table.write(f"DELETE FROM projects {_OF_TENANT}", [tenant.names for tenant in tenants])  # noqa: S608


def _record(row: _Row) -> ProjectRecord:
    project, branch, path_hash, root, config_path, last_used, is_followed, is_forced, gone_since = row
    return ProjectRecord(
        tenant=Tenant(project, branch, path_hash),
        root=root,
        config_path=config_path,
        last_used=datetime.fromisoformat(last_used),
        is_followed=bool(is_followed),
        is_forced=bool(is_forced),
        gone_since=datetime.fromisoformat(gone_since) if gone_since is not None else None,
    )


_INJECTIONS = _Schema(
    name="injections",
    fields="""at INTEGER NOT NULL, session TEXT NOT NULL, client TEXT NOT NULL, event TEXT NOT NULL,
        project TEXT NOT NULL, subject TEXT NOT NULL, document TEXT NOT NULL, chunks TEXT NOT NULL,
        reason TEXT NOT NULL, tokens INTEGER NOT NULL, scores TEXT NOT NULL, is_forgotten INTEGER NOT NULL""",
    indexes=(
        "CREATE INDEX injections_of_session ON injections (session, at)",
        "CREATE INDEX injections_by_time ON injections (at)",
    ),
    timeout_s=5.0,
    without_file="sessions may be shown a passage again",
    when_lost="sessions that are open may be shown a passage again",
)


class SqliteInjectionLog(_OnFile):
    """Fits `InjectionLog`: what agents on this machine were shown unasked, by all processes of this data directory."""

    def __init__(self, data_dir: Path, retention: timedelta, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = _Table(data_dir / INJECTIONS_NAME, _INJECTIONS, clock)
        self._retention = retention
        self._clock = clock
        self._prune_at = clock()

    def add(self, injections: Iterable[Injection]) -> None:
        self._table.put(map(_injection_row, injections))
        if self._clock() >= self._prune_at:
            self._prune_at = self._clock() + PRUNE_S
            self.prune(utc_now() - self._retention)

    def remembered(self, session_id: str) -> list[Injection]:
        rows = self._table.rows("WHERE session = ? AND is_forgotten = 0 ORDER BY at", (session_id,))
        return list(map(_injection, rows or ()))

    def tokens(self, session_id: str) -> int:
        return sum(row[9] for row in self._table.rows("WHERE session = ? AND tokens > 0", (session_id,)) or ())

    def forget(self, session_id: str) -> None:
        self._table.write("UPDATE injections SET is_forgotten = 1 WHERE session = ?", [(session_id,)])

    def latest(self, session_id: str | None, limit: int) -> list[Injection]:
        of_session = "WHERE session = ? " if session_id is not None else ""
        values = (limit,) if session_id is None else (session_id, limit)
        rows = self._table.rows(f"{of_session}ORDER BY at DESC, rowid DESC LIMIT ?", values)
        return list(map(_injection, rows or ()))

    def prune(self, before: datetime) -> None:
        self._table.write("DELETE FROM injections WHERE at < ?", [(microseconds(before),)])


def _injection_row(injection: Injection) -> _Row:
    each = injection
    return (
        *(microseconds(each.at), each.session_id, each.client, each.event, each.project, each.subject),
        *(each.document_id, json.dumps(each.chunk_ids), each.reason, each.tokens, json.dumps(dict(each.scores)), 0),
    )


def _injection(row: _Row) -> Injection:
    at, session_id, client, event, project, subject, document_id, chunks, reason, tokens, scores, _ = row
    return Injection(
        *(moment(at), session_id, client, event, project, subject, document_id, tuple(json.loads(chunks)), reason),
        *(tokens, json.loads(scores)),
    )
