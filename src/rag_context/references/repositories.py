"""The repositories on this machine that passages are checked against: where they are, and a survey of each.

A survey is made in the background, at first and after each commit or checkout, and kept in memory. A search never
waits for one: without it, or after `CHECK_S`, passages come without their references.
"""

import asyncio
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rag_context.agents.workspace import Workspace, git_folders, workspace
from rag_context.api.search import CitedReference
from rag_context.domain.documents import PROJECT_TAG
from rag_context.files.commits import printed_by_git
from rag_context.references.checking import references
from rag_context.references.survey import COMMIT, FRAMES, Survey, unpacked
from rag_context.resilience.confinement import ProcessLimits
from rag_context.resilience.deadline import ended
from rag_context.resilience.worker_processes import WorkerFailedError, WorkerProcesses, WorkersClosedError

CHECK_S = 0.010
"""Most time of one search."""

MAX_REPOSITORIES = 8
"""Surveys that are kept, those used last."""

PAUSES = 10
LEAST_PAUSE_S = 2.0
"""A survey comes no sooner than this, and ten times as long as the last one took, after it."""

HISTORY_S = 30.0
"""Most time for a history; what it does not reach is not known, the latest is."""

_LISTING = ("ls-files", "-z", "-t", "-c", "-o", "-d", "--exclude-standard")
_STAGED = ("diff-index", "--cached", "-M", "-z", "--name-status", "--diff-filter=DR", "HEAD")
_LOG = ("log", "--topo-order", "-M", "-l2000", "--no-ext-diff", "--no-textconv", "--no-color")
_NAMES = (*_LOG, "-z", f"--format={COMMIT.decode()}%H %ct", "--name-status", "--diff-filter=DR", "HEAD")  # fmt: skip
_PATCHES = (
    *_LOG, "-p", "-U0", "--format=", "--diff-filter=DMRT", "HEAD", "--", ".",
    *(f":(exclude,glob)**/*.{suffix}" for suffix in ("md", "rst", "txt", "lock", "svg", "csv", "ipynb", "map")),
)  # fmt: skip
_KEPT = ("rev-list", "--branches", "--remotes", "--tags", "HEAD")
_ALL = ("rev-list", "--all", "--reflog", "HEAD")

logger = logging.getLogger(__name__)


class Cited(NamedTuple):
    """A passage: its text, when it was written (seconds since 1970), and the tags of its document."""

    text: str
    at: float
    tags: Sequence[str] = ()
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """The references of some passages, in their order; a `problem` says why some could not be checked."""

    references: tuple[tuple[CitedReference, ...], ...]
    latency_ms: float
    problem: str | None = None


_Signature = tuple[tuple[int, int] | None, ...]


@dataclass(slots=True)
class _Repository:
    root: Path
    folders: tuple[Path, Path]
    survey: Survey | None = None
    signature: _Signature = ()
    not_before_s: float = 0.0
    task: "asyncio.Task[None] | None" = None
    history: tuple[bytes, bytes, bytes, list[str], list[str]] | None = field(default=None, repr=False)


class Repositories:
    """Checks passages against the repositories that are known, for at most `budget_s`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, budget_s: float = CHECK_S) -> None:
        self._clock = clock
        self._budget_s = budget_s
        self._git = shutil.which("git")
        self._known: dict[str, _Repository] = {}
        self._roots: dict[Path, str | None] = {}
        # One at a time: it reads a whole repository.
        self._turn = asyncio.Semaphore()
        self._processes = WorkerProcesses("rag_context.references.survey", ProcessLimits(cpu_s=60))
        self._git_process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def note(self, project: Workspace) -> None:
        """Note where a project is on this machine, and begin to read its repository."""
        known = self._known.pop(project.tag, None)
        if known is None or known.root != project.root:
            folders = git_folders(project.root) if self._git is not None else None
            if folders is None:
                return
            known = _Repository(project.root, folders)
        self._known[project.tag] = known
        self._refresh(known)
        while len(self._known) > MAX_REPOSITORIES:
            self._known.pop(next(iter(self._known)))

    async def note_root(self, root: Path) -> str | None:
        """Note the project at a folder; returns its tag, or None where it is none."""
        if root not in self._roots:
            project = await asyncio.to_thread(workspace, root)
            self._roots[root] = None if project is None else project.tag
            if project is not None:
                self.note(project)
        return self._roots[root]

    async def check(self, passages: Sequence[Cited], here: str | None) -> Checked | None:
        """The references of passages, `here` the caller's project; None where no repository is known of any."""
        work = [(passage, self._of(passage, here)) for passage in passages]
        known = {id(repository): repository for _, repository in work if repository is not None}
        if not known:
            return None
        started = self._clock()
        for repository in known.values():
            self._refresh(repository)
        unread = [repository for repository in known.values() if repository.survey is None]
        is_underway = any(each.task is not None and not each.task.done() for each in unread)
        problem = None if not unread else f"the repository {'is being' if is_underway else 'cannot be'} read"
        try:
            async with asyncio.timeout(self._budget_s):
                found = await asyncio.to_thread(_check, work)
        except TimeoutError:
            found, problem = ((),) * len(work), "the check took too long"
        return Checked(found, (self._clock() - started) * 1000.0, problem)

    async def settled(self) -> None:
        while tasks := [each.task for each in self._known.values() if each.task is not None and not each.task.done()]:
            await asyncio.wait(tasks)

    async def aclose(self) -> None:
        """End what reads a repository; the threads that wait for it, and this program with them, would last as long."""
        self._is_closed = True
        self._processes.close()
        if self._git_process is not None:
            self._git_process.kill()
        for each in self._known.values():
            if each.task is not None:
                await ended(each.task)

    def _of(self, passage: Cited, here: str | None) -> _Repository | None:
        if passage.is_code:  # it changes with its file
            return None
        tags = [tag for tag in passage.tags if tag.startswith(PROJECT_TAG)]
        return next((self._known[tag] for tag in tags or (here,) if tag in self._known), None)

    def _refresh(self, repository: _Repository) -> None:
        """Begin a new survey where the repository changed since the last one."""
        if (repository.task is not None and not repository.task.done()) or self._clock() < repository.not_before_s:
            return
        signature = _signature(repository.folders)
        if signature != repository.signature:
            repository.task = asyncio.create_task(self._survey(repository, signature), name="survey")

    async def _survey(self, repository: _Repository, signature: _Signature) -> None:
        async with self._turn:
            started = self._clock()
            try:
                repository.survey = await asyncio.to_thread(self._surveyed, repository)
                repository.signature = signature
            except (WorkerFailedError, WorkersClosedError, ValueError) as error:
                logger.warning("the repository %r cannot be read: %s", str(repository.root), error)
            repository.not_before_s = (now := self._clock()) + max(LEAST_PAUSE_S, PAUSES * (now - started))

    def _surveyed(self, repository: _Repository) -> Survey | None:
        root = repository.root
        head = self._printed(root, ("rev-parse", "--verify", "-q", "HEAD"))
        if not head:
            return None
        if repository.history is None or repository.history[0] != head:
            kept = self._printed(root, _KEPT).decode().split()
            lost = set(self._printed(root, _ALL).decode().split()) - set(kept)
            names, patches = (self._printed(root, each) for each in (_NAMES, _PATCHES))
            repository.history = head, names, patches, sorted(kept), sorted(lost)
        _, names, patches, commits, lost_commits = repository.history
        printed = (self._printed(root, _LISTING), self._printed(root, _STAGED), names, patches)
        with self._processes.worker() as worker:
            frames = [worker.request(os.fsencode(root), *printed)]
            frames += [worker.next_frame() for _ in range(FRAMES - 1)]
            return unpacked(frames, commits, lost_commits)

    def _printed(self, root: Path, arguments: Sequence[str]) -> bytes:
        assert self._git is not None  # noqa: S101  (without it no repository is known)
        return printed_by_git(self._git, root, arguments, HISTORY_S, self._begun)

    def _begun(self, process: "subprocess.Popen[bytes]") -> None:
        self._git_process = process
        if self._is_closed:
            process.kill()


def _check(work: Sequence[tuple[Cited, _Repository | None]]) -> tuple[tuple[CitedReference, ...], ...]:
    return tuple(
        ()
        if repository is None or repository.survey is None or not repository.root.is_dir()
        else tuple(
            references(
                passage.text,
                passage.at,
                repository.survey,
                repository.root,
                is_of_project=any(tag.startswith(PROJECT_TAG) for tag in passage.tags),
            )
        )
        for passage, repository in work
    )


def _signature(folders: tuple[Path, Path]) -> _Signature:
    """Changes with each commit, checkout and staged file: the folders are a worktree's and its repository's."""
    own, shared = folders
    files = (own / "HEAD", own / "logs" / "HEAD", own / "index", shared / "packed-refs")
    return tuple(_stamp(file) for file in files)


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
