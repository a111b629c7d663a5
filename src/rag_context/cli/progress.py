"""How far a command is: bars on a terminal, elsewhere a line now and then."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.progress import MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID
from rich.text import Text

from rag_context.cli.console import Console, counted

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
