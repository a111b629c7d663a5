"""`index` and `watch`: files, folders and streams of documents into the memory, once or as they change."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from threading import Event
from typing import Any

from rich.progress import MofNCompleteColumn, Progress, TaskID

from rag_context._version import __version__
from rag_context.agents.workspace import workspace
from rag_context.api.index import BulkLine, BulkReceipt, FileReceipt, MetadataFields
from rag_context.api.wire import Vocabulary
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.connecting import Connection, open_connection
from rag_context.cli.console import Console, counted, one_line
from rag_context.cli.operation_options import NAMES, parameter
from rag_context.cli.options import Options, argument, named_path, option, resumable, with_options
from rag_context.cli.summary import EmbeddingProgress, Rate, ReceiptLines, Sink, Summary, receipts_file
from rag_context.domain.documents import FILTERED, TEXT_FIELDS, Metadata
from rag_context.errors import InvalidInputError, RagContextError
from rag_context.files import file_jobs, walk, watching
from rag_context.files.file_reading import READING, Labels, Rejected, printable
from rag_context.files.folder_sync import FolderSync, Gone
from rag_context.files.formats.converter import Converter
from rag_context.files.generated import RULES, Generated
from rag_context.files.sending import CONCURRENCY, Job, batched, in_thread, read_documents, send
from rag_context.files.target import IndexTarget
from rag_context.settings import Loaded, Settings
from rag_context.wiring.local_files import open_file_manifest

STDIN = Path("-")

Listener = Callable[[FileReceipt], None]


@dataclass(frozen=True, slots=True)
class LabelOptions:
    content_type: str | None = option(
        None, "Kind of content: chat, decision, code or documentation.", "--type", metavar="KIND"
    )
    session: str | None = option(None, "Session that the documents belong to.", metavar="ID")
    tag: list[str] | None = option(None, "A tag; may be given several times.", metavar="TAG")
    agent: str | None = option(None, "Agent that wrote the documents.", metavar="NAME")

    def labels(self, settings: Settings, stated: Mapping[str, Any]) -> Labels:
        """The same as labels, with the `stated` fields. Raises: InvalidInputError."""
        known = Vocabulary.extended(settings.vocabulary.content_types).content_types
        if self.content_type is not None and self.content_type not in known:
            raise InvalidInputError(f"--type {self.content_type!r} is not one of {', '.join(known)}.")
        metadata = Metadata(agent=self.agent, tags=tuple(self.tag or ()), **stated)
        return Labels(self.content_type, self.session, metadata)


_STATED = [parameter(name, MetadataFields.model_fields[name], NAMES[name]) for name in FILTERED]
_with_labels = partial(with_options, sources={"stated": (_STATED, dict)})


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFilesOptions(Options):
    paths: list[Path] = argument(
        "Files, folders, quoted patterns; - is stdin (see --jsonl).", "PATH...", parser=named_path
    )
    jsonl: bool = option(False, "The files are streams of documents, one JSON object per line.")
    include: list[str] | None = option(
        None, "Index matching files although they look generated; may be given several times.", metavar="PATTERN"
    )
    prune: bool = option(False, "Remove the documents of files that are gone from the folders.")
    secrets: bool = option(False, "Also read files at the usual places of secrets (~/.ssh, .netrc, /etc, ...).")
    receipts: Path | None = option(None, "Write a receipt for each document, one JSON object per line.", metavar="FILE")

    @property
    def streams(self) -> list[Path]:
        return [path for path in self.paths if path == STDIN or self.jsonl]

    @property
    def files(self) -> list[Path]:
        return [path for path in self.paths if path != STDIN and not self.jsonl]


@_with_labels
def index(label_options: LabelOptions, stated: Mapping[str, Any], options: IndexFilesOptions) -> ExitCode:
    """Index files, folders and streams of documents; changed files are replaced, unchanged ones are not read.

    Ignore files (.gitignore, .ragignore) are respected. Lock files, vendored, minified and generated code and tables
    of data are skipped, and listed; --include '*.lock' takes them. So are the usual places of secrets (~/.ssh, .netrc,
    shell histories, /etc, ...), unless --secrets is given. An interrupted run is resumed by the same command.
    Documents of files that are gone are reported; --prune removes them. With --json, stdout has one receipt per line.
    """
    console = Console()
    loaded = options.load_available()
    labels = label_options.labels(loaded.settings, stated)
    summary = Summary("document" if options.streams else "file")
    with resumable(console, partial(_acknowledged, summary)):
        run_to_end(_index(loaded, options, labels, summary, console))
    summary.summarise(console)
    return ExitCode.FAILED if summary.counts["rejected"] else ExitCode.OK


async def _index(
    loaded: Loaded, options: IndexFilesOptions, labels: Labels, summary: Summary, console: Console
) -> None:
    with receipts_file(options.receipts) as outputs:
        async with open_connection(loaded) as connection:
            console.note((f"Adding to {connection.place}", "dim"))
            with _progress(options, console) as progress:
                lines = ReceiptLines([*outputs, *([sys.stdout] if options.as_json else [])])
                sink = Sink(summary, console, progress, lines)
                await lines.of(_take_in(connection, loaded.settings, options, labels, sink.receive))
                if summary.counts["deferred"] or connection.is_local:
                    left = await connection.embed_pending(EmbeddingProgress(console, progress).receive)
                    if not left:
                        summary.embedded()


async def _take_in(
    connection: Connection, settings: Settings, options: IndexFilesOptions, labels: Labels, listen: Listener
) -> None:
    if options.files:
        with open_sync(
            connection, settings, labels, Gone.PRUNE if options.prune else Gone.REPORT, listen, options.include or ()
        ) as sync:
            own = () if options.receipts is None else (options.receipts.resolve(),)
            await replace(sync, own=(*sync.own, *own)).run(
                [replace(root, secrets=options.secrets) for root in walk.roots(options.files)]
            )
    vocabulary = Vocabulary.extended(settings.vocabulary.content_types, settings.vocabulary.categories)
    for path in dict.fromkeys(options.streams):
        documents = _documents(path, labels, BulkLine.with_vocabulary(vocabulary))
        await send_documents(documents, connection, listen)


@contextmanager
def open_sync(
    target: IndexTarget, settings: Settings, labels: Labels, gone: Gone, listen: Listener, include: Sequence[str] = ()
) -> Iterator[FolderSync]:
    """Brings an index in step with files, as the settings say how.

    `include` are patterns of files to take although they look generated.
    """
    indexing = settings.indexing
    key = [__version__, labels.content_type, labels.session_id, indexing.max_file_bytes, indexing.redaction]
    generated = Generated((*indexing.include, *include))
    metadata = labels.metadata
    key += [*(getattr(metadata, name) for name in TEXT_FIELDS), *metadata.tags]
    key += [RULES, READING, *generated.include]
    digest = blake2b(json.dumps(key).encode(), digest_size=16).digest()
    with ExitStack() as stack:
        manifest = stack.enter_context(open_file_manifest(settings.data_dir))
        converter = stack.enter_context(Converter())
        reading = file_jobs.ReadingSettings(labels, indexing.max_file_bytes, digest, generated, lru_cache(_project_of))
        yield FolderSync(target, manifest, reading, converter, gone, listen, own=(settings.data_dir.resolve(),))


def _project_of(folder: Path) -> str | None:
    """The tag of the repository that a folder lies in. What lies in none is general: notes, books, exports."""
    here = workspace(folder)
    return here.tag if here is not None and (here.root / ".git").exists() else None


async def send_documents(documents: Iterator[BulkLine | Rejected], target: IndexTarget, listen: Listener) -> None:
    soon = asyncio.get_running_loop().call_soon_threadsafe

    def jobs() -> Iterator[Job]:
        for each in documents:
            if isinstance(each, Rejected):
                soon(listen, FileReceipt(status="rejected", source=each.path, reason=each.reason))
            else:
                yield Job(each, partial(_done, each, listen))

    await send(in_thread(batched(jobs())), target, CONCURRENCY)


def _done(line: BulkLine, listen: Listener, receipt: BulkReceipt) -> None:
    own = receipt.model_copy(update={"line": None, "source": receipt.source or line.source})
    listen(FileReceipt(**own.model_dump()))


def _documents(path: Path, labels: Labels, model: type[BulkLine]) -> Iterator[BulkLine | Rejected]:
    if path == STDIN:
        yield from read_documents(sys.stdin.buffer, "stdin", labels, model)
        return
    try:
        with path.open("rb") as file:
            yield from read_documents(file, printable(path), labels, model)
    except OSError as error:
        yield Rejected(printable(path), f"cannot be read: {error.strerror}")


@contextmanager
def _progress(options: IndexFilesOptions, console: Console) -> Iterator[Progress]:
    """A bar on a terminal, with the number of files as soon as it is known; elsewhere a line now and then."""
    progress = console.progress(MofNCompleteColumn(), Rate())
    ended = Event()

    def count(task: TaskID) -> None:
        total = sum(1 for _ in takewhile(lambda _: not ended.is_set(), _everything(options)))
        progress.update(task, total=total)

    with progress:
        task = progress.add_task("Indexing", total=None)
        if STDIN not in options.paths:
            asyncio.get_running_loop().run_in_executor(None, count, task)
        try:
            yield progress
        finally:
            ended.set()


def _everything(options: IndexFilesOptions) -> Iterator[object]:
    """As many things as there will be receipts, about."""
    yield from walk.find_files(options.files, Generated(tuple(options.include or ())))
    for path in options.streams:
        try:
            with path.open("rb") as file:
                yield from file
        except OSError:
            continue


def _acknowledged(summary: Summary) -> str:
    if not summary.kept:
        return "Nothing was indexed: run the same command again."
    kept = counted(summary.kept, f"{summary.noun} was", f"{summary.noun}s were")
    return f"{kept} acknowledged and safe: run the same command again, it skips them."


_STYLES = {"removed": "yellow", "rejected": "red", "pending": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions(Options):
    paths: list[Path] = argument("Files and folders.", "PATH...", parser=named_path)


@dataclass
class ChangePrinter:
    console: Console
    as_json: bool
    _renamed: set[str] = field(default_factory=set)

    def receive(self, receipt: FileReceipt) -> None:
        if receipt.status == "unchanged":
            return
        if self.as_json:
            self.console.line(receipt.to_json().decode())
        elif not receipt.is_skipped:
            self._show(receipt)

    def _show(self, receipt: FileReceipt) -> None:
        source = receipt.source or ""
        if receipt.status == "removed" and source in self._renamed:
            self._renamed.discard(source)
            return
        word: str = "pending" if receipt.status == "deferred" else receipt.status
        if receipt.renamed_from is not None:
            self._renamed.add(receipt.renamed_from)
            word, source = "renamed", f"{_shown_path(receipt.renamed_from)} -> {_shown_path(source)}"
        reason = f": {one_line(receipt.reason)}" if receipt.reason else ""
        self.console.show((f"{word:<9}", _STYLES.get(word, "green")), one_line(_shown_path(source)), (reason, "dim"))


@_with_labels
def watch(label_options: LabelOptions, stated: Mapping[str, Any], options: WatchOptions) -> ExitCode:
    """Index files and folders and follow their changes, until SIGTERM or Ctrl-C.

    Changes since the last run are indexed first. Documents of files that are deleted, or ignored from now on,
    are removed; a renamed file is not embedded again. stdout has a line per change, with --json a receipt.
    """
    console = Console()
    loaded = options.load_available()
    labels = label_options.labels(loaded.settings, stated)
    asyncio.run(_watch(loaded, watched(options.paths), labels, ChangePrinter(console, options.as_json), console))
    return ExitCode.OK


def watched(paths: Sequence[Path]) -> list[Path]:
    """The places to watch, each once. Raises: InvalidInputError."""
    if missing := [path for path in paths if not path.exists()]:
        raise InvalidInputError(f"{str(missing[0])!r} cannot be watched: it is not there.")
    return list(dict.fromkeys(path.resolve() for path in paths))


async def _watch(
    loaded: Loaded, roots: Sequence[Path], labels: Labels, changes: ChangePrinter, console: Console
) -> None:
    @asynccontextmanager
    async def reached() -> AsyncIterator[FolderSync]:
        async with open_connection(loaded) as connection:
            console.note((f"Adding to {connection.place}", "dim"))
            with open_sync(connection, loaded.settings, labels, Gone.REMOVE, changes.receive) as sync:
                yield sync

    places = ", ".join(_shown_path(str(root)) for root in roots)
    reports = FollowReports(console, f"Watching {one_line(places)}; the index is in step", "change")
    await reports.follow(watching.Follower(roots, reached, reports.ready, reports.trouble))


@dataclass(frozen=True, slots=True)
class FollowReports:
    """Says how a command that follows changes gets on, until SIGTERM or Ctrl-C."""

    console: Console
    doing: str
    unit: str

    def ready(self) -> None:
        self.console.note((f"{self.doing}. Ctrl-C stops it.", "dim"))

    def trouble(self, error: RagContextError, wait_s: float) -> None:
        self.console.warning(f"{error} Trying again in {wait_s:.0f} s; no {self.unit} is lost.")

    async def follow(self, follower: watching.Follower) -> None:
        """Run until the process is to end."""
        stop = asyncio.Event()
        with suppress(NotImplementedError):  # where the system has no signals, Ctrl-C interrupts
            for name in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(name, stop.set)
        await follower.run(stop)


def _shown_path(path: str) -> str:
    """A path as people know it: relative where it is below the working directory."""
    here = Path.cwd().as_posix()
    return os.path.relpath(path, here) if path.startswith(f"{here}/") else path
