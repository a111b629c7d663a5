"""What agents were shown unasked, for people and agents who want to know: when, to whom, why, and what it cost.

Records hold no text: it is read from the index, so that what was deleted is shown nowhere.
"""

import asyncio
from dataclasses import asdict

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
    fields = {name: value for name, value in asdict(record).items() if name != "chunk_ids"}
    fields |= {name: fields[name] or None for name in ("subject", "reason", "document_id")}
    fields["shown"] = not record.reason
    if passage is not None:
        fields |= {"title": passage.title, "source": passage.source, "content": passage.chunk.text}
    return InjectedPassage.model_validate(fields)
