"""Finds the tenant of a project by name, branch and path hash: one rule for every tool."""

import time
from collections.abc import Callable, Collection

from rag_context.domain.documents import DEFAULT_TENANT, Tenant
from rag_context.errors import BackendError, FieldError, InvalidInputError, NotFoundError
from rag_context.ports.reading import DocumentStore
from rag_context.projects.root import external_tenant
from rag_context.resilience.deadline import Deadline

SHOWN = 10
"""The number of names in an error message."""

READ_S = 5.0
"""Time budget for reading the list of tenants."""


def _none() -> Collection[Tenant]:
    return ()


class Tenants:
    """The stored tenants, read again only after the index has changed.

    Args:
        documents: the store of their documents.
        followed: the tenants whose files this process follows; they exist before their first document is stored.
    """

    def __init__(self, documents: DocumentStore, followed: Callable[[], Collection[Tenant]] = _none) -> None:
        self._documents = documents
        self._followed = followed
        self._read: tuple[Tenant, ...] | None = None
        self._version: int | None = None
        """The version of the index when they were read."""

    async def known(self, *, fresh: bool = False) -> tuple[Tenant, ...]:
        """Every tenant, without the agents' own memory and without external documents.

        Args:
            fresh: reads them again, because another process may have stored one a moment ago.

        Raises:
            BackendError: the store cannot be read, and no earlier list is cached.
        """
        if fresh:
            self._version = None
        known = dict.fromkeys([*self._followed(), *await self._stored()])
        externals = {external_tenant(each) for each in known}
        return tuple(each for each in known if each != DEFAULT_TENANT and each not in externals)

    async def named(self, project: str, branch: str | None = None, path_hash: str | None = None) -> Tenant:
        """The tenant with this project name; if several match, the only one that is followed.

        Raises:
            NotFoundError: no tenant matches; the message lists those that exist.
            InvalidInputError: several match; the message lists them.
            BackendError: the store cannot be read.
        """
        matching = matching_tenants(await self.known(), project, branch, path_hash)
        if not matching:
            known = await self.known(fresh=True)
            matching = matching_tenants(known, project, branch, path_hash)
        if not matching:
            raise NotFoundError(_unknown(known, project, branch, path_hash))
        followed = [each for each in matching if each in self._followed()]
        if len(followed) == 1:
            return followed[0]
        as_named = Tenant(project, branch or "", path_hash or "")
        if len(matching) > 1 and as_named not in matching:
            candidates = _listed([f"branch {each.branch!r} at {each.path_hash or 'no path'}" for each in matching])
            message = f"Several projects have the name {project!r} ({candidates}): send branch and path_hash too"
            raise InvalidInputError(message, [FieldError("project", message)])
        return as_named if as_named in matching else matching[0]

    async def has_files(self, project: str) -> bool:
        """Whether the name belongs to a project whose documents are files. Raises: BackendError."""
        return any(each.project == project and each.path_hash for each in await self.known(fresh=True))

    async def _stored(self) -> tuple[Tenant, ...]:
        version = self._documents.version
        if self._read is not None and self._version == version:
            return self._read
        try:
            read = Deadline.after(READ_S, time.monotonic).bound("documents", self._documents.tenants())
            self._read, self._version = tuple(await read), version
        except BackendError:
            # While the store does not answer, the previous list is better than none.
            if self._read is None:
                raise
        return self._read


def matching_tenants(
    tenants: Collection[Tenant], project: str, branch: str | None, path_hash: str | None
) -> tuple[Tenant, ...]:
    """The tenants that match; those with files hide memories of the same project name."""
    matching = [
        each
        for each in tenants
        if each.project == project and branch in (None, each.branch) and path_hash in (None, each.path_hash)
    ]
    return tuple([each for each in matching if each.path_hash] or matching)


def _unknown(known: Collection[Tenant], project: str, branch: str | None, path_hash: str | None) -> str:
    where = "".join([f" on branch {branch!r}" if branch else "", f" at {path_hash}" if path_hash else ""])
    same = [each for each in known if each.project == project]
    if same:
        existing = _listed(sorted(f"branch {each.branch!r} at {each.path_hash or 'no path'}" for each in same))
        return f"There is no project {project!r}{where}; projects of that name: {existing}"
    names = sorted({each.project for each in known})
    existing = f"existing projects: {_listed(names)}" if names else "no project exists yet"
    return f"There is no project {project!r}{where}; {existing}. Call activate_project to add a project of files"


def _listed(names: Collection[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more
