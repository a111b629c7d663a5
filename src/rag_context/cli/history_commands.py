"""`import-history`: the sessions that agents' clients keep on this machine, once or as they go on."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.progress import MofNCompleteColumn, Progress

from rag_context.agents import histories
from rag_context.api.index import HistoryReceipt
from rag_context.cli import connecting, index_files, operation_options, summary
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Console, counted, one_line, separated
from rag_context.cli.options import Options, argument, named_path, option, resumable, with_options
from rag_context.cli.summary import PROGRESS_S, EmbeddingProgress, Rate
from rag_context.domain.documents import PROJECT_TAG
from rag_context.errors import InvalidInputError
from rag_context.files.histories.importing import Choice, HistoryImport
from rag_context.files.histories.places import CLIENTS, Transcript, unreadable, watched
from rag_context.files.watching import Follower
from rag_context.settings import Loaded
from rag_context.wiring.local_files import open_history_manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions(Options):
    clients: list[str] | None = argument(
        f"Only these: {', '.join(CLIENTS)}.", "[CLIENT]...", default=None, show_default=False
    )
    dry_run: bool = option(False, "Say what would be taken in, and change nothing.")
    since: str | None = option(None, "Only sessions that went on since: 7d, 2026-01-31 or RFC 3339.", metavar="WHEN")
    project: Path | None = option(
        None, "Only sessions of the project of this folder.", metavar="DIR", parser=named_path
    )
    all_projects: bool = option(False, "Sessions of all projects; that is the default.")
    headless: bool | None = option(None, "Also sessions that a program led (history.headless).", show_default=False)
    subagents: bool | None = option(None, "Also sessions of sub-agents (history.subagents).", show_default=False)
    force: bool = option(False, "Also sessions that were deleted from the memory since.")
    watch: bool = option(False, "Go on, and take in what is said from then on, until Ctrl-C.")


@dataclass
class _Taken:
    """What became of the sessions: one line each for programs, sums for people."""

    console: Console
    lines: summary.ReceiptLines
    progress: Progress | None = None
    counts: Counter[str] = field(default_factory=Counter)
    redactions: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    rejected: list[HistoryReceipt] = field(default_factory=list)
    groups: dict[tuple[str, str], "_Group"] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    def receive(self, receipt: HistoryReceipt) -> None:
        self.lines.write(receipt)
        self.counts[receipt.status] += 1
        self.redactions.update(receipt.redactions or {})
        if receipt.folder:
            self.folders.add(receipt.folder)
        if receipt.status == "skipped" and receipt.reason:
            self.reasons[receipt.reason.partition(";")[0]] += 1
        if receipt.status == "rejected":
            self.rejected.append(receipt)
        if receipt.status in ("new", "grown"):
            key = receipt.client, (receipt.project or "").removeprefix(PROJECT_TAG)
            self.groups.setdefault(key, _Group()).add(receipt)
        if self.progress is not None:
            for task in self.progress.tasks:
                self.progress.advance(task.id)

    def show(self, *, is_survey: bool) -> None:
        if self.groups and not self.lines.outputs:
            rows = [
                (client, project, str(each.sessions), str(each.messages), each.period, _size(each.size))
                for (client, project), each in sorted(self.groups.items())
            ]
            titles = ("client", "project", "sessions", "messages", "period", "size")
            self.console.show_table(titles, rows, right=("sessions", "messages", "size"), unwrapped=titles)
        words = {"new": "to take in" if is_survey else "new", "deleted": "deleted here before, left out"}
        parts = [(f"{self.counts[name]} {words.get(name, name)}", "") for name in _ORDER if self.counts[name]]
        self.console.note(*separated(parts or ["No sessions found"]), ".")
        if self.redactions:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.redactions.items()))
            self.console.note((f"Secrets masked: {kinds}.", "yellow"))
        if self.reasons:
            reasons = ", ".join(f"{count} ({one_line(reason)})" for reason, count in self.reasons.most_common())
            self.console.note((f"Skipped: {reasons}.", "dim"))
        if self.counts["deleted"]:
            self.console.note("--force takes in again what was deleted.")
        for receipt in self.rejected[: summary.SHOWN]:
            self.console.warning(f"{one_line(receipt.path)}: {one_line(receipt.reason or '')}")
        for client, reason in unreadable():
            self.console.note((f"{client}: {reason}.", "dim"))


_ORDER = ("new", "grown", "unchanged", "deleted", "skipped", "rejected")


@dataclass(slots=True)
class _Group:
    sessions: int = 0
    messages: int = 0
    size: int = 0
    since: datetime | None = None
    until: datetime | None = None

    def add(self, receipt: HistoryReceipt) -> None:
        self.sessions += 1
        self.messages += receipt.messages
        self.size += receipt.size
        times = [each for each in (self.since, self.until, receipt.started_at, receipt.ended_at) if each is not None]
        self.since, self.until = min(times, default=None), max(times, default=None)

    @property
    def period(self) -> str:
        if self.since is None or self.until is None:
            return ""
        first, last = (f"{each.astimezone():%Y-%m-%d}" for each in (self.since, self.until))
        return first if first == last else f"{first} to {last}"


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"


@with_options
def import_history(options: HistoryOptions) -> ExitCode:
    """Take in the sessions that agents' clients keep on this machine: what people and models said, no more.

    Tool output, system prompts, injected context and <private> spans are left out, and secrets are masked. A session
    belongs to the repository that it ran in, by a tag. Run again, the command takes in what is new; an interrupted run
    goes on where it was. A session that was deleted from the memory stays out. With --json, stdout has one receipt per
    line.
    """
    console = Console()
    flags = {"history.headless": options.headless, "history.subagents": options.subagents}
    loaded = options.load_available(flags)
    if unknown := sorted(set(options.clients or ()) - set(CLIENTS)):
        raise InvalidInputError(f"{unknown[0]!r} is none of the clients that are known: {', '.join(CLIENTS)}.")
    since = operation_options.parse_time(options.since, "--since", datetime.now(UTC)) if options.since else None
    project = histories.project_tag(os.path.realpath(options.project)) if options.project is not None else None
    choice = histories.choice_of(loaded.settings, since=since, project=project, force=options.force)
    taken = _Taken(console, summary.ReceiptLines([sys.stdout] if options.as_json else []))
    with resumable(console, partial(_so_far, taken)):
        run_to_end(taken.lines.of(_import(loaded, options, choice, taken)))
    taken.show(is_survey=options.dry_run)
    if options.watch and not options.dry_run:
        asyncio.run(_watch(loaded, choice, taken, console))
    return ExitCode.FAILED if taken.rejected else ExitCode.OK


async def _import(loaded: Loaded, options: HistoryOptions, choice: Choice, taken: _Taken) -> None:
    console = taken.console
    transcripts = await asyncio.to_thread(lambda: list(histories.found(options.clients or ())))
    async with connecting.open_connection(loaded) as connection:
        if not options.dry_run:
            console.note((f"Adding to {connection.place}", "dim"))
        with (
            console.progress(MofNCompleteColumn(), Rate()) as progress,
            open_history_manifest(loaded.settings.data_dir) as manifest,
            histories.open_histories(connection, manifest, choice, taken.receive) as importer,
        ):
            progress.add_task("Reading", total=len(transcripts))
            taken.progress = progress
            ticking = asyncio.create_task(_tick(progress, taken))
            run = importer.survey if options.dry_run else importer.run
            try:
                await run(iter(transcripts))
                if not options.clients or "aider" in options.clients:
                    await run(_aider(importer, taken))
            finally:
                ticking.cancel()
            if not options.dry_run:
                if connection.is_local:
                    await connection.embed_pending(EmbeddingProgress(console, progress).receive)
                elif taken.groups:
                    note = "Keyword search finds all of it now; the server adds the vectors in the background."
                    taken.console.note(note)
            taken.progress = None


async def _tick(progress: Progress, taken: _Taken) -> None:
    """Where there is no terminal, a line now and then."""
    while progress.disable:
        await asyncio.sleep(PROGRESS_S)
        taken.console.note((f"{counted(taken.counts.total(), 'session')} read", "dim"))


def _aider(importer: HistoryImport, taken: _Taken) -> Iterator[Transcript]:
    known = {str(Path(each.path).parent) for each in importer.manifest.below("/") if each.path.endswith(".history.md")}
    yield from histories.of_aider({*known, *taken.folders, str(Path.cwd())})


def _so_far(taken: _Taken) -> str:
    kept = taken.counts["new"] + taken.counts["grown"]
    done = f"{counted(kept, 'session is', 'sessions are')} in. " if kept else ""
    return f"{done}Run the same command again: it goes on there."


async def _watch(loaded: Loaded, choice: Choice, taken: _Taken, console: Console) -> None:
    def listen(receipt: HistoryReceipt) -> None:
        if taken.lines.outputs:
            taken.receive(receipt)
        elif receipt.status in ("new", "grown", "rejected"):
            reason = f": {receipt.reason}" if receipt.reason else ""
            console.show(f"{receipt.status:<9}", one_line(f"{receipt.client}:{receipt.session_id}{reason}"))

    @asynccontextmanager
    async def reached() -> AsyncIterator[histories.HistorySync]:
        async with connecting.open_connection(loaded) as connection:
            with (
                open_history_manifest(loaded.settings.data_dir) as manifest,
                histories.open_histories(connection, manifest, choice, listen) as importer,
            ):
                yield histories.HistorySync(importer)

    reports = index_files.FollowReports(console, "Following sessions; the memory is in step", "message")
    follower = Follower(watched(), reached, reports.ready, reports.trouble, debounce_s=histories.FOLLOWED_AFTER_S)
    await reports.follow(follower)
