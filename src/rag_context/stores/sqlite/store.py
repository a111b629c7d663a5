"""The embedded store as a whole: one file, four ports."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rag_context.errors import BackendError, ConfigurationError
from rag_context.stores.sqlite.connections import DatabaseFile, checked
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.documents import SqliteDocuments
from rag_context.stores.sqlite.mark import Holdings
from rag_context.stores.sqlite.metrics import SqliteMetrics
from rag_context.stores.sqlite.rebuild import SqliteRebuilder
from rag_context.stores.sqlite.repair import SqliteAuditor
from rag_context.stores.sqlite.split import SqliteDocumentsApart, SqliteDocumentWriter, SqliteVectorHalf
from rag_context.stores.sqlite.texts import SqliteTexts
from rag_context.stores.sqlite.vectors import SqliteVectors
from rag_context.stores.sqlite.workers import translated

FILE_NAME = "rag-context.db"
"""The database's name within a data directory."""

VECTORS_FILE_NAME = "vectors.db"
"""The name of one that holds another store's vectors."""

LOCK_TIMEOUT_S = 4.0


@dataclass(frozen=True, slots=True)
class SqliteStore:
    """The ports of one file. `documents` is the document store, the index writer and the model registry."""

    database: Database
    documents: SqliteDocuments
    vectors: SqliteVectors
    texts: SqliteTexts
    metrics: SqliteMetrics
    rebuilder: SqliteRebuilder


@dataclass(frozen=True, slots=True)
class SqliteDocumentHalf:
    """The ports of a file that holds no vectors. `documents` is the model registry too."""

    documents: SqliteDocumentsApart
    writer: SqliteDocumentWriter
    texts: SqliteTexts
    metrics: SqliteMetrics


@asynccontextmanager
async def open_database(path: Path, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> AsyncIterator[SqliteStore]:
    """Open the file at `path`, made when it is not there; everything acknowledged is on disk when the block ends.

    Vectors are loaded in the background. A file that is broken or locked is no error here: the ports raise
    `BackendError` until it can be used, and then work.

    Args:
        path: the file.
        lock_timeout_s: how long a write waits for other processes that write.

    Raises:
        ConfigurationError: the file can never be kept there.
    """
    database = Database(checked(path), lock_timeout_s=lock_timeout_s)
    documents = SqliteDocuments(database)
    vectors, texts = SqliteVectors(database), SqliteTexts(database)
    warming = asyncio.create_task(_warm(texts), name="read the lists of common words")
    try:
        database.follow(vectors.follow)
        yield SqliteStore(database, documents, vectors, texts, SqliteMetrics(database), SqliteRebuilder(database))
    finally:
        warming.cancel()
        await asyncio.wait({warming})
        documents.flush()
        await database.close()


@asynccontextmanager
async def open_documents(path: Path, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> AsyncIterator[SqliteDocumentHalf]:
    """As `open_database`, for documents whose vectors another store keeps."""
    database = Database(checked(path), lock_timeout_s=lock_timeout_s)
    documents, texts = SqliteDocumentsApart(database), SqliteTexts(database)
    warming = asyncio.create_task(_warm(texts), name="read the lists of common words")
    try:
        database.follow()
        yield SqliteDocumentHalf(documents, SqliteDocumentWriter(database), texts, SqliteMetrics(database))
    finally:
        warming.cancel()
        await asyncio.wait({warming})
        documents.flush()
        await database.close()


@asynccontextmanager
async def open_vectors(path: Path, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> AsyncIterator[SqliteVectorHalf]:
    """As `open_database`, for the vectors of documents that another store keeps."""
    vectors = start_vectors(path, lock_timeout_s=lock_timeout_s)
    try:
        yield vectors
    finally:
        await vectors.close()


def start_vectors(path: Path, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> SqliteVectorHalf:
    """As `open_vectors`, for a caller that closes them itself."""
    database = Database(checked(path, is_marked=False), lock_timeout_s=lock_timeout_s)
    vectors = SqliteVectorHalf(database)
    database.follow(vectors.follow)
    return vectors


@asynccontextmanager
async def open_auditor(path: Path, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> AsyncIterator[SqliteAuditor]:
    """Open the file at `path`, which must be there, to examine and mend it; nothing is loaded.

    Raises:
        ConfigurationError: there is no file, or it cannot be written.
    """
    database = Database(require_index(path), lock_timeout_s=lock_timeout_s)
    try:
        yield SqliteAuditor(database)
    finally:
        await database.close()


async def _warm(texts: SqliteTexts) -> None:
    """Ahead of the first questions; where it cannot be done now, they do it."""
    with suppress(BackendError):
        await texts.warm()


def begin_empty(path: Path) -> Holdings:
    """Put an empty index where one was and is gone; returns what that one held. What is left of it is set aside.

    Raises:
        ConfigurationError: there is something at `path`, or nothing can be there; nothing is changed.
        BackendError: the file cannot be made.
    """
    file = checked(path)
    lost = file.mark.known() if file.mark is not None else Holdings()
    if path.exists() and path.stat().st_size:
        raise ConfigurationError(f"{str(path)!r} is not empty; an empty index is begun only where one is gone.")
    try:
        for suffix in ("-wal", "-shm"):
            left = path.with_name(path.name + suffix)
            if left.exists():
                left.replace(left.with_name(f"{left.name}.lost"))
        if file.mark is not None:
            file.mark.forget()
        file.writer().close()
    except (OSError, sqlite3.Error) as error:
        raise translated(error, file) from error
    return lost


def require_index(path: Path) -> DatabaseFile:
    """The file at `path`, where there is one, or was: then it is missed by whoever reads it.

    Raises:
        ConfigurationError: there never was one.
    """
    file = DatabaseFile(path)
    if not file.path.is_file() and not (file.mark is not None and file.mark.known()):
        raise ConfigurationError(f"There is no index in {str(file.path.parent)!r}; choose another data_dir.")
    file.check_place()
    return file
