"""The repository of a project: its root, its branch, and the hashes that identify its tenant.

Git's files are read and git is not run, so that it need not be installed.
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


def repository_root(config: Path) -> Path:
    """The root of the git repository of a configuration, else the parent of the configuration's folder."""
    home = config.parent.parent
    return next((folder for folder in (home, *home.parents) if (folder / ".git").exists()), home)


def current_branch(root: Path) -> str:
    """The branch that is checked out, the short hash of a detached HEAD, or `NO_BRANCH`.

    Raises:
        InvalidInputError: the repository stores its references in a format that cannot be read.
    """
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
    """Whether a branch, or the commit of a detached HEAD, is checked out or is a branch of the repository.

    True if that cannot be read.
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
    """Validate a branch name in a request. Raises: InvalidInputError."""
    name = name.strip()
    if not name or len(name) > MAX_BRANCH_CHARS or not name.isprintable():
        message = f"A branch name must have 1 to {MAX_BRANCH_CHARS} printable characters"
        raise InvalidInputError(message, [FieldError("branch_name", message)])
    return name


def path_hash(root: Path) -> str:
    """First 16 hex digits of the SHA-256 of the root's absolute POSIX path, links resolved."""
    return _short_hash(os.fsencode(root.resolve().as_posix()))


def external_tenant(tenant: Tenant) -> Tenant:
    """The tenant of a project's external documents."""
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
        return read_start(path.resolve(), _MAX_HEAD_BYTES).decode("utf-8", "replace")
    except (OSError, RuntimeError, ValueError):
        return ""
