"""What is done to a draft before it is embedded: redaction, identity, chunks. It computes in a thread.

All drafts that come together are prepared in one go: handing a short text over to a thread costs more than the work.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from rag_context.domain.documents import CHAT, Chunk, Document, DocumentInput, Origin, content_hash, document_id
from rag_context.errors import BackendError
from rag_context.ingest.chunk_context import chunks_of, similarity_hash, title_of
from rag_context.ingest.redaction import RedactionMode, cleaned
from rag_context.ports.models import Embedder
from rag_context.provenance import event_time
from rag_context.resilience.admission import Computing
from rag_context.text import terms

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Identified:
    """A draft without its secrets; which document it is a version of, and which version."""

    id: str
    content_hash: str
    draft: DocumentInput
    redactions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document as it will be stored, and its chunks."""

    document: Document
    chunks: Sequence[Chunk]


class Preparation:
    """Prepares drafts for one embedder.

    Args:
        embedder: its tokenizer and window decide where texts are cut.
        window: in its place until the model itself is known.
        redaction: what happens to secrets.
        now: the wall clock.
    """

    def __init__(self, embedder: Embedder, window: int, redaction: RedactionMode, now: Callable[[], datetime]) -> None:
        self._embedder = embedder
        self._window = window
        self._redaction = redaction
        self._now = now
        self._computing = Computing()

    async def identified(self, drafts: Sequence[DocumentInput]) -> list[Identified | Exception]:
        """Each draft without its secrets, or why it is not accepted (InvalidInputError)."""
        chars = sum(len(draft.content) for draft in drafts)
        return await self._computing.run(partial(attempted, self._identified, drafts), chars=chars)

    async def prepared(self, drafts: Sequence[Identified]) -> list[Prepared | Exception]:
        """Each draft as a document in chunks."""
        chars = sum(len(each.draft.content) for each in drafts)
        return await self._computing.run(partial(attempted, self._prepared, drafts), chars=chars)

    async def chunks(self, document: Document, embedder: Embedder | None = None) -> list[Chunk]:
        """The chunks of a document, for another embedder if one is given."""
        work = partial(self._chunks, document, embedder or self._embedder)
        return await self._computing.run(work, chars=len(document.content))

    def _chunks(self, document: Document, embedder: Embedder) -> list[Chunk]:
        try:
            window = embedder.model.window
        except BackendError:
            window = self._window
        return chunks_of(document, embedder.tokenizer, window)

    def _identified(self, draft: DocumentInput) -> Identified:
        draft, redactions = cleaned(draft, self._redaction)
        return Identified(document_id(draft), content_hash(draft), draft, redactions)

    def _prepared(self, identified: Identified) -> Prepared:
        draft, now = identified.draft, self._now()
        document = Document(
            id=identified.id,
            tenant=draft.tenant,
            content_type=draft.content_type,
            session_id=draft.session_id,
            source=draft.source,
            title=title_of(draft.content, draft.source, draft.content_type, draft.metadata),
            content=draft.content,
            content_hash=identified.content_hash,
            timestamp=now,
            occurred_at=event_time(draft, now),
            metadata=draft.metadata,
            thread=draft.session_id if draft.content_type == CHAT and draft.origin is Origin.TOOL else None,
            similarity_hash=similarity_hash(terms(draft.content)),
            message_times=draft.message_times,
        )
        return Prepared(document, self._chunks(document, self._embedder))


def attempted(work: Callable[[T], R], items: Sequence[T]) -> list[R | Exception]:
    """The result of each, or its error: one that fails does not keep the others from being worked on."""
    results: list[R | Exception] = []
    for item in items:
        try:
            results.append(work(item))
        except Exception as error:  # noqa: BLE001  (it is the result of this item)
            results.append(error)
    return results
