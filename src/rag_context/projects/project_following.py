"""Follows one project: its documents, its external documents, the branch that is checked out, its configuration.

The index of each folder is kept up to date: it is synchronised once, then after each change of its files.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

from rag_context.domain.documents import Tenant
from rag_context.errors import BackendError, ConfigurationError, InvalidInputError
from rag_context.files.file_reading import IGNORE_FILES
from rag_context.files.watching import watch
from rag_context.ingest.indexer import Indexer
from rag_context.projects import project_documents, project_opening, sync, tenants
from rag_context.projects.document_lists import DocumentLists
from rag_context.resilience.deadline import ended, set_within

FIRST_RETRY_S = 2.0
LAST_RETRY_S = 60.0
"""Delays before files that could not be stored or read are tried again: doubled each time, up to the last."""

logger = logging.getLogger(__name__)

CHECKOUT_S = 10.0
"""Longest wait for git to finish a checkout."""

STOP_S = 3.0
"""Longest wait for files that are being indexed when following stops; the next activation indexes the rest."""

RULES_EVERY_S = 1.0
"""How often to check whether the configuration or an ignore file was edited, or the project was deleted."""

_STEP_S = 0.05


class Watch(Protocol):
    """Yields the changed paths below a folder. The first set is empty: from then on changes are watched."""

    def __call__(
        self, root: Path, *, debounce_s: float = ..., stop: asyncio.Event
    ) -> AsyncIterator[frozenset[Path]]: ...


OnReport: TypeAlias = Callable[[sync.SyncReport], None]
"""Called with the report of a synchronisation that changed something."""


@dataclass(eq=False)
class FolderFollower:
    """Keeps the index of one folder up to date until `stop`, or until `should_continue` returns False before a read."""

    synchroniser: sync.Synchroniser
    _: KW_ONLY
    on_report: OnReport
    should_continue: Callable[[], Awaitable[bool]]
    watch: Watch = watch

    def __post_init__(self) -> None:
        self._stop = asyncio.Event()
        self._problem = asyncio.Event()
        self.first: asyncio.Future[sync.SyncReport] = asyncio.get_running_loop().create_future()
        """The report of the first synchronisation, or the `BackendError` that stopped it."""
        self.first.add_done_callback(_noticed)

    def stop(self) -> None:
        self._stop.set()

    async def run(self, progress: sync.Progress = sync.no_progress) -> None:
        """Follow the folder until it is stopped. Never raises because of a file or a backend."""
        retrying = asyncio.create_task(self._retry(), name="retry project files")
        try:
            await self._watch_changes(progress)
        finally:
            await ended(retrying)
            if not self.first.done():
                self.first.cancel()

    async def _watch_changes(self, progress: sync.Progress) -> None:
        root = self.synchroniser.folder.root
        try:
            # The watch begins before the first comparison, so that no change during it is missed.
            async for paths in self.watch(root, stop=self._stop):
                if not await self.should_continue():
                    return
                if self.first.done():
                    await self._run_once(partial(self.synchroniser.follow, paths))
                else:
                    await self._run_once(partial(self.synchroniser.reconcile, progress))
        except ConfigurationError as error:
            logger.warning("changes of project documents are not detected until the next activation: %s", error)
            if not self.first.done():
                await self._run_once(partial(self.synchroniser.reconcile, progress))
            await self._stop.wait()

    async def _run_once(self, work: Callable[[], Awaitable[sync.SyncReport]]) -> None:
        try:
            report = await work()
        except BackendError as error:
            if not self.first.done():
                self.first.set_exception(error)
            logger.warning("project documents could not be compared with the index: %s", error)
            self._problem.set()
            return
        if report.incomplete:
            self._problem.set()
        if report.changed:
            self.on_report(report)
        if not self.first.done():
            self.first.set_result(report)

    async def _retry(self) -> None:
        """Synchronise again as long as some files could not be indexed."""
        delay_s = FIRST_RETRY_S
        while True:
            await self._problem.wait()
            await asyncio.sleep(delay_s)
            if not await self.should_continue():
                return
            self._problem.clear()  # before the attempt, which sets it again if files are left
            await self._run_once(self.synchroniser.reconcile)
            delay_s = min(2 * delay_s, LAST_RETRY_S) if self._problem.is_set() else FIRST_RETRY_S


def _noticed(first: "asyncio.Future[sync.SyncReport]") -> None:
    """Mark the exception as retrieved: it was logged already, and asyncio must not log it again."""
    if not first.cancelled():
        first.exception()


@dataclass(frozen=True, slots=True)
class FollowerDependencies:
    indexer: Indexer
    document_lists: DocumentLists
    watch: Watch
    max_bytes: int
    is_recorded: Callable[[Tenant], Awaitable[bool | None]]
    """Whether a project is recorded on this machine; None where that is unknown."""


@dataclass(slots=True)
class FollowState:
    """The state of following a project; `waiting` counts the folders without a finished first synchronisation."""

    waiting: int
    progress: sync.SyncProgress | None = None
    first: sync.SyncReport | None = None
    first_external: sync.SyncReport | None = None
    problem: str | None = None
    """Why the edited configuration is invalid; the previous one stays in force. None if it is valid."""

    @property
    def complete(self) -> bool:
        """Whether every file was compared with the index once."""
        return not self.waiting


@dataclass(eq=False)
class ProjectFollower:
    """Follows one project from `start` to `stop`, reusing the vectors of `related_tenants`.

    `changed` is called when the branch changed or the project was deleted, which ends indexing, and after edits of the
    configuration, a schema or an ignore file.
    """

    activation: project_opening.Activation
    dependencies: FollowerDependencies
    _: KW_ONLY
    related_tenants: Sequence[Tenant]
    changed: Callable[["ProjectFollower"], None]

    def __post_init__(self) -> None:
        self.has_left_branch = False
        self._was_recorded = False
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        activation = self.activation
        self.documents = self._synchroniser(activation.tenant, activation.docs_root, sync.is_document)
        self._followers = [self._follower(self.documents)]
        external = activation.config.external
        if external is not None and activation.external is not None and activation.external_root is not None:
            scope = project_opening.external_scope(external)
            self._followers.append(
                self._follower(self._synchroniser(activation.external, activation.external_root, scope))
            )
        self.state = FollowState(waiting=len(self._followers))

    def start(self, progress: sync.Progress) -> None:
        def both(synced: sync.SyncProgress) -> None:
            self.state.progress = synced
            progress(synced)

        for follower in self._followers:
            follower.first.add_done_callback(self._note_first)
            self._run(follower.run(both if follower is self._followers[0] else sync.no_progress))
        if not self.activation.branch_is_given:
            self._run(self._watch_branch())
        self._run(self._watch_rules())

    async def wait_first(self, timeout_s: float) -> bool:
        """Wait for the first synchronisation; returns False if it takes longer. Raises: BackendError."""
        firsts = [follower.first for follower in self._followers]
        done, waiting = await asyncio.wait(firsts, timeout=timeout_s)
        for first in done:
            if not first.cancelled() and (error := first.exception()) is not None:
                raise error
        return not waiting

    async def stop(self, timeout_s: float = STOP_S) -> None:
        """Stop following, after the files that are being indexed, if they are within this time."""
        self._stop.set()
        for follower in self._followers:
            follower.stop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            await asyncio.gather(*map(ended, late))

    def _synchroniser(self, tenant: Tenant, root: Path, scope: sync.SyncScope) -> sync.Synchroniser:
        tools = self.dependencies
        # A synchroniser uses the last few of these. Clones and branches in the same folder come last, because they have
        # more files in common with this one than other repositories of the same name.
        same_name = [each for each in self.related_tenants if each.project == tenant.project]
        same_root = [each for each in self.related_tenants if each.path_hash == tenant.path_hash]
        related_tenants = tuple(dict.fromkeys([*(each for each in same_name if each not in same_root), *same_root]))
        return sync.Synchroniser(
            project_documents.DocsFolder(tenant, root, self.activation.doc_types),
            tools.indexer,
            tools.document_lists,
            related_tenants=related_tenants,
            scope=scope,
            max_bytes=tools.max_bytes,
        )

    def _follower(self, synchroniser: sync.Synchroniser) -> FolderFollower:
        return FolderFollower(
            synchroniser, on_report=self._note, should_continue=self.is_current, watch=self.dependencies.watch
        )

    def _note_first(self, first: "asyncio.Future[sync.SyncReport]") -> None:
        if first.cancelled() or first.exception() is not None:
            return
        self.state.waiting -= 1
        if first is self._followers[0].first:
            self.state.first = first.result()
        else:
            self.state.first_external = first.result()

    def _note(self, report: sync.SyncReport) -> None:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(report.counts.items()))
        logger.info("project %s (%s): %s", self.activation.tenant.project, self.activation.tenant.branch, counts)

    async def is_deleted(self) -> bool:
        """Whether another process deleted the project: an earlier call found it recorded, and it no longer is."""
        # Not recorded yet is not deleted: the record is written only after the first synchronisation.
        is_recorded = await self.dependencies.is_recorded(self.activation.tenant)
        self._was_recorded = self._was_recorded or is_recorded is True
        return self._was_recorded and is_recorded is False

    async def is_current(self) -> bool:
        """Whether the project is not deleted and its branch is checked out; waits for a checkout to finish."""
        if await self.is_deleted():
            self.changed(self)
            return False
        if self.activation.branch_is_given:
            return True
        root = self.activation.repository_root
        for _ in range(round(CHECKOUT_S / _STEP_S)):
            if not await asyncio.to_thread(tenants.is_checking_out, root):
                break
            await asyncio.sleep(_STEP_S)
        if await asyncio.to_thread(_branch, root) == self.activation.tenant.branch:
            return True
        # Both folders and the watch of HEAD arrive here; the first one reports it.
        if not self.has_left_branch:
            self.has_left_branch = True
            self.changed(self)
        return False

    async def _watch_branch(self) -> None:
        """Detect a checkout that changes no document."""
        head = await asyncio.to_thread(tenants.head_file, self.activation.repository_root)
        if not head.is_file():
            return
        try:
            async for _ in self.dependencies.watch(head, stop=self._stop):
                if not await self.is_current():
                    return
        except ConfigurationError as error:
            logger.warning("a checkout is noticed only when a document changes: %s", error)

    async def _watch_rules(self) -> None:
        """Detect the deletion, and edits of the configuration, a schema or an ignore file; polling costs less here."""
        files = await asyncio.to_thread(rule_files, self.activation)
        seen = await asyncio.to_thread(_stamps, files)
        while not await set_within(self._stop, RULES_EVERY_S):
            now = await asyncio.to_thread(_stamps, files)
            if now != seen or await self.is_deleted():
                seen = now
                self.changed(self)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name=f"follow {self.activation.tenant.project}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical("a project is no longer followed", exc_info=error)


def rule_files(activation: project_opening.Activation) -> tuple[Path, ...]:
    """The configuration, schemas and ignore files outside the docs folder; some of them may not exist."""
    config = activation.config
    schemas = [config.path.parent / each.schema_file for each in config.custom_doc_types if each.schema_file]
    roots = [activation.docs_root, *([activation.external_root] if activation.external_root is not None else [])]
    folders = dict.fromkeys(
        folder for root in roots for folder in root.parents if folder.is_relative_to(activation.repository_root)
    )
    return (config.path, *schemas, *(folder / name for folder in folders for name in IGNORE_FILES))


def _stamps(files: Sequence[Path]) -> tuple[tuple[int, int, int] | None, ...]:
    """The modification time, size and inode of each file; None if it does not exist."""

    def stamp(path: Path) -> tuple[int, int, int] | None:
        try:
            status = path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    return tuple(map(stamp, files))


def _branch(root: Path) -> str | None:
    try:
        return tenants.current_branch(root)
    except InvalidInputError:
        return None
