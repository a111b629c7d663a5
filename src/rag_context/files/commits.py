"""When files were last committed, as Git's history says: in a fresh clone all files were "changed" a moment ago.

A file's commit counts only while the file is what was committed; an edited one has the time of its last change. Git is
run once for a whole repository. A repository may come from anyone, and its settings may name programs to run and
servers to fetch from: both are switched off.
"""

import hashlib
import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path

from rag_context.domain.documents import moment
from rag_context.files.file_reading import LoadedFile, modified_at
from rag_context.settings.config_file import without

GIT_S = 10.0
"""Longest wait for a history; files whose commits were not listed by then have the time of their last change."""

MAX_BYTES = 64 << 20
"""Most output of Git that is read."""

_SAFE = ("--no-pager", "-c", "log.showSignature=false", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_COMMIT = "\x01"
_LOG = (
    "log", "-z", f"--format={_COMMIT}%at", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv",
    "--diff-filter=AMT", "--relative", "HEAD", "--", ".",
)  # fmt: skip
_TREE = ("ls-tree", "-r", "-z", "HEAD", "--", ".")
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}

_HASHES = {40: hashlib.sha1, 64: hashlib.sha256}
"""Hash functions of Git by the length of a hash in hexadecimal."""

logger = logging.getLogger(__name__)


class FileTimes:
    """When files were written: last committed, else last changed. Reads each repository once; threads may share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._git = shutil.which("git")
        self._roots: dict[Path, Path | None] = {}
        self._repositories: dict[Path, _Repository] = {}

    def prepare(self, folder: Path) -> None:
        """Read the history of a folder's repository, so that several threads need not wait for it."""
        with self._lock:
            repository = self._repository(folder)
            if repository is not None:
                repository.read()

    def of(self, loaded: LoadedFile) -> datetime | None:
        """When a file was written; None if its time is no time."""
        with self._lock:
            return self._committed(loaded) or modified_at(loaded)

    def is_committed(self, path: Path) -> bool:
        with self._lock:
            repository = self._repository(path.parent)
            return repository is not None and repository.has(path)

    def _committed(self, loaded: LoadedFile) -> datetime | None:
        repository = self._repository(loaded.path.parent)
        return None if repository is None else repository.committed(loaded.path, loaded.data)

    def _repository(self, folder: Path) -> "_Repository | None":
        root = self._root(folder) if self._git is not None else None
        if root is None or self._git is None:
            return None
        if root not in self._repositories:
            self._repositories[root] = _Repository(self._git, root)
        return self._repositories[root]

    def _root(self, folder: Path) -> Path | None:
        """The folder above that is a repository."""
        if folder not in self._roots:
            is_root = os.path.lexists(folder / ".git")
            above = None if is_root or folder.parent == folder else self._root(folder.parent)
            self._roots[folder] = folder if is_root else above
        return self._roots[folder]


class _Repository:
    def __init__(self, git: str, root: Path) -> None:
        self._git = git
        self._root = root
        entries = (entry.partition("\t") for entry in self._output(_TREE))
        self._blobs = {path: head.rpartition(" ")[2] for head, _, path in entries if path}

    def read(self) -> None:
        _ = self._times

    def has(self, path: Path) -> bool:
        return path.relative_to(self._root).as_posix() in self._blobs

    def committed(self, path: Path, data: bytes) -> datetime | None:
        """When the file at `path` was last committed; None if it was not, or if `data` is not what was."""
        name = path.relative_to(self._root).as_posix()
        blob = self._blobs.get(name, "")
        hasher = _HASHES.get(len(blob))
        if hasher is None or hasher(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest() != blob:
            return None
        # The history takes much longer than the tree, and after an edit nothing in it is needed.
        seconds = self._times.get(name)
        return moment(seconds * 1_000_000) if seconds is not None else None

    @cached_property
    def _times(self) -> dict[str, int]:
        """When the last commit of each file was written, in seconds since 1970."""
        times: dict[str, int] = {}
        at = 0
        for entry in self._output(_LOG) if self._blobs else ():
            if entry.startswith(_COMMIT):
                at = int(entry.removeprefix(_COMMIT))
            else:
                times.setdefault(entry.removeprefix("\n"), at)
        return times

    def _output(self, arguments: tuple[str, ...]) -> list[str]:
        """What Git prints, by its NULs, as far as it comes in time; empty if it fails."""
        *whole, _ = printed_by_git(self._git, self._root, arguments).decode("utf-8", "surrogateescape").split("\0")
        if not whole:
            logger.debug("git says nothing of %r: files there have the time of their last change", str(self._root))
        return whole


def printed_by_git(
    git: str, root: Path, arguments: Sequence[str], timeout_s: float = GIT_S, begun: Callable[..., object] = id
) -> bytes:
    """What Git prints of anyone's repository, as far as it comes in time, if at all; `begun` gets the process."""
    try:
        process = subprocess.Popen(  # noqa: S603  (Git itself, with arguments of ours)
            [git, *_SAFE, "-C", str(root), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=without("GIT_") | _ENVIRONMENT,
        )
    except OSError:
        return b""
    timer = threading.Timer(timeout_s, process.kill)
    timer.start()
    begun(process)
    with process:
        assert process.stdout is not None  # noqa: S101  (a pipe)
        printed = process.stdout.read(MAX_BYTES)
        process.kill()
        timer.cancel()
    return printed
