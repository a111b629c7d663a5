"""The file manifest: the result of reading each file of this machine, in a small database beside the index.

It only saves work: if it is damaged or from another version it is created again; if it cannot be used, all files are
read again.
"""

import json
import logging
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from rag_context.domain.documents import FileDocument, FileEntry, FileStamp
from rag_context.stores.machine_table import MachineTable

logger = logging.getLogger(__name__)

FILE_NAME = "files.db"

_COLUMNS = "path, size, modified_ns, changed_ns, inode, read_ns, digest, recipe, is_named, documents"
_TABLE = MachineTable(
    "files",
    _COLUMNS,
    (
        """CREATE TABLE files (
            path TEXT PRIMARY KEY,
            size INTEGER NOT NULL,
            modified_ns INTEGER NOT NULL,
            changed_ns INTEGER NOT NULL,
            inode INTEGER NOT NULL,
            read_ns INTEGER NOT NULL,
            digest BLOB NOT NULL,
            recipe BLOB NOT NULL,
            is_named INTEGER NOT NULL,
            documents TEXT NOT NULL
        ) WITHOUT ROWID""",
        "CREATE INDEX files_by_digest ON files (digest)",
    ),
    version=1,
    timeout_s=10.0,
)
_PAGE = 500
_ALL = (1 << 64) - 1

_Row: TypeAlias = tuple[str, int, int, int, int, int, bytes, bytes, int, str]


class SqliteFileManifest:
    """Fits `FileManifest`; several processes may use one file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._is_closed = False
        self._has_failed = False

    def close(self) -> None:
        """Close the file; after reads and writes that are under way; later reads find nothing."""
        with self._lock:
            self._is_closed = True
            self._connection.close()

    def entries(self, paths: Collection[str]) -> dict[str, FileEntry]:
        """The entries of the given files, by path."""
        rows = self._rows(
            f"SELECT {_COLUMNS} FROM files WHERE path IN (SELECT value FROM json_each(?))",  # noqa: S608
            (json.dumps(list(paths)),),
        )
        return {entry.path: entry for entry in map(_entry, rows)}

    def below(self, path: str) -> Iterator[FileEntry]:
        """The entry of a file, or the entries of all files below a folder, by path."""
        yield from self.entries([path]).values()
        last, end = path.rstrip("/") + "/", path.rstrip("/") + "0"
        while rows := self._rows(
            f"SELECT {_COLUMNS} FROM files WHERE path > ? AND path < ? ORDER BY path LIMIT ?",  # noqa: S608
            (last, end, _PAGE),
        ):
            yield from map(_entry, rows)
            last = rows[-1][0]

    def with_digest(self, digest: bytes, limit: int) -> list[FileEntry]:
        """Some files that had this content when they were last read."""
        sql = f"SELECT {_COLUMNS} FROM files WHERE digest = ? AND digest <> x'' LIMIT ?"  # noqa: S608
        return list(map(_entry, self._rows(sql, (digest, limit))))

    def put(self, entries: Collection[FileEntry]) -> None:
        """Record the results of reading files."""
        self._write(_TABLE.insert, map(_row, entries))

    def forget(self, paths: Collection[str]) -> None:
        """Delete the entries of files."""
        self._write("DELETE FROM files WHERE path = ?", ((path,) for path in paths))

    def _rows(self, sql: str, values: tuple[object, ...]) -> list[_Row]:
        try:
            with self._lock:
                return [] if self._is_closed else self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            logger.warning("%s cannot be read: %s", FILE_NAME, error)
            return []

    def _write(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        try:
            with self._lock:
                if not self._is_closed:
                    with self._connection:
                        self._connection.executemany(sql, rows)
        except sqlite3.Error as error:
            level = logging.DEBUG if self._has_failed else logging.WARNING  # not once for every file
            logger.log(level, "%s cannot be written, so files are read again next time: %s", FILE_NAME, error)
            self._has_failed = True


@contextmanager
def open_file_manifest(data_dir: Path) -> Iterator[SqliteFileManifest]:
    """The manifest of a data directory: a new one if there is no usable one, in memory if none can be written."""
    path = data_dir / FILE_NAME
    try:
        connection = _TABLE.open(path)
    except (sqlite3.Error, OSError) as error:
        logger.warning("%s cannot be used, so every file is read: %s", FILE_NAME, error)
        connection = _TABLE.in_memory()
    manifest = SqliteFileManifest(connection)
    try:
        yield manifest
    finally:
        manifest.close()


def _row(entry: FileEntry) -> _Row:
    stamp = entry.stamp
    documents = json.dumps([[each.source, each.id, each.content_hash] for each in entry.documents])
    return (
        *(entry.path, stamp.size, stamp.modified_ns, stamp.changed_ns, _signed(stamp.inode), entry.read_ns),
        *(entry.digest, entry.settings_hash, int(entry.is_named), documents),
    )


def _entry(row: _Row) -> FileEntry:
    path, size, modified_ns, changed_ns, inode, read_ns, digest, recipe, is_named, documents = row
    return FileEntry(
        path=path,
        stamp=FileStamp(size, modified_ns, changed_ns, inode & _ALL),
        read_ns=read_ns,
        digest=digest,
        settings_hash=recipe,
        is_named=bool(is_named),
        documents=tuple(FileDocument(*each) for each in json.loads(documents)),
    )


def _signed(number: int) -> int:
    """64 bits as SQLite keeps them."""
    return number - (1 << 64) if number >> 63 else number
