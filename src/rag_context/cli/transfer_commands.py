"""`export`, `import`, `backup` and `restore`: an index as one file of JSON lines, a data directory as one archive."""

import asyncio
import io
import json
import os
import select
import stat
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from rich.progress import MofNCompleteColumn

from rag_context.api.export_lines import ExportHeader
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Console, counted, separated
from rag_context.cli.local_connection import CLI, MODEL_WAIT_S
from rag_context.cli.options import Options, argument, option, resumable, with_options
from rag_context.cli.summary import IMPORTED, InvalidLines, Rate, Stages, bar, opened, stages
from rag_context.domain.vectors import EmbeddingModel
from rag_context.errors import BackendError, InvalidInputError, RagContextError
from rag_context.memory.accesses import recorded_by, recording
from rag_context.memory.service import Service
from rag_context.settings import Settings
from rag_context.transfer.exporter import Exported
from rag_context.transfer.importer import Conflict, Imported, ImportOutcome, Lines
from rag_context.wiring.opening import open_export, open_import
from rag_context.wiring.transfers import back_up, restore

STREAM = Path("-")
"""Stands for stdout, or stdin."""

_STYLES = {
    ImportOutcome.NEW: "green",
    ImportOutcome.REPLACED: "green",
    ImportOutcome.COMPLETED: "green",
    ImportOutcome.UNCHANGED: "dim",
    ImportOutcome.KEPT: "yellow",
}
_Show = Callable[[int, int | None], None]
_WORDS = {ImportOutcome.KEPT: "kept in a newer version"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions(Options):
    file: Path = argument("JSON lines; - is stdout.", "FILE")
    project: str | None = option(None, "Only this project; '' for the agents' own memory.", metavar="NAME")
    collections: bool = option(False, "Also the collections, with their vectors.")
    statistics: bool = option(False, "Also the records of searches, with their questions.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions(Options):
    file: Path = argument("What `export` wrote; - is stdin.", "FILE")
    overwrite: bool = option(False, "Also replace newer versions in the index.")

    @property
    def conflict(self) -> Conflict:
        return Conflict.OVERWRITE if self.overwrite else Conflict.KEEP


@with_options
def export_index(options: ExportOptions) -> ExitCode:
    """Write all documents with their chunks and vectors to a file, beside a running server.

    The file gets its name once it is complete. `import` reads it into any other backend.
    """
    if options.project is not None and (options.collections or options.statistics):
        raise InvalidInputError("--collections and --statistics belong to no project: leave --project out.")
    console = Console()
    settings = options.load_for_work().settings
    with written(options.file) as file, bar(console, "Exporting", MofNCompleteColumn(), Rate()) as show:
        out = run_to_end(_export(settings, options, _writer(file, options.file), show))
    if options.as_json:
        print(json.dumps(asdict(out)), file=sys.stderr if options.file == STREAM else sys.stdout)
    else:
        waiting = f", {out.pending} of them without vectors" if out.pending else ""
        console.note(f"{counted(out.documents, 'document')} exported{waiting}.")
        _note_rest(console, out)
    if options.project and not out.documents:
        console.warning(f"no document belongs to a project {options.project!r}")
    return ExitCode.OK


@with_options
def import_index(options: ImportOptions) -> ExitCode:
    """Import an export, beside a running server; existing documents stay unchanged.

    Vectors of another model are not used: their documents are embedded again. Exits 1 if lines could not be read
    or are missing; the others are imported.
    """
    console = Console()
    settings = options.load_for_work().settings
    with resumable(console, lambda: IMPORTED), _opened(options.file) as source:
        imported = run_to_end(_import(settings, options, source, console))
    if options.as_json:
        outcomes = {outcome.value: imported.outcomes[outcome] for outcome in ImportOutcome}
        names = ("pending", "broken", "entries", "searches", "changes_left", "complete")
        rest = {name: getattr(imported, name) for name in names}
        console.line(json.dumps({**outcomes, **rest}))
    else:
        _summarise(imported, console)
    if not imported.complete:
        console.error("The file does not end as an export does: lines are missing, or were added.")
    return ExitCode.OK if imported.complete and not imported.broken else ExitCode.FAILED


async def _export(
    settings: Settings, options: ExportOptions, put: Callable[[bytes], Awaitable[None]], show: _Show
) -> Exported:
    async with open_export(settings, collections=options.collections, statistics=options.statistics) as exporter:
        return await exporter.export(put, show, project=options.project)


async def _import(settings: Settings, options: ImportOptions, source: "_Source", console: Console) -> Imported:
    with stages(console, Rate()) as show:
        async with open_import(settings, options.conflict, show.built) as (importer, service):
            await service.wait_ready(MODEL_WAIT_S)
            reports = _Reports(console, show)
            try:
                with recorded_by(service.record_access), recording("import", client=CLI):
                    imported = await importer.import_lines(
                        Lines(source.file), reports.header, reports.progress, reports.broken.add
                    )
            finally:
                source.give_up()
            if imported.pending:
                imported.pending = await _complete(service, console, show)
    return imported


@dataclass(slots=True)
class _Reports:
    console: Console
    show: Stages
    broken: InvalidLines = field(init=False)
    total: int | None = None

    def __post_init__(self) -> None:
        self.broken = InvalidLines(self.console)

    def header(self, header: ExportHeader, model: EmbeddingModel | None) -> None:
        self.total = header.documents
        if header.model is not None and model is None:
            text = (
                f"The vectors of this export are of {header.model.name}, and the model of this index is another "
                "or not known yet: texts are imported now, and embedded again."
            )
            self.console.note((text, "yellow"))

    def progress(self, imported: Imported) -> None:
        self.show("Importing", "documents", imported.lines, self.total)


async def _complete(service: Service, console: Console, show: Stages) -> int:
    """Embed what came without vectors that can be used; returns how many documents still wait for theirs."""
    try:
        await service.reindexing.restore((), partial(show, "Embedding", "documents"))
    except BackendError as error:
        console.warning(f"not all vectors could be made now: {error}")
    return (await service.health()).pending_documents


def _note_rest(console: Console, moved: Exported | Imported) -> None:
    if moved.entries or moved.searches:
        entries = f"{counted(moved.entries, 'document')} of collections"
        console.note(f"{entries} and {counted(moved.searches, 'record')} of searches, too.")


def _summarise(imported: Imported, console: Console) -> None:
    parts = [
        (f"{imported.outcomes[outcome]} {_WORDS.get(outcome, outcome.value)}", _STYLES[outcome])
        for outcome in ImportOutcome
        if imported.outcomes[outcome]
    ]
    if imported.broken:
        parts.append((f"{imported.broken} broken", "red"))
    if parts or not (imported.entries or imported.searches):
        console.note(*separated(parts or [("Nothing came in.", "yellow")]))
    _note_rest(console, imported)
    if imported.outcomes[ImportOutcome.KEPT]:
        console.note("--overwrite puts the versions of the export in place of newer ones.")
    if imported.changes_left:
        left = counted(imported.changes_left, "entry", "entries")
        console.warning(f"{left} of the log and of what was forgotten were left out: these stores keep no log.")
    if imported.pending:
        console.note(
            f"{counted(imported.pending, 'document')} wait for their vectors: keyword search finds them, and they are "
            "completed while a server runs."
        )


def _writer(file: BinaryIO, path: Path) -> Callable[[bytes], Awaitable[None]]:
    async def put(line: bytes) -> None:
        with _writing(path):
            await asyncio.to_thread(file.write, line)

    return put


@dataclass(frozen=True, slots=True)
class _Source:
    file: BinaryIO
    give_up: Callable[[], None]


class _Stdin(io.RawIOBase):
    """Stdin, which a thread may wait for in vain."""

    def __init__(self) -> None:
        self._stdin = sys.stdin.fileno()
        self._woken, self._wake = os.pipe()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        ready, _, _ = select.select([self._stdin, self._woken], [], [])
        if self._woken in ready:
            return 0
        view = memoryview(buffer)
        read = os.read(self._stdin, len(view))
        view[: len(read)] = read
        return len(read)

    def give_up(self) -> None:
        os.write(self._wake, b"!")

    def close(self) -> None:
        if not self.closed:
            os.close(self._woken)
            os.close(self._wake)
        super().close()


@contextmanager
def _opened(path: Path) -> Iterator[_Source]:
    if path == STREAM and sys.platform == "win32":  # where nothing but a socket can be waited for
        yield _Source(sys.stdin.buffer, lambda: None)
        return
    if path == STREAM:
        stdin = _Stdin()
        with io.BufferedReader(stdin, 1 << 16) as buffered:
            yield _Source(buffered, stdin.give_up)
        return
    with opened(path) as file:
        yield _Source(file, lambda: None)


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name when it is whole and on disk; pipes and devices are written as they are."""
    if path == STREAM:
        yield sys.stdout.buffer
        with _writing(path):
            sys.stdout.buffer.flush()
        return
    part: Path | None = None
    with _writing(path):
        target = path.resolve()
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            file: BinaryIO = target.open("wb")
        else:
            handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
            file, part = os.fdopen(handle, "wb"), Path(name)
    try:
        yield file
        with _writing(path):
            file.flush()
            if part is not None:
                os.fsync(file.fileno())
                part.replace(target)
    finally:
        with suppress(OSError):  # what is left cannot be written, as was said already
            file.close()
        if part is not None:
            part.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        text = f"{'stdout' if path == STREAM else path} cannot be written: {error.strerror}."
        raise RagContextError(text) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupOptions(Options):
    file: Path = argument("The backup; - is stdout.", "FILE")
    with_configuration: bool = option(False, "Also the configuration file, with the keys and passwords in it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions(Options):
    file: Path = argument("What `backup` wrote; - is stdin.", "FILE")
    overwrite: bool = option(False, "Set aside what the data directory holds, in a folder of it.")


@with_options
def backup(options: BackupOptions) -> ExitCode:
    """Write the data directory to one file, as it is at one moment, beside a running server.

    The file gets its name once it is complete. `restore` puts it into a data directory.
    """
    console = Console()
    loaded = options.load_for_work()
    beside = Path.cwd() if options.file == STREAM else options.file.absolute().parent
    with _writing(options.file), written(options.file) as file:
        configuration = loaded.file if options.with_configuration else None
        receipt = back_up(loaded.settings, file, beside, configuration)
    if options.as_json:
        print(json.dumps(asdict(receipt)), file=sys.stderr if options.file == STREAM else sys.stdout)
    else:
        size = sum(part.bytes for part in receipt.parts)
        console.note(
            f"{counted(receipt.documents, 'document')} and {counted(receipt.collections, 'collection')} backed up, "
            f"{size / 1e6:,.1f} MB in {counted(len(receipt.parts), 'file')}."
        )
    return ExitCode.OK


@with_options
def restore_backup(options: RestoreOptions) -> ExitCode:
    """Put a backup into an empty data directory, once all of it was read and checked.

    Nothing is changed if the file is not a whole backup, if its index is not sound, or while a process uses the data.
    """
    console = Console()
    settings = options.load_for_work().settings
    try:
        with sys.stdin.buffer if options.file == STREAM else options.file.open("rb") as file:
            receipt, aside = run_to_end(restore(settings, file, over=options.overwrite))
    except OSError as error:
        raise InvalidInputError(f"{options.file} cannot be restored: {error.strerror}.") from error
    if options.as_json:
        console.line(json.dumps({**asdict(receipt), "setAside": None if aside is None else str(aside)}))
    else:
        console.show(
            f"{counted(receipt.documents, 'document')} and {counted(receipt.collections, 'collection')} of "
            f"{receipt.made_at[:19]} restored into {settings.data_dir}; the index is sound."
        )
        if aside is not None:
            console.show(f"What was there is in {aside}.")
    return ExitCode.OK
