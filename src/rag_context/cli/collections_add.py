"""`collections add`: documents of a file of JSON lines, streamed in batches."""

import asyncio
import json
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rag_context.api.documents import NOT_EMBEDDED
from rag_context.cli.collections_client import CollectionsClient, open_client
from rag_context.cli.console import Screen
from rag_context.cli.exits import ExitCode, exit_code
from rag_context.cli.options import Chosen, load_available
from rag_context.collections.collections import entry_id
from rag_context.errors import BackendUnavailableError, InvalidInputError

STREAM = Path("-")
BATCH_BYTES = 4 << 20
BATCH_LINES = 1000
LINE_BYTES = 16 << 20
SHOWN_REJECTED = 10

_PLACE = re.compile(r"documents\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Addition:
    """What comes in, and where to."""

    name: str
    file: Path
    connection: str | None
    as_json: bool


@dataclass(frozen=True, slots=True)
class _Line:
    """A document as it stands in the file."""

    number: int
    text: bytes


@dataclass(slots=True)
class _Summary:
    """What became of the lines."""

    screen: Screen
    stored: int = 0
    rejected: int = 0
    without_vector: int = 0

    def reject(self, number: int, reason: str) -> None:
        self.rejected += 1
        self.without_vector += reason == NOT_EMBEDDED
        if self.rejected <= SHOWN_REJECTED:
            self.screen.warning(f"line {number}: {reason}")
        elif self.rejected == SHOWN_REJECTED + 1:
            self.screen.warning("and more lines like these")


def run(chosen: Chosen, what: Addition) -> ExitCode:
    """Store the lines of a file; exits 1 when not all of them could be."""
    screen = Screen()
    summary = _Summary(screen)
    try:
        asyncio.run(_add(chosen, what, summary))
    except BackendUnavailableError as error:
        screen.error(f"{error} What came in is safe: run the same command again, it goes on.")
        return exit_code(error)
    except KeyboardInterrupt:
        screen.note("interrupted. What came in is safe: run the same command again, it goes on.")
        return ExitCode.INTERRUPTED
    if what.as_json:
        screen.line(json.dumps({"stored": summary.stored, "refused": summary.rejected}))
    else:
        documents = f"{summary.stored} document{'' if summary.stored == 1 else 's'} stored"
        screen.note(f"{documents}{f', {summary.rejected} rejected' if summary.rejected else ''}.")
    if summary.without_vector:
        screen.note("Texts are embedded here in collections made with --embedding-provider rag-context.")
    return ExitCode.FAILED if summary.rejected else ExitCode.OK


async def _add(chosen: Chosen, what: Addition, summary: _Summary) -> None:
    loaded = load_available(chosen)
    with _opened(what.file) as file, _progress(what.file, summary.screen) as show:
        async with open_client(loaded, what.connection) as client:
            collection = await client.ask("GET", "collections", what.name)
            if collection.get("embedding_provider") == "rag-context":
                await client.model_loaded()
            for batch, read in _batches(file, what.name, summary):
                await _store(client, what.name, batch, summary)
                show(read)


async def _store(client: CollectionsClient, name: str, batch: list[_Line], summary: _Summary) -> None:
    """Store a batch; rejected lines are reported, and the others are tried without them."""
    while batch:
        body = b'{"documents":[' + b",".join(line.text for line in batch) + b"]}"
        try:
            answer = await client.tell("POST", "collections", name, "documents", body=body)
        except InvalidInputError as error:
            wrong = _wrong(error)
            if not wrong:
                raise
            for place, reason in sorted(wrong.items()):
                summary.reject(batch[place].number, _PLACE.sub(partial(_line_named, batch), reason))
            batch = [line for place, line in enumerate(batch) if place not in wrong]
        else:
            summary.stored += answer["count"]
            return


def _line_named(batch: Sequence[_Line], place: re.Match[str]) -> str:
    """What a document of a batch is called where its place in the batch says nothing."""
    return f"line {batch[int(place[1])].number}"


def _wrong(error: InvalidInputError) -> dict[int, str]:
    """What is wrong with which document of a batch."""
    found: dict[int, str] = {}
    for detail in error.details:
        place = _PLACE.match(detail.field)
        if place is not None:
            told = detail.message.removeprefix(f"{place[0]}.").removeprefix(f"{place[0]} ")
            found.setdefault(int(place[1]), told)
    return found


def _batches(file: BinaryIO, name: str, summary: _Summary) -> Iterator[tuple[list[_Line], int]]:
    """Lines in batches, and how many bytes were read by then."""
    batch: list[_Line] = []
    size = read = number = 0
    ids: set[str] = set()
    while text := file.readline(LINE_BYTES):
        number += 1
        read += len(text)
        if len(text) == LINE_BYTES and not text.endswith(b"\n"):
            raise InvalidInputError(f"line {number} is longer than {LINE_BYTES} bytes.")
        text = (text.removeprefix(BOM_UTF8) if number == 1 else text).strip()
        try:
            value = json.loads(text.decode()) if text else None
        except (ValueError, RecursionError):
            summary.reject(number, "not valid JSON")
            continue
        if not text:
            continue
        id_ = _id(value, name)
        # The last of several lines with one id counts, as if they had come one by one.
        if size + len(text) > BATCH_BYTES or len(batch) == BATCH_LINES or id_ in ids:
            yield batch, read
            batch, size, ids = [], 0, set()
        batch.append(_Line(number, text))
        size += len(text)
        if id_ is not None:
            ids.add(id_)
    yield batch, read


def _id(value: object, name: str) -> str | None:
    """The id that a document has, or will have in the collection of this name; None where it will be rejected."""
    found = value if isinstance(value, dict) else {}
    if isinstance(found.get("id"), str):
        return str(found["id"])
    text, metadata = found.get("text"), found.get("metadata") or {}
    if isinstance(text, str) and isinstance(metadata, dict):
        with suppress(RecursionError):  # so deep that it will be rejected
            return entry_id(name, text, metadata)
    return None


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if path == STREAM:
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from error
    with file:
        yield file


class _Show:
    """A bar, or nothing."""

    def __init__(self, progress: Progress, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("Storing", total=total)

    def __call__(self, read: int) -> None:
        self._progress.update(self._task, completed=read)


@contextmanager
def _progress(path: Path, screen: Screen) -> Iterator[_Show]:
    """A bar on a terminal, with rate and time left; elsewhere nothing."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
        TextColumn("left", style="dim"),
        TimeRemainingColumn(),
    )
    total = path.stat().st_size if path != STREAM and path.is_file() else None
    with Progress(*columns, console=screen.err, transient=True, disable=not screen.err.is_terminal) as progress:
        yield _Show(progress, total)
