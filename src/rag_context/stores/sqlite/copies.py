"""Copies of the databases of a data directory, each as it was at one moment, while other processes write."""

import sqlite3
from contextlib import closing
from pathlib import Path

from rag_context.errors import BackendDataError
from rag_context.stores.sqlite.database_file import DatabaseFile
from rag_context.stores.sqlite.embedded import FILE_NAME
from rag_context.stores.sqlite.faults import COMPONENT, translated
from rag_context.stores.sqlite.mark import IndexSize
from rag_context.stores.sqlite.shared_log import is_used

__all__ = ["FILE_NAME", "copy_index", "copy_table", "is_used"]

_COUNTS = "SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM collections)"


def copy_index(source: Path, target: Path) -> IndexSize:
    """Copy the index at `source`; returns what the copy holds.

    Raises:
        BackendError: it cannot be read, it is damaged, or the copy cannot be written.
    """
    file = DatabaseFile(source)
    try:
        connection, _ = file.open_reader()
        with closing(connection):
            return _copied(connection, target)
    except (OSError, sqlite3.Error) as error:
        raise translated(error, source) from error


def copy_table(source: Path, target: Path) -> None:
    """Copy one of the small files beside the index. Raises: BackendError."""
    try:
        with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True, timeout=10.0)) as connection:
            _copied(connection, target)
    except (OSError, sqlite3.Error) as error:
        raise translated(error, source) from error


def _copied(connection: sqlite3.Connection, target: Path) -> IndexSize:
    with closing(sqlite3.connect(target)) as copy:
        # All pages in one step: a step reads one snapshot, and in between writers would have the copy begin again.
        connection.backup(copy)
        # A single file: restored without its log, it is complete.
        copy.execute("PRAGMA journal_mode = DELETE")
        (verdict,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise BackendDataError(COMPONENT, f"{target.name} is damaged ({verdict}); `rag-context check` says more.")
        is_index = copy.execute("SELECT count(*) FROM sqlite_master WHERE name = 'documents'").fetchone()[0]
        return IndexSize(*copy.execute(_COUNTS).fetchone()) if is_index else IndexSize()
