"""Whose documents a configuration speaks of: the repository's root, its branch, and the tenant made of them.

Git is read, not run: its files say all that is needed, and a repository may be looked at where git is not installed.
"""

import hashlib
import os
import re
import time
from pathlib import Path

from rag_context.domain.documents import Tenant
from rag_context.errors import FieldError, InvalidInputError
from rag_context.files.descriptors import read_start

NO_BRANCH = "main"
"""Branch of a project that no git repository holds, or whose repository does not say."""

COMMIT_CHARS = 12
"""A detached HEAD is known by the beginning of its commit."""

MAX_BRANCH_CHARS = 200

LEFT_BEHIND_S = 60.0
"""A lock of git's that is older is of a git that was killed."""

_HASH_CHARS = 16
_MAX_HEAD_BYTES = 4096
_REFERENCE = re.compile(r"ref:[ \t]*+refs/(?:heads/)?(?P<name>[^\r\n]+)")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_UNREADABLE_NAME = ".invalid"
"""What HEAD says where references are kept in git's reftable format."""


def repository_root(config: Path) -> Path:
    """The root of the git repository that holds a configuration, else the folder that its own folder lies in."""
    home = config.parent.parent
    return next((folder for folder in (home, *home.parents) if (folder / ".git").exists()), home)


def current_branch(root: Path) -> str:
    """The branch that is checked out, the short hash of a detached HEAD, or `NO_BRANCH` where there is none.

    Raises:
        InvalidInputError: the repository keeps its references where they cannot be read.
    """
    head = _first_bytes(head_file(root)).strip()
    if _COMMIT.fullmatch(head):
        return head[:COMMIT_CHARS]
    match = _REFERENCE.match(head)
    if match is None:
        return NO_BRANCH
    if match["name"] == _UNREADABLE_NAME:
        message = "The branch cannot be read from this repository; pass branch_name"
        raise InvalidInputError(message, [FieldError("branch_name", message)])
    return match["name"].strip()[:MAX_BRANCH_CHARS]


def has_branch(root: Path, branch: str) -> bool:
    """Whether a branch, or the commit of a detached HEAD, is checked out or is a branch of the repository.

    True where that cannot be read.
    """
    folder = _git_folder(root)
    try:
        if current_branch(root) == branch:
            return True
    except InvalidInputError:
        return True
    shared = folder / (_first_bytes(folder / "commondir").strip() or ".")
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
    """The file in which git notes what is checked out; it need not be there."""
    return _git_folder(root) / "HEAD"


def is_checking_out(root: Path) -> bool:
    """Whether git is in the middle of changing the files, as its lock says; one that was left behind says nothing."""
    try:
        since_s = time.time() - (_git_folder(root) / "index.lock").stat().st_mtime
    except OSError:
        return False
    return since_s < LEFT_BEHIND_S


def checked_branch(name: str) -> str:
    """A branch name that was passed. Raises: InvalidInputError."""
    name = name.strip()
    if not name or len(name) > MAX_BRANCH_CHARS or not name.isprintable():
        message = f"A branch name has 1 to {MAX_BRANCH_CHARS} printable characters"
        raise InvalidInputError(message, [FieldError("branch_name", message)])
    return name


def path_hash(root: Path) -> str:
    """First 16 hex digits of the SHA-256 of the root's absolute POSIX path, links resolved."""
    return _short_hash(os.fsencode(root.resolve().as_posix()))


def external_tenant(tenant: Tenant) -> Tenant:
    """Whose the external documents of a project are."""
    return Tenant(tenant.project, tenant.branch, _short_hash(f"external:{tenant.path_hash}".encode()))


def _short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_HASH_CHARS]


def _git_folder(root: Path) -> Path:
    """Where this working tree's HEAD lies; a worktree's `.git` is a file that names it."""
    place = root / ".git"
    if place.is_file():
        said, _, named = _first_bytes(place).partition(":")
        if said == "gitdir":
            return root / named.strip()
    return place


def _first_bytes(path: Path) -> str:
    try:
        return read_start(path.resolve(), _MAX_HEAD_BYTES).decode("utf-8", "replace")
    except (OSError, RuntimeError, ValueError):
        return ""
