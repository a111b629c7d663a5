"""`collections add` and `collections copy`: documents of a file, streamed in batches, and of another provider."""

import asyncio
import json
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from rich.progress import DownloadColumn, MofNCompleteColumn

from rag_context.api.collection_documents import NOT_EMBEDDED
from rag_context.api.operations import routes
from rag_context.api.wire import CONNECTION_PATTERN, name_problem
from rag_context.cli.command_line import ExitCode, exit_code, run_to_end
from rag_context.cli.connecting import CollectionsClient, open_client
from rag_context.cli.console import Console, counted, safe
from rag_context.cli.operation_options import Fields
from rag_context.cli.options import Options, resumable
from rag_context.cli.summary import IMPORTED, InvalidLines, bar, opened
from rag_context.collections import collections, copying, provider_connections
from rag_context.errors import ConflictError, InvalidInputError
from rag_context.settings import Settings

STREAM = Path("-")
BATCH_BYTES = 4 << 20
BATCH_LINES = 1000
LINE_BYTES = 16 << 20

_PLACE = re.compile(r"documents\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: bytes


@dataclass(slots=True)
class _Summary:
    rejected: InvalidLines
    stored: int = 0
    without_vector: int = 0

    def reject(self, number: int, reason: str) -> None:
        self.without_vector += reason == NOT_EMBEDDED
        self.rejected.add(number, reason)


def run_add(options: Options, target: Fields, path: Path) -> ExitCode:
    """Store the lines of a file in the collection `target`; exits 1 when not all of them could be."""
    console = Console()
    summary = _Summary(InvalidLines(console))
    with resumable(console, lambda: IMPORTED):
        run_to_end(_add(options, target, path, summary, console))
    rejected = summary.rejected.total
    if options.as_json:
        console.line(json.dumps({"stored": summary.stored, "refused": rejected}))
    else:
        also = f", {rejected} rejected" if rejected else ""
        console.note(f"{counted(summary.stored, 'document')} stored{also}.")
    if summary.without_vector:
        console.note("Texts are embedded here in collections made with --embedding-provider rag-context.")
    return ExitCode.FAILED if rejected else ExitCode.OK


async def _add(options: Options, target: Fields, path: Path, summary: _Summary, console: Console) -> None:
    loaded = options.load_available()
    total = await asyncio.to_thread(lambda: path.stat().st_size if path != STREAM and path.is_file() else None)
    source = nullcontext(sys.stdin.buffer) if path == STREAM else opened(path)
    with source as file, bar(console, "Storing", DownloadColumn(), total=total) as show:
        async with open_client(loaded) as client:
            collection = await client.send(routes.GET_COLLECTION, target)
            if collection.embedding_provider == "rag-context":
                await client.model_loaded()
            for batch, read in _batches(file, target["name"], summary):
                await _store(client, target, batch, summary)
                show(read, total)


async def _store(client: CollectionsClient, target: Fields, batch: list[_Line], summary: _Summary) -> None:
    """Store a batch; rejected lines are reported, and the others are tried without them."""
    while batch:
        body = b'{"documents":[' + b",".join(line.text for line in batch) + b"]}"
        try:
            answer = await client.send(routes.ADD_DOCUMENTS, target, encoded_body=body)
        except InvalidInputError as error:
            wrong = _wrong(error)
            if not wrong:
                raise
            for place, reason in sorted(wrong.items()):
                summary.reject(batch[place].number, _PLACE.sub(partial(_line_named, batch), reason))
            batch = [line for place, line in enumerate(batch) if place not in wrong]
        else:
            summary.stored += answer.count
            return


def _line_named(batch: Sequence[_Line], place: re.Match[str]) -> str:
    """What a document of a batch is called where its place in the batch says nothing."""
    return f"line {batch[int(place[1])].number}"


def _wrong(error: InvalidInputError) -> dict[int, str]:
    found: dict[int, str] = {}
    for detail in error.details:
        place = _PLACE.match(detail.field)
        if place is not None:
            reason = detail.message.removeprefix(f"{place[0]}.").removeprefix(f"{place[0]} ")
            found.setdefault(int(place[1]), reason)
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
            return collections.entry_id(name, text, metadata)
    return None


_DOING = {copying.Stage.COMPARE: "Comparing", copying.Stage.COPY: "Copying", copying.Stage.VERIFY: "Verifying"}


def run_copy(options: Options, source: str, target: str, *, overwrite: bool) -> ExitCode:
    """Copy a collection; both are NAME or CONNECTION:NAME, and another content of the target goes with `overwrite`."""
    console = Console()
    settings = options.load_for_work().settings
    on_difference = copying.OnDifference.OVERWRITE if overwrite else copying.OnDifference.REJECT
    try:
        with (
            resumable(console, lambda: "What was copied is safe: run the same command again, it goes on."),
            _copying(console) as show,
        ):
            report = run_to_end(_copy(settings, source, target, on_difference, show))
    except ConflictError as error:
        console.error(f"{str(error).rstrip('.')}: --overwrite makes it what the source is.")
        return exit_code(error)
    if options.as_json:
        console.line(json.dumps(asdict(report)))
    else:
        parts = [f"{report.copied} copied"]
        if report.skipped:
            parts.append(f"{report.skipped} there already")
        if report.removed:
            parts.append(f"{report.removed} removed")
        documents = counted(report.documents, "document")
        console.note(f"{', '.join(parts)}. {target} holds the same {documents} as {source}.")
    return ExitCode.OK


async def _copy(
    settings: Settings,
    source: str,
    target: str,
    on_difference: copying.OnDifference,
    show: Callable[[copying.CopyProgress], None],
) -> copying.CopyReport:
    # `add` starts faster without the providers.
    from rag_context.wiring.collection_providers import open_connections  # noqa: PLC0415

    async with open_connections(settings) as connections:
        ends = [await _located(connections, text) for text in (source, target)]
        await _check_connection(connections, target, ends[1])
        return await copying.copy_collection(*ends, on_difference=on_difference, progress=show)


async def _located(connections: provider_connections.Connections, text: str) -> copying.Located:
    place = connections.ref(text)
    problem = name_problem(place.name)
    if problem:
        raise InvalidInputError(f"name {problem}: {safe(text)!r}.")
    return copying.Located(await connections.require(place.connection).opened(), place.name)


async def _check_connection(connections: provider_connections.Connections, text: str, target: copying.Located) -> None:
    """See that a misspelt connection does not become the beginning of a new collection's name."""
    before, colon, name = text.partition(":")
    if not colon or before in connections or not re.fullmatch(CONNECTION_PATTERN, before):
        return
    if await target.provider.collection(target.name) is None:
        known = ", ".join(connections)
        raise InvalidInputError(
            f"There is no connection {before!r} to make {safe(name)!r} on; known are {known}. "
            f"A collection of the whole name is {safe(f'{provider_connections.DEFAULT}:{text}')!r}."
        )


@contextmanager
def _copying(console: Console) -> Iterator[Callable[[copying.CopyProgress], None]]:
    """A bar on a terminal, with time left; elsewhere nothing."""
    with console.progress(MofNCompleteColumn()) as progress:
        tasks = {stage: progress.add_task(doing, total=None, visible=False) for stage, doing in _DOING.items()}

        def show(at: copying.CopyProgress) -> None:
            progress.update(tasks[at.stage], completed=at.done, total=at.total, visible=True)

        yield show
