"""Which project a caller works on: its configuration read, its files reconciled with the index, changes followed."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rag_context.domain.documents import Tenant
from rag_context.domain.files import ProjectRecord
from rag_context.errors import BackendError, FieldError, InvalidInputError, RagContextError
from rag_context.files.reading import DEFAULT_MAX_BYTES
from rag_context.files.watch import watch
from rag_context.ingest.indexer import Indexer
from rag_context.ports.maintenance import ProjectRegistry
from rag_context.ports.reading import DocumentStore
from rag_context.projects.callers import Activations
from rag_context.projects.deletion import Deletion, delete, meant, sized
from rag_context.projects.documents import project_document
from rag_context.projects.following import Following, FollowState, Tools
from rag_context.projects.listing import Catalogues
from rag_context.projects.opening import Activation, open_project
from rag_context.projects.promotion import rewrite
from rag_context.projects.records import (
    DocumentNotFoundError,
    ExternalDocsNotPromotableError,
    FileSystemError,
    ProjectDocument,
    ProjectNotActivatedError,
    PromotionLevel,
)
from rag_context.projects.remembered import Remembered
from rag_context.projects.root import external_tenant
from rag_context.projects.sync import FileOutcome, FileReceipt, Progress, is_document, no_progress
from rag_context.projects.tenants import Tenants
from rag_context.projects.watching import Watch

__all__ = ["Activation", "Deletion", "Projects", "Promotion"]

PATIENCE_S = 20.0
"""How long an activation waits for its first reconciliation, which then goes on behind it."""

MAX_FOLLOWED = 64
"""Projects that are followed at once."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Promotion:
    """A promotion level that was changed."""

    document: ProjectDocument
    previous: PromotionLevel
    new: PromotionLevel


class Projects:
    """The projects that this process follows, and who works on which.

    Args:
        indexer: takes documents in and out.
        documents: tells what is stored.
        registry: remembers projects beyond this process; None: nothing is.
        watch: tells what changes below a folder.
        max_bytes: size above which a file is rejected.
        patience_s: how long an activation waits for its first reconciliation.
    """

    def __init__(
        self,
        indexer: Indexer,
        documents: DocumentStore,
        *,
        registry: ProjectRegistry | None = None,
        watch: Watch = watch,
        max_bytes: int = DEFAULT_MAX_BYTES,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.catalogues = Catalogues(documents)
        self.activations = Activations()
        self.remembered = Remembered(registry)
        self.tenants = Tenants(documents, lambda: self._followed)
        self.resuming: dict[Tenant, str] = {}
        """Projects that were followed before this process began and are not yet again, and what is to be said of it."""
        self._indexer = indexer
        self._documents = documents
        self._tools = Tools(indexer, self.catalogues, watch, max_bytes)
        self._patience_s = patience_s
        self._followed: dict[Tenant, Following] = {}
        self._lock = asyncio.Lock()
        self._changing: dict[Following, asyncio.Task[Activation | None]] = {}

    async def activate(
        self,
        config_path: str,
        branch_name: str | None = None,
        *,
        is_forced: bool = False,
        progress: Progress = no_progress,
    ) -> Activation:
        """Read the configuration, bring the index up to the files, and follow them from now on.

        A first reconciliation that takes longer than the patience goes on in the background; `state` tells how far
        it is. A project that is followed already is read and reconciled again.

        Raises:
            InvalidInputError: there is no project configuration at this path, or another branch is checked out.
            SchemaValidationError: the configuration is not as it should be.
            FileSystemError: it cannot be read.
            BackendError: the index cannot be read; nothing is active that was not before.
        """
        activation = await asyncio.to_thread(open_project, config_path, branch_name, is_forced=is_forced)
        await self._follow(activation, progress)
        self.resuming.pop(activation.tenant, None)
        await self.remembered.activated(activation)
        return activation

    async def resume(self, record: ProjectRecord) -> None:
        """Follow a project again that is in `resuming`; where another branch is checked out now, that one.

        Raises:
            RagContextError: it cannot be followed now.
        """
        before = record.tenant
        pinned = before.branch if record.is_forced else None
        activation = await asyncio.to_thread(open_project, record.config_path, pinned, is_forced=record.is_forced)
        if not await self._follow(activation, no_progress, resumed=before):
            return
        if activation.tenant != before:
            await self.remembered.left(before)
        await self.remembered.activated(activation, is_used=False)
        self.resuming.pop(before, None)

    async def open_stored(self, config_path: str, branch_name: str | None = None) -> Activation:
        """The activation of a project that is indexed already, for reading it; nothing is written or followed.

        Raises:
            ProjectNotActivatedError: nothing of it is indexed.
            InvalidInputError, SchemaValidationError, FileSystemError: as `activate`.
            BackendError: it cannot be read what is stored.
        """
        activation = await asyncio.to_thread(open_project, config_path, branch_name)
        tenant = activation.tenant
        if tenant not in await self.tenants.known():
            raise ProjectNotActivatedError(
                f"Nothing is indexed of {tenant.project!r} on branch {tenant.branch!r}, and this key may only read: "
                "somebody whose key may write must activate the project first"
            )
        return self.followed(tenant) or activation

    def followed(self, tenant: Tenant) -> Activation | None:
        """The activation of a tenant that this process follows."""
        following = self._followed.get(tenant)
        return None if following is None else following.activation

    def state(self, tenant: Tenant) -> FollowState | None:
        """How far the following of a tenant is; None where it is not followed."""
        following = self._followed.get(tenant)
        return None if following is None else following.state

    async def checked_out(self, activation: Activation) -> Activation:
        """The activation whose files lie there now: another branch may have been checked out a moment ago.

        Raises:
            ProjectNotActivatedError: the project is not followed there.
        """
        following = self._of(activation)
        if await following.is_on_branch():
            return activation
        changing = self._changing.get(following)
        now = None if changing is None else await asyncio.shield(changing)
        if now is None:
            raise ProjectNotActivatedError(
                f"Another branch than {activation.tenant.branch!r} is checked out, and is not followed: activate the "
                "project again"
            )
        return now

    async def index_document(self, activation: Activation, path: str) -> ProjectDocument:
        """Index one file now.

        Raises:
            InvalidInputError: the path leads out of the docs folder, or the file is no document.
            DocumentNotFoundError: there is no such file.
            FileSystemError: it cannot be read.
            BackendError: it could not be stored.
        """
        following = self._of(activation)
        relative = await asyncio.to_thread(activation.located, path)
        if not is_document(relative):
            raise _refused(f"{relative!r} is no document: its name does not end in .md, .rst, .adoc or .txt")
        return await self._document(await following.documents.index(relative))

    async def promote(self, activation: Activation, path: str, level: PromotionLevel) -> Promotion:
        """Write a promotion level into the file's front matter and the index, or into neither.

        Raises:
            InvalidInputError: the path leads out of the docs folder.
            DocumentNotFoundError: the project has no such document.
            ExternalDocsNotPromotableError: it is an external one.
            SchemaValidationError: the front matter cannot be changed.
            FileSystemError: the file could not be written; nothing has changed.
            BackendError: the index could not be written; the file is as it was.
        """
        following = self._of(activation)
        relative = await self._own_document(activation, path)
        work = asyncio.ensure_future(self._promote(following, relative, level))
        return await asyncio.shield(work)  # a caller who goes away leaves no half of it

    async def preview_deletion(self, project: str, branch: str | None, path_hash: str | None) -> Deletion:
        """What `delete_documents` would take out. Raises: InvalidInputError, BackendError."""
        return await sized(meant(await self._documents.tenants(), project, branch, path_hash), self._documents)

    async def delete_documents(self, project: str, branch: str | None, path_hash: str | None) -> Deletion:
        """Take out all documents of a project; its files are no longer followed, and nobody works on it.

        Raises:
            InvalidInputError: no project is named.
            BackendError: some of them are still there.
        """
        async with self._lock:
            known = [*self._followed, *(each.tenant for each in await self.remembered.records())]
            ended = meant(dict.fromkeys(known), project, branch, path_hash)
            for tenant in ended:
                await self._end(tenant)
            tenants = meant(await self._documents.tenants(), project, branch, path_hash)
            deletion = await sized(tenants, self._documents)
            await delete(tenants, self._documents, self._indexer)
            await self.remembered.forget({*ended, *tenants})
            return deletion

    async def aclose(self) -> None:
        """Follow nothing any more; what was begun is finished."""
        for task in self._changing.values():
            task.cancel()
        async with self._lock:
            await asyncio.gather(*(following.stop() for following in self._followed.values()))
            self._followed.clear()
        await self.remembered.flush()

    async def _follow(self, activation: Activation, progress: Progress, *, resumed: Tenant | None = None) -> bool:
        """Follow a project from its beginning; False where `resumed` is not to be resumed any more.

        Raises:
            BackendError: the index cannot be read; what was followed before still is.
        """
        tenant = activation.tenant
        kin = await self._kin(tenant)
        async with self._lock:
            if resumed is not None and (resumed not in self.resuming or tenant in self._followed):
                return False
            before = self._followed.pop(tenant, None)
            if before is not None:
                await before.stop()
            following = self._started(activation, kin, progress)
        try:
            await following.settled(self._patience_s)
        except BaseException:
            async with self._lock:
                if self._followed.get(tenant) is following:
                    del self._followed[tenant]
                    if before is not None:
                        self._started(before.activation, kin, no_progress)
            await following.stop()
            raise
        await self._make_room()
        return True

    async def _kin(self, tenant: Tenant) -> list[Tenant]:
        """Tenants that may hold the same files: of the same name, or in the same folder. Raises: BackendError."""
        hashes = {tenant.path_hash, external_tenant(tenant).path_hash}
        return [
            each
            for each in await self._documents.tenants()
            if each != tenant and (each.project == tenant.project or each.path_hash in hashes)
        ]

    def _started(self, activation: Activation, kin: Sequence[Tenant], progress: Progress) -> Following:
        following = Following(activation, self._tools, kin=kin, changed=self._note_change)
        self._followed[activation.tenant] = following
        following.start(progress)
        return following

    async def _make_room(self) -> None:
        """End the following that began longest ago where there are too many; its next activation begins it again."""
        async with self._lock:
            while len(self._followed) > MAX_FOLLOWED:
                tenant = next(iter(self._followed))
                following = self._followed.pop(tenant)
                logger.warning("project %s (%s) is no longer followed: too many are", tenant.project, tenant.branch)
                await following.stop()

    def _note_change(self, following: Following) -> None:
        if following in self._changing:
            return
        task = asyncio.create_task(self._reopen(following), name="follow as it is configured now")
        self._changing[following] = task
        task.add_done_callback(lambda _done: self._changing.pop(following, None))

    async def _reopen(self, old: Following) -> Activation | None:
        """Go on as the project is configured and checked out now, for everybody who worked on it before.

        None where it cannot be followed so: then a branch that was left is not followed, and a configuration that
        cannot be used changes nothing.
        """
        before = old.activation
        tenant = before.tenant
        pinned = tenant.branch if before.branch_is_given else None
        try:
            activation = await asyncio.to_thread(
                open_project, str(before.config.path), pinned, is_forced=before.branch_is_given
            )
        except RagContextError as error:
            old.state.trouble = str(error)
            logger.warning("project %s cannot be followed as it is now: %s", tenant.project, error)
            return None
        try:
            kin = await self._kin(activation.tenant)
        except BackendError:
            kin = []  # to embed again what another tenant has is only slower
        async with self._lock:
            if self._followed.get(tenant) is not old:
                return None  # deleted, or activated again
            del self._followed[tenant]
            await old.stop()
            if activation.tenant not in self._followed:
                self._started(activation, kin, no_progress)
        logger.info("project %s: branch %s is followed now", activation.tenant.project, activation.tenant.branch)
        self.activations.replace(tenant, activation)
        if activation.tenant != tenant:
            await self.remembered.left(tenant)
        await self.remembered.activated(activation)
        return activation

    async def _end(self, tenant: Tenant) -> None:
        """Follow a tenant no longer, and let nobody work on it."""
        self.resuming.pop(tenant, None)
        following = self._followed.pop(tenant, None)
        if following is not None:
            await following.stop()
        self.activations.replace(tenant, None)

    async def _promote(self, following: Following, path: str, level: PromotionLevel) -> Promotion:
        written = await asyncio.to_thread(rewrite, following.activation.docs_root / path, level)
        try:
            document = await self._document(await following.documents.index(path))
        except RagContextError:
            await asyncio.to_thread(written.undo)
            raise
        return Promotion(document, written.previous, level)

    async def _own_document(self, activation: Activation, path: str) -> str:
        """The relative path of a document of the project itself."""
        try:
            relative = await asyncio.to_thread(activation.located, path)
        except (DocumentNotFoundError, InvalidInputError):
            if await asyncio.to_thread(activation.is_external, path):
                raise ExternalDocsNotPromotableError(f"{path!r} is an external document; those are read only") from None
            raise
        if not is_document(relative):
            raise DocumentNotFoundError(f"{relative!r} is no document of the project")
        return relative

    async def _document(self, receipt: FileReceipt) -> ProjectDocument:
        """What is stored of a file that was named."""
        if receipt.outcome is FileOutcome.REJECTED:
            said = f"{receipt.path!r} cannot be indexed: {receipt.reason}"
            raise FileSystemError(said) if receipt.again else _refused(said)
        stored = await self._documents.get(receipt.document_id or "")
        if stored is None:
            raise DocumentNotFoundError(f"{receipt.path!r} went away while it was indexed")
        return project_document(stored)

    def _of(self, activation: Activation) -> Following:
        following = self._followed.get(activation.tenant)
        if following is None:
            raise ProjectNotActivatedError(
                f"The files of {activation.tenant.project!r} are not followed any more: activate the project again"
            )
        return following


def _refused(message: str) -> InvalidInputError:
    return InvalidInputError(message, [FieldError("path", message)])
