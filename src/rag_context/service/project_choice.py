"""Which project a request is about: the one it names, else the caller's own."""

from dataclasses import dataclass
from typing import Protocol

from rag_context.api.project_tenants import DeleteDocumentsRequest
from rag_context.domain.documents import Tenant
from rag_context.errors import FieldError, InvalidInputError
from rag_context.projects.activation import Projects
from rag_context.projects.callers import CallerId
from rag_context.projects.config import QUERY_DEFAULTS, SEARCH_DEFAULTS
from rag_context.projects.doc_types import built_in_doc_types
from rag_context.projects.opening import Activation
from rag_context.projects.records import (
    DocTypeInfo,
    ExternalDocsNotConfiguredError,
    ProjectNotActivatedError,
    RetrievalOptions,
)


class Naming(Protocol):
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
class Meant:
    """The project that a request is about; `activation` None where this process does not follow it."""

    tenant: Tenant
    activation: Activation | None

    @property
    def options(self) -> RetrievalOptions:
        """What the project says of questions."""
        return self.activation.options if self.activation is not None else QUERY_DEFAULTS

    @property
    def search_options(self) -> RetrievalOptions:
        """What the project says of searches."""
        return self.activation.search_options if self.activation is not None else SEARCH_DEFAULTS

    @property
    def doc_types(self) -> tuple[DocTypeInfo, ...]:
        """The kinds of document that it declares."""
        return self.activation.doc_types if self.activation is not None else built_in_doc_types()


class ProjectChoice:
    """Finds the project that is meant.

    Args:
        projects: those that are followed, and who works on which.
    """

    def __init__(self, projects: Projects) -> None:
        self._projects = projects

    async def of(self, request: Naming, caller: CallerId) -> Meant:
        """The project that a request names, else the caller's own.

        Raises:
            ProjectNotActivatedError: none is named, and the caller has none, or several.
            NotFoundError: the one that is named is not there.
            InvalidInputError: several fit.
            BackendError: it cannot be read what is stored.
        """
        own = self._own(request.activation, caller)
        if request.project is None:
            if request.branch is not None or request.path_hash is not None:
                message = "branch and path_hash tell projects of one name apart: name project too"
                raise InvalidInputError(message, [FieldError("project", message)])
            if not own:
                raise ProjectNotActivatedError(
                    "No project is active for you: call activate_project with the path of its .rag-context/config.json "
                    "and pass on the activation that it returns, or name a stored one as project"
                )
            if len(own) > 1:
                raise ProjectNotActivatedError(
                    f"Several projects were activated with this API key ({_listed(own)}): pass the activation that "
                    "activate_project returned, or name one with project, branch and path_hash"
                )
            meant = Meant(own[0].tenant, own[0])
        else:
            fitting = [each for each in own if _is_named(each.tenant, request)]
            if len(fitting) == 1:
                meant = Meant(fitting[0].tenant, fitting[0])
            else:
                tenant = await self._projects.tenants.named(request.project, request.branch, request.path_hash)
                meant = Meant(tenant, self._projects.followed(tenant))
        await self._projects.remembered.note_used(meant.tenant)
        return meant

    async def repository(self, request: DeleteDocumentsRequest, caller: CallerId) -> str | None:
        """The path hash of the one repository whose documents are to be deleted; None: none of them is a file.

        Raises:
            NotFoundError: there is no such project.
            InvalidInputError: several repositories have it.
            BackendError: it cannot be read what is stored.
        """
        name, branch, path_hash = request.project_name, request.branch_name, request.path_hash
        own = {each.tenant for each in self._own(request.activation, caller)}
        tenants = self._projects.tenants
        fitting = [
            each
            for each in await tenants.known()
            if each.project == name and branch in (None, each.branch) and path_hash in (None, each.path_hash)
        ]
        hashes = sorted({each.path_hash for each in fitting})
        mine = {each.path_hash for each in fitting if each in own}
        if len(mine) == 1:
            return mine.pop()
        if len(hashes) > 1:
            message = f"Several repositories are called {name!r} ({', '.join(hashes)}): say which with path_hash"
            raise InvalidInputError(message, [FieldError("path_hash", message)])
        if not hashes:
            await tenants.named(name, branch, path_hash)  # says what there is
        return hashes[0] or None

    def _own(self, handle: str | None, caller: CallerId) -> list[Activation]:
        """What the caller works on, as it is followed now."""
        found = self._projects.activations.of(caller, handle)
        return [self._projects.followed(each.tenant) or each for each in found]


def followed(meant: Meant) -> Activation:
    """The activation of a project whose files are needed. Raises: ProjectNotActivatedError."""
    if meant.activation is None:
        raise ProjectNotActivatedError(
            f"Project {meant.tenant.project!r} is stored here, but its files are not followed: call activate_project "
            "with its configuration first"
        )
    return meant.activation


def external(meant: Meant) -> tuple[Activation, Tenant, str]:
    """A project with external documents, the tenant that these are kept as, and the path of their folder.

    Raises:
        ProjectNotActivatedError: the project is not followed.
        ExternalDocsNotConfiguredError: it has none.
    """
    activation = followed(meant)
    root = activation.external_root
    if activation.external is None or root is None:
        raise ExternalDocsNotConfiguredError(
            f"Project {meant.tenant.project!r} has no external documents: name their folder as external_docs.path in "
            "its configuration, and activate it again"
        )
    home = activation.repository_root
    path = root.relative_to(home) if root.is_relative_to(home) else root
    return activation, activation.external, path.as_posix()


def _listed(own: list[Activation]) -> str:
    return ", ".join(
        f"{each.tenant.project!r} on branch {each.tenant.branch!r} at {each.tenant.path_hash}" for each in own[:10]
    )


def _is_named(tenant: Tenant, request: Naming) -> bool:
    return (
        tenant.project == request.project
        and request.branch in (None, tenant.branch)
        and request.path_hash in (None, tenant.path_hash)
    )
