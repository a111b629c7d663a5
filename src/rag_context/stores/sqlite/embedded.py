"""The embedded store as a whole: one file, four ports; and copies of it, each as it was at one moment."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

from rag_context.errors import BackendDataError, ConfigurationError
from rag_context.stores.engines import DiscardedRows
from rag_context.stores.sqlite.collections import remove_discarded
from rag_context.stores.sqlite.database import CHECK_EVERY_S, Database
from rag_context.stores.sqlite.database_file import LOCK_TIMEOUT_S, DatabaseFile, checked_file
from rag_context.stores.sqlite.document_ports import SqliteDocuments, SqliteSplitDocuments, SqliteVectorBackend
from rag_context.stores.sqlite.faults import COMPONENT, translated
from rag_context.stores.sqlite.group_commit import ERASE_AFTER_S
from rag_context.stores.sqlite.integrity import SqliteAuditor
from rag_context.stores.sqlite.journal import SqliteJournal
from rag_context.stores.sqlite.mark import IndexSize
from rag_context.stores.sqlite.memory.following import IndexInMemory, SqliteCandidates, SqliteTexts, SqliteVectors
from rag_context.stores.sqlite.search_rollups import SqliteMetrics
from rag_context.stores.sqlite.vector_models import SqliteRebuilder

FILE_NAME = "rag-context.db"

VECTORS_FILE_NAME = "vectors.db"
"""The name of one with the vectors of another store's documents."""

_COUNTS = "SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM collections)"


class SqliteStore:
    """The ports of one file. `documents` is the document store, the index writer and the model registry."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.memory = IndexInMemory(database)
        self.documents = SqliteDocuments(database, self.memory)
        self.vectors = SqliteVectors(database, self.memory)
        self.texts = SqliteTexts(self.memory)
        self.candidates = SqliteCandidates(self.memory, needs_vectors=True)
        self.keyword_candidates = SqliteCandidates(self.memory, needs_vectors=False)
        self.metrics = SqliteMetrics(database)
        self.rebuilder = SqliteRebuilder(database)
        self.auditor = SqliteAuditor(database)
        self.journal = SqliteJournal(database)


class SqliteDocumentBackend:
    """The ports of a file without vectors. `documents` is the document store, its writer and the model registry."""

    def __init__(self, database: Database) -> None:
        self.memory = IndexInMemory(database, has_vectors=False)
        self.documents = SqliteSplitDocuments(database, self.memory)
        self.texts = SqliteTexts(self.memory)
        self.metrics = SqliteMetrics(database)
        self.auditor = SqliteAuditor(database)
        self.journal = SqliteJournal(database)


@asynccontextmanager
async def open_database(
    path: Path,
    *,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    erase_after_s: float = ERASE_AFTER_S,
    check_every_s: float = CHECK_EVERY_S,
) -> AsyncIterator[SqliteStore]:
    """Open the file at `path`, created if it is missing; all acknowledged writes are on disk when the block ends.

    Vectors are loaded in the background. A damaged or locked file is not an error here: the ports raise
    `BackendError` until it can be used.

    Raises: ConfigurationError (the path can never be a database file).
    """
    database = Database(checked_file(path), lock_timeout_s=lock_timeout_s, erase_after_s=erase_after_s)
    store, discarded = SqliteStore(database), DiscardedRows(partial(remove_discarded, database))
    try:
        database.follow(store.memory.follow)
        database.check_pages(check_every_s)
        discarded.remove_leftovers()
        yield store
    finally:
        await discarded.close()
        await database.close()


@asynccontextmanager
async def open_documents(path: Path, *, erase_after_s: float = ERASE_AFTER_S) -> AsyncIterator[SqliteDocumentBackend]:
    """As `open_database`, for documents whose vectors another store keeps."""
    database = Database(checked_file(path), erase_after_s=erase_after_s)
    backend = SqliteDocumentBackend(database)
    try:
        database.follow(backend.memory.follow)
        database.check_pages(CHECK_EVERY_S)
        yield backend
    finally:
        await database.close()


def start_vectors(path: Path, *, erase_after_s: float = ERASE_AFTER_S) -> SqliteVectorBackend:
    """As `open_database`, for the vectors of documents that another store keeps; the caller closes them."""
    database = Database(checked_file(path, is_marked=False), erase_after_s=erase_after_s)
    memory = IndexInMemory(database)
    vectors = SqliteVectorBackend(database, memory)
    database.follow(memory.follow)
    database.check_pages(CHECK_EVERY_S)
    return vectors


@asynccontextmanager
async def open_auditor(path: Path, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> AsyncIterator[SqliteAuditor]:
    """Open the file at `path`, which must exist, to examine and repair it; nothing is loaded.

    Raises: ConfigurationError (the file does not exist, or cannot be written).
    """
    database = Database(require_index(path), lock_timeout_s=lock_timeout_s)
    try:
        yield SqliteAuditor(database)
    finally:
        await database.close()


def begin_empty(path: Path) -> IndexSize:
    """Create an empty index in place of a deleted one; returns that one's size. Its leftovers are renamed.

    Raises: ConfigurationError (the file is not empty, or the path is invalid; nothing is changed).
    """
    file = checked_file(path)
    lost = file.mark.last_size() if file.mark is not None else IndexSize()
    if path.exists() and path.stat().st_size:
        raise ConfigurationError(
            f"{str(path)!r} is not empty; an empty index is created only in place of a deleted one."
        )
    try:
        for suffix in ("-wal", "-shm"):
            left = path.with_name(path.name + suffix)
            if left.exists():
                left.replace(left.with_name(f"{left.name}.lost"))
        if file.mark is not None:
            file.mark.forget()
        file.writer().close()
    except (OSError, sqlite3.Error) as error:
        raise translated(error, file.path) from error
    return lost


def require_index(path: Path) -> DatabaseFile:
    """The file at `path`, if an index exists or existed there; reading a deleted one raises.

    Raises: ConfigurationError (no index was ever there).
    """
    file = DatabaseFile(path)
    if not file.path.is_file() and not (file.mark is not None and file.mark.last_size()):
        raise ConfigurationError(f"There is no index in {str(file.path.parent)!r}; choose another data_dir.")
    file.check_path()
    return file


def stored_names(path: Path) -> list[str]:
    """The names of the collections in the file at `path`, sorted; none without a file."""
    if not path.is_file():
        return []
    try:
        connection, _ = DatabaseFile(path).open_reader()
        with closing(connection):
            return [name for (name,) in connection.execute("SELECT name FROM collections ORDER BY name")]
    except (OSError, sqlite3.Error) as error:
        raise translated(error, path) from error


def copy_index(source: Path, target: Path) -> IndexSize:
    """Copy the index at `source`; returns what the copy holds.

    Raises: BackendError (it cannot be read, it is damaged, or the copy cannot be written).
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
