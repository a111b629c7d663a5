"""The requests of the project tools: resolves the project of a request, runs its search, relays its progress.

The project is the one that the request names, else the one that the caller has activated.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

from rag_context.api.projects import DeleteDocumentsRequest
from rag_context.domain.documents import Tenant
from rag_context.domain.reports import QUERY_CHARS, SearchRecord
from rag_context.errors import FieldError, InvalidInputError
from rag_context.ports.models import ChatModel
from rag_context.projects.activation import Projects
from rag_context.projects.callers import CallerId
from rag_context.projects.chat_answers import Written, write_answer
from rag_context.projects.config import QUERY_DEFAULTS, SEARCH_DEFAULTS
from rag_context.projects.project_documents import built_in_doc_types
from rag_context.projects.project_opening import Activation
from rag_context.projects.records import (
    DocTypeInfo,
    ExternalDocsNotConfiguredError,
    Label,
    ProjectNotActivatedError,
    RetrievalOptions,
)
from rag_context.projects.retrieval import RetrievalDependencies, RetrievalService
from rag_context.resilience.admission import Admissions
from rag_context.service.project_mappers import labelled, linked_doc, source, tenant_fields

OnProgress = Callable[[int, int], Awaitable[None]]
"""Called with how much is done, and of how much."""


class ProjectRequest(Protocol):
    """A request that may name a project."""

    @property
    def project(self) -> str | None: ...

    @property
    def branch(self) -> str | None: ...

    @property
    def path_hash(self) -> str | None: ...

    @property
    def activation(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class ResolvedProject:
    """The project of a request; `activation` is None if this process does not follow its files."""

    tenant: Tenant
    activation: Activation | None

    @property
    def options(self) -> RetrievalOptions:
        """The options of `rag_query`, from the project's configuration or the defaults."""
        return self.activation.options if self.activation is not None else QUERY_DEFAULTS

    @property
    def search_options(self) -> RetrievalOptions:
        """The options of `semantic_search`, from the project's configuration or the defaults."""
        return self.activation.search_options if self.activation is not None else SEARCH_DEFAULTS

    @property
    def doc_types(self) -> tuple[DocTypeInfo, ...]:
        """The document types that it declares, or the built-in ones."""
        return self.activation.doc_types if self.activation is not None else built_in_doc_types()


class ProjectResolver:
    """Resolves the projects of requests.

    Args:
        projects: the stored and followed projects, and the activations of callers.
    """

    def __init__(self, projects: Projects) -> None:
        self._projects = projects

    async def resolve(self, request: ProjectRequest, caller: CallerId) -> ResolvedProject:
        """The project that a request names, else the one that the caller has activated.

        Raises:
            ProjectNotActivatedError: the request names none, and the caller has activated none, or several.
            NotFoundError: the request names a project that does not exist.
            InvalidInputError: several projects match.
            BackendError: the list of projects cannot be read.
        """
        own = self._own(request.activation, caller)
        if request.project is None:
            if request.branch is not None or request.path_hash is not None:
                message = "branch and path_hash distinguish projects of the same name: send project too"
                raise InvalidInputError(message, [FieldError("project", message)])
            if not own:
                raise ProjectNotActivatedError(
                    "No project is active for you: call activate_project with the path of its .rag-context/config.json "
                    "and send the activation that it returns, or send the name of a stored project as project"
                )
            if len(own) > 1:
                raise ProjectNotActivatedError(
                    f"Several projects were activated with this API key ({_listed(own)}): send the activation that "
                    "activate_project returned, or select one with project, branch and path_hash"
                )
            resolved = ResolvedProject(own[0].tenant, own[0])
        else:
            matching = [each for each in own if _matches(each.tenant, request)]
            if len(matching) == 1:
                resolved = ResolvedProject(matching[0].tenant, matching[0])
            else:
                tenant = await self._projects.tenants.named(request.project, request.branch, request.path_hash)
                resolved = ResolvedProject(tenant, self._projects.followed(tenant))
        await self._projects.project_records.note_used(resolved.tenant)
        return resolved

    async def repository(self, request: DeleteDocumentsRequest, caller: CallerId) -> str | None:
        """The path hash of the repository whose documents a request deletes; None if none of them is a file.

        Raises:
            NotFoundError: there is no such project.
            InvalidInputError: several repositories have a project of this name.
            BackendError: the list of projects cannot be read.
        """
        name, branch, path_hash = request.project_name, request.branch_name, request.path_hash
        own = {each.tenant for each in self._own(request.activation, caller)}
        tenants = self._projects.tenants
        matching = [
            each
            for each in await tenants.known()
            if each.project == name and branch in (None, each.branch) and path_hash in (None, each.path_hash)
        ]
        hashes = sorted({each.path_hash for each in matching})
        own_hashes = {each.path_hash for each in matching if each in own}
        if len(own_hashes) == 1:
            return own_hashes.pop()
        if len(hashes) > 1:
            message = f"Several repositories have a project {name!r} ({', '.join(hashes)}): select one with path_hash"
            raise InvalidInputError(message, [FieldError("path_hash", message)])
        if not hashes:
            await tenants.named(name, branch, path_hash)  # raises NotFoundError with the names that exist
        return hashes[0] or None

    def _own(self, handle: str | None, caller: CallerId) -> list[Activation]:
        """The activations of the caller, each as the process follows the project now."""
        found = self._projects.activations.of(caller, handle)
        return [self._projects.followed(each.tenant) or each for each in found]


def followed(project: ResolvedProject) -> Activation:
    """The activation of a project whose files a request needs. Raises: ProjectNotActivatedError."""
    if project.activation is None:
        raise ProjectNotActivatedError(
            f"Project {project.tenant.project!r} is stored here, but its files are not followed: call activate_project "
            "with its configuration first"
        )
    return project.activation


def external(project: ResolvedProject) -> tuple[Activation, Tenant, str]:
    """The activation of a project with external documents, the tenant of these documents, and their folder.

    Raises:
        ProjectNotActivatedError: the project is not followed.
        ExternalDocsNotConfiguredError: it has no external documents.
    """
    activation = followed(project)
    root = activation.external_root
    if activation.external is None or root is None:
        raise ExternalDocsNotConfiguredError(
            f"Project {project.tenant.project!r} has no external documents: set their folder as external_docs.path "
            "in its configuration, and activate it again"
        )
    home = activation.repository_root
    path = root.relative_to(home) if root.is_relative_to(home) else root
    return activation, activation.external, path.as_posix()


def _listed(own: list[Activation]) -> str:
    return ", ".join(
        f"{each.tenant.project!r} on branch {each.tenant.branch!r} at {each.tenant.path_hash}" for each in own[:10]
    )


def _matches(tenant: Tenant, request: ProjectRequest) -> bool:
    return (
        tenant.project == request.project
        and request.branch in (None, tenant.branch)
        and request.path_hash in (None, tenant.path_hash)
    )


AGENT = "project tools"


RecordSearch: TypeAlias = Callable[[SearchRecord, Label, Collection[str]], None]
"""Records a search for the statistics, with the ids of the documents that it returned."""


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


@asynccontextmanager
async def relayed(listener: OnProgress) -> AsyncIterator[Callable[[int, int], None]]:
    """Yields a function that reports progress without waiting; the listener is awaited with the newest report.

    An error of the listener ends the reports, not the work.
    """
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
