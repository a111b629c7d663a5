"""The projects of files that this machine works on, in a small file of its own beside the index.

Paths mean something on this machine only, so they are not kept in the index, which other machines may share. A damaged
file is created again; if it cannot be used, the records last as long as the process.
"""

import logging
import sqlite3
import threading
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path

from rag_context.domain.documents import ProjectRecord, Tenant
from rag_context.stores.machine_table import MachineTable

logger = logging.getLogger(__name__)

FILE_NAME = "projects.db"

_COLUMNS = "project, branch, path_hash, root, config_path, last_used, is_followed, is_forced, gone_since"
_TABLE = MachineTable(
    "projects",
    _COLUMNS,
    (
        """CREATE TABLE projects (
            project TEXT NOT NULL,
            branch TEXT NOT NULL,
            path_hash TEXT NOT NULL,
            root TEXT NOT NULL,
            config_path TEXT NOT NULL,
            last_used TEXT NOT NULL,
            is_followed INTEGER NOT NULL,
            is_forced INTEGER NOT NULL,
            gone_since TEXT,
            PRIMARY KEY (project, branch, path_hash)
        ) WITHOUT ROWID""",
    ),
    version=1,
    timeout_s=5.0,
    when_lost=f"{FILE_NAME} is damaged and was created again: projects are followed after their next activation",
)
_OF_TENANT = "project = ? AND branch = ? AND path_hash = ?"


class SqliteProjectRegistry:
    """Fits `ProjectRegistry`; several processes may use one data directory.

    The file is opened by the first call, since most processes never need it; it is created again if it is damaged, and
    kept in memory if it cannot be written.
    """

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE_NAME
        self._lock = threading.Lock()
        self._opened: sqlite3.Connection | None = None
        self._is_closed = False

    def close(self) -> None:
        """Close the file; later reads find nothing."""
        with self._lock:
            self._is_closed = True
            if self._opened is not None:
                self._opened.close()

    def records(self) -> list[ProjectRecord]:
        """All projects, the most recently used first."""
        try:
            with self._lock:
                if self._is_closed:
                    return []
                sql = f"SELECT {_COLUMNS} FROM projects ORDER BY last_used DESC"  # noqa: S608
                return [_record(*row) for row in self._connection().execute(sql)]
        except (sqlite3.Error, ValueError) as error:
            logger.warning("%s cannot be read: %s", FILE_NAME, error)
            return []

    def has(self, tenant: Tenant) -> bool | None:
        """Whether a project is recorded; None where that cannot be read."""
        try:
            with self._lock:
                if self._is_closed:
                    return None
                sql = f"SELECT count(*) FROM projects WHERE {_OF_TENANT}"  # noqa: S608
                (found,) = self._connection().execute(sql, _key(tenant)).fetchone()
                return bool(found)
        except sqlite3.Error:  # not logged: this is called every second
            return None

    def put(self, record: ProjectRecord) -> None:
        """Record a project, in place of the earlier record of its tenant."""
        self._write(_TABLE.insert, [_row(record)])

    def note_used(self, times: Mapping[Tenant, datetime]) -> None:
        """Record when projects were used last."""
        sql = f"UPDATE projects SET last_used = max(last_used, ?) WHERE {_OF_TENANT}"  # noqa: S608
        self._write(sql, [(at.isoformat(), *_key(tenant)) for tenant, at in times.items()])

    def note_gone(self, tenant: Tenant, since: datetime | None) -> None:
        """Record since when a project's files or branch are missing; None: they exist."""
        sql = f"UPDATE projects SET gone_since = ? WHERE {_OF_TENANT}"  # noqa: S608
        self._write(sql, [(since.isoformat() if since is not None else None, *_key(tenant))])

    def forget(self, tenants: Collection[Tenant]) -> None:
        """Delete the records of projects."""
        self._write(f"DELETE FROM projects WHERE {_OF_TENANT}", [_key(tenant) for tenant in tenants])  # noqa: S608

    def _write(self, sql: str, rows: list[tuple[object, ...]]) -> None:
        try:
            with self._lock:
                if not self._is_closed:
                    with self._connection() as connection:
                        connection.executemany(sql, rows)
        except sqlite3.Error as error:
            logger.warning("%s cannot be written: %s", FILE_NAME, error)

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            try:
                self._opened = _TABLE.open(self._path)
            except (sqlite3.Error, OSError) as error:
                logger.warning("%s cannot be used, so activations end with this process: %s", FILE_NAME, error)
                self._opened = _TABLE.in_memory()
        return self._opened


def _key(tenant: Tenant) -> tuple[str, str, str]:
    return tenant.project, tenant.branch, tenant.path_hash


def _row(record: ProjectRecord) -> tuple[object, ...]:
    return (
        *_key(record.tenant),
        record.root,
        record.config_path,
        record.last_used.isoformat(),
        int(record.is_followed),
        int(record.is_forced),
        record.gone_since.isoformat() if record.gone_since is not None else None,
    )


def _record(
    project: str,
    branch: str,
    path_hash: str,
    root: str,
    config_path: str,
    last_used: str,
    is_followed: int,
    is_forced: int,
    gone_since: str | None,
) -> ProjectRecord:
    return ProjectRecord(
        tenant=Tenant(project, branch, path_hash),
        root=root,
        config_path=config_path,
        last_used=datetime.fromisoformat(last_used),
        is_followed=bool(is_followed),
        is_forced=bool(is_forced),
        gone_since=datetime.fromisoformat(gone_since) if gone_since is not None else None,
    )
