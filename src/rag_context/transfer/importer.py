"""Imports the lines of an export while the index is in use.

An import may be repeated: documents that exist already are left as they are.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import partial
from typing import BinaryIO

from rag_context.api.export_lines import ExportedChanges, ExportFooter, ExportHeader, read_header, read_line
from rag_context.domain.documents import Stored
from rag_context.domain.journal import History
from rag_context.domain.vectors import EmbeddingModel, same_vectors
from rag_context.errors import BackendRejectedError, ForgottenError, InvalidInputError, RagContextError
from rag_context.ports.reading import DocumentStore
from rag_context.ports.writing import IndexWriter, Journal, ModelRegistry, Version
from rag_context.resilience.dependency import retrying
from rag_context.transfer.beside_documents import BesideDocuments
from rag_context.transfer.lines import IndexedDocument, model_of, read_changes, read_document

AT_ONCE = 8

MAX_LINE_BYTES = 1 << 28
"""A longer line cannot be a document, and is not read into memory."""


class Conflict(Enum):
    KEEP = "keep"
    OVERWRITE = "overwrite"


class ImportOutcome(StrEnum):
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

    outcomes: Counter[ImportOutcome] = field(default_factory=Counter)
    pending: int = 0
    broken: int = 0
    entries: int = 0
    """Documents of collections that came in."""
    searches: int = 0
    changes_left: int = 0
    """Entries, tombstones and pins that this store cannot hold, because it keeps no journal."""
    complete: bool = False

    @property
    def lines(self) -> int:
        """All lines, those that are not valid documents too."""
        return self.outcomes.total() + self.broken


class Lines:
    """The lines of an export, numbered from 1, read one at a time; of each at most `longest` bytes."""

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
_CHANGES, _COLLECTION, _SEARCHES = b'{"changes":', b'{"collection":', b'{"searches":'


@dataclass(slots=True)
class _Run:
    """What the workers of one import share. They take turns to read a line."""

    lines: Iterator[tuple[int, bytes]]
    on_progress: Callable[[Imported], None]
    on_broken: Callable[[int, str], None]
    imported: Imported = field(default_factory=Imported)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_over: bool = False


@dataclass(eq=False)
class Importer:
    """Imports an export while the index is in use; its journal only where the store has one."""

    documents: DocumentStore
    writer: IndexWriter
    registry: ModelRegistry
    conflict: Conflict = Conflict.KEEP
    journal: Journal | None = None
    beside: BesideDocuments = field(default_factory=BesideDocuments)

    def __post_init__(self) -> None:
        self._sequences: dict[int, int] = {}
        self._links: list[History] = []
        self._model: EmbeddingModel | None = None
        self._end: ExportFooter | None = None
        self._broken_others = 0  # lines that are no documents, which the last line does not count

    async def import_lines(
        self,
        lines: Lines,
        on_header: Callable[[ExportHeader, EmbeddingModel | None], None],
        on_progress: Callable[[Imported], None],
        on_broken: Callable[[int, str], None],
    ) -> Imported:
        """Import all documents; those that were imported stay, even if a later one fails.

        `on_header` is called with the first line, and the index's model where the vectors can be used; `on_progress`
        after each document with the counts so far; `on_broken` with the number of a line that is invalid, or that the
        store rejects, and why. Raises: InvalidInputError (no export, or of a newer version; nothing was imported),
        BackendError (the same call again continues).
        """
        numbered = iter(lines)
        _, first = await asyncio.to_thread(next, numbered, _NO_LINE)
        header = read_header(first)
        on_header(header, await self.use_vectors_of(model_of(header.model)))
        run = _Run(numbered, on_progress, on_broken)
        tasks = [asyncio.create_task(self._work(run)) for _ in range(AT_ONCE)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            # The other workers end their lines before the error is raised: what they store is counted.
            run.is_over = True
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()
        for error in ends:
            if error is not None:
                raise error
        for links in self._links:  # of documents, all of which are there now
            await self.take_over(links)
        documents = run.imported.lines - self._broken_others
        run.imported.complete = self._end is not None and self._end.documents == documents
        return run.imported

    async def _work(self, run: "_Run") -> None:
        """Import line after line; after a failure in any worker, finish the current line and stop."""
        while not run.is_over:
            async with run.turn:
                number, line = await asyncio.to_thread(next, run.lines, _NO_LINE)
                if line.startswith(_CHANGES):  # in turn: what was forgotten stands before the documents
                    await self._import_changes(number, line, run)
                    continue
                if line.startswith((_COLLECTION, _SEARCHES)):
                    await self._import_beside(number, line, run)
                    continue
            if not line:
                return
            try:
                await self._import(line, run.imported)
            except (InvalidInputError, BackendRejectedError, ForgottenError) as error:
                run.imported.broken += 1
                run.on_broken(number, str(error))
            run.on_progress(run.imported)

    async def _import_changes(self, number: int, line: bytes, run: "_Run") -> None:
        try:
            history = read_changes(read_line(ExportedChanges, line))
        except InvalidInputError as error:
            self._reject(number, error, run)
            return
        if self.journal is None:
            run.imported.changes_left += len(history.tombstones) + len(history.entries) + len(history.links)
        elif history.links:
            self._links.append(history)
        else:
            await self.take_over(history)

    async def _import_beside(self, number: int, line: bytes, run: "_Run") -> None:
        """Import a line that is no document; the counts of those do not have it."""
        overwrite = self.conflict is Conflict.OVERWRITE
        try:
            if line.startswith(_SEARCHES):
                await self.beside.take_searches(line)
            else:
                await self.beside.take_collection(line, overwrite=overwrite)
        except (InvalidInputError, BackendRejectedError) as error:
            self._reject(number, error, run)
        run.imported.entries, run.imported.searches = self.beside.entries, self.beside.recorded

    def _reject(self, number: int, error: RagContextError, run: "_Run") -> None:
        self._broken_others += 1
        run.imported.broken += 1
        run.on_broken(number, str(error))

    async def take_over(self, history: History) -> None:
        """Add what the journal of another index holds, if this one has a journal. Raises: BackendError."""
        if self.journal is not None:
            await retrying(partial(self.journal.take_over, history, self._sequences))

    async def use_vectors_of(self, made_by: EmbeddingModel | None) -> EmbeddingModel | None:
        """Use the vectors of what comes if they are of the index's model, which is returned; else it returns None."""
        model = await self.registry.recorded_model()
        self._model = model if made_by and model and same_vectors(made_by, model) else None
        return self._model

    async def _import(self, line: bytes, imported: Imported) -> None:
        dimension = None if self._model is None else self._model.dimension
        if self._end is None and line.startswith(b'{"end":'):
            self._end = read_line(ExportFooter, line)
            return
        entry = await asyncio.to_thread(read_document, line, dimension)
        outcome, pending = await self.store(entry)
        imported.outcomes[outcome] += 1
        imported.pending += pending

    async def store(self, entry: IndexedDocument) -> tuple[ImportOutcome, bool]:
        """Store a document; returns the result, and whether it is pending. Raises: BackendError."""
        document = entry.document
        stored = await retrying(partial(self.documents.stored, document.id))
        if stored is None:
            return ImportOutcome.NEW, not await self._write(entry)
        if stored.content_hash == document.content_hash and stored.occurred_at == document.occurred_at:
            if stored.indexed or entry.vectors is None:
                return ImportOutcome.UNCHANGED, not stored.indexed
            completed = await self._complete(entry, stored)
            return ImportOutcome.COMPLETED if completed else ImportOutcome.UNCHANGED, not completed
        there = await retrying(partial(self.documents.get, document.id))
        if self.conflict is Conflict.KEEP and there is not None and there.timestamp >= document.timestamp:
            return ImportOutcome.KEPT, not stored.indexed
        return ImportOutcome.REPLACED, not await self._write(entry)

    async def _write(self, entry: IndexedDocument) -> bool:
        """Whether the vectors are stored too."""
        document, chunks, vectors = entry.document, entry.chunks, entry.vectors
        if vectors is not None and self._model is not None:
            try:
                return await retrying(
                    partial(self.writer.write, Version(document, chunks, vectors, self._model.fingerprint))
                )
            except BackendRejectedError:
                pass  # the index's model has just been replaced
        return await retrying(partial(self.writer.write, Version(document, chunks)))

    async def _complete(self, entry: IndexedDocument, stored: Stored) -> bool:
        """Store the vectors of a pending document; False where they are rejected, or it changed meanwhile."""
        document, chunks, vectors = entry.document, entry.chunks, entry.vectors
        if vectors is None or self._model is None:
            return False
        made_by = self._model.fingerprint
        try:
            if stored.chunk_ids == tuple(chunk.id for chunk in chunks):
                attach = partial(self.writer.attach, document.id, document.content_hash, vectors, made_by)
                return await retrying(attach)
            return await retrying(partial(self.writer.rechunk, Version(document, chunks, vectors, made_by)))
        except BackendRejectedError:
            return False
