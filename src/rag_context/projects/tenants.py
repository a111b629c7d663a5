"""The tenants of projects: computed from a repository, found by name, and deleted with all their documents.

A tenant is a project's name, a branch and a hash of the repository's root. Git's files are read and git is not run, so
that it need not be installed. One rule finds a tenant by name, branch and path hash, for every tool.
"""

import asyncio
import hashlib
import os
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rag_context.domain.callers import Bounds
from rag_context.domain.documents import DEFAULT_TENANT, Tenant
from rag_context.domain.search import Filter
from rag_context.errors import BackendError, FieldError, InvalidInputError, NotFoundError
from rag_context.files.descriptors import read_start
from rag_context.ingest.indexer import Indexer
from rag_context.ports.reading import DocumentStore
from rag_context.resilience.deadline import Deadline

NO_BRANCH = "main"
"""The branch of a project that is not in a git repository, or whose HEAD cannot be read."""

COMMIT_CHARS = 12
"""The branch name of a detached HEAD is so many characters of its commit."""

MAX_BRANCH_CHARS = 200

LEFT_BEHIND_S = 60.0
"""An older lock file was left by a git process that was killed."""

_HASH_CHARS = 16
_MAX_HEAD_BYTES = 4096
_REFERENCE = re.compile(r"ref:[ \t]*+refs/(?:heads/)?(?P<name>[^\r\n]+)")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_UNREADABLE_NAME = ".invalid"
"""The reference in HEAD of a repository in git's reftable format."""

SHOWN = 10
"""The number of names in an error message."""

READ_S = 5.0
"""Time budget for reading the list of tenants."""

TOGETHER = 32
"""Documents that are counted or deleted at once; the store commits them together."""

DELETED_AT_ONCE = 10_000
"""Ids of documents to delete that are read at once."""

MAX_DOCUMENTS = 1_000_000
"""Documents of one tenant that are counted."""


def repository_root(config: Path) -> Path:
    """The root of the git repository of a configuration, else the parent of the configuration's folder."""
    home = config.parent.parent
    return next((folder for folder in (home, *home.parents) if (folder / ".git").exists()), home)


def current_branch(root: Path) -> str:
    """The branch that is checked out, the short hash of a detached HEAD, or `NO_BRANCH`. Raises: InvalidInputError."""
    head = _first_bytes(head_file(root)).strip()
    if _COMMIT.fullmatch(head):
        return head[:COMMIT_CHARS]
    match = _REFERENCE.match(head)
    if match is None:
        return NO_BRANCH
    if match["name"] == _UNREADABLE_NAME:
        message = "The branch of this repository cannot be read: send branch_name"
        raise InvalidInputError(message, [FieldError("branch_name", message)])
    return match["name"].strip()[:MAX_BRANCH_CHARS]


def has_branch(root: Path, branch: str) -> bool:
    """Whether a branch or commit is checked out, or is a branch of the repository; True if that cannot be read."""
    folder = _git_folder(root)
    try:
        if current_branch(root) == branch:
            return True
    except InvalidInputError:
        return True
    shared = folder / (_first_bytes(folder / "commondir").strip() or ".")
    # A name that was cut, and references in a format that is not read here, cannot be compared.
    if len(branch) >= MAX_BRANCH_CHARS or (shared / "reftable").exists():
        return True
    if (shared / "refs/heads" / branch).is_file():
        return True
    try:
        packed = (shared / "packed-refs").read_text("utf-8", "replace")
    except OSError:
        return False
    return any(line.endswith(f" refs/heads/{branch}") for line in packed.splitlines())


def head_file(root: Path) -> Path:
    """Git's HEAD file, which names what is checked out; it may not exist."""
    return _git_folder(root) / "HEAD"


def is_checking_out(root: Path) -> bool:
    """Whether git is changing the files now, by its lock file; a lock that was left behind does not count."""
    try:
        since_s = time.time() - (_git_folder(root) / "index.lock").stat().st_mtime
    except OSError:
        return False
    return since_s < LEFT_BEHIND_S


def checked_branch(name: str) -> str:
    name = name.strip()
    if not name or len(name) > MAX_BRANCH_CHARS or not name.isprintable():
        message = f"A branch name must have 1 to {MAX_BRANCH_CHARS} printable characters"
        raise InvalidInputError(message, [FieldError("branch_name", message)])
    return name


def path_hash(root: Path) -> str:
    """First 16 hex digits of the SHA-256 of the root's absolute POSIX path, links resolved."""
    return _short_hash(os.fsencode(root.resolve().as_posix()))


def external_tenant(tenant: Tenant) -> Tenant:
    return Tenant(tenant.project, tenant.branch, _short_hash(f"external:{tenant.path_hash}".encode()))


def _short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_HASH_CHARS]


def _git_folder(root: Path) -> Path:
    """The folder with this working tree's HEAD; in a worktree, `.git` is a file that names it."""
    git = root / ".git"
    if git.is_file():
        key, _, folder = _first_bytes(git).partition(":")
        if key == "gitdir":
            return root / folder.strip()
    return git


def _first_bytes(path: Path) -> str:
    try:
        # Resolved, because `read_start` rejects links, and a repository may be below one.
        return read_start(path.resolve(), _MAX_HEAD_BYTES).decode("utf-8", "replace")
    except (OSError, RuntimeError, ValueError):
        return ""


@dataclass(frozen=True, slots=True)
class Deletion:
    """The tenants and numbers of documents that were, or would be, deleted."""

    tenants: tuple[Tenant, ...]
    documents: int
    chunks: int


class Tenants:
    """The stored tenants, read again only after the index has changed, and those that are `followed`."""

    def __init__(self, documents: DocumentStore, followed: Callable[[], Collection[Tenant]] = tuple) -> None:
        self._documents = documents
        self._followed = followed
        self._read: tuple[Tenant, ...] | None = None
        self._version: int | None = None
        """The version of the index when they were read."""

    async def known(self, *, fresh: bool = False) -> tuple[Tenant, ...]:
        """Every tenant but the agents' memory and external documents; read again if `fresh`. Raises: BackendError."""
        if fresh:
            self._version = None
        known = dict.fromkeys([*self._followed(), *await self._stored()])
        externals = {external_tenant(each) for each in known}
        return tuple(each for each in known if each != DEFAULT_TENANT and each not in externals)

    async def named(
        self, project: str, branch: str | None = None, path_hash: str | None = None, bounds: Bounds | None = None
    ) -> Tenant:
        """The tenant with this project name, within bounds; of several the only one that is followed.

        Raises: NotFoundError, InvalidInputError (several match), BackendError.
        """
        known = _within(bounds, await self.known())
        matching = _matching(known, project, branch, path_hash)
        if not matching:
            known = _within(bounds, await self.known(fresh=True))
            matching = _matching(known, project, branch, path_hash)
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

    async def related(self, tenant: Tenant) -> list[Tenant]:
        """Tenants that may have the same files: with the same name or the same folder. Raises: BackendError."""
        hashes = {tenant.path_hash, external_tenant(tenant).path_hash}
        return [
            each
            for each in await self._documents.tenants()
            if each != tenant and each.shelf is None and (each.project == tenant.project or each.path_hash in hashes)
        ]

    async def has_files(self, project: str) -> bool:
        """Whether the name belongs to a project whose documents are files. Raises: BackendError."""
        return any(each.project == project and each.path_hash for each in await self.known(fresh=True))

    async def deletion(self, project: str, branch: str | None, path_hash: str | None) -> Deletion:
        """Count what deleting a project would delete now. Raises: InvalidInputError, BackendError."""
        tenants = tenants_of(await self._documents.tenants(), project, branch, path_hash)
        documents = chunks = 0
        for tenant in tenants:
            ids = await self._documents.matching(Filter(tenant), MAX_DOCUMENTS)
            documents += len(ids)
            for start in range(0, len(ids), TOGETHER):
                states = await self._documents.states(ids[start : start + TOGETHER])
                chunks += sum(len(state.chunk_ids) for state in states.values())
        return Deletion(tenants, documents, chunks)

    async def delete(self, tenants: Sequence[Tenant], indexer: Indexer) -> None:
        """Delete all documents of some tenants. Raises: BackendError (the rest is still stored)."""
        for tenant in tenants:
            # Read again until there are none: documents may be stored while others are deleted.
            while ids := await self._documents.matching(Filter(tenant), DELETED_AT_ONCE):
                for start in range(0, len(ids), TOGETHER):
                    await asyncio.gather(*(indexer.remove(id_) for id_ in ids[start : start + TOGETHER]))

    async def _stored(self) -> tuple[Tenant, ...]:
        # Read first: a tenant that is stored while the list is read raises it, and the next call reads again.
        version = self._documents.version
        if self._read is not None and self._version == version:
            return self._read
        try:
            read = Deadline.after(READ_S, time.monotonic).bound("documents", self._documents.tenants())
            self._read, self._version = tuple(dict.fromkeys(each.visible for each in await read)), version
        except BackendError:
            # While the store does not answer, the previous list is better than none.
            if self._read is None:
                raise
        return self._read


def is_named(tenant: Tenant, project: str, branch: str | None, path_hash: str | None) -> bool:
    """Whether a tenant has this project name and, where they are given, this branch and this path hash."""
    return tenant.project == project and branch in (None, tenant.branch) and path_hash in (None, tenant.path_hash)


def _within(bounds: Bounds | None, tenants: Collection[Tenant]) -> Collection[Tenant]:
    return tenants if bounds is None else [each for each in tenants if bounds.has(each)]


def _matching(
    tenants: Collection[Tenant], project: str, branch: str | None, path_hash: str | None
) -> tuple[Tenant, ...]:
    """The tenants that match; those with files hide memories of the same project name."""
    matching = [each for each in tenants if is_named(each, project, branch, path_hash)]
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


def tenants_of(
    tenants: Collection[Tenant], project: str, branch: str | None, path_hash: str | None
) -> tuple[Tenant, ...]:
    """The tenants of a project, of its external documents, and of what is not visible. Raises: InvalidInputError."""
    if not project:
        message = "project_name must not be empty"
        raise InvalidInputError(message, [FieldError("project_name", message)])
    of_project = [each for each in tenants if is_named(each, project, branch, None)]
    if path_hash is None:
        return tuple(of_project)
    own = {Tenant(project, each.branch, path_hash) for each in of_project}
    own |= {external_tenant(each) for each in own}
    return tuple(each for each in of_project if each.visible in own)
