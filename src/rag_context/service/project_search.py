"""Runs the searches of the project tools: as one context with an answer, or as a list of documents; records them."""

import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from rag_context.domain.documents import Tenant
from rag_context.domain.metrics import QUERY_CHARS, SearchRecord
from rag_context.ports.models import ChatModel
from rag_context.projects.chat_answers import Written, write_answer
from rag_context.projects.records import Label, RetrievalOptions
from rag_context.projects.retrieval import RetrievalDependencies, RetrievalService
from rag_context.resilience.admission import Admissions
from rag_context.service.project_mappers import labelled, linked_doc, source, tenant_fields

AGENT = "project tools"


class RecordSearch(Protocol):
    """Records a search for the statistics, with the ids of the documents that it returned."""

    def __call__(self, record: SearchRecord, label: Label, retrieved: Collection[str]) -> None: ...


class ProjectSearch:
    """Searches the documents of one tenant at a time; the results are the fields of a response.

    Args:
        retrieval: the dependencies of a retrieval.
        chat: writes answers; None: contexts without an answer.
        record_search: called after every search.
        admissions: bounds the number of searches at once.
        clock: monotonic seconds.
        now: the wall clock.
    """

    def __init__(
        self,
        retrieval: RetrievalDependencies,
        chat: ChatModel | None,
        record_search: RecordSearch,
        admissions: Admissions,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._retrieval = retrieval
        self._chat = chat
        self._record_search = record_search
        self._admissions = admissions
        self._clock = clock
        self._now = now

    async def context(
        self, query: str, tenant: Tenant, options: RetrievalOptions, request_id: str, behind: Sequence[str]
    ) -> dict[str, Any]:
        """One text of the documents that answer a question, and an answer if there is a chat model.

        Args:
            query: the question.
            tenant: whose documents are searched.
            options: bounds and thresholds.
            request_id: id of the request, for the response and the record.
            behind: why the index may be older than the files.
        """
        started = self._clock()
        async with self._admissions.searches.admitted():
            context = await RetrievalService(self._retrieval, tenant).assemble_context(query, options)
        latency_ms = (self._clock() - started) * 1000.0
        ids = [document.document_id for document in context.all_sources]
        self._record(query, context.label, ids, request_id, latency_ms)
        written: Written = await write_answer(query, context, self._chat)
        return {
            **tenant_fields(tenant),
            **labelled(context.label, request_id, latency_ms, behind),
            "answer": written.answer,
            "answer_note": " ".join(f"{remark}." for remark in written.remarks) or None,
            "citations": list(written.citations),
            "context": context.formatted_context,
            "sources": [source(document) for document in context.relevant_documents],
            "linked_docs": [linked_doc(document) for document in context.linked_documents],
            "critical_docs": [source(document) for document in context.critical_documents],
            "omitted": len(context.omitted),
            "omitted_docs": list(context.omitted),
            "total_matches": context.total_matches,
            "char_count": context.total_char_count,
            "token_count": context.tokens,
        }

    async def documents(
        self, query: str, tenant: Tenant, options: RetrievalOptions, request_id: str, behind: Sequence[str]
    ) -> dict[str, Any]:
        """The documents that answer a question, without their texts. The arguments are those of `context`."""
        started = self._clock()
        async with self._admissions.searches.admitted():
            found = await RetrievalService(self._retrieval, tenant).list_relevant_documents(query, options)
        latency_ms = (self._clock() - started) * 1000.0
        ids = [document.document_id for document in found.documents]
        self._record(query, found.label, ids, request_id, latency_ms)
        return {
            **tenant_fields(tenant),
            **labelled(found.label, request_id, latency_ms, behind),
            "results": [source(document) for document in found.documents],
            "total_matches": found.total_matches,
        }

    def _record(self, query: str, label: Label, document_ids: list[str], request_id: str, latency_ms: float) -> None:
        stage_ms = {name: leg.latency_ms for name, leg in label.legs.items()}
        record = SearchRecord(
            timestamp=self._now(),
            request_id=request_id,
            query=query[:QUERY_CHARS],
            results_count=len(document_ids),
            latency_ms=latency_ms,
            embedding_latency_ms=stage_ms.get("embedding"),
            vector_latency_ms=stage_ms.get("vector"),
            text_latency_ms=stage_ms.get("text"),
            level=int(label.level),
            cache_hit=False,
            agent=AGENT,
        )
        self._record_search(record, label, document_ids)
