"""Which tenant is meant where a project is named: one rule for every tool."""

import time
from collections.abc import Callable, Collection

from rag_context.domain.documents import DEFAULT_TENANT, Tenant
from rag_context.errors import BackendError, FieldError, InvalidInputError, NotFoundError
from rag_context.ports.reading import DocumentStore
from rag_context.projects.root import external_tenant
from rag_context.resilience.deadline import Deadline

SHOWN = 10
"""How many names a message lists."""

READ_S = 5.0
"""Longest wait for the list of tenants."""


def _none() -> Collection[Tenant]:
    return ()


class Tenants:
    """The tenants that are stored, read again only when the index has changed.

    Args:
        documents: holds their documents.
        followed: the tenants whose files this process follows; they exist before their first document does.
    """

    def __init__(self, documents: DocumentStore, followed: Callable[[], Collection[Tenant]] = _none) -> None:
        self._documents = documents
        self._followed = followed
        self._read: tuple[Tenant, ...] | None = None
        self._version: int | None = None
        """Of the index when they were read."""

    async def known(self, *, fresh: bool = False) -> tuple[Tenant, ...]:
        """Every tenant that there is, without the agents' own memory and external documents.

        Args:
            fresh: reads them again, since another process may have made one a moment ago.

        Raises:
            BackendError: it cannot be read what is stored, and never could.
        """
        if fresh:
            self._version = None
        known = dict.fromkeys([*self._followed(), *await self._stored()])
        externals = {external_tenant(each) for each in known}
        return tuple(each for each in known if each != DEFAULT_TENANT and each not in externals)

    async def named(self, project: str, branch: str | None = None, path_hash: str | None = None) -> Tenant:
        """The tenant that is meant by what was named of it; of several, the only one that is followed.

        Raises:
            NotFoundError: there is none; the message names those that there are.
            InvalidInputError: several fit; the message names them.
            BackendError: it cannot be read what is stored.
        """
        fitting = fitting_tenants(await self.known(), project, branch, path_hash)
        if not fitting:
            known = await self.known(fresh=True)
            fitting = fitting_tenants(known, project, branch, path_hash)
        if not fitting:
            raise NotFoundError(_unknown(known, project, branch, path_hash))
        followed = [each for each in fitting if each in self._followed()]
        if len(followed) == 1:
            return followed[0]
        as_named = Tenant(project, branch or "", path_hash or "")
        if len(fitting) > 1 and as_named not in fitting:
            named = _listed([f"branch {each.branch!r} at {each.path_hash or 'no path'}" for each in fitting])
            message = f"Several projects are called {project!r} ({named}); name branch and path_hash too"
            raise InvalidInputError(message, [FieldError("project", message)])
        return as_named if as_named in fitting else fitting[0]

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
            # What was there a moment ago is a better answer than none while the store does not answer.
            if self._read is None:
                raise
        return self._read


def fitting_tenants(
    tenants: Collection[Tenant], project: str, branch: str | None, path_hash: str | None
) -> tuple[Tenant, ...]:
    """The tenants that fit what was named; those of files hide memories that bear the same name."""
    fitting = [
        each
        for each in tenants
        if each.project == project and branch in (None, each.branch) and path_hash in (None, each.path_hash)
    ]
    return tuple([each for each in fitting if each.path_hash] or fitting)


def _unknown(known: Collection[Tenant], project: str, branch: str | None, path_hash: str | None) -> str:
    where = "".join([f" on branch {branch!r}" if branch else "", f" at {path_hash}" if path_hash else ""])
    same = [each for each in known if each.project == project]
    if same:
        there = _listed(sorted(f"branch {each.branch!r} at {each.path_hash or 'no path'}" for each in same))
        return f"There is no project {project!r}{where}; of that name there are: {there}"
    names = sorted({each.project for each in known})
    there = f"there are: {_listed(names)}" if names else "there is none yet"
    return f"There is no project {project!r}{where}; {there}. activate_project takes up a project of files"


def _listed(names: Collection[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more
