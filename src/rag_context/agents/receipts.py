"""What agents were shown unasked, for people and agents who want to know: when, to whom, why, and what it cost.

Records hold no text: it is read from the index, so that what was deleted is shown nowhere.
"""

import asyncio

from rag_context.api.handlers import performs
from rag_context.api.maintenance import MAX_INJECTIONS, InjectedPassage, InjectionsRequest, InjectionsResponse
from rag_context.api.operations import memory
from rag_context.domain.reports import Injection
from rag_context.domain.search import Passage
from rag_context.ports.reading import DocumentStore
from rag_context.ports.writing import InjectionLog


class Receipts:
    def __init__(self, log: InjectionLog, documents: DocumentStore) -> None:
        self._log = log
        self._documents = documents

    @performs(memory.INJECTIONS)
    async def injections(self, request: InjectionsRequest) -> InjectionsResponse:
        """List what agents were shown unasked, and what was withheld. Raises: BackendError."""
        limit = MAX_INJECTIONS if request.shown_only else request.limit
        records = await asyncio.to_thread(self._log.latest, request.session_id, limit)
        if request.shown_only:
            records = [record for record in records if not record.reason][: request.limit]
        ids = {record.chunk_ids[-1] for record in records if record.chunk_ids}
        passages = await self._documents.passages(sorted(ids)) if ids else {}
        injected = [_injected(record, passages.get((record.chunk_ids or ("",))[-1])) for record in records]
        return InjectionsResponse(injections=injected, tokens=sum(record.tokens for record in records))


def _injected(record: Injection, passage: Passage | None) -> InjectedPassage:
    return InjectedPassage.model_validate(
        {
            "at": record.at,
            "session_id": record.session_id,
            "client": record.client,
            "event": record.event,
            "project": record.project,
            "subject": record.subject or None,
            "shown": not record.reason,
            "reason": record.reason or None,
            "tokens": record.tokens,
            "scores": dict(record.scores),
            "document_id": record.document_id or None,
            "title": None if passage is None else passage.title,
            "source": None if passage is None else passage.source,
            "content": None if passage is None else passage.chunk.text,
        }
    )
