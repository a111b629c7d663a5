"""Which project a request is about: the one it names, else the caller's own."""

from dataclasses import dataclass
from typing import Protocol

from rag_context.errors import FieldError, InvalidInputError
from rag_context.projects.activation import Projects
from rag_context.projects.config import QUERY_DEFAULTS, SEARCH_DEFAULTS
from rag_context.projects.doc_types import built_in_doc_types
from rag_context.projects.opening import Activation
from rag_context.projects.records import (
    DocTypeInfo,
    ExternalDocsNotConfiguredError,
    ProjectNotActivatedError,
    RetrievalOptions,
)
from rag_context.types import Tenant


class Naming(Protocol):
    """A request that may name a project."""

    @property
    def project(self) -> str | None: ...

    @property
    def branch(self) -> str | None: ...

    @property
    def path_hash(self) -> str | None: ...


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

    async def of(self, request: Naming, session: str | None) -> Meant:
        """The project that a request names, else the caller's own.

        Raises:
            ProjectNotActivatedError: none is named and the caller has none, or nothing is stored of it.
            InvalidInputError: several fit.
            BackendError: it cannot be read what is stored.
        """
        if request.project is None:
            if request.branch is not None or request.path_hash is not None:
                message = "branch and path_hash tell projects of one name apart: name project too"
                raise InvalidInputError(message, [FieldError("project", message)])
            activation = self._own(session)
            if activation is None:
                raise ProjectNotActivatedError(
                    "No project is active: call activate_project with the path of its .rag-context/config.json, or "
                    "name a stored one as project"
                )
            return Meant(activation.tenant, activation)
        own = self._own(session)
        if own is not None and _is_named(own.tenant, request):
            return Meant(own.tenant, own)
        tenant = await self._projects.tenant(request.project, request.branch, request.path_hash)
        return Meant(tenant, self._projects.followed(tenant))

    def _own(self, session: str | None) -> Activation | None:
        try:
            return self._projects.active(session)
        except ProjectNotActivatedError:
            return None


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


def _is_named(tenant: Tenant, request: Naming) -> bool:
    return (
        tenant.project == request.project
        and request.branch in (None, tenant.branch)
        and request.path_hash in (None, tenant.path_hash)
    )
