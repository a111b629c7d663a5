"""Exports an index as lines of text, which an index on any backend can import.

Only a few documents are in memory at a time, so the size of an index does not matter. It may be in use meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from rag_context.api.export_lines import OF_DOCUMENTS, VERSION, ExportFooter, ExportHeader
from rag_context.domain.documents import Chunk, Shelf, Stored, slices, utc_now
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.errors import BackendUnavailableError
from rag_context.ports.reading import DocumentStore, VectorStore
from rag_context.ports.writing import Journal, ModelRegistry
from rag_context.transfer import lines
from rag_context.transfer.beside_documents import BesideDocuments

PAGE = 200

AT_ONCE = 8

TRIES = 5
"""How often a document that changes while it is read is read again."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export; `pending` documents went without vectors, `entries` are documents of collections."""

    documents: int
    pending: int
    chunks: int
    entries: int = 0
    searches: int = 0


@dataclass(eq=False)
class Exporter:
    documents: DocumentStore
    vectors: VectorStore
    registry: ModelRegistry
    journal: Journal | None = None
    beside: BesideDocuments | None = None
    now: Callable[[], datetime] = utc_now

    async def export(
        self,
        put: Callable[[bytes], Awaitable[None]],
        on_progress: Callable[[int, int | None], None],
        *,
        project: str | None = None,
    ) -> Exported:
        """Pass the index to `put`, line by line, documents by id; of one `project` ("": of none) if given.

        `on_progress` is called with the number of exported documents, and the total where it is known. Raises:
        BackendError (a store is unavailable, or the index's model was replaced meanwhile).
        """
        model = await self.registry.recorded_model()
        total = (await self.documents.counts()).documents if project is None else None
        version = OF_DOCUMENTS if self.beside is None else VERSION
        header = ExportHeader(
            version=version, exported_at=self.now(), model=lines.model_line(model), project=project, documents=total
        )
        await put(header.to_json())
        if self.journal is not None:
            async for part in lines.earlier(self.journal, project):
                await put(lines.changes_line(part))
        out = Exported(0, 0, 0)
        last = ""
        while page := await self.documents.inventory(last, PAGE):
            last = max(page)
            written: list[str] = []
            # What was forgotten leaves in no file.
            kept = sorted(id_ for id_, stored in page.items() if stored.shelf is not Shelf.TRASH)
            for ids in slices(kept, AT_ONCE):
                read = await asyncio.gather(*(self.read(id_, page[id_], model, project) for id_ in ids))
                for entry in read:
                    if entry is not None:
                        await put(await asyncio.to_thread(lines.document_line, entry))
                        written.append(entry.document.id)
                        out = Exported(
                            out.documents + 1, out.pending + (entry.vectors is None), out.chunks + len(entry.chunks)
                        )
                        on_progress(out.documents, total)
            if self.journal is not None and (known := await lines.known_of(self.journal, written)).links:
                await put(lines.changes_line(known))
        await self._check_model(model)
        if self.beside is not None:
            async for line in self.beside.lines():
                await put(line)
            out = replace(out, entries=self.beside.entries, searches=self.beside.recorded)
        await put(ExportFooter(documents=out.documents).to_json())
        return out

    async def read(
        self, id_: str, seen: Stored, model: EmbeddingModel | None, project: str | None = None
    ) -> lines.IndexedDocument | None:
        """One complete version of a document, `seen` a moment ago; None where it was deleted, or is of another project.

        Its vectors are of `model`, None leaves them out. Raises: BackendError (also where it changed during several
        reads).
        """
        stored: Stored | None = seen
        for _ in range(TRIES):
            document = await self.documents.get(id_)
            if stored is None or document is None or project not in (None, document.tenant.project):
                return None
            chunks = await self.documents.chunks(id_)
            vectors = await self._vectors_of(chunks, model) if stored.indexed else None
            ids = tuple(chunk.id for chunk in chunks)
            now = Stored(
                document.content_hash, stored.indexed, ids, document.occurred_at, document.origin, document.tenant.shelf
            )
            # No snapshot spans the reads: what was stored before and after them must be what they returned.
            before, stored = stored, await self.documents.stored(id_)
            if stored == before == now:
                return lines.IndexedDocument(document, tuple(chunks), vectors)
        raise BackendUnavailableError(
            "documents", f"The document {id_!r} changed during each of several reads: export it again later."
        )

    async def _vectors_of(self, chunks: Sequence[Chunk], model: EmbeddingModel | None) -> Matrix | None:
        """`(len(chunks), dim) float32`; None where some are missing."""
        if model is None or not chunks:
            return None
        found = await self.vectors.vectors([chunk.id for chunk in chunks])
        rows = [found[chunk.id] for chunk in chunks if chunk.id in found]
        if len(rows) < len(chunks) or any(row.shape != (model.dimension,) for row in rows):
            return None
        return np.stack(rows)

    async def _check_model(self, begun_with: EmbeddingModel | None) -> None:
        model = await self.registry.recorded_model()
        if begun_with is not None and (model is None or model.fingerprint != begun_with.fingerprint):
            raise BackendUnavailableError(
                "documents", "The index's model was replaced during the export: export it again."
            )
