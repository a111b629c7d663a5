"""The use cases of project documents, one method per tool: resolves the project, does the work, maps the response."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from rag_context.api import project_queries
from rag_context.api import projects as wire
from rag_context.domain.documents import Tenant
from rag_context.domain.search import Filter
from rag_context.errors import BackendError, FieldError, InvalidInputError
from rag_context.ports.models import ChatModel
from rag_context.projects.activation import Projects
from rag_context.projects.callers import CallerId
from rag_context.projects.housekeeping import DEFAULT_RULES, Housekeeping, Rules, why_gone
from rag_context.projects.project_opening import Activation
from rag_context.projects.records import (
    DEFAULT_DOC_TYPE,
    CriticalInclusion,
    DocumentNotFoundError,
    InvalidDocTypeError,
    PromotionLevel,
)
from rag_context.projects.retrieval import RetrievalDependencies, RetrievalService
from rag_context.resilience.admission import Admissions
from rag_context.service.project_mappers import (
    StoredProject,
    catching_up,
    doc_types,
    following_warnings,
    level_name,
    limited,
    lines_of,
    listed_project,
    named_document,
    tenant_fields,
    type_counts,
)
from rag_context.service.project_requests import (
    OnProgress,
    ProjectRequest,
    ProjectResolver,
    ProjectSearch,
    RecordSearch,
    ResolvedProject,
    external,
    followed,
    relayed,
)

MAX_COUNTED = 1_000_000


@dataclass(frozen=True, slots=True)
class ProjectDependencies:
    """The components of the use cases; `wiring` builds them. `chat` None: contexts without an answer."""

    projects: Projects
    retrieval: RetrievalDependencies
    chat: ChatModel | None = None
    rules: Rules = DEFAULT_RULES


class ProjectService:
    """Every use case of project documents.

    All raise `ProjectError`, `InvalidInputError` and `BackendError` only. Searches do not raise `BackendError`: they
    return what they found, with warnings.

    Args:
        dependencies: its components.
        record_search: called after every search.
        admissions: bounds the number of searches and writes at once.
        clock: monotonic seconds.
        now: the wall clock.
    """

    def __init__(
        self,
        dependencies: ProjectDependencies,
        record_search: RecordSearch,
        admissions: Admissions,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._projects = dependencies.projects
        self._resolver = ProjectResolver(dependencies.projects)
        self._retrieval = dependencies.retrieval
        self._documents = dependencies.retrieval.documents
        self._document_lists = dependencies.retrieval.document_lists
        self._search = ProjectSearch(
            dependencies.retrieval, dependencies.chat, record_search, admissions, clock=clock, now=now
        )
        self._grace = dependencies.rules.grace
        self.housekeeping = Housekeeping(dependencies.projects, dependencies.rules, clock)
        """Background work on projects; a server runs it."""

        self._admissions = admissions
        self._now = now

    async def activate(
        self,
        request: wire.ActivateProjectRequest,
        on_progress: OnProgress,
        *,
        caller: CallerId,
        may_write: bool = True,
    ) -> wire.ActivateProjectResponse:
        """Make a project the caller's own and follow its files; without `may_write`, read what is indexed of it."""
        if may_write:
            async with relayed(on_progress) as report:
                activation = await self._projects.activate(
                    request.config_path,
                    request.branch_name,
                    is_forced=request.force,
                    progress=lambda progress: report(progress.done, progress.total),
                )
        else:
            activation = await self._projects.open_stored(request.config_path, request.branch_name)
        handle = self._projects.activations.note(caller, activation)
        stored = await self._document_lists.of(activation.tenant)
        state = self._projects.state(activation.tenant)
        warnings = following_warnings(activation, state, stored.documents)
        if state is None:
            warnings.insert(0, "The project's files are not followed: answers use what was indexed before")
        return wire.ActivateProjectResponse(
            **tenant_fields(activation.tenant),
            status="activated",
            activation=handle,
            doc_types=type_counts(activation.doc_types, stored.counts),
            total_docs=len(stored.documents),
            complete=state is not None and state.complete,
            warnings=limited(warnings),
        )

    async def query(
        self, request: project_queries.RagQueryRequest, *, caller: CallerId, request_id: str
    ) -> project_queries.RagQueryResponse:
        """A context for a question, and an answer if a chat model is configured."""
        project = await self._resolver.resolve(request, caller)
        await self._check_doc_types(request.doc_types, project)
        options = replace(
            project.options,
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
        behind = self._behind(project.tenant)
        fields = await self._search.context(request.query, project.tenant, options, request_id, behind)
        return project_queries.RagQueryResponse(**fields)

    async def search(
        self, request: project_queries.SemanticSearchRequest, *, caller: CallerId, request_id: str
    ) -> project_queries.SemanticSearchResponse:
        """The documents that answer a question."""
        project = await self._resolver.resolve(request, caller)
        await self._check_doc_types(request.doc_types, project)
        options = replace(
            project.search_options,
            **_given(
                doc_types=_tuple(request.doc_types),
                max_results=request.limit,
                min_relevance_score=request.min_relevance_score,
                promotion_levels=tuple(PromotionLevel.of(level) for level in request.promotion_levels or ()) or None,
                include_superseded=request.include_superseded or None,
            ),
        )
        behind = self._behind(project.tenant)
        fields = await self._search.documents(request.query, project.tenant, options, request_id, behind)
        return project_queries.SemanticSearchResponse(**fields)

    async def read(self, request: wire.ReadDocumentRequest, *, caller: CallerId) -> wire.ReadDocumentResponse:
        """Lines of one document."""
        project = await self._resolver.resolve(request, caller)
        document_list = await self._document_lists.of(project.tenant)
        document = named_document(document_list, request.path)
        stored = await self._documents.get(document.id)
        if stored is None:
            raise DocumentNotFoundError(f"{document.path!r} has just been deleted from the index")
        return wire.ReadDocumentResponse(
            **tenant_fields(project.tenant),
            **lines_of(stored.content, request.start_line, request.end_line),
            path=document.path,
            title=document.title,
            document_id=document.id,
            doc_type=document.doc_type,
            promotion_level=level_name(document.promotion_level),
            superseded_by=list(document_list.superseded_by(document.path)),
        )

    async def retrieval(
        self, project: str, branch: str | None = None, path_hash: str | None = None
    ) -> RetrievalService:
        """The retrieval that the tools use, for the documents of a stored project; callers pass their own options."""
        return RetrievalService(self._retrieval, await self._projects.tenants.named(project, branch, path_hash))

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
            embedding_dimensions=self._retrieval.model().dimension if indexed else 0,
            warnings=limited(document.warnings),
        )

    async def list_doc_types(self, request: wire.ListDocTypesRequest, *, caller: CallerId) -> wire.ListDocTypesResponse:
        """The document types of a project, with their numbers of documents."""
        project = await self._resolver.resolve(request, caller)
        document_list = await self._document_lists.of(project.tenant)
        return wire.ListDocTypesResponse(
            **tenant_fields(project.tenant),
            doc_types=doc_types(project.doc_types, document_list.counts),
            total_docs=len(document_list.documents),
        )

    async def update_promotion_level(
        self, request: wire.UpdatePromotionLevelRequest, *, caller: CallerId
    ) -> wire.UpdatePromotionLevelResponse:
        """Set how important a document is, in its file and in the index."""
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
        self, request: wire.DeleteDocumentsRequest, *, caller: CallerId
    ) -> wire.DeleteDocumentsResponse:
        """Delete a project's documents from the index, or with `dry_run` count them."""
        path_hash = await self._resolver.repository(request, caller)
        delete = self._projects.preview_deletion if request.dry_run else self._projects.delete_documents
        deletion = await delete(request.project_name, request.branch_name, path_hash)
        return wire.DeleteDocumentsResponse(
            status="preview" if request.dry_run else "deleted",
            deleted_count=deletion.documents,
            deleted_chunks=deletion.chunks,
            project_name=request.project_name,
            branch_name=request.branch_name,
            path_hash=path_hash,
            dry_run=request.dry_run,
        )

    async def list_projects(self) -> wire.ListProjectsResponse:
        """Every project that is stored or followed. Raises: BackendError."""
        records = {record.tenant: record for record in await self._projects.project_records.records()}
        listed = []
        for tenant in sorted(await self._projects.tenants.known(), key=lambda each: (each.project, each.branch)):
            record = records.get(tenant)
            gone = await asyncio.to_thread(why_gone, record) if record is not None else None
            documents = len(await self._documents.matching(Filter(tenant), MAX_COUNTED))
            is_followed = self._projects.state(tenant) is not None
            project = StoredProject(tenant, record, gone, documents, is_followed=is_followed)
            listed.append(listed_project(project, self._behind(tenant), self._grace, self._now()))
        return wire.ListProjectsResponse(projects=listed)

    async def search_external(
        self, request: project_queries.SearchExternalDocsRequest, *, caller: CallerId, request_id: str
    ) -> project_queries.SearchExternalDocsResponse:
        """The external documents that answer a question."""
        activation, tenant, path = external(await self._resolver.resolve(request, caller))
        options = replace(
            activation.search_options,
            **_given(max_results=request.limit, min_relevance_score=request.min_relevance_score),
        )
        behind = self._behind(activation.tenant)
        fields = await self._search.documents(request.query, tenant, options, request_id, behind)
        fields |= tenant_fields(activation.tenant)
        return project_queries.SearchExternalDocsResponse(**fields, external_docs_path=path)

    async def query_external(
        self, request: project_queries.RagQueryExternalRequest, *, caller: CallerId, request_id: str
    ) -> project_queries.RagQueryExternalResponse:
        """A context of external documents for a question."""
        activation, tenant, path = external(await self._resolver.resolve(request, caller))
        options = replace(
            activation.options,
            **_given(
                max_results=request.max_sources,
                min_relevance_score=request.min_relevance_score,
                max_link_depth=request.link_depth,
                max_tokens=request.max_tokens,
                include_critical=CriticalInclusion.NEVER,
                min_promotion_level=PromotionLevel.STANDARD,  # external documents cannot be promoted
            ),
        )
        behind = self._behind(activation.tenant)
        fields = await self._search.context(request.query, tenant, options, request_id, behind)
        fields |= tenant_fields(activation.tenant)
        return project_queries.RagQueryExternalResponse(**fields, external_docs_path=path)

    async def _files_of(self, request: ProjectRequest, caller: CallerId) -> Activation:
        """The project whose files a request is about, on the branch that is checked out now."""
        activation = await self._projects.checked_out(followed(await self._resolver.resolve(request, caller)))
        if request.branch not in (None, activation.tenant.branch):
            message = f"Branch {activation.tenant.branch!r} is checked out, not {request.branch!r}"
            raise InvalidInputError(message, [FieldError("branch", message)])
        return activation

    async def _check_doc_types(self, requested: list[str] | None, project: ResolvedProject) -> None:
        known = {info.name for info in project.doc_types} | {DEFAULT_DOC_TYPE}
        unknown = [name for name in requested or () if name not in known]
        if not unknown:
            return
        try:
            known |= (await self._document_lists.of(project.tenant)).counts.keys()
        except BackendError:
            return  # the types that documents name cannot be read; a search for an unknown type finds nothing
        if unknown := [name for name in unknown if name not in known]:
            message = f"Unknown doc type {unknown[0]!r}; known are {', '.join(sorted(known))}"
            raise InvalidDocTypeError(message, [FieldError("doc_types", message)])

    def _behind(self, tenant: Tenant) -> list[str]:
        """Why the index may be older than the files."""
        return catching_up(self._projects.state(tenant), self._projects.resuming.get(tenant))

    async def _is_indexed(self, document_id: str) -> bool:
        stored = await self._documents.stored(document_id)
        return stored is not None and stored.indexed


def _given(**values: object) -> Mapping[str, Any]:
    """The options that a request sets; those of the project apply to the others."""
    return {name: value for name, value in values.items() if value is not None}


def _tuple(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(dict.fromkeys(names))


def _level(name: str | None) -> PromotionLevel | None:
    return None if name is None else PromotionLevel.of(name)


def _inclusion(name: str | None) -> CriticalInclusion | None:
    return None if name is None else CriticalInclusion(name)
