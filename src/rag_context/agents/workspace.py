"""Which project a folder belongs to: one tag for all clones, worktrees and submodules of a repository.

A repository is known by its remote `origin`, which is the same wherever it is checked out; one without a remote, and
any other folder, by its path. Only files are read: no process is started, so that a hook may ask.
"""

import hashlib
import os
import re
from pathlib import Path
from typing import NamedTuple

PROJECT_TAG = "project:"
"""As `domain.documents.PROJECT_TAG`, which a hook has no time to import."""

_MAX_CONFIG_BYTES = 1 << 20
_MAX_CLONES = 8
"""A clone of a clone on this machine is followed to the first one, so far."""

_TEMPORARY = ("/tmp", "/var/tmp", "/private/tmp", "/private/var/tmp", "/dev/shm")  # noqa: S108 - not written to
_OTHER_HOSTS = {
    "ssh.github.com": "github.com",
    "altssh.bitbucket.org": "bitbucket.org",
    "ssh.dev.azure.com": "dev.azure.com",
}
"""Hosts of a service that another of its addresses names otherwise."""

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:[^/]*@)?(?P<host>\[[^\]]*\]|[^/:]*)(?::\d*)?/(?P<path>.*)", re.I)
_SCP = re.compile(r"(?:[^/@]*@)?(?P<host>\[[^\]]*\]|[^/:\\]{2,}):(?P<path>.*)", re.DOTALL)
_SECTION = re.compile(r'\s*\[\s*remote\s+"origin"\s*\]', re.I)
_ADDRESS = re.compile(r"\s*url\s*=\s*(?P<value>.*)", re.I)
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")


class Workspace(NamedTuple):
    """A project on this machine: its folder, its name, and the tag of what belongs to it (`project:NAME-HASH8`)."""

    root: Path
    name: str
    tag: str


def workspace(cwd: Path) -> Workspace | None:
    """The project of a folder, which may be gone; None for a home, a root and a folder of temporary files."""
    folder = Path(os.path.realpath(cwd))
    if _is_general(folder):
        return None
    for root in (folder, *folder.parents):
        if _is_general(root):
            break
        if (repository := _repository(root)) is not None:
            return _named(root, _identity(repository))
    return _named(folder, os.path.normcase(folder))


def tag_of_remote(address: str) -> str | None:
    """The tag of the repositories with this remote; None for an address that means something on one machine only."""
    identity = _of_address(address.strip())
    return None if identity is None else _named(Path(), identity).tag


def _named(root: Path, identity: str) -> Workspace:
    name = _NOT_IN_NAMES.sub("-", re.split(r"[/\\]", identity)[-1].lower()).strip("-.")[:40] or "project"
    return Workspace(
        root, name, f"{PROJECT_TAG}{name}-{hashlib.sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    )


def _is_general(folder: Path) -> bool:
    homes = {os.path.expanduser("~"), *(os.environ.get(name, "") for name in ("HOME", "USERPROFILE"))}  # noqa: PTH111
    temporary = {*_TEMPORARY, *(os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))}
    same = {os.path.realpath(name) for name in homes | temporary if name}
    return folder == folder.parent or str(folder) in same


def git_folders(root: Path) -> tuple[Path, Path] | None:
    """Where Git keeps a worktree, and what all worktrees of its repository share; None where `root` is none."""
    git = root / ".git"
    if (pointer := _text(git)) is not None:
        if not pointer.startswith("gitdir:"):
            return None
        git = root / pointer.removeprefix("gitdir:").strip()
    if not (git / "HEAD").is_file():
        return None
    return git, Path(os.path.realpath(git / (_text(git / "commondir") or "").strip()))


def _repository(root: Path) -> Path | None:
    folders = git_folders(root)
    return None if folders is None else folders[1]


def _identity(repository: Path) -> str:
    for _ in range(_MAX_CLONES):
        address = _origin(_text(repository / "config") or "")
        if (identity := _of_address(address)) is not None:
            return identity
        clone = _local(repository, address) if address else None
        if clone is None or clone == repository:
            break
        repository = clone
    return os.path.normcase(repository.parent if repository.name == ".git" else repository)


def _local(repository: Path, address: str) -> Path | None:
    """The repository that an address on this machine names."""
    worktree = repository.parent if repository.name == ".git" else repository
    folder = Path(os.path.realpath(worktree / re.sub(r"^file://(?:localhost)?", "", address, flags=re.IGNORECASE)))
    if (found := _repository(folder)) is not None:
        return found
    return folder if (folder / "HEAD").is_file() else None


def _of_address(address: str) -> str | None:
    """`host/path` of a remote, the same for every protocol, without who signs in; None for a path on this machine."""
    match = _URL.fullmatch(address) or (None if "://" in address else _SCP.fullmatch(address))
    if match is None or match.groupdict().get("scheme", "").lower() == "file":
        return None
    host = match["host"].lower().strip("[]")
    path = re.sub(r"/+", "/", match["path"].split("?")[0].split("#")[0].lower().replace("\\", "/")).strip("/")
    path = path.removesuffix(".git").rstrip("/")
    if host.endswith("dev.azure.com"):
        path = path.removeprefix("v3/").replace("/_git/", "/")
    return f"{_OTHER_HOSTS.get(host, host)}/{path}" if path else None


def _origin(config: str) -> str:
    """The address of `origin` in a configuration of Git; empty without one."""
    is_origin = False
    for line in config.splitlines():
        if line.lstrip().startswith("["):
            is_origin = _SECTION.match(line) is not None
            line = _SECTION.sub("", line) if is_origin else ""
        if is_origin and (entry := _ADDRESS.match(line)) is not None:
            value = entry["value"].strip()
            if value.startswith('"'):
                return re.sub(r"\\(.)", r"\1", value[1:].partition('"')[0])
            return re.split(r"\s[#;]", value)[0].strip()
    return ""


def _text(file: Path) -> str | None:
    """The content of a small regular file: a named pipe would block its reader."""
    try:
        if not file.is_file():
            return None
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(_MAX_CONFIG_BYTES)
    except (OSError, ValueError):
        return None
