"""The use cases of project documents, one method per tool: resolves the project, does the work, maps the response."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rag_context.api import projects as wire
from rag_context.api.handlers import CallContext, OnProgress, performs
from rag_context.api.operations import projects as operations
from rag_context.api.projects import DocType, TypeCount
from rag_context.domain.documents import ProjectRecord, Tenant, utc_now
from rag_context.domain.search import Filter
from rag_context.errors import FieldError, InvalidInputError
from rag_context.ports.models import ChatModel
from rag_context.projects import housekeeping, project_opening, project_questions, project_requests
from rag_context.projects.activation import Projects
from rag_context.projects.records import DEFAULT_DOC_TYPE, DocTypeInfo, DocumentNotFoundError, PromotionLevel
from rag_context.projects.retrieval import RetrievalDependencies, RetrievalService
from rag_context.resilience.admission import Admissions

MAX_COUNTED = 1_000_000


@dataclass(frozen=True, slots=True)
class ProjectDependencies:
    """The components of the use cases; `wiring` builds them. `chat` None: contexts without an answer."""

    projects: Projects
    retrieval: RetrievalDependencies
    chat: ChatModel | None = None
    rules: housekeeping.HousekeepingRules = housekeeping.DEFAULT_RULES


class ProjectService:
    """The use cases of project documents; all raise ProjectError, InvalidInputError and BackendError only."""

    def __init__(
        self,
        dependencies: ProjectDependencies,
        record_search: project_questions.RecordSearch,
        admissions: Admissions,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._projects = dependencies.projects
        self._resolver = project_requests.ProjectResolver(dependencies.projects)
        self._retrieval = dependencies.retrieval
        self._documents = dependencies.retrieval.documents
        self._document_lists = dependencies.retrieval.document_lists
        self.questions = project_questions.ProjectQuestions(
            self._resolver, dependencies.retrieval, dependencies.chat, record_search, admissions, clock=clock, now=now
        )
        """The tools that search the documents."""
        self._grace = dependencies.rules.grace
        self.housekeeping = housekeeping.Housekeeping(dependencies.projects, dependencies.rules, clock)
        """Background work on projects; a server runs it."""
        self._admissions = admissions
        self._now = now

    @performs(operations.ACTIVATE_PROJECT)
    async def activate(
        self, request: wire.ActivateProjectRequest, context: CallContext
    ) -> wire.ActivateProjectResponse:
        """Make a project the caller's own and follow its files; without `may_write`, read what is indexed of it."""
        if context.may_write:
            async with relayed(context.on_progress) as report:
                activation = await self._projects.activate(
                    request.config_path,
                    request.branch_name,
                    is_forced=request.force,
                    progress=lambda progress: report(progress.done, progress.total),
                )
        else:
            activation = await self._projects.open_stored(request.config_path, request.branch_name)
        handle = self._projects.activations.note(context.caller, activation)
        stored = await self._document_lists.of(activation.tenant)
        state = self._projects.state(activation.tenant)
        warnings = project_requests.following_warnings(activation, state, stored.documents)
        if state is None:
            warnings.insert(0, "The project's files are not followed: answers use what was indexed before")
        return wire.ActivateProjectResponse(
            **project_requests.tenant_fields(activation.tenant),
            status="activated",
            activation=handle,
            doc_types=type_counts(activation.doc_types.infos, stored.counts),
            total_docs=len(stored.documents),
            complete=state is not None and state.complete,
            warnings=limited(warnings),
        )

    @performs(operations.READ_DOCUMENT)
    async def read(self, request: wire.ReadDocumentRequest, context: CallContext) -> wire.ReadDocumentResponse:
        project = await self._resolver.resolve(request, context.caller)
        document_list = await self._document_lists.of(project.tenant)
        document = document_list.named(request.path)
        stored = await self._documents.get(document.id)
        if stored is None:
            raise DocumentNotFoundError(f"{document.path!r} has just been deleted from the index")
        return wire.ReadDocumentResponse(
            **project_requests.tenant_fields(project.tenant),
            **lines_of(stored.content, request.start_line, request.end_line),
            path=document.path,
            title=document.title,
            document_id=document.id,
            doc_type=document.doc_type,
            promotion_level=project_requests.level_name(document.promotion_level),
            superseded_by=list(document_list.superseded_by(document.path)),
        )

    async def retrieval(
        self, project: str, branch: str | None = None, path_hash: str | None = None
    ) -> RetrievalService:
        """The retrieval that the tools use, for the documents of a stored project; callers pass their own options."""
        return RetrievalService(self._retrieval, await self._projects.tenants.named(project, branch, path_hash))

    @performs(operations.INDEX_DOCUMENT)
    async def index_document(
        self, request: wire.IndexDocumentRequest, context: CallContext
    ) -> wire.IndexDocumentResponse:
        activation = await self._files_of(request, context)
        async with self._admissions.writes.admitted():
            document = await self._projects.index_document(activation, request.path)
        stored = await self._documents.stored(document.id)
        indexed = stored is not None and stored.indexed
        return wire.IndexDocumentResponse(
            **project_requests.tenant_fields(activation.tenant),
            status="indexed" if indexed else "pending",
            path=document.path,
            embedding_dimensions=self._retrieval.model().dimension if indexed else 0,
            warnings=limited(document.warnings),
        )

    @performs(operations.LIST_DOC_TYPES)
    async def list_doc_types(
        self, request: wire.ListDocTypesRequest, context: CallContext
    ) -> wire.ListDocTypesResponse:
        project = await self._resolver.resolve(request, context.caller)
        document_list = await self._document_lists.of(project.tenant)
        return wire.ListDocTypesResponse(
            **project_requests.tenant_fields(project.tenant),
            doc_types=doc_types(project.doc_types, document_list.counts),
            total_docs=len(document_list.documents),
        )

    @performs(operations.UPDATE_PROMOTION_LEVEL)
    async def update_promotion_level(
        self, request: wire.UpdatePromotionLevelRequest, context: CallContext
    ) -> wire.UpdatePromotionLevelResponse:
        activation = await self._files_of(request, context)
        level = PromotionLevel.of(request.promotion_level)
        promotion = await self._projects.promote(activation, request.document_path, level)
        return wire.UpdatePromotionLevelResponse(
            **project_requests.tenant_fields(activation.tenant),
            status="updated",
            document_path=promotion.document.path,
            previous_level=project_requests.level_name(promotion.previous),
            new_level=project_requests.level_name(promotion.new),
        )

    @performs(operations.DELETE_DOCUMENTS)
    async def delete_documents(
        self, request: wire.DeleteDocumentsRequest, context: CallContext
    ) -> wire.DeleteDocumentsResponse:
        path_hash = await self._resolver.repository(request, context.caller)
        delete = self._projects.tenants.deletion if request.dry_run else self._projects.delete_documents
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

    @performs(operations.LIST_PROJECTS)
    async def list_projects(
        self, _request: wire.ListProjectsRequest, context: CallContext
    ) -> wire.ListProjectsResponse:
        bounds = context.caller.bounds
        records = {record.tenant: record for record in await self._projects.project_records.records()}
        listed = []
        for tenant in sorted(await self._projects.tenants.known(), key=lambda each: (each.project, each.branch)):
            if bounds is not None and not bounds.has(tenant):
                continue
            listed.append(await self._listed(tenant, records.get(tenant)))
        return wire.ListProjectsResponse(projects=listed)

    async def _listed(self, tenant: Tenant, record: ProjectRecord | None) -> wire.ListedProject:
        gone, end = None, None
        if record is not None and (gone := await asyncio.to_thread(housekeeping.why_gone, record)) is not None:
            end = housekeeping.removal_time(record.gone_since or self._now(), record, self._grace)
        return wire.ListedProject(
            **project_requests.tenant_fields(tenant),
            documents=len(await self._documents.matching(Filter(tenant), MAX_COUNTED)),
            last_used=record.last_used if record is not None else None,
            path=record.root if record is not None else None,
            exists=gone is None if record is not None else None,
            followed=self._projects.state(tenant) is not None,
            removed_after=end,
            warnings=[*([gone] if gone is not None else []), *self._resolver.behind(tenant)],
        )

    async def _files_of(self, request: wire.InProjectRequest, context: CallContext) -> project_opening.Activation:
        """The project whose files a request is about, on the branch that is checked out now."""
        activation = await self._projects.checked_out(
            project_requests.followed(await self._resolver.resolve(request, context.caller))
        )
        if request.branch not in (None, activation.tenant.branch):
            message = f"Branch {activation.tenant.branch!r} is checked out, not {request.branch!r}"
            raise InvalidInputError(message, [FieldError("branch", message)])
        return activation


@asynccontextmanager
async def relayed(listener: OnProgress) -> AsyncIterator[Callable[[int, int], None]]:
    """Yields a function that reports progress without waiting; an error of the listener ends the reports only."""
    # Progress comes faster than a slow client takes it: only the newest report is kept.
    latest: list[tuple[int, int]] = []
    has_news = asyncio.Event()

    async def relay() -> None:
        while True:
            await has_news.wait()
            has_news.clear()
            await listener(*latest[-1])
            del latest[:-1]

    def note(done: int, total: int) -> None:
        latest.append((done, total))
        has_news.set()

    task = asyncio.create_task(relay(), name="progress")
    try:
        yield note
    finally:
        task.cancel()
        await asyncio.wait({task})


def type_counts(infos: Sequence[DocTypeInfo], counts: Mapping[str, int]) -> list[TypeCount]:
    """The number of documents of each type: first the declared types, then types that only documents name."""
    declared = [TypeCount(name=info.name, doc_count=counts.get(info.name, 0), custom=info.custom) for info in infos]
    known = {info.name for info in infos}
    return declared + [
        TypeCount(name=name, doc_count=count) for name, count in sorted(counts.items()) if name not in known
    ]


def doc_types(infos: Sequence[DocTypeInfo], counts: Mapping[str, int]) -> list[DocType]:
    """The document types with their descriptions, folders, schemas and numbers of documents."""
    by_name = {info.name: info for info in infos}
    found = []
    for counted in type_counts(infos, counts):
        undeclared = "Documents without a type" if counted.name == DEFAULT_DOC_TYPE else "Not declared in the project"
        info = by_name.get(counted.name) or DocTypeInfo(counted.name, undeclared, "", {})
        found.append(
            DocType(
                name=info.name,
                description=info.description,
                folder=info.folder,
                schema_=dict(info.schema),
                doc_count=counted.doc_count,
                custom=info.custom,
            )
        )
    return found


MAX_WARNINGS = 100
"""Warnings about single documents in one response."""


def limited(warnings: Sequence[str]) -> list[str]:
    more = len(warnings) - MAX_WARNINGS
    return [*warnings[:MAX_WARNINGS], f"and {more} more"] if more > 0 else list(warnings)


MAX_CHARS = 40_000
"""Characters of one response, about: its first line is complete, however long it is."""


def lines_of(content: str, start: int | None, end: int | None) -> dict[str, Any]:
    """The fields with the lines from `start` to `end` (from 1, both included). Raises: InvalidInputError."""
    lines = content.removesuffix("\n").split("\n") if content else []
    first = start or 1
    last = min(end or len(lines), len(lines))
    if first > len(lines) > 0:
        message = f"The document has {len(lines)} lines"
        raise InvalidInputError(message, [FieldError("start_line", message)])
    if end is not None and end < first:
        message = "end_line must not be before start_line"
        raise InvalidInputError(message, [FieldError("end_line", message)])
    shown: list[str] = []
    chars = 0
    for line in lines[first - 1 : last]:
        chars += len(line) + 1
        if shown and chars > MAX_CHARS:
            break
        shown.append(line)
    through = first + len(shown) - 1
    return {
        "content": "\n".join(shown),
        "start_line": first,
        "end_line": through,
        "total_lines": len(lines),
        "truncated": through < last,
    }
