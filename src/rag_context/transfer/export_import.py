"""Export and import: an index as lines of text, between any two backends.

Only a few documents are in memory at a time, so the size of an index does not matter. An export runs while the index
is in use, and an import may be repeated: documents that exist already are left as they are.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from functools import partial
from typing import BinaryIO

import numpy as np

from rag_context.api.export_lines import ExportFooter, ExportHeader, read_header, read_line
from rag_context.domain.documents import Chunk, Stored, utc_now
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.errors import BackendRejectedError, BackendUnavailableError, InvalidInputError
from rag_context.ports.reading import DocumentStore, VectorStore
from rag_context.ports.writing import IndexWriter, ModelRegistry
from rag_context.resilience.dependency import retrying
from rag_context.transfer.lines import Moved, exported, model_line, model_of, read_moved

PAGE = 200
"""Documents whose ids are read at a time."""

TOGETHER = 8
"""Documents under way at once."""

TRIES = 5
"""How often a document that changes while it is read is read again."""

MAX_LINE_BYTES = 1 << 28
"""A longer line cannot be a document, and is not read into memory."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export; `pending` documents were exported without vectors."""

    documents: int
    pending: int
    chunks: int


class Exporter:
    """Exports an index.

    Args:
        documents: the document store.
        vectors: the vector store.
        registry: records the model.
        now: the wall clock, for the header.
    """

    def __init__(
        self,
        documents: DocumentStore,
        vectors: VectorStore,
        registry: ModelRegistry,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._documents = documents
        self._vectors = vectors
        self._registry = registry
        self._now = now

    async def export(
        self,
        put: Callable[[bytes], Awaitable[None]],
        on_progress: Callable[[int, int | None], None],
        *,
        project: str | None = None,
    ) -> Exported:
        """Pass the index to `put`, line by line, documents by id.

        Args:
            put: writes a line.
            on_progress: called with the number of exported documents, and the total where it is known.
            project: the only project to export ("" for the agents' own memory); None for everything.

        Raises:
            BackendError: a store is unavailable, or the index's model was replaced meanwhile.
        """
        model = await self._registry.recorded_model()
        total = (await self._documents.counts()).documents if project is None else None
        header = ExportHeader(exported_at=self._now(), model=model_line(model), project=project, documents=total)
        await put(header.to_json())
        out = Exported(0, 0, 0)
        last = ""
        while page := await self._documents.inventory(last, PAGE):
            last = max(page)
            for ids in _slices(sorted(page)):
                read = await asyncio.gather(*(self.read(id_, page[id_], model, project) for id_ in ids))
                for moved in read:
                    if moved is not None:
                        await put(await asyncio.to_thread(_line, moved))
                        out = _counted(out, moved)
                        on_progress(out.documents, total)
        await self._check_model(model)
        await put(ExportFooter(documents=out.documents).to_json())
        return out

    async def read(
        self, id_: str, seen: Stored, model: EmbeddingModel | None, project: str | None = None
    ) -> Moved | None:
        """One complete version of a document; None where it was deleted, or is of another project.

        Args:
            id_: of the document.
            seen: what was stored of it a moment ago.
            model: the model of the vectors; None leaves them out.
            project: the only project to read; None for every one.

        Raises:
            BackendError: the store is unavailable, or the document changed during each of several reads.
        """
        stored: Stored | None = seen
        for _ in range(TRIES):
            document = await self._documents.get(id_)
            if stored is None or document is None or project not in (None, document.tenant.project):
                return None
            chunks = await self._documents.chunks(id_)
            vectors = await self._vectors_of(chunks, model) if stored.indexed else None
            ids = tuple(chunk.id for chunk in chunks)
            now = Stored(document.content_hash, stored.indexed, ids, document.occurred_at)
            before, stored = stored, await self._documents.stored(id_)
            if stored == before == now:
                return Moved(document, tuple(chunks), vectors)
        raise BackendUnavailableError(
            "documents", f"The document {id_!r} changed during each of several reads: export it again later."
        )

    async def _vectors_of(self, chunks: Sequence[Chunk], model: EmbeddingModel | None) -> Matrix | None:
        """`(len(chunks), dim) float32`; None where some are missing."""
        if model is None or not chunks:
            return None
        found = await self._vectors.vectors([chunk.id for chunk in chunks])
        rows = [found[chunk.id] for chunk in chunks if chunk.id in found]
        if len(rows) < len(chunks) or any(row.shape != (model.dimension,) for row in rows):
            return None
        return np.stack(rows)

    async def _check_model(self, begun_with: EmbeddingModel | None) -> None:
        model = await self._registry.recorded_model()
        if begun_with is not None and (model is None or model.fingerprint != begun_with.fingerprint):
            raise BackendUnavailableError(
                "documents", "The index's model was replaced during the export: export it again."
            )


class Conflict(Enum):
    """What an import does with a document of which the index has a newer version."""

    KEEP = "keep"
    OVERWRITE = "overwrite"


class Arrival(StrEnum):
    """The result of importing one document."""

    NEW = "new"
    REPLACED = "replaced"
    COMPLETED = "completed"
    """It existed without vectors, and has them now."""

    UNCHANGED = "unchanged"
    KEPT = "kept"
    """The index has a newer version."""


@dataclass(slots=True)
class Imported:
    """The result of an import. `pending` documents have no vectors yet; `complete`: the file was not cut short."""

    arrivals: Counter[Arrival] = field(default_factory=Counter)
    pending: int = 0
    broken: int = 0
    complete: bool = False

    @property
    def lines(self) -> int:
        """Lines that are not valid documents."""
        return self.arrivals.total() + self.broken


class Lines:
    """The lines of an export, numbered from 1, read one at a time.

    Args:
        file: open for reading bytes.
        longest: bytes of a line that are read.
    """

    def __init__(self, file: BinaryIO, *, longest: int = MAX_LINE_BYTES) -> None:
        self._file = file
        self._longest = longest

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Every line that is not blank; a line that is too long is cut, so that it is invalid."""
        number = 0
        while line := self._file.readline(self._longest):
            number += 1
            rest = line
            while len(rest) == self._longest and not rest.endswith(b"\n"):
                rest = self._file.readline(self._longest)
            if line.strip():
                yield number, line


_NO_LINE = (0, b"")


@dataclass(slots=True)
class _Way:
    """What the workers of one import share."""

    lines: Iterator[tuple[int, bytes]]
    on_progress: Callable[[Imported], None]
    on_broken: Callable[[int, str], None]
    imported: Imported = field(default_factory=Imported)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_over: bool = False


class Importer:
    """Imports an export while the index is in use.

    Args:
        documents: reads the stored documents.
        writer: stores; what it acknowledged is durable.
        registry: records the model of the index.
        comparable: whether vectors of two models can be compared.
        conflict: what to do with a document of which the index has a newer version.
    """

    def __init__(
        self,
        documents: DocumentStore,
        writer: IndexWriter,
        registry: ModelRegistry,
        comparable: Callable[[EmbeddingModel, EmbeddingModel], bool],
        conflict: Conflict = Conflict.KEEP,
    ) -> None:
        self._documents = documents
        self._writer = writer
        self._registry = registry
        self._comparable = comparable
        self._conflict = conflict
        self._model: EmbeddingModel | None = None
        self._end: ExportFooter | None = None

    async def take(
        self,
        lines: Lines,
        on_header: Callable[[ExportHeader, EmbeddingModel | None], None],
        on_progress: Callable[[Imported], None],
        on_broken: Callable[[int, str], None],
    ) -> Imported:
        """Import all documents; those that were imported stay, even if a later one fails.

        Args:
            lines: the export.
            on_header: called with the first line, and the index's model where the vectors can be used.
            on_progress: called after each document with the counts so far.
            on_broken: called with the number of a line that is invalid, or that the store rejects, and the reason.

        Raises:
            InvalidInputError: the file is not an export, or one of a newer version; nothing was imported.
            BackendError: a store became unavailable; the same call again continues.
        """
        numbered = iter(lines)
        _, first = await asyncio.to_thread(next, numbered, _NO_LINE)
        header = read_header(first)
        on_header(header, await self.expect(model_of(header.model)))
        way = _Way(numbered, on_progress, on_broken)
        tasks = [asyncio.create_task(self._work(way)) for _ in range(TOGETHER)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            way.is_over = True
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()
        for error in ends:
            if error is not None:
                raise error
        way.imported.complete = self._end is not None and self._end.documents == way.imported.lines
        return way.imported

    async def _work(self, way: "_Way") -> None:
        """Import line after line; after a failure in any worker, finish the current line and stop."""
        while not way.is_over:
            async with way.turn:
                number, line = await asyncio.to_thread(next, way.lines, _NO_LINE)
            if not line:
                return
            try:
                await self._take(line, way.imported)
            except (InvalidInputError, BackendRejectedError) as error:
                way.imported.broken += 1
                way.on_broken(number, str(error))
            way.on_progress(way.imported)

    async def expect(self, made_by: EmbeddingModel | None) -> EmbeddingModel | None:
        """Use the vectors of what comes if they are of the index's model, which is returned; else it returns None."""
        model = await self._registry.recorded_model()
        self._model = model if made_by and model and self._comparable(made_by, model) else None
        return self._model

    async def _take(self, line: bytes, imported: Imported) -> None:
        dimension = None if self._model is None else self._model.dimension
        if self._end is None and line.startswith(b'{"end":'):
            self._end = read_line(ExportFooter, line)
            return
        moved = await asyncio.to_thread(read_moved, line, dimension)
        arrival, pending = await self.store(moved)
        imported.arrivals[arrival] += 1
        imported.pending += pending

    async def store(self, moved: Moved) -> tuple[Arrival, bool]:
        """Store a document; returns the result, and whether the document is pending.

        Raises:
            BackendRejectedError: the store cannot hold it.
            BackendError: the store is unavailable.
        """
        document = moved.document
        stored = await retrying(partial(self._documents.stored, document.id))
        if stored is None:
            return Arrival.NEW, not await self._write(moved)
        if stored.content_hash == document.content_hash and stored.occurred_at == document.occurred_at:
            if stored.indexed or moved.vectors is None:
                return Arrival.UNCHANGED, not stored.indexed
            completed = await self._complete(moved, stored)
            return Arrival.COMPLETED if completed else Arrival.UNCHANGED, not completed
        there = await retrying(partial(self._documents.get, document.id))
        if self._conflict is Conflict.KEEP and there is not None and there.timestamp >= document.timestamp:
            return Arrival.KEPT, not stored.indexed
        return Arrival.REPLACED, not await self._write(moved)

    async def _write(self, moved: Moved) -> bool:
        """Whether the vectors are stored too."""
        document, chunks, vectors = moved.document, moved.chunks, moved.vectors
        if vectors is not None and self._model is not None:
            try:
                return await retrying(partial(self._writer.write, document, chunks, vectors, self._model.fingerprint))
            except BackendRejectedError:
                pass  # the index's model has just been replaced
        return await retrying(partial(self._writer.write, document, chunks, None))

    async def _complete(self, moved: Moved, stored: Stored) -> bool:
        """Store the vectors of a pending document; False where they are rejected, or it changed meanwhile."""
        document, chunks, vectors = moved.document, moved.chunks, moved.vectors
        if vectors is None or self._model is None:
            return False
        made_by = self._model.fingerprint
        try:
            if stored.chunk_ids == tuple(chunk.id for chunk in chunks):
                attach = partial(self._writer.attach, document.id, document.content_hash, vectors, made_by)
                return await retrying(attach)
            return await retrying(partial(self._writer.rechunk, document, chunks, vectors, made_by))
        except BackendRejectedError:
            return False


def _line(moved: Moved) -> bytes:
    return exported(moved).to_json()


def _counted(out: Exported, moved: Moved) -> Exported:
    return Exported(out.documents + 1, out.pending + (moved.vectors is None), out.chunks + len(moved.chunks))


def _slices(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + TOGETHER] for start in range(0, len(ids), TOGETHER))
