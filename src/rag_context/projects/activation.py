"""Activates projects: reads their configuration, synchronises their files with the index, and follows changes."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rag_context.domain.documents import ProjectRecord, Tenant
from rag_context.errors import BackendError, InvalidInputError, RagContextError
from rag_context.files.file_reading import DEFAULT_MAX_BYTES
from rag_context.files.watching import watch
from rag_context.ingest.indexer import Indexer
from rag_context.ports.reading import DocumentStore
from rag_context.ports.writing import ProjectRegistry
from rag_context.projects import callers, document_lists, front_matter, links, project_documents, records, tenants
from rag_context.projects.project_following import STOP_S, FollowerDependencies, FollowState, ProjectFollower, Watch
from rag_context.projects.project_opening import Activation, open_project
from rag_context.projects.sync import FileOutcome, Progress, SyncReceipt, is_document, no_progress

FIRST_SYNC_TIMEOUT_S = 20.0
"""How long an activation waits for its first synchronisation, which then continues in the background."""

MAX_FOLLOWED = 64
"""Projects that are followed at once."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Promotion:
    document: records.ProjectDocument
    previous: records.PromotionLevel
    new: records.PromotionLevel


class Projects:
    """The projects that this process follows, and the activations of callers."""

    def __init__(
        self,
        indexer: Indexer,
        documents: DocumentStore,
        *,
        registry: ProjectRegistry | None = None,
        watch: Watch = watch,
        max_bytes: int = DEFAULT_MAX_BYTES,
        first_sync_timeout_s: float = FIRST_SYNC_TIMEOUT_S,
    ) -> None:
        self.document_lists = document_lists.DocumentLists(documents)
        self.activations = callers.Activations()
        self.project_records = callers.ProjectRecords(registry)
        self.tenants = tenants.Tenants(documents, lambda: self._followed)
        self.resuming: dict[Tenant, str] = {}
        """Projects that an earlier process followed and this one does not follow yet, each with the reason."""
        self._indexer = indexer
        self._documents = documents
        self._dependencies = FollowerDependencies(
            indexer, self.document_lists, watch, max_bytes, self.project_records.has
        )
        self._first_sync_timeout_s = first_sync_timeout_s
        self._followed: dict[Tenant, ProjectFollower] = {}
        self._lock = asyncio.Lock()
        self._changing: dict[ProjectFollower, asyncio.Task[Activation | None]] = {}

    async def activate(
        self,
        config_path: str,
        branch_name: str | None = None,
        *,
        is_forced: bool = False,
        progress: Progress = no_progress,
    ) -> Activation:
        """Read the configuration, synchronise the index with the files, and follow them from now on.

        A first synchronisation that takes longer than the timeout continues in the background; `state` has its state.
        Raises: as `open_project`, and BackendError (the index cannot be read; nothing was activated).
        """
        activation = await asyncio.to_thread(open_project, config_path, branch_name, is_forced=is_forced)
        await self._follow(activation, progress)
        self.resuming.pop(activation.tenant, None)
        # Last: an activation that failed must not be followed again after a restart.
        await self._record(activation)
        return activation

    async def resume(self, record: ProjectRecord) -> None:
        """Follow a project in `resuming` again, on the branch that is checked out now. Raises: RagContextError."""
        before = record.tenant
        if await self.project_records.has(before) is False:  # another process deleted it
            self.resuming.pop(before, None)
            return
        pinned = before.branch if record.is_forced else None
        activation = await asyncio.to_thread(open_project, record.config_path, pinned, is_forced=record.is_forced)
        if not await self._follow(activation, no_progress, resumed=before):
            return
        if activation.tenant != before:
            await self.project_records.left(before)
        await self._record(activation, is_used=False)
        self.resuming.pop(before, None)

    async def open_stored(self, config_path: str, branch_name: str | None = None) -> Activation:
        """The activation of an indexed project, to read it; nothing is written or followed. Raises: as `activate`."""
        activation = await asyncio.to_thread(open_project, config_path, branch_name)
        tenant = activation.tenant
        if tenant not in await self.tenants.known():
            raise records.ProjectNotActivatedError(
                f"The project {tenant.project!r} is not indexed on branch {tenant.branch!r}, and this API key may only "
                "read: activate the project first with a key that may write"
            )
        return self.followed(tenant) or activation

    def followed(self, tenant: Tenant) -> Activation | None:
        follower = self._followed.get(tenant)
        return None if follower is None else follower.activation

    def state(self, tenant: Tenant) -> FollowState | None:
        follower = self._followed.get(tenant)
        return None if follower is None else follower.state

    async def checked_out(self, activation: Activation) -> Activation:
        """The activation for the branch that is checked out now. Raises: ProjectNotActivatedError."""
        follower = self._of(activation)
        if await follower.is_current():
            return activation
        changing = self._changing.get(follower)
        # Shielded, because other requests wait for the same task.
        now = None if changing is None else await asyncio.shield(changing)
        if now is None:
            self._of(activation)
            raise records.ProjectNotActivatedError(
                f"Another branch than {activation.tenant.branch!r} is checked out and is not followed: activate the "
                "project again"
            )
        return now

    async def index_document(self, activation: Activation, path: str) -> records.ProjectDocument:
        """Index one file now. Raises: ProjectError, InvalidInputError (it is no document), BackendError."""
        follower = self._of(activation)
        relative = await asyncio.to_thread(activation.located, path)
        if not is_document(relative):
            raise links.invalid_path(
                f"{relative!r} is not a document: its name does not end in .md, .rst, .adoc or .txt"
            )
        return await self._document(await follower.documents.index(relative))

    async def promote(self, activation: Activation, path: str, level: records.PromotionLevel) -> Promotion:
        """Write a promotion level to the file and to the index, or to neither. Raises: ProjectError, BackendError."""
        follower = self._of(activation)
        relative = await self._own_document(activation, path)
        work = asyncio.ensure_future(self._promote(follower, relative, level))
        return await asyncio.shield(work)  # a caller that disconnects must not interrupt it halfway

    async def delete_documents(self, project: str, branch: str | None, path_hash: str | None) -> tenants.Deletion:
        """Delete all documents of a project, stop following its files, and end its activations.

        Raises: InvalidInputError (no name), BackendError (some are still stored; the project stays recorded).
        """
        async with self._lock:
            known = [*self._followed, *(each.tenant for each in await self.project_records.records())]
            ended = tenants.tenants_of(dict.fromkeys(known), project, branch, path_hash)
            # First of all, or the followers would index the files again whose documents are deleted.
            for tenant in ended:
                await self._end(tenant)
            deletion = await self.tenants.deletion(project, branch, path_hash)
            async with self.project_records.forgetting({*ended, *deletion.tenants}):  # other processes stop following
                await self.tenants.delete(deletion.tenants, self._indexer)
            return deletion

    async def aclose(self) -> None:
        """Stop following all projects, after the files that are being indexed."""
        for task in self._changing.values():
            task.cancel()
        async with self._lock:
            await asyncio.gather(*(follower.stop() for follower in self._followed.values()))
            self._followed.clear()
        await self.project_records.flush()

    async def _follow(self, activation: Activation, progress: Progress, *, resumed: Tenant | None = None) -> bool:
        """Start following a project; False if `resumed` was activated or deleted meanwhile. Raises: BackendError."""
        tenant = activation.tenant
        related_tenants = await self.tenants.related(tenant)
        async with self._lock:
            if resumed is not None and (resumed not in self.resuming or tenant in self._followed):
                return False
            # One after the other: two followers of one folder would index every file twice.
            before = self._followed.pop(tenant, None)
            if before is not None:
                await before.stop()
            follower = self._started(activation, related_tenants, progress)
        # Without the lock, or a slow folder would hold back the activations of all others.
        try:
            await follower.wait_first(self._first_sync_timeout_s)
        except BaseException:  # also if the caller disconnects: the former state is restored
            async with self._lock:
                if self._followed.get(tenant) is follower:
                    del self._followed[tenant]
                    if before is not None:
                        self._started(before.activation, related_tenants, no_progress)
            await follower.stop()
            raise
        await self._stop_oldest()
        return True

    def _started(
        self, activation: Activation, related_tenants: Sequence[Tenant], progress: Progress
    ) -> ProjectFollower:
        follower = ProjectFollower(
            activation, self._dependencies, related_tenants=related_tenants, changed=self._note_change
        )
        self._followed[activation.tenant] = follower
        follower.start(progress)
        return follower

    async def _stop_oldest(self) -> None:
        """If too many projects are followed, stop following those that were activated longest ago."""
        async with self._lock:
            while len(self._followed) > MAX_FOLLOWED:
                tenant = next(iter(self._followed))  # a dictionary keeps the order of insertion
                follower = self._followed.pop(tenant)
                logger.warning(
                    "project %s (%s) is no longer followed: too many projects are followed",
                    tenant.project,
                    tenant.branch,
                )
                await follower.stop()

    def _note_change(self, follower: ProjectFollower) -> None:
        if follower in self._changing:  # both folders and the watch of HEAD notice a checkout
            return
        # In a task: the caller is one of the follower's own tasks, and `stop`, which waits for those, is called there.
        task = asyncio.create_task(self._reopen(follower), name="follow as it is configured now")
        self._changing[follower] = task
        task.add_done_callback(lambda _done: self._changing.pop(follower, None))

    async def _reopen(self, old: ProjectFollower) -> Activation | None:
        """Follow a project with its present configuration and branch, for all its callers; None if that fails."""
        before = old.activation
        tenant = before.tenant
        pinned = tenant.branch if before.branch_is_given else None
        if await old.is_deleted():
            await self._end_deleted(old)
            return None
        try:
            activation = await asyncio.to_thread(
                open_project, str(before.config.path), pinned, is_forced=before.branch_is_given
            )
        except RagContextError as error:
            old.state.problem = str(error)
            logger.warning("project %s cannot be followed with its present configuration: %s", tenant.project, error)
            return None
        try:
            related_tenants = await self.tenants.related(activation.tenant)
        except BackendError:
            related_tenants = []  # without their vectors, texts are embedded again, which is only slower
        async with self._lock:
            if self._followed.get(tenant) is not old:
                return None  # deleted, or activated again
            del self._followed[tenant]
            await old.stop()
            if activation.tenant not in self._followed:  # else a caller has activated that branch by its name
                self._started(activation, related_tenants, no_progress)
        logger.info("project %s: branch %s is followed now", activation.tenant.project, activation.tenant.branch)
        self.activations.replace(tenant, activation)
        if activation.tenant != tenant:
            await self.project_records.left(tenant)
        await self._record(activation)
        return activation

    async def _end_deleted(self, follower: ProjectFollower) -> None:
        tenant = follower.activation.tenant
        async with self._lock:
            if self._followed.get(tenant) is follower:
                # Files that are being indexed are not waited for: they would be stored after the deletion.
                await self._end(tenant, wait_s=0.0)
                logger.info("project %s (%s) is no longer followed: it was deleted", tenant.project, tenant.branch)

    async def _record(self, activation: Activation, *, is_used: bool = True) -> None:
        await self.project_records.activated(activation, is_used=is_used)
        follower = self._followed.get(activation.tenant)
        if follower is not None:
            await follower.is_deleted()  # finds it recorded

    async def _end(self, tenant: Tenant, wait_s: float = STOP_S) -> None:
        self.resuming.pop(tenant, None)
        follower = self._followed.pop(tenant, None)
        if follower is not None:
            await follower.stop(wait_s)
        self.activations.replace(tenant, None)

    async def _promote(self, follower: ProjectFollower, path: str, level: records.PromotionLevel) -> Promotion:
        written = await asyncio.to_thread(front_matter.rewrite, follower.activation.docs_root / path, level)
        try:
            document = await self._document(await follower.documents.index(path))
        except RagContextError:
            await asyncio.to_thread(written.undo)
            raise
        return Promotion(document, written.previous, level)

    async def _own_document(self, activation: Activation, path: str) -> str:
        """The relative path of a document of the project, which must not be an external one."""
        try:
            relative = await asyncio.to_thread(activation.located, path)
        except (records.DocumentNotFoundError, InvalidInputError):
            if await asyncio.to_thread(activation.is_external, path):
                raise records.ExternalDocsNotPromotableError(
                    f"{path!r} is an external document, and these are read-only"
                ) from None
            raise
        if not is_document(relative):
            raise records.DocumentNotFoundError(f"{relative!r} is not a document of the project")
        return relative

    async def _document(self, receipt: SyncReceipt) -> records.ProjectDocument:
        """The stored document of a file, from the receipt for indexing it."""
        if receipt.outcome is FileOutcome.REJECTED:
            message = f"{receipt.path!r} cannot be indexed: {receipt.reason}"
            raise records.FileSystemError(message) if receipt.again else links.invalid_path(message)
        stored = await self._documents.get(receipt.document_id or "")
        if stored is None:
            raise records.DocumentNotFoundError(f"{receipt.path!r} was deleted while it was indexed")
        return project_documents.project_document(stored)

    def _of(self, activation: Activation) -> ProjectFollower:
        follower = self._followed.get(activation.tenant)
        if follower is None:
            raise records.ProjectNotActivatedError(
                f"The files of {activation.tenant.project!r} are no longer followed: activate the project again"
            )
        return follower
