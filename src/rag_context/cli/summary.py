"""How far a command is, as bars on a terminal and elsewhere a line now and then; and what became of its documents:
counted for people, written out for programs."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO

from rich.progress import MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID
from rich.text import Text

from rag_context.api.index import FileReceipt
from rag_context.api.wire import WireResponse
from rag_context.cli.console import Console, counted, one_line, separated
from rag_context.domain.documents import for_terminals
from rag_context.errors import BackendUnavailableError, InvalidInputError
from rag_context.files.histories import client_records

SHOWN = 10
"""Files or lines of a list that people see; programs get all."""

_ORDER = ("indexed", "replaced", "unchanged", "deferred", "removed", "forgotten", "rejected", "gone")
_NOTED = ("deferred", "removed", "forgotten", "gone")
_STYLES = {"unchanged": "dim", "rejected": "red", **dict.fromkeys(_NOTED, "yellow")}
_WORDS = {"deferred": "pending"}


@dataclass(slots=True)
class FirstFiles:
    """The first few of many files with a reason each, and how many there were in all."""

    total: int = 0
    first: list[tuple[str, str]] = field(default_factory=list)

    def add(self, source: str, reason: str = "") -> None:
        self.total += 1
        if self.total <= SHOWN:
            self.first.append((source, reason))


@dataclass(slots=True)
class Summary:
    """What became of the documents so far; it stays small however many there are. `noun`: what they came as."""

    noun: str = "file"
    counts: Counter[str] = field(default_factory=Counter)
    rejected: FirstFiles = field(default_factory=FirstFiles)
    skipped: FirstFiles = field(default_factory=FirstFiles)
    gone: FirstFiles = field(default_factory=FirstFiles)
    redactions: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    renamed: int = 0

    @property
    def kept(self) -> int:
        return sum(self.counts[status] for status in ("indexed", "replaced", "unchanged", "deferred"))

    def add(self, receipt: FileReceipt) -> None:
        source, reason = receipt.source or "", receipt.reason or ""
        if receipt.is_skipped:
            self.skipped.add(source, reason)
            return
        self.counts[receipt.status] += 1
        self.redactions.update(receipt.redactions or {})
        self.left_out.update(receipt.left_out or {})
        self.renamed += receipt.renamed_from is not None
        if receipt.status == "rejected":
            self.rejected.add(source, reason)
        elif receipt.status == "gone":
            self.gone.add(source)

    def embedded(self) -> None:
        self.counts["indexed"] += self.counts.pop("deferred", 0)

    def summarise(self, console: Console) -> None:
        parts = [
            (f"{self.counts[status]} {_WORDS.get(status, status)}", _STYLES.get(status, "green"))
            for status in _ORDER
            if self.counts[status]
        ]
        if self.renamed:
            parts.append((f"{self.renamed} of them renamed", "dim"))
        if self.skipped.total:
            parts.append((f"{self.skipped.total} skipped", "dim"))
        console.note(*separated(parts or [(f"No {self.noun}s found.", "yellow")]))
        if self.redactions:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.redactions.items()))
            console.note((f"Secrets masked: {kinds}.", "yellow"))
        if self.left_out:
            console.note((f"Left out of conversations: {client_records.counted(self.left_out)}.", "dim"))
        if self.counts["deferred"]:
            console.note("Keyword search finds pending files now; their vectors follow while a server runs.")
        _list("Rejected:", self.rejected, console)
        _list("Skipped (--include indexes files that only look generated):", self.skipped, console)
        _list("Gone, their documents are still found; --prune removes those:", self.gone, console)


def _list(title: str, files: FirstFiles, console: Console) -> None:
    if not files.total:
        return
    console.note(title)
    for source, reason in files.first:
        console.note("  ", one_line(source), (f": {one_line(reason)}" if reason else "", "dim"))
    if files.total > len(files.first):
        console.note((f"  and {files.total - len(files.first)} more; --json lists them all", "dim"))


IMPORTED = "What came in is safe: run the same command again, it goes on."
"""What is said where an import ends before it is complete."""


@dataclass(slots=True)
class InvalidLines:
    """Reports the first few lines of a file that cannot be used, as they come, and counts all."""

    console: Console
    total: int = 0

    def add(self, number: int, reason: str) -> None:
        self.total += 1
        if self.total <= SHOWN:
            self.console.warning(f"line {number}: {reason}")
        elif self.total == SHOWN + 1:
            self.console.warning("and more lines like these")


@dataclass(slots=True)
class ReceiptLines:
    """Receipts for programs, a line each. Where they cannot be written, the work that makes them ends."""

    outputs: list[IO[str]]
    _work: "asyncio.Task[None] | None" = None
    _failure: OSError | None = None

    def write(self, receipt: WireResponse) -> None:
        if not self.outputs or self._failure is not None:
            return
        line = for_terminals(receipt.to_json()).decode() + "\n"
        try:
            for output in self.outputs:
                output.write(line)
                output.flush()
        except OSError as error:
            self._failure = error
            if self._work is not None:
                self._work.cancel()

    async def of(self, work: Coroutine[None, None, None]) -> None:
        """Do the work that makes them. Raises: BrokenPipeError, BackendUnavailableError (they cannot be written)."""
        self._work = asyncio.ensure_future(work)
        try:
            await self._work
        except asyncio.CancelledError:
            if self._failure is None:
                self._work.cancel()
                raise
        if isinstance(self._failure, BrokenPipeError):
            raise self._failure
        if self._failure is not None:
            raise BackendUnavailableError("receipts", f"Receipts cannot be written: {self._failure.strerror}.")


@dataclass(slots=True)
class Sink:
    summary: Summary
    console: Console
    progress: Progress
    lines: ReceiptLines
    last_noted: float = field(default_factory=time.monotonic)
    """When people without a terminal last read how far it is."""

    def receive(self, receipt: FileReceipt) -> None:
        self.summary.add(receipt)
        self.lines.write(receipt)
        if receipt.status not in {"gone", "removed"}:
            for task in self.progress.tasks:
                self.progress.advance(task.id)
                now = time.monotonic()
                is_due = task.completed % PROGRESS_EVERY == 0 or now - self.last_noted >= PROGRESS_S
                if self.progress.disable and is_due:
                    self.last_noted = now
                    self.console.note(progress_line(task, f"{self.summary.noun}s"))


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from error
    with file:
        yield file


@contextmanager
def receipts_file(path: Path | None) -> Iterator[list[IO[str]]]:
    """The file for receipts, opened again; None where none was requested. Raises: InvalidInputError."""
    if path is None:
        yield []
        return
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"--receipts {str(path)!r} cannot be written: {error.strerror}.") from error
    try:
        yield [file]
    finally:
        with suppress(OSError):  # every line was flushed when it was written
            file.close()


PROGRESS_EVERY, PROGRESS_S = 100, 10.0
"""Files, or seconds, from one line of progress to the next where there is no terminal."""


@dataclass(slots=True)
class EmbeddingProgress:
    console: Console
    progress: Progress
    _task: TaskID | None = None
    _last_noted: float = 0.0

    def receive(self, done: int, total: int) -> None:
        if self._task is None:
            self.console.note(
                f"Keyword search finds all files now. Vectors of {counted(total, 'document')} follow; after Ctrl-C "
                "the same command continues."
            )
            for task in self.progress.tasks:
                self.progress.update(task.id, visible=False)
            self._task = self.progress.add_task("Embedding", total=total)
            self._last_noted = time.monotonic()
        self.progress.update(self._task, completed=done, total=total)
        if self.progress.disable and time.monotonic() - self._last_noted >= PROGRESS_S:
            self._last_noted = time.monotonic()
            task = next(task for task in self.progress.tasks if task.id == self._task)
            self.console.note(f"vectors: {progress_line(task, 'documents')}")


class Rate(ProgressColumn):
    """Documents, or parts of an index in %, per second."""

    def render(self, task: Task) -> Text:
        speed = mean_speed(task)
        return Text(f"{speed:.0f}/s" if speed else "", style="dim")


def mean_speed(task: Task) -> float:
    """Steps per second since the beginning, after its first second; 0.0 before.

    Files that did not change pass at thousands a second, and a batch arrives at once: a rate over the last moments
    would jump between thousands and none.
    """
    elapsed_s = (task.finished_time if task.finished else task.elapsed) or 0.0
    return task.completed / elapsed_s if elapsed_s >= 1.0 else 0.0


class Stages:
    """A bar for each stage of a command on a terminal; elsewhere a line every ten seconds."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self._console = console
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._last_noted = time.monotonic()

    def __call__(self, doing: str, noun: str, done: int, total: int | None) -> None:
        if doing not in self._tasks:
            self._tasks[doing] = self._progress.add_task(doing, total=total)
        task = self._tasks[doing]
        self._progress.update(task, completed=done, total=total)
        now = time.monotonic()
        if self._progress.disable and now - self._last_noted >= PROGRESS_S:
            self._last_noted = now
            self._console.note(f"{doing}: {progress_line(self._progress.tasks[task], noun)}")

    def built(self, share: float) -> None:
        """Show the share of an index over vectors that is built, 0..1."""
        self("Building the index over the vectors", "percent", round(100 * share), 100)


@contextmanager
def bar(
    console: Console, doing: str, *columns: ProgressColumn, total: int | None = None
) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on a terminal, elsewhere nothing; yields what shows how much is done, and of how much."""
    with console.progress(*columns) as progress:
        task = progress.add_task(doing, total=total)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def stages(console: Console, *columns: ProgressColumn) -> Iterator[Stages]:
    """Show the stages of what runs in the block: done, of how much, these columns, time spent and left."""
    with console.progress(MofNCompleteColumn(), *columns) as progress:
        yield Stages(console, progress)


def progress_line(task: Task, noun: str) -> str:
    """How far it is, where there is no terminal to draw a bar on: `300 of 840 files, 12/s, about 45 s left`."""
    of = f" of {task.total:.0f}" if task.total else ""
    parts = [f"{task.completed:.0f}{of} {noun}"]
    if (speed := mean_speed(task)) and noun != "percent":
        parts.append(f"{speed:.0f}/s")
    if task.time_remaining:
        left = task.time_remaining
        parts.append(f"about {f'{left:.0f} s' if left < 120 else f'{left / 60:.0f} min'} left")
    return ", ".join(parts)
