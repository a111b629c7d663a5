"""The use cases of project documents: from a wire request to retrieval and back, for the project that is meant."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from rag_context.api import project_tenants as tenants_wire
from rag_context.api import projects as wire
from rag_context.domain.documents import Tenant
from rag_context.domain.metrics import QUERY_CHARS, SearchRecord
from rag_context.domain.search import Filter
from rag_context.errors import BackendError, FieldError, InvalidInputError
from rag_context.ports.models import ChatModel
from rag_context.projects.activation import Projects
from rag_context.projects.callers import CallerId
from rag_context.projects.generation import Written, write_answer
from rag_context.projects.housekeeping import DEFAULT_RULES, Housekeeping, Rules, why_gone
from rag_context.projects.listing import DocumentList
from rag_context.projects.opening import Activation
from rag_context.projects.records import (
    DEFAULT_DOC_TYPE,
    CriticalInclusion,
    DocumentNotFoundError,
    InvalidDocTypeError,
    Label,
    PromotionLevel,
    RetrievalOptions,
)
from rag_context.projects.retrieval import RetrievalDependencies, RetrievalService
from rag_context.resilience.admission import Admissions
from rag_context.resilience.deadline import Deadline
from rag_context.service.progress import OnProgress, relayed
from rag_context.service.project_choice import Meant, Naming, ProjectChoice, external, followed
from rag_context.service.project_mappers import (
    Listed,
    catching_up,
    doc_types,
    following_warnings,
    labelled,
    level_name,
    lines_of,
    linked_doc,
    listed_project,
    named_document,
    source,
    tenant_fields,
    type_counts,
)

AGENT = "project tools"
STORE_S = 30.0
"""Longest wait for the list of a project's documents where no question waits for it."""

MAX_COUNTED = 1_000_000
MAX_WARNINGS = 100
"""Warnings about single documents that one reply carries."""


class Observe(Protocol):
    """Told of every search, for statistics."""

    def __call__(self, record: SearchRecord, label: Label, retrieved: Collection[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class ProjectParts:
    """What the use cases are made of; `wiring` puts it together. `chat` None: contexts without an answer."""

    projects: Projects
    works: RetrievalDependencies
    chat: ChatModel | None = None
    rules: Rules = DEFAULT_RULES


class ProjectService:
    """Every use case of project documents. `session` names the caller; None: nobody in particular.

    All raise `ProjectError`, `InvalidInputError` and `BackendError` only; queries answer whatever fails.
    """

    def __init__(
        self,
        parts: ProjectParts,
        observe: Observe,
        admissions: Admissions,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._projects = parts.projects
        self._choice = ProjectChoice(parts.projects)
        self._works = parts.works
        self._chat = parts.chat
        self._grace = parts.rules.grace
        self.housekeeping = Housekeeping(parts.projects, parts.rules, clock)
        """What a server does for projects unasked; it is for the server to run it."""

        self._observe = observe
        self._admissions = admissions
        self._clock = clock
        self._now = now

    async def activate(
        self,
        request: tenants_wire.ActivateProjectRequest,
        on_progress: OnProgress,
        *,
        caller: CallerId,
        may_write: bool = True,
    ) -> tenants_wire.ActivateProjectResponse:
        """Work on a project from now on; who may not write reads what is indexed of it."""
        if may_write:
            async with relayed(on_progress) as note:
                activation = await self._projects.activate(
                    request.config_path,
                    request.branch_name,
                    is_forced=request.force,
                    progress=lambda said: note(said.done, said.total),
                )
        else:
            activation = await self._projects.open_stored(request.config_path, request.branch_name)
        handle = self._projects.activations.note(caller, activation)
        catalogue = await self._catalogue(activation.tenant)
        state = self._projects.state(activation.tenant)
        warnings = following_warnings(activation, state, catalogue.documents)
        if state is None:
            warnings.insert(0, "The project's files are not followed: answers are from what was indexed before")
        return tenants_wire.ActivateProjectResponse(
            **tenant_fields(activation.tenant),
            status="activated",
            activation=handle,
            doc_types=type_counts(activation.doc_types, catalogue.counts),
            total_docs=len(catalogue.documents),
            complete=state is not None and state.complete,
            warnings=_bounded(warnings),
        )

    async def query(self, request: wire.RagQueryRequest, *, caller: CallerId, request_id: str) -> wire.RagQueryResponse:
        """A context for a question, and an answer where a chat model is configured."""
        meant = await self._choice.of(request, caller)
        await self._check_doc_types(request.doc_types, meant)
        options = replace(
            meant.options,
            **_given(
                doc_types=_tuple(request.doc_types),
                max_results=request.max_sources,
                min_relevance_score=request.min_relevance_score,
                min_promotion_level=_level(request.min_promotion_level),
                include_critical=_inclusion(request.include_critical),
                max_link_depth=request.link_depth,
                max_tokens=request.max_tokens,
                include_superseded=request.include_superseded or None,
            ),
        )
        return wire.RagQueryResponse(**await self._queried(request.query, meant.tenant, options, request_id))

    async def search(
        self, request: wire.SemanticSearchRequest, *, caller: CallerId, request_id: str
    ) -> wire.SemanticSearchResponse:
        """The documents that answer a question."""
        meant = await self._choice.of(request, caller)
        await self._check_doc_types(request.doc_types, meant)
        options = replace(
            meant.search_options,
            **_given(
                doc_types=_tuple(request.doc_types),
                max_results=request.limit,
                min_relevance_score=request.min_relevance_score,
                promotion_levels=tuple(PromotionLevel.of(level) for level in request.promotion_levels or ()) or None,
                include_superseded=request.include_superseded or None,
            ),
        )
        return wire.SemanticSearchResponse(**await self._searched(request.query, meant.tenant, options, request_id))

    async def read(self, request: wire.ReadDocumentRequest, *, caller: CallerId) -> wire.ReadDocumentResponse:
        """Lines of one document."""
        meant = await self._choice.of(request, caller)
        catalogue = await self._catalogue(meant.tenant)
        document = named_document(catalogue, request.path)
        works, deadline = self._works, Deadline.after(STORE_S, self._clock)
        stored = await works.document_store.call(lambda: works.documents.get(document.id), deadline)
        if stored is None:
            raise DocumentNotFoundError(f"{document.path!r} has just been taken out of the index")
        return wire.ReadDocumentResponse(
            **tenant_fields(meant.tenant),
            **lines_of(stored.content, request.start_line, request.end_line),
            path=document.path,
            title=document.title,
            document_id=document.id,
            doc_type=document.doc_type,
            promotion_level=level_name(document.promotion_level),
            superseded_by=list(catalogue.superseded_by(document.path)),
        )

    async def retrieval(
        self, project: str, branch: str | None = None, path_hash: str | None = None
    ) -> RetrievalService:
        """The retrieval behind the tools, from the documents of a stored project; its options are the caller's own."""
        return RetrievalService(self._works, await self._projects.tenants.named(project, branch, path_hash))

    async def index_document(
        self, request: wire.IndexDocumentRequest, *, caller: CallerId
    ) -> wire.IndexDocumentResponse:
        """Index one file of the project now."""
        activation = await self._files_of(request, caller)
        async with self._admissions.writes.admitted():
            document = await self._projects.index_document(activation, request.path)
        indexed = await self._is_indexed(document.id)
        return wire.IndexDocumentResponse(
            **tenant_fields(activation.tenant),
            status="indexed" if indexed else "pending",
            path=document.path,
            embedding_dimensions=self._works.model().dimension if indexed else 0,
            warnings=_bounded(document.warnings),
        )

    async def list_doc_types(self, request: wire.ListDocTypesRequest, *, caller: CallerId) -> wire.ListDocTypesResponse:
        """The kinds of document that a project knows."""
        meant = await self._choice.of(request, caller)
        catalogue = await self._catalogue(meant.tenant)
        return wire.ListDocTypesResponse(
            **tenant_fields(meant.tenant),
            doc_types=doc_types(meant.doc_types, catalogue.counts),
            total_docs=len(catalogue.documents),
        )

    async def update_promotion_level(
        self, request: wire.UpdatePromotionLevelRequest, *, caller: CallerId
    ) -> wire.UpdatePromotionLevelResponse:
        """Say how much a document matters, in its file and in the index."""
        activation = await self._files_of(request, caller)
        level = PromotionLevel.of(request.promotion_level)
        promotion = await self._projects.promote(activation, request.document_path, level)
        return wire.UpdatePromotionLevelResponse(
            **tenant_fields(activation.tenant),
            status="updated",
            document_path=promotion.document.path,
            previous_level=level_name(promotion.previous),
            new_level=level_name(promotion.new),
        )

    async def delete_documents(
        self, request: tenants_wire.DeleteDocumentsRequest, *, caller: CallerId
    ) -> tenants_wire.DeleteDocumentsResponse:
        """Take a project's documents out of the index, or say how many that would be."""
        path_hash = await self._choice.repository(request, caller)
        work = self._projects.preview_deletion if request.dry_run else self._projects.delete_documents
        deletion = await work(request.project_name, request.branch_name, path_hash)
        return tenants_wire.DeleteDocumentsResponse(
            status="preview" if request.dry_run else "deleted",
            deleted_count=deletion.documents,
            deleted_chunks=deletion.chunks,
            project_name=request.project_name,
            branch_name=request.branch_name,
            path_hash=path_hash,
            dry_run=request.dry_run,
        )

    async def list_projects(self) -> tenants_wire.ListProjectsResponse:
        """Every project that is stored or followed. Raises: BackendError."""
        records = {record.tenant: record for record in await self._projects.remembered.records()}
        listed = []
        for tenant in sorted(await self._projects.tenants.known(), key=lambda each: (each.project, each.branch)):
            record = records.get(tenant)
            gone = await asyncio.to_thread(why_gone, record) if record is not None else None
            deadline = Deadline.after(STORE_S, self._clock)
            documents = await self._works.document_store.call(partial(self._count, tenant), deadline)
            project = Listed(tenant, record, gone, documents, is_followed=self._projects.state(tenant) is not None)
            listed.append(listed_project(project, self._behind(tenant), self._grace, self._now()))
        return tenants_wire.ListProjectsResponse(projects=listed)

    async def search_external(
        self, request: wire.SearchExternalDocsRequest, *, caller: CallerId, request_id: str
    ) -> wire.SearchExternalDocsResponse:
        """The external documents that answer a question."""
        activation, tenant, path = external(await self._choice.of(request, caller))
        options = replace(
            activation.search_options,
            **_given(max_results=request.limit, min_relevance_score=request.min_relevance_score),
        )
        found = await self._searched(request.query, tenant, options, request_id, activation.tenant)
        return wire.SearchExternalDocsResponse(**{**found, **tenant_fields(activation.tenant)}, external_docs_path=path)

    async def query_external(
        self, request: wire.RagQueryExternalRequest, *, caller: CallerId, request_id: str
    ) -> wire.RagQueryExternalResponse:
        """A context of external documents for a question."""
        activation, tenant, path = external(await self._choice.of(request, caller))
        options = replace(
            activation.options,
            **_given(
                max_results=request.max_sources,
                min_relevance_score=request.min_relevance_score,
                max_link_depth=request.link_depth,
                max_tokens=request.max_tokens,
                include_critical=CriticalInclusion.NEVER,
                min_promotion_level=PromotionLevel.STANDARD,  # a level is for documents that can be promoted
            ),
        )
        asked = await self._queried(request.query, tenant, options, request_id, activation.tenant)
        return wire.RagQueryExternalResponse(**{**asked, **tenant_fields(activation.tenant)}, external_docs_path=path)

    async def _queried(
        self, query: str, tenant: Tenant, options: RetrievalOptions, request_id: str, followed: Tenant | None = None
    ) -> dict[str, Any]:
        """`followed` is whose files are followed, where `tenant` is that of their external documents."""
        started = self._clock()
        async with self._admissions.searches.admitted():
            context = await RetrievalService(self._works, tenant).assemble_context(query, options)
        latency_ms = (self._clock() - started) * 1000.0
        sources = list(context.all_sources)
        self._remember(query, context.label, [document.document_id for document in sources], request_id, latency_ms)
        written: Written = await write_answer(query, context, self._chat)
        return {
            **tenant_fields(tenant),
            **labelled(context.label, request_id, latency_ms, self._behind(tenant if followed is None else followed)),
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

    async def _searched(
        self, query: str, tenant: Tenant, options: RetrievalOptions, request_id: str, followed: Tenant | None = None
    ) -> dict[str, Any]:
        started = self._clock()
        async with self._admissions.searches.admitted():
            found = await RetrievalService(self._works, tenant).list_relevant_documents(query, options)
        latency_ms = (self._clock() - started) * 1000.0
        self._remember(
            query, found.label, [document.document_id for document in found.documents], request_id, latency_ms
        )
        return {
            **tenant_fields(tenant),
            **labelled(found.label, request_id, latency_ms, self._behind(tenant if followed is None else followed)),
            "results": [source(document) for document in found.documents],
            "total_matches": found.total_matches,
        }

    async def _files_of(self, request: Naming, caller: CallerId) -> Activation:
        """The project whose files a request is about, as they lie there now."""
        activation = await self._projects.checked_out(followed(await self._choice.of(request, caller)))
        if request.branch not in (None, activation.tenant.branch):
            message = f"Branch {activation.tenant.branch!r} is checked out, not {request.branch!r}"
            raise InvalidInputError(message, [FieldError("branch", message)])
        return activation

    async def _check_doc_types(self, named: list[str] | None, meant: Meant) -> None:
        known = {info.name for info in meant.doc_types} | {DEFAULT_DOC_TYPE}
        unknown = [name for name in named or () if name not in known]
        if not unknown:
            return
        try:
            known |= (await self._catalogue(meant.tenant)).counts.keys()
        except BackendError:
            return  # whether a document says so itself cannot be known now; the store will not find what is not there
        if unknown := [name for name in unknown if name not in known]:
            message = f"Unknown doc type {unknown[0]!r}; known are {', '.join(sorted(known))}"
            raise InvalidDocTypeError(message, [FieldError("doc_types", message)])

    async def _catalogue(self, tenant: Tenant) -> DocumentList:
        deadline = Deadline.after(STORE_S, self._clock)
        return await self._works.document_store.call(lambda: self._projects.catalogues.of(tenant), deadline)

    def _behind(self, tenant: Tenant) -> list[str]:
        return catching_up(self._projects.state(tenant), self._projects.resuming.get(tenant))

    async def _count(self, tenant: Tenant) -> int:
        return len(await self._works.documents.matching(Filter(tenant), MAX_COUNTED))

    async def _is_indexed(self, document_id: str) -> bool:
        works = self._works
        deadline = Deadline.after(STORE_S, self._clock)
        stored = await works.document_store.call(lambda: works.documents.stored(document_id), deadline)
        return stored is not None and stored.indexed

    def _remember(self, query: str, label: Label, document_ids: list[str], request_id: str, latency_ms: float) -> None:
        spent = {name: leg.latency_ms for name, leg in label.legs.items()}
        record = SearchRecord(
            timestamp=self._now(),
            request_id=request_id,
            query=query[:QUERY_CHARS],
            results_count=len(document_ids),
            latency_ms=latency_ms,
            embedding_latency_ms=spent.get("embedding"),
            vector_latency_ms=spent.get("vector"),
            text_latency_ms=spent.get("text"),
            level=int(label.level),
            cache_hit=False,
            agent=AGENT,
        )
        self._observe(record, label, document_ids)


def _given(**values: object) -> Mapping[str, Any]:
    """What a call says; the project's values stand for the rest."""
    return {name: value for name, value in values.items() if value is not None}


def _tuple(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(dict.fromkeys(names))


def _level(name: str | None) -> PromotionLevel | None:
    return None if name is None else PromotionLevel.of(name)


def _inclusion(name: str | None) -> CriticalInclusion | None:
    return None if name is None else CriticalInclusion(name)


def _bounded(warnings: Collection[str]) -> list[str]:
    """The first warnings, and how many more there are."""
    listed = list(warnings)
    more = len(listed) - MAX_WARNINGS
    return [*listed[:MAX_WARNINGS], f"and {more} more"] if more > 0 else listed
