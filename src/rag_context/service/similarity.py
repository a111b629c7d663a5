"""Which documents are most like one: by the vectors of its chunks, or by its words where there are none to be had."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rag_context.api.metadata import metadata_json
from rag_context.api.similar import SimilarDocument, SimilarResponse
from rag_context.domain.documents import Chunk, Document
from rag_context.domain.search import ChunkRef, Filter, Passage
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendError, BackendStartingError
from rag_context.ingest.indexer import STORE_S
from rag_context.resilience.deadline import Deadline
from rag_context.search.coverage import Coverage, described, matters
from rag_context.search.ranking import Candidate, relevance
from rag_context.search.retrievers import Backends

logger = logging.getLogger(__name__)

ASKED_CHUNKS = 8
"""Chunks that speak for a document: the first, the last, and those evenly between."""

ASKED_CHARS = 1000
"""How much of a document's text is asked for by words."""

POOL = 60
OWN_CHUNKS = 300
"""How many hits are fetched at first: room for others beside so many of its own document."""

WARNING = "Vector search unavailable, compared by words instead"


@dataclass(frozen=True, slots=True)
class _Near:
    """A document's nearest chunk, and how near the document is (0..1)."""

    chunk_id: str
    score: float


class Likeness:
    """Compares documents of one tenant.

    Args:
        sources: the ports.
        clock: monotonic seconds.
    """

    def __init__(self, sources: Backends, clock: Callable[[], float] = time.monotonic) -> None:
        self._sources = sources
        self._coverage = Coverage(sources.documents, sources.document_store, clock)
        self._clock = clock

    async def similar(self, document: Document, limit: int) -> SimilarResponse:
        """The documents of its tenant that are most like `document`. Raises: BackendError (words failed too)."""
        where = Filter(document.tenant)
        deadline = Deadline.after(STORE_S, self._clock)
        store = self._sources.document_store
        chunks = await store.call(lambda: self._sources.documents.chunks(document.id), deadline)
        try:
            missing = await self._coverage.missing(where, deadline)
            if matters(missing):
                raise BackendStartingError("vectors", described(missing))
            near = await self._by_vectors(document.id, chunks, limit, where, deadline)
            by_words = False
        except BackendError as error:
            logger.info("comparing %s by words: %s", document.id, error)
            deadline = Deadline.after(STORE_S, self._clock)
            near = await self._by_words(document, len(chunks), limit, where, deadline)
            by_words = True
        best = sorted(near.items(), key=lambda item: (-item[1].score, item[0]))[:limit]
        ids = [found.chunk_id for _, found in best]
        passages = await store.call(lambda: self._sources.documents.passages(ids), deadline) if ids else {}
        return SimilarResponse(
            results=[_shown(passages[found.chunk_id], found.score) for _, found in best if found.chunk_id in passages],
            method="text" if by_words else "vector",
            fallback=by_words,
            fallback_level=2 if by_words else 1,
            warning=WARNING if by_words else None,
        )

    async def _by_vectors(
        self, document_id: str, chunks: Sequence[Chunk], limit: int, where: Filter, deadline: Deadline
    ) -> Mapping[str, _Near]:
        asked = [chunk.embedded for chunk in _spread(chunks)]
        if not asked:
            return {}
        sources = self._sources
        vectors = await sources.embedding.call(lambda: sources.embedder.embed_documents(asked), deadline)
        refs: dict[str, ChunkRef] = {}
        for reach in _reaches(len(chunks)):
            refs = await self._candidates(document_id, vectors, reach, where, deadline)
            if len({ref.document_id for ref in refs.values()}) >= limit:
                break
        cosines = np.zeros((len(vectors), len(refs)), dtype=np.float32)
        for row, vector in enumerate(vectors):
            exact = await sources.vector_store.call(partial(sources.vectors.score, vector, list(refs)), deadline)
            cosines[row] = [exact.get(id_, -1.0) for id_ in refs]
        calibration = sources.embedder.model.calibration
        found = list(refs.values())
        near: dict[str, _Near] = {}
        for id_, columns in _columns_by_document(found).items():
            of_document = cosines[:, columns]
            # What each asked chunk finds nearest in this document, on average.
            mean = float(of_document.max(axis=1).mean())
            nearest = found[columns[int(of_document.max(axis=0).argmax())]]
            near[id_] = _Near(nearest.id, relevance(Candidate(nearest, mean, 0.0, 0.0), calibration))
        return near

    async def _candidates(
        self, document_id: str, vectors: Matrix, limit: int, where: Filter, deadline: Deadline
    ) -> dict[str, ChunkRef]:
        """The chunks of other documents that any of the vectors finds."""
        sources = self._sources
        refs: dict[str, ChunkRef] = {}
        for vector in vectors:
            find = partial(sources.vectors.search, vector, limit=limit, where=where)
            hits = await sources.vector_store.call(find, deadline)
            refs.update((hit.chunk.id, hit.chunk) for hit in hits if hit.chunk.document_id != document_id)
        return refs

    async def _by_words(
        self, document: Document, own_chunks: int, limit: int, where: Filter, deadline: Deadline
    ) -> Mapping[str, _Near]:
        text = f"{document.title} {document.content[:ASKED_CHARS]}"
        near: dict[str, _Near] = {}
        for reach in _reaches(own_chunks):
            find = partial(self._sources.texts.search, text, limit=reach, where=where)
            hits = await self._sources.document_store.call(find, deadline)
            for hit in sorted(hits, key=lambda hit: -hit.share):
                if hit.chunk.document_id != document.id:
                    near.setdefault(hit.chunk.document_id, _Near(hit.chunk.id, hit.share))
            if len(near) >= limit:
                break
        return near


def _reaches(own_chunks: int) -> tuple[int, ...]:
    """How many hits are asked for: beside some of the document's own chunks, then, if need be, beside all of them."""
    return tuple(dict.fromkeys((min(own_chunks, OWN_CHUNKS) + POOL, own_chunks + POOL)))


def _spread(chunks: Sequence[Chunk]) -> list[Chunk]:
    """At most `ASKED_CHUNKS` of the chunks, evenly spaced, the first and the last among them."""
    if len(chunks) <= ASKED_CHUNKS:
        return list(chunks)
    return [chunks[round(i * (len(chunks) - 1) / (ASKED_CHUNKS - 1))] for i in range(ASKED_CHUNKS)]


def _columns_by_document(refs: Iterable[ChunkRef]) -> dict[str, list[int]]:
    columns: dict[str, list[int]] = {}
    for column, ref in enumerate(refs):
        columns.setdefault(ref.document_id, []).append(column)
    return columns


def _shown(passage: Passage, score: float) -> SimilarDocument:
    return SimilarDocument(
        document_id=passage.document_id,
        score=round(min(max(score, 0.0), 1.0), 4),
        title=passage.title,
        content=passage.chunk.text,
        content_type=passage.content_type,
        session_id=passage.session_id,
        source=passage.source,
        timestamp=passage.timestamp,
        metadata=metadata_json(passage.metadata),
    )
