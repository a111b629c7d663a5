"""`index`: files and folders into the memory, with a receipt for each."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from threading import Event

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from rag_context.cli.connection import Connection, open_connection
from rag_context.cli.exits import ExitCode, exit_code
from rag_context.cli.options import Chosen
from rag_context.cli.screen import Screen, safe
from rag_context.cli.settings import load_available
from rag_context.contract.index import BulkLine, BulkReceipt
from rag_context.contract.reading import read_fields
from rag_context.contract.vocabulary import Vocabulary
from rag_context.errors import BackendUnavailableError, InvalidInputError
from rag_context.indexing.files import FILES_SESSION, FileDraft, Labels, Rejected, find_files, read_files
from rag_context.settings import Loaded, Settings
from rag_context.types import Draft, Metadata

BATCH_CHARS = 1 << 20
"""A batch ends with the document that brings it above this size."""

SHOWN_REJECTIONS = 10
_ORDER = ("indexed", "replaced", "unchanged", "deferred", "rejected")
_STYLES = {"indexed": "green", "replaced": "green", "unchanged": "dim", "deferred": "yellow", "rejected": "red"}
_WORDS = {"deferred": "pending"}


@dataclass(frozen=True, slots=True)
class IndexRun:
    """What to index, and what to say of it."""

    paths: Sequence[Path]
    content_type: str | None = None
    session_id: str | None = None
    category: str | None = None
    game: str | None = None
    tags: Sequence[str] = ()
    agent: str | None = None
    as_json: bool = False


@dataclass(slots=True)
class Shortlist:
    """The first few of many files with a reason each, and how many there were in all."""

    total: int = 0
    first: list[tuple[str, str]] = field(default_factory=list)

    def add(self, source: str, reason: str) -> None:
        """Count one, and keep it if it is among the first."""
        self.total += 1
        if self.total <= SHOWN_REJECTIONS:
            self.first.append((source, reason))


@dataclass(slots=True)
class Tally:
    """What became of the documents so far; it stays small however many there are."""

    counts: Counter[str] = field(default_factory=Counter)
    rejected: Shortlist = field(default_factory=Shortlist)
    skipped: Shortlist = field(default_factory=Shortlist)
    redactions: Counter[str] = field(default_factory=Counter)

    @property
    def kept(self) -> int:
        """Documents that are safe."""
        return self.counts.total() - self.counts["rejected"]

    def add(self, receipt: BulkReceipt) -> None:
        """Count a receipt."""
        self.counts[receipt.status] += 1
        self.redactions.update(receipt.redactions or {})
        if receipt.status == "rejected":
            self.rejected.add(receipt.source or "", receipt.reason or "")


@dataclass(frozen=True, slots=True)
class _Sink:
    """Where receipts go: into the tally, onto the bar, and out for programs."""

    tally: Tally
    screen: Screen
    progress: Progress
    as_json: bool

    def receive(self, receipt: BulkReceipt) -> None:
        self.tally.add(receipt)
        self._step(receipt)

    def reject(self, rejected: Rejected) -> None:
        receipt = BulkReceipt(status="rejected", source=rejected.path, reason=rejected.reason)
        if rejected.failed:
            self.tally.add(receipt)
        else:
            self.tally.skipped.add(rejected.path, rejected.reason)
        self._step(receipt)

    def _step(self, receipt: BulkReceipt) -> None:
        if self.as_json:
            self.screen.line(receipt.model_copy(update={"line": None}).to_json().decode())
        for task in self.progress.task_ids:
            self.progress.advance(task)


class _Rate(ProgressColumn):
    """Files per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.0f} files/s" if task.speed else "", style="dim")


def run(chosen: Chosen, what: IndexRun) -> ExitCode:
    """Index, and say what became of it."""
    screen = Screen()
    loaded = load_available(chosen)
    labels = _labels(what, loaded.settings)
    tally = Tally()
    try:
        asyncio.run(_index(loaded, what, labels, tally, screen))
    except BackendUnavailableError as error:
        screen.error(f"{error} {_resume(tally)}")
        return exit_code(error)
    except KeyboardInterrupt:
        screen.note(f"interrupted. {_resume(tally)}")
        return ExitCode.INTERRUPTED
    _summarise(tally, screen)
    return ExitCode.FAILED if tally.counts["rejected"] else ExitCode.OK


def _labels(what: IndexRun, settings: Settings) -> Labels:
    known = Vocabulary.extended(settings.vocabulary.content_types).content_types
    if what.content_type is not None and what.content_type not in known:
        raise InvalidInputError(f"--type {what.content_type!r} is not one of {', '.join(known)}.")
    metadata = Metadata(agent=what.agent, tags=tuple(what.tags), category=what.category, game=what.game)
    return Labels(what.content_type, what.session_id or FILES_SESSION, metadata)


async def _index(loaded: Loaded, what: IndexRun, labels: Labels, tally: Tally, screen: Screen) -> None:
    settings = loaded.settings
    async with open_connection(loaded) as connection:
        screen.note(Text(f"Adding to {connection.place}", style="dim"))
        with _progress(what.paths, screen) as progress:
            sink = _Sink(tally, screen, progress, what.as_json)
            items = read_files(what.paths, labels, max_bytes=settings.indexing.max_file_bytes)
            batches = _batches(items, connection.batch)
            turn = asyncio.Lock()
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(settings.indexing.concurrency):
                        group.create_task(_work(connection, batches, turn, sink))
            except ExceptionGroup as errors:
                raise _first(errors) from None


async def _work(
    connection: Connection, batches: Iterator[list[BulkLine | Rejected]], turn: asyncio.Lock, sink: _Sink
) -> None:
    """Take batches until there are no more; reading happens in a thread, one batch at a time."""
    while True:
        async with turn:
            batch = await asyncio.to_thread(next, batches, None)
        if batch is None:
            return
        for item in batch:
            if isinstance(item, Rejected):
                sink.reject(item)
        if lines := [item for item in batch if isinstance(item, BulkLine)]:
            await connection.bulk(lines, sink.receive)


def _batches(items: Iterator[FileDraft | Rejected], size: int) -> Iterator[list[BulkLine | Rejected]]:
    batch: list[BulkLine | Rejected] = []
    chars = 0
    for item in items:
        line = _line(item)
        batch.append(line)
        chars += len(line.content) if isinstance(line, BulkLine) else 0
        if len(batch) >= size or chars > BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def _line(item: FileDraft | Rejected) -> BulkLine | Rejected:
    if isinstance(item, Rejected):
        return item
    try:
        return read_fields(BulkLine, _fields(item.draft))
    except InvalidInputError as error:
        return Rejected(item.draft.source, str(error))


def _fields(draft: Draft) -> dict[str, object]:
    metadata = draft.metadata
    return {
        "content": draft.content,
        "contentType": draft.content_type,
        "sessionId": draft.session_id,
        "source": draft.source,
        "fromFile": True,
        "metadata": {
            "agent": metadata.agent,
            "tags": list(metadata.tags) or None,
            "category": metadata.category,
            "game": metadata.game,
        },
    }


@contextmanager
def _progress(paths: Sequence[Path], screen: Screen) -> Iterator[Progress]:
    """A bar on a terminal, with the number of files as soon as it is known; elsewhere nothing."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TextColumn("left", style="dim"),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=screen.err, transient=True, disable=not screen.err.is_terminal)
    ended = Event()

    def count(task: TaskID) -> None:
        total = sum(1 for _ in takewhile(lambda _: not ended.is_set(), find_files(paths)))
        progress.update(task, total=total)

    with progress:
        if screen.err.is_terminal:
            asyncio.get_running_loop().run_in_executor(None, count, progress.add_task("Indexing", total=None))
        try:
            yield progress
        finally:
            ended.set()


def _first(errors: ExceptionGroup) -> Exception:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error


def _resume(tally: Tally) -> str:
    return (
        f"{_files(tally.kept)} acknowledged and safe: run the same command again, it skips them."
        if tally.kept
        else "Nothing was indexed: run the same command again."
    )


def _files(number: int) -> str:
    return f"{number} file was" if number == 1 else f"{number} files were"


def _summarise(tally: Tally, screen: Screen) -> None:
    parts = [
        Text(f"{tally.counts[status]} {_WORDS.get(status, status)}", style=_STYLES[status])
        for status in _ORDER
        if tally.counts[status]
    ]
    if tally.skipped.total:
        parts.append(Text(f"{tally.skipped.total} skipped", style="dim"))
    screen.note(Text(", ").join(parts) if parts else Text("No files found.", style="yellow"))
    if tally.redactions:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.redactions.items()))
        screen.note(Text(f"Secrets blanked out: {kinds}.", style="yellow"))
    if tally.counts["deferred"]:
        screen.note("Pending files are found by their words now; their vectors follow while a server runs.")
    _list("Rejected:", tally.rejected, screen)
    _list("Skipped, nothing to read in them:", tally.skipped, screen)


def _list(title: str, files: Shortlist, screen: Screen) -> None:
    if not files.total:
        return
    screen.note(title)
    for source, reason in files.first:
        screen.note(Text.assemble("  ", safe(source), (f": {safe(reason)}", "dim")))
    if files.total > len(files.first):
        screen.note(Text(f"  and {files.total - len(files.first)} more; --json lists them all", style="dim"))
