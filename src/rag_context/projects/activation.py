"""Which project a caller works on: its configuration read, its files reconciled with the index, changes followed."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rag_context.errors import FieldError, InvalidInputError, RagContextError
from rag_context.indexing.files import DEFAULT_MAX_BYTES
from rag_context.indexing.indexer import Indexer
from rag_context.indexing.watching import watch
from rag_context.ports import DocumentStore
from rag_context.projects.catalogue import Catalogues
from rag_context.projects.deletion import Deletion, delete, meant, sized
from rag_context.projects.documents import project_document
from rag_context.projects.following import Following, FollowState, Tools
from rag_context.projects.opening import Activation, open_project
from rag_context.projects.paths import inside, located
from rag_context.projects.promotion import rewrite
from rag_context.projects.records import (
    DocumentNotFoundError,
    ExternalDocsNotPromotableError,
    FileSystemError,
    ProjectDocument,
    ProjectNotActivatedError,
    PromotionLevel,
)
from rag_context.projects.root import external_tenant
from rag_context.projects.sync import FileOutcome, FileReceipt, Progress, markdown, no_progress
from rag_context.projects.watching import Watch
from rag_context.types import Tenant

__all__ = ["Activation", "Deletion", "Projects", "Promotion"]

PATIENCE_S = 20.0
"""How long an activation waits for its first reconciliation, which then goes on behind it."""

MAX_SESSIONS = 10_000
"""Callers that are remembered; of more, those that activated longest ago are forgotten."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Promotion:
    """A promotion level that was changed."""

    document: ProjectDocument
    previous: PromotionLevel
    new: PromotionLevel


class Projects:
    """The projects that this process follows, and who works on which.

    `session` names the caller (an MCP session, an API key, a stdio process); None is nobody in particular, who works
    on what was activated last.

    Args:
        indexer: takes documents in and out.
        documents: tells what is stored.
        watch: tells what changes below a folder.
        max_bytes: size above which a file is rejected.
        patience_s: how long an activation waits for its first reconciliation.
    """

    def __init__(
        self,
        indexer: Indexer,
        documents: DocumentStore,
        *,
        watch: Watch = watch,
        max_bytes: int = DEFAULT_MAX_BYTES,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.catalogues = Catalogues(documents)
        self._indexer = indexer
        self._documents = documents
        self._tools = Tools(indexer, self.catalogues, watch, max_bytes)
        self._patience_s = patience_s
        self._followed: dict[Tenant, Following] = {}
        self._sessions: OrderedDict[str, Tenant] = OrderedDict()
        self._last: Tenant | None = None
        self._lock = asyncio.Lock()
        self._changing: dict[Following, asyncio.Task[Activation | None]] = {}

    async def activate(
        self,
        config_path: str,
        branch_name: str | None = None,
        *,
        session: str | None = None,
        progress: Progress = no_progress,
    ) -> Activation:
        """Read the configuration, bring the index up to the files, and follow them from now on.

        A first reconciliation that takes longer than the patience goes on in the background; `state` tells how far
        it is. A project that is followed already is read and reconciled anew.

        Raises:
            InvalidInputError: there is no project configuration at this path.
            SchemaValidationError: the configuration is not as it should be.
            FileSystemError: it cannot be read.
            BackendError: the index cannot be read; nothing is active that was not before.
        """
        activation = await asyncio.to_thread(open_project, config_path, branch_name)
        await self._follow(activation, progress)
        self._last = activation.tenant
        if session is not None:
            self._sessions[session] = activation.tenant
            self._sessions.move_to_end(session)
            if len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return activation

    def active(self, session: str | None = None) -> Activation:
        """What the caller activated last. Raises: ProjectNotActivatedError."""
        tenant = self._last if session is None else self._sessions.get(session)
        following = None if tenant is None else self._followed.get(tenant)
        if following is None:
            raise ProjectNotActivatedError(
                "No project is active: call activate_project with the path of its .rag-context/config.json first"
            )
        return following.activation

    def followed(self, tenant: Tenant) -> Activation | None:
        """The activation of a tenant that this process follows."""
        following = self._followed.get(tenant)
        return None if following is None else following.activation

    def state(self, tenant: Tenant) -> FollowState | None:
        """How far the following of a tenant is; None where it is not followed."""
        following = self._followed.get(tenant)
        return None if following is None else following.state

    async def tenant(self, project: str, branch: str | None = None, path_hash: str | None = None) -> Tenant:
        """The tenant that is meant by what was named of it; of several, the only one that is followed.

        Raises:
            ProjectNotActivatedError: nothing is stored of it.
            InvalidInputError: several fit; the message names them.
            BackendError: it cannot be read what is stored.
        """
        known = dict.fromkeys([*self._followed, *await self._documents.tenants()])
        externals = {external_tenant(each) for each in known}
        fitting = [each for each in meant(known, project, branch, path_hash) if each not in externals]
        if not fitting:
            named = f"{project!r}" if branch is None else f"{project!r} on branch {branch!r}"
            raise ProjectNotActivatedError(f"Nothing is stored of the project {named}: activate it first")
        followed = [each for each in fitting if each in self._followed]
        if len(fitting) > 1 and len(followed) != 1:
            named = ", ".join(f"branch {each.branch!r} at {each.path_hash}" for each in fitting[:5])
            message = f"Several projects are called {project!r} ({named}); name branch and path_hash too"
            raise InvalidInputError(message, [FieldError("project", message)])
        return (followed if len(fitting) > 1 else fitting)[0]

    async def deactivate(self, session: str) -> None:
        """Forget a caller; its project is followed as long as anybody else works on it."""
        async with self._lock:
            tenant = self._sessions.pop(session, None)
            if tenant is None or tenant == self._last or tenant in self._sessions.values():
                return
            following = self._followed.pop(tenant, None)
            if following is not None:
                await following.stop()

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
        relative = await asyncio.to_thread(located, activation.docs_root, path)
        if not markdown(relative):
            raise _refused(f"{relative!r} is no Markdown file")
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
            for tenant in meant(list(self._followed), project, branch, path_hash):
                await self._forget(tenant)
            tenants = meant(await self._documents.tenants(), project, branch, path_hash)
            deletion = await sized(tenants, self._documents)
            await delete(tenants, self._documents, self._indexer)
            return deletion

    async def aclose(self) -> None:
        """Follow nothing any more; what was begun is finished."""
        for task in self._changing.values():
            task.cancel()
        async with self._lock:
            await asyncio.gather(*(following.stop() for following in self._followed.values()))
            self._followed.clear()
            self._sessions.clear()
            self._last = None

    async def _follow(self, activation: Activation, progress: Progress) -> None:
        """Follow a project anew. Raises: BackendError (what was followed before still is)."""
        tenant = activation.tenant
        kin = [each for each in await self._documents.tenants() if each != tenant and each.project == tenant.project]
        async with self._lock:
            before = self._followed.pop(tenant, None)
            if before is not None:
                await before.stop()
            following = self._followed[tenant] = self._started(activation, kin, progress)
        try:
            await following.settled(self._patience_s)
        except BaseException:
            async with self._lock:
                if self._followed.get(tenant) is following:
                    del self._followed[tenant]
                    if before is not None:
                        self._followed[tenant] = self._started(before.activation, kin, no_progress)
            await following.stop()
            raise

    def _started(self, activation: Activation, kin: Sequence[Tenant], progress: Progress) -> Following:
        following = Following(activation, self._tools, kin=kin, branch_changed=self._note_branch)
        following.start(progress)
        return following

    def _note_branch(self, following: Following) -> None:
        task = asyncio.create_task(self._change_branch(following), name="follow another branch")
        self._changing[following] = task
        task.add_done_callback(lambda _done: self._changing.pop(following, None))

    async def _change_branch(self, old: Following) -> Activation | None:
        """Go on with the branch that is checked out now, for everybody who worked on the one before.

        None where the project cannot be followed there.
        """
        before = old.activation
        try:
            activation = await asyncio.to_thread(open_project, str(before.config.path))
            await self._follow(activation, no_progress)
        except RagContextError as error:
            logger.warning("project %s is no longer followed: %s", before.tenant.project, error)
            return None
        logger.info("project %s: branch %s is followed now", activation.tenant.project, activation.tenant.branch)
        self._sessions.update(
            {session: activation.tenant for session, tenant in self._sessions.items() if tenant == before.tenant}
        )
        if self._last == before.tenant:
            self._last = activation.tenant
        if before.tenant != activation.tenant and self._followed.get(before.tenant) is old:
            del self._followed[before.tenant]
        await old.stop()
        return activation

    async def _forget(self, tenant: Tenant) -> None:
        following = self._followed.pop(tenant, None)
        if following is not None:
            await following.stop()
        for session in [session for session, each in self._sessions.items() if each == tenant]:
            del self._sessions[session]
        if self._last == tenant:
            self._last = None

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
        external = activation.external_root
        try:
            relative = await asyncio.to_thread(located, activation.docs_root, path)
        except (DocumentNotFoundError, InvalidInputError):
            if external is not None and await asyncio.to_thread(_lies_in, external, activation.repository_root, path):
                raise ExternalDocsNotPromotableError(f"{path!r} is an external document; those are read only") from None
            raise
        if not markdown(relative):
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


def _lies_in(external: Path, repository: Path, path: str) -> bool:
    """Whether a caller named a file of the external folder, from there, from the repository or outright."""
    candidates = [inside(external, path, external), inside(repository, path, external)]
    if Path(path).is_absolute() and Path(path).is_relative_to(external):
        return True
    return any(each is not None and each.is_file() for each in candidates)


def _refused(message: str) -> InvalidInputError:
    return InvalidInputError(message, [FieldError("path", message)])
