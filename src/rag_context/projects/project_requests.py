"""Which project a request is about, and what responses say of that project and of how far its files are indexed.

The project is the one that the request names, else the one that the caller has activated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, cast

from rag_context.api.index import IndexRequest
from rag_context.api.projects import DeleteDocumentsRequest, InProjectRequest
from rag_context.api.wire import TenantRequest
from rag_context.domain.callers import CallerId
from rag_context.domain.documents import Tenant
from rag_context.errors import FieldError, InvalidInputError
from rag_context.ports.reading import DocumentStore
from rag_context.projects import project_following, records, sync
from rag_context.projects.activation import Projects
from rag_context.projects.config import QUERY_DEFAULTS, SEARCH_DEFAULTS
from rag_context.projects.doc_types import built_in_doc_types
from rag_context.projects.project_opening import Activation
from rag_context.projects.tenants import Tenants, is_named
from rag_context.search.query import Answer


@dataclass(frozen=True, slots=True)
class ResolvedProject:
    """The project of a request; `activation` is None if this process does not follow its files."""

    tenant: Tenant
    activation: Activation | None

    @property
    def options(self) -> records.RetrievalOptions:
        return self.activation.options if self.activation is not None else QUERY_DEFAULTS

    @property
    def search_options(self) -> records.RetrievalOptions:
        return self.activation.search_options if self.activation is not None else SEARCH_DEFAULTS

    @property
    def doc_types(self) -> tuple[records.DocTypeInfo, ...]:
        return self.activation.doc_types.infos if self.activation is not None else built_in_doc_types()


class ProjectResolver:
    def __init__(self, projects: Projects) -> None:
        self._projects = projects

    async def resolve(self, request: InProjectRequest, caller: CallerId) -> ResolvedProject:
        """The project that a request names, else the one that the caller has activated.

        Raises: ProjectNotActivatedError, NotFoundError, InvalidInputError (several match), BackendError.
        """
        own = self._own(request.activation, caller)
        if request.project is None:
            if request.branch is not None or request.path_hash is not None:
                message = "branch and path_hash distinguish projects of the same name: send project too"
                raise InvalidInputError(message, [FieldError("project", message)])
            if not own:
                raise records.ProjectNotActivatedError(
                    "No project is active for you: call activate_project with the path of its .rag-context/config.json "
                    "and send the activation that it returns, or send the name of a stored project as project"
                )
            if len(own) > 1:
                raise records.ProjectNotActivatedError(
                    f"Several projects were activated with this API key ({_listed(own)}): send the activation that "
                    "activate_project returned, or select one with project, branch and path_hash"
                )
            resolved = ResolvedProject(own[0].tenant, own[0])
        else:
            matching = [
                each for each in own if is_named(each.tenant, request.project, request.branch, request.path_hash)
            ]
            if len(matching) == 1:
                resolved = ResolvedProject(matching[0].tenant, matching[0])
            else:
                tenant = await self._projects.tenants.named(
                    request.project, request.branch, request.path_hash, caller.bounds
                )
                resolved = ResolvedProject(tenant, self._projects.followed(tenant))
        await self._projects.project_records.note_used(resolved.tenant)
        return resolved

    async def repository(self, request: DeleteDocumentsRequest, caller: CallerId) -> str | None:
        """The path hash of the repository whose documents a request deletes; None without files."""
        name, branch, path_hash = request.project_name, request.branch_name, request.path_hash
        own = {each.tenant for each in self._own(request.activation, caller)}
        tenants = self._projects.tenants
        matching = [each for each in await tenants.known() if is_named(each, name, branch, path_hash)]
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

    def behind(self, tenant: Tenant) -> list[str]:
        """Warnings that say why the index may be older than the files of a project."""
        return _behind(self._projects, tenant)

    def _own(self, handle: str | None, caller: CallerId) -> list[Activation]:
        """The activations of the caller, each as the process follows the project now.

        One subject may have tokens with different bounds.
        """
        found, bounds = self._projects.activations.of(caller, handle), caller.bounds
        own = [each for each in found if bounds is None or bounds.has(each.tenant)]
        return [self._projects.followed(each.tenant) or each for each in own]


def followed(project: ResolvedProject) -> Activation:
    """The activation of a project whose files a request needs. Raises: ProjectNotActivatedError."""
    if project.activation is None:
        raise records.ProjectNotActivatedError(
            f"Project {project.tenant.project!r} is stored here, but its files are not followed: call activate_project "
            "with its configuration first"
        )
    return project.activation


def external(project: ResolvedProject) -> tuple[Activation, Tenant, str]:
    """The activation of a project with external documents, their tenant, and their folder. Raises: ProjectError."""
    activation = followed(project)
    root = activation.external_root
    if activation.external is None or root is None:
        raise records.ExternalDocsNotConfiguredError(
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


LevelName = Literal["standard", "important", "critical"]


def level_name(level: records.PromotionLevel) -> LevelName:
    return cast("LevelName", level.label)


def tenant_fields(tenant: Tenant) -> dict[str, Any]:
    return {"project_name": tenant.project, "branch_name": tenant.branch, "path_hash": tenant.path_hash}


def _behind(projects: Projects, tenant: Tenant) -> list[str]:
    return catching_up(projects.state(tenant), projects.resuming.get(tenant))


def catching_up(state: project_following.FollowState | None, resuming: str | None = None) -> list[str]:
    """Why the index may be older than the files: `state` is that of following them, `resuming` why they are not yet."""
    warnings = [f"The project's documents may be older than its files: {resuming}"] if resuming is not None else []
    if state is None:
        return warnings
    if state.waiting:
        progress = state.progress
        files = (
            f"{progress.done} of {progress.total} files so far" if progress is not None else "the files are being read"
        )
        warnings.append(f"Still indexing ({files}); answers use the documents that are indexed so far")
    if state.problem is not None:
        warnings.append(f"The project cannot be followed as it is configured now: {state.problem}")
    return warnings


_NOT_INDEXED = (sync.FileOutcome.REJECTED, sync.FileOutcome.DEFERRED)


def following_warnings(
    activation: Activation, state: project_following.FollowState | None, documents: Sequence[records.ProjectDocument]
) -> list[str]:
    """Warnings about a project: its configuration, the progress of its first indexing, and its files."""
    config = activation.config
    warnings = [*config.warnings, *catching_up(state)]
    if state is not None and state.first is not None:
        warnings += _not_indexed(state.first, "docs folder", config.docs_path)
    if state is not None and state.first_external is not None and config.external is not None:
        warnings += _not_indexed(state.first_external, "external documents", config.external.path)
    return warnings + [f"{each.path}: {warning}" for each in documents for warning in each.warnings]


def _not_indexed(report: sync.SyncReport, what: str, folder: str) -> list[str]:
    """The files that were not indexed, with the reasons; `what` and `folder` describe the folder itself."""
    return [
        f"{what} {folder!r}: {each.reason}" if each.path == "." else f"{each.path}: {each.reason}"
        for each in report.receipts
        if each.reason and each.outcome in _NOT_INDEXED
    ]


Request = TypeVar("Request", bound=TenantRequest | IndexRequest)


class TenantResolver:
    """Completes the branch and path hash of requests that name a project."""

    def __init__(self, documents: DocumentStore, projects: Projects | None) -> None:
        self._projects = projects
        self._tenants = Tenants(documents) if projects is None else projects.tenants

    def labelled(self, answer: Answer, tenant: Tenant) -> Answer:
        """The answer with a warning where the index may be older than the files of its project."""
        if self._projects is None:
            return answer
        behind = _behind(self._projects, tenant)
        warnings = [*([] if answer.warning is None else [answer.warning]), *behind]
        return replace(answer, warning="; ".join(warnings)) if behind else answer

    async def resolved(self, request: Request) -> Request:
        """The request with the branch and path hash of its project. Raises: NotFoundError, InvalidInputError."""
        if request.project is None:
            _check_alone(request)
            return request
        tenant = await self._tenants.named(request.project, request.branch, request.path_hash)
        found = {"branch": tenant.branch or None, "path_hash": tenant.path_hash or None}
        return cast("Request", request.model_copy(update=found))

    async def writable(self, request: IndexRequest) -> IndexRequest:
        """The request with its tenant, maybe a new one. Raises: as `resolved`; InvalidInputError (it has files)."""
        project = request.project
        if project is None:
            _check_alone(request)
            return request
        if request.path_hash is not None or await self._tenants.has_files(project):
            message = (
                f"The documents of the project {project!r} are files: write this one into its docs folder and call "
                "index_document, or choose another project name"
            )
            raise InvalidInputError(message, [FieldError("project", message)])
        is_new = all(each.project != project for each in await self._tenants.known())
        return request if is_new or request.branch is not None else await self.resolved(request)


def _check_alone(request: Request) -> None:
    if request.branch is not None or request.path_hash is not None:
        message = "branch and pathHash distinguish projects of the same name: send project too"
        raise InvalidInputError(message, [FieldError("project", message)])
