"""Opens the ends of what moves whole indexes: documents of other programs to take over, moves, and backups.

A backup of a data directory is whole and checked, and returns over another index only if that is requested.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from pydantic import TypeAdapter, ValidationError

from rag_context._version import __version__
from rag_context.collections.provider_connections import DEFAULT
from rag_context.domain.reports import Thoroughness
from rag_context.errors import ConfigurationError, InvalidInputError
from rag_context.memory.index_maintenance import report
from rag_context.ports.provider import Provider
from rag_context.ports.reading import ForeignSource
from rag_context.settings import Settings, StoreSettings, check_available
from rag_context.settings.keys import TITLES, location_of
from rag_context.settings.values import PostgresUrl
from rag_context.stores.machine_tables import FILES_NAME, HISTORIES_NAME, INJECTIONS_NAME, PROJECTS_NAME
from rag_context.stores.sqlite.embedded import FILE_NAME, copy_index, copy_table, require_index
from rag_context.stores.sqlite.shared_log import is_used
from rag_context.transfer.archives import BackupReceipt, read_archive, write_archive
from rag_context.transfer.mover import Index, Mover
from rag_context.wiring.collection_providers import open_connections
from rag_context.wiring.opening import open_audit
from rag_context.wiring.stores import Stores, open_stores, qdrant_options

COLLECTION = "p4nth30n_context"
"""The collection of passages that is read where none is named: that of the programs whose form is taken over."""


@dataclass(frozen=True, slots=True)
class AdoptionOrigin:
    """One place to read, whose records may be passages of documents. One that is not requested may be missing.

    `mark_adopted` is called with the number of records once all are in the index; None where that does not read it.
    """

    source: ForeignSource
    has_passages: bool
    is_requested: bool
    mark_adopted: Callable[[int], Awaitable[None]] | None = None


async def open_origins(
    settings: Settings,
    stack: AsyncExitStack,
    *,
    mongodb: str | None = None,
    qdrant: str | None = None,
    chroma: str | None = None,
    collection: str | None = None,
) -> list[AdoptionOrigin]:
    """Open what the caller named, or what the settings name: documents first, then passages.

    Raises: InvalidInputError (nothing is named), ConfigurationError (an address is invalid, or a client is not
    installed).
    """
    is_requested = bool(qdrant or collection)
    if not any((mongodb, qdrant, chroma)):
        mongodb, qdrant = settings.stores.mongodb_uri, settings.stores.qdrant_url
    found: list[AdoptionOrigin] = []
    if mongodb:
        found.append(await _mongodb(settings, mongodb, stack))
    if qdrant:
        points = await _points(settings, qdrant, collection or COLLECTION, stack)
        found.append(AdoptionOrigin(points, True, is_requested))
    if chroma is not None:
        found.append(await _chroma(chroma, collection or COLLECTION, stack))
    if not found:
        raise InvalidInputError(
            "There is nothing to read: name a source with --mongodb, --qdrant or --chroma, or set MONGODB_URI or"
            " QDRANT_URL."
        )
    return found


async def _mongodb(settings: Settings, uri: str, stack: AsyncExitStack) -> AdoptionOrigin:
    await _imported("rag_context.stores.mongodb", "pymongo", "mongodb")
    from rag_context.stores.mongodb.document_store import open_other_documents  # noqa: PLC0415  (an extra)

    stores = settings.stores
    documents = await stack.enter_async_context(
        open_other_documents(uri, documents=stores.mongodb_documents, metrics=stores.mongodb_metrics)
    )
    is_ours = stores.documents == "mongodb" and uri == stores.mongodb_uri
    return AdoptionOrigin(documents, False, True, documents.mark_adopted if is_ours else None)


async def _points(settings: Settings, url: str, collection: str, stack: AsyncExitStack) -> ForeignSource:
    await _imported("rag_context.stores.qdrant", "qdrant_client", "qdrant")
    from rag_context.stores.qdrant.qdrant_vectors import open_other_points  # noqa: PLC0415  (an extra)

    return await stack.enter_async_context(open_other_points(url, collection, **qdrant_options(settings.stores)))


async def _chroma(place: str, collection: str, stack: AsyncExitStack) -> AdoptionOrigin:
    is_address = place.startswith(("http://", "https://"))
    if not is_address:
        await _imported("chromadb", "chromadb", "chroma")
        if not await asyncio.to_thread(Path(place).is_dir):
            raise InvalidInputError(f"--chroma takes an address or a folder, and {place!r} is neither.")
    await _imported("rag_context.stores.chroma", "numpy", "chroma")
    from rag_context.stores.chroma.chroma_vectors import open_other_rows  # noqa: PLC0415  (an extra)

    where = place if is_address else Path(place)
    return AdoptionOrigin(await stack.enter_async_context(open_other_rows(where, collection)), True, True)


async def _imported(module: str, library: str, extra: str) -> None:
    if find_spec(library) is None:
        raise ConfigurationError(f"This needs a client that is not installed: `pip install 'rag-context[{extra}]'`.")
    await asyncio.to_thread(import_module, module)  # seconds, not on the loop


EMBEDDED = "embedded"
"""Stands for the data directory."""


@dataclass(frozen=True, slots=True)
class End:
    """One end of a move. `collections` is None where they are on a configured connection, which both ends share."""

    name: str
    stores: Stores
    collections: Provider | None


@dataclass(frozen=True, slots=True)
class Move:
    source: End
    target: End
    mover: Mover


@asynccontextmanager
async def open_move(settings: Settings, to: str) -> AsyncIterator[Move]:
    """Open the index of the settings and the one to move it to; other processes may use both.

    Raises: InvalidInputError (`to` is no `postgresql://` address nor `embedded`, or is where the index is already),
    ConfigurationError (the settings cannot work, or there is no index).
    """
    target = settings.model_copy(update={"stores": _stores_at(to, settings.stores)})
    check_available(settings)
    check_available(target)
    if settings.stores.documents == EMBEDDED:
        require_index(settings.data_dir / FILE_NAME)
    async with AsyncExitStack() as stack:
        ends = (await _opened(settings, stack), await _opened(target, stack))
        yield Move(*ends, Mover(_index(ends[0].stores), _index(ends[1].stores)))


def _index(stores: Stores) -> Index:
    return Index(stores.documents, stores.vectors, stores.registry, stores.writer, stores.bulk, stores.journal)


async def _opened(settings: Settings, stack: AsyncExitStack) -> End:
    stores = await stack.enter_async_context(open_stores(settings))
    collections = None
    if DEFAULT not in settings.connections:
        connections = await stack.enter_async_context(open_connections(settings))
        collections = await connections.require(DEFAULT).opened()
    return End(location_of(settings), stores, collections)


def _stores_at(to: str, stores: StoreSettings) -> StoreSettings:
    """The stores of the target. Raises: InvalidInputError."""
    is_postgres = to.startswith(("postgresql://", "postgres://"))
    if not is_postgres and to != EMBEDDED:
        raise InvalidInputError(f'--to takes a postgresql:// address, or "{EMBEDDED}" for the data directory.')
    if is_postgres:
        try:
            TypeAdapter[str](PostgresUrl).validate_python(to)
        except ValidationError as error:
            raise InvalidInputError(
                "--to is not a valid address; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, user and password"
                " percent-encoded."
            ) from error
    kind = "postgres" if is_postgres else EMBEDDED
    if stores.documents == stores.vectors == kind and (not is_postgres or stores.postgres_url == to):
        remedy = (
            "unset DATABASE_URL to move the data directory there" if is_postgres else "set DATABASE_URL to its source"
        )
        raise InvalidInputError(f"The settings name this index already, so there is nothing to move: {remedy}.")
    changes: dict[str, object] = {"documents": kind, "vectors": kind}
    return stores.model_copy(update={**changes, "postgres_url": to} if is_postgres else changes)


# What is recorded of a file or a session says that its documents are stored. So these are copied before the index,
# which may then hold more than they say, and never less.
_TABLES = (FILES_NAME, HISTORIES_NAME, PROJECTS_NAME, INJECTIONS_NAME)
CONFIGURATION = "rag-context.toml"
_NAMES = frozenset({*_TABLES, FILE_NAME, CONFIGURATION})
_SUFFIXES = ("", "-wal", "-shm", ".damaged")


def back_up(settings: Settings, file: BinaryIO, beside: Path, configuration: Path | None) -> BackupReceipt:
    """Write a backup of the data directory, beside processes that use it, and of a `configuration` file.

    Copies are made in the folder `beside`, for as long as it takes.

    Raises: ConfigurationError (there is no index in the data directory), BackendError (it cannot be read, or is
    damaged), OSError (the archive or a copy cannot be written).
    """
    if settings.stores.documents != "embedded":
        raise ConfigurationError(
            f"Documents are stored in {TITLES[settings.stores.documents]}: back them up with its own tools "
            "with pg_dump or mongodump (docs/backup.md), or use `rag-context export`."
        )
    source = settings.data_dir
    if not (source / FILE_NAME).is_file():
        raise ConfigurationError(f"There is no index in {str(source)!r}; choose another data_dir.")
    with tempfile.TemporaryDirectory(prefix=".backup.", dir=beside) as name:
        copies = Path(name)
        for table in _TABLES:
            if (source / table).is_file():
                copy_table(source / table, copies / table)
        size = copy_index(source / FILE_NAME, copies / FILE_NAME)
        if configuration is not None:
            shutil.copyfile(configuration, copies / CONFIGURATION)
        return write_archive(
            file, sorted(copies.iterdir()), program=__version__, documents=size.documents, collections=size.collections
        )


async def restore(settings: Settings, file: BinaryIO, *, over: bool) -> tuple[BackupReceipt, Path | None]:
    """Put a backup into the data directory, once all of it was read and checked.

    With `over` what is there is set aside, and the result says where; else only an empty directory is filled.

    Raises: ConfigurationError (something is there, or a process uses it; nothing was changed), InvalidInputError (the
    file is no whole backup, or its index is not sound; nothing was changed), BackendError (the index in it cannot be
    read; nothing was changed).
    """
    target = settings.data_dir
    paths = (target / f"{name}{suffix}" for name in sorted(_NAMES) for suffix in _SUFFIXES)
    there = [path for path in paths if path.exists()]
    if there and not over:
        raise ConfigurationError(
            f"{str(target)!r} holds {', '.join(each.name for each in there)}: choose an empty data_dir, or --overwrite "
            "sets them aside."
        )
    if is_used(target / FILE_NAME):
        raise ConfigurationError(f"A process uses {str(target)!r}: stop the server and the agents' clients first.")
    with _prepared(target) as folder:
        receipt = read_archive(file, folder, _NAMES)
        if FILE_NAME not in {part.name for part in receipt.parts}:
            raise InvalidInputError("This backup holds no index.")
        await _check(settings, folder)
        return receipt, _place(target, folder, receipt, there)


@contextmanager
def _prepared(target: Path) -> Iterator[Path]:
    """A folder in the data directory, which is made, and removed again if it stays empty."""
    is_new = not target.exists()
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".restore.", dir=target) as name:
            yield Path(name)
    finally:
        if is_new and not any(target.iterdir()):
            target.rmdir()


async def _check(settings: Settings, folder: Path) -> None:
    async with open_audit(settings.model_copy(update={"data_dir": folder})) as audit:
        found = report(await audit.examine(Thoroughness.QUICK), Thoroughness.QUICK)
    if not found.sound:
        problems = "; ".join(f"{issue.says} ({issue.count})" for issue in found.flaws)
        raise InvalidInputError(f"The index in this backup is not sound: {problems}.")


def _place(target: Path, folder: Path, receipt: BackupReceipt, there: list[Path]) -> Path | None:
    aside = None
    if there:
        aside = target / f"before-restore-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        aside.mkdir(mode=0o700)
        # The index first: a log beside another database would be taken for its own.
        for path in sorted(there, key=lambda each: not each.name.startswith(FILE_NAME)):
            path.replace(aside / path.name)
    # The index last: without it the directory is not taken for whole, as the file beside it says what it held.
    for name in sorted((part.name for part in receipt.parts), key=lambda name: name == FILE_NAME):
        (folder / name).replace(target / name)
    return aside
