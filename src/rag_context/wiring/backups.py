"""Backups of a data directory, and their return: whole, checked, and over another index only if that is requested."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from rag_context._version import __version__
from rag_context.domain.reports import Thoroughness
from rag_context.errors import ConfigurationError, InvalidInputError
from rag_context.memory.index_maintenance import report
from rag_context.settings import Settings
from rag_context.settings.keys import TITLES
from rag_context.stores.machine_tables import FILES_NAME, HISTORIES_NAME, INJECTIONS_NAME, PROJECTS_NAME
from rag_context.stores.sqlite.embedded import FILE_NAME, copy_index, copy_table
from rag_context.stores.sqlite.shared_log import is_used
from rag_context.transfer.archives import BackupReceipt, read_archive, write_archive
from rag_context.wiring.opening import open_audit

# What is recorded of a file or a session says that its documents are stored. So these are copied before the index,
# which may then hold more than they say, and never less.
_TABLES = (FILES_NAME, HISTORIES_NAME, PROJECTS_NAME, INJECTIONS_NAME)
CONFIGURATION = "rag-context.toml"
_NAMES = frozenset({*_TABLES, FILE_NAME, CONFIGURATION})
_SUFFIXES = ("", "-wal", "-shm", ".damaged")


def back_up(settings: Settings, file: BinaryIO, beside: Path, configuration: Path | None) -> BackupReceipt:
    """Write a backup of the data directory, beside processes that use it, and of a `configuration` file.

    Copies are made in the folder `beside`, for as long as it takes.

    Raises:
        ConfigurationError: there is no index in the data directory.
        BackendError: it cannot be read, or is damaged.
        OSError: the archive or a copy cannot be written.
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

    Raises:
        ConfigurationError: something is there, or a process uses it; nothing was changed.
        InvalidInputError: the file is no whole backup, or its index is not sound; nothing was changed.
        BackendError: the index in it cannot be read; nothing was changed.
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
