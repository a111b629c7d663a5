"""Changes over time: corrections, histories, the journal, undoing, forgetting, and what expires."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from rag_context.api import changes as api
from rag_context.api.handlers import CallContext, performs
from rag_context.api.operations import memory
from rag_context.api.stored_documents import MANY, MAX_DELETED
from rag_context.domain import journal as journals
from rag_context.domain.documents import Channel, DocumentInput, Shelf, Tenant, document_id, utc_now
from rag_context.errors import BackendError, ConflictError, FieldError, InvalidInputError, NotFoundError
from rag_context.ingest.submissions import Receipt, Submission
from rag_context.memory.document_queries import DocumentQueries
from rag_context.memory.mappers import index_response, tenant_of
from rag_context.ports.writing import Journal
from rag_context.projects.project_requests import TenantResolver

logger = logging.getLogger(__name__)

Index = Callable[[Submission, str], Awaitable[Receipt]]
"""Indexes a document of a request."""

UNSUPPORTED = (
    "Corrections, forgetting, undo and expiry need a journal, and MongoDB keeps none: delete documents instead"
    " (rag_context_delete), or move the index to the embedded store or PostgreSQL (`rag-context move`)"
)

FILES = "The documents of this project are files: correct the file, and its document follows"

RETENTION = "retention"
"""Who forgets what has expired."""

DUE_AT_ONCE = 500
SWEEP_EVERY_S = 5.0


@dataclass(eq=False)
class Changes:
    """The use cases of changes over time; without a `journal`, which MongoDB does not keep, most are rejected.

    `trash_kept` is how long what was forgotten can be restored, `kept` how long documents of a content type are kept.
    `forget_files` removes sources from what is remembered of files that were read. `sweep_soon` has the vectors of what
    came back follow, where another store has them. `on_failure` counts sweeps that fail.
    """

    _journal: Journal | None
    _queries: DocumentQueries
    _tenants: TenantResolver
    _index: Index
    _: KW_ONLY
    trash_kept: timedelta
    kept: Mapping[str, timedelta]
    clear_queries: Callable[[], Awaitable[int]]
    clock: Callable[[], float]
    forget_files: Callable[[Collection[str]], None] = lambda _: None
    sweep_soon: Callable[[], None] = lambda: None
    on_failure: Callable[[BackendError], None] = lambda _: None
    now: Callable[[], datetime] = utc_now

    @performs(memory.CORRECT)
    async def correct(self, request: api.CorrectRequest, context: CallContext) -> api.CorrectResponse:
        """Store a correction, and hide what it corrects.

        Raises: NotFoundError, InvalidInputError (several have this source, or they are files), ConflictError (it was
        corrected already; names the correction), BackendError (nothing was changed).
        """
        started, journal = self.clock(), self.journal  # before anything is stored
        request = await self._tenants.resolved(request)
        tenant = tenant_of(request)
        if tenant.has_files:
            raise InvalidInputError(FILES, [FieldError("project", FILES)])
        old_id = request.document_id or await self._only_one(tenant, request.source or "")
        old = await self._queries.document(old_id, tenant)
        stated: dict[str, Any] = {} if request.agent is None else {"agent": request.agent}
        if request.tags is not None:
            stated["tags"] = tuple(dict.fromkeys(request.tags))
        metadata = replace(old.metadata, **stated)
        document = DocumentInput(request.content, old.content_type, old.session_id, old.source, metadata, tenant)
        revision = journals.Revision(journals.Action.CORRECT, (old.id,), request.reason, pinned=request.pinned)
        is_amended = request.tags is not None or request.pinned is not None
        if is_amended and request.content == old.content:  # other tags, or pinned: the same document in the same words
            told: dict[str, Any] = {
                "occurred_at": old.occurred_at,
                "message_times": old.message_times,
                "origin": old.origin,
            }
            document = replace(document, **told)
            as_file = replace(document, channel=Channel.FILE)
            document = as_file if document_id(as_file) == old.id else document
            is_same = document_id(document) == old.id
            revision = replace(revision, action=journals.Action.INDEX, supersedes=()) if is_same else revision
        receipt = await self._index(Submission(document, (old.id,), revision=revision), context.request_id)
        superseded = [link.place.id for link in await journal.chain(receipt.document_id, tenant) if link.place.shelf]
        response = index_response(receipt, (self.clock() - started) * 1000.0)
        return api.CorrectResponse(**dict(response), superseded=superseded)

    @performs(memory.HISTORY)
    async def history(self, request: api.HistoryRequest) -> api.HistoryResponse:
        """The chain of corrections of a document. Raises: NotFoundError, BackendError."""
        tenant = tenant_of(await self._tenants.resolved(request))
        chain = await self.journal.chain(request.document_id, tenant)
        if all(link.place.id != request.document_id for link in chain):
            raise NotFoundError(f"Document {request.document_id} not found")
        return api.HistoryResponse(versions=[_version(link) for link in chain])

    @performs(memory.LOG)
    async def log(self, request: api.LogRequest) -> api.LogResponse:
        """One page of the journal. Raises: BackendError."""
        tenant = tenant_of(await self._tenants.resolved(request))
        entries = await self.journal.entries(tenant, before=request.before, limit=request.limit + 1)
        page = entries[: request.limit]
        links = await self.journal.links(journals.ids_of(page))
        places = {id_: link.place for id_, link in links.items()}
        return api.LogResponse(
            entries=[_logged(entry, links, undoable=entry.may_be_undone(places)) for entry in page],
            next_before=page[-1].sequence if len(entries) > len(page) else None,
        )

    @performs(memory.UNDO)
    async def undo(self, request: api.UndoRequest) -> api.UndoResponse:
        """Undo a change. Raises: NotFoundError, ConflictError (it cannot be undone any more), BackendError."""
        tenant = tenant_of(await self._tenants.resolved(request))
        entry = await self.journal.entry(request.id)
        if entry is None or entry.tenant != tenant:
            raise NotFoundError(f"There is no change {request.id}; rag_context_log lists them")
        places = {id_: link.place for id_, link in (await self.journal.links(journals.ids_of([entry]))).items()}
        if not entry.may_be_undone(places):
            raise ConflictError(
                f"Change {entry.sequence} ({entry.action}) cannot be undone: its documents were changed since, or "
                "their earlier content is gone"
            )
        cause = journals.Cause.now()
        undone = await self.journal.make(journals.reverted(entry, cause.by, cause.at))
        self.sweep_soon()
        return api.UndoResponse(
            id=undone.sequence,
            undone=entry.sequence,
            operation="undo" if undone.action is journals.Action.UNDO else "restore",
            document_ids=undone.document_ids,
        )

    @performs(memory.FORGET)
    async def forget(self, request: api.ForgetRequest) -> api.ForgetResponse:
        """Move documents to the trash, remove or list them. Raises: InvalidInputError, ConflictError, BackendError."""
        request = await self._tenants.resolved(request)
        tenant, name = tenant_of(request), next(each for each in request.exactly_one_of if getattr(request, each))
        shelves = (None, Shelf.SUPERSEDED, Shelf.TRASH) if request.purge else (None, Shelf.SUPERSEDED)
        selection = journals.Selection(**{name: getattr(request, name)})
        links = await self.journal.selected(tenant, selection, shelves, MAX_DELETED)
        ids = [link.place.id for link in links]
        sizes = await self.journal.sizes(ids)
        sequence = None
        if links and not request.dry_run:
            if request.purge and len(links) > MANY and not request.confirm:
                message = f"This would purge {len(links)} documents: send confirm true, or dryRun true to see which"
                raise InvalidInputError(message, [FieldError("confirm", message)])
            cause = journals.Cause.now()
            action = journals.Action.PURGE if request.purge else journals.Action.FORGET
            reason = None if request.purge else request.reason
            change = journals.Change(
                action, tenant, [_forgetting(link, action) for link in links], cause.by, cause.at, reason
            )
            sequence = (await self.journal.make(change)).sequence
        if request.purge and not request.dry_run:
            await asyncio.to_thread(self.forget_files, [link.source for link in links])
        # Also where nothing is left to purge: the call before may have been interrupted in between.
        clears = request.purge and request.clear_queries and not request.dry_run
        return api.ForgetResponse(
            dry_run=request.dry_run,
            purged=request.purge,
            # A store of vectors has copies of passages; these count once.
            documents=sum(each.documents for each in sizes.values()),
            passages=max(each.passages for each in sizes.values()),
            vectors=sum(each.vectors for each in sizes.values()),
            derived=sum(each.derived for each in sizes.values()),
            stores={name: api.StoreSize(**asdict(each)) for name, each in sizes.items()},
            listed=[
                api.ForgottenDocument(document_id=link.place.id, source=link.source, timestamp=link.timestamp)
                for link in links[: api.SHOWN_IDS]
            ],
            id=sequence or None,
            queries=await self.clear_queries() if clears else None,
        )

    async def sweep(self) -> int:
        """Forget what has expired, purge what was in the trash long enough, return how many. Raises: BackendError."""
        if self._journal is None:
            return 0
        now = self.now()
        kept_since = {content_type: now - kept for content_type, kept in self.kept.items()}
        links = await self._journal.due(now, kept_since, now - self.trash_kept, DUE_AT_ONCE)
        done = 0
        for is_trash, some in groupby(links, lambda link: link.place.shelf is Shelf.TRASH):
            action = journals.Action.PURGE if is_trash else journals.Action.EXPIRE
            for tenant, same in groupby(sorted(some, key=_owner), lambda link: link.tenant.visible):
                due = list(same)
                moves, sources = [_forgetting(link, action) for link in due], [link.source for link in due]
                try:
                    await self._journal.make(journals.Change(action, tenant, moves, RETENTION, now))
                    done += len(moves)
                    if is_trash:
                        await asyncio.to_thread(self.forget_files, sources)
                except ConflictError as error:  # another process was faster
                    logger.debug("the next sweep goes on: %s", error)
        return done

    async def run(self) -> None:
        """Sweep from time to time, until cancelled."""
        while self._journal is not None:
            await asyncio.sleep(SWEEP_EVERY_S)
            try:
                while await self.sweep() >= DUE_AT_ONCE:
                    pass
            except BackendError as error:
                logger.debug("what has expired is forgotten later: %s", error)
                self.on_failure(error)

    async def link(self, document_id: str) -> journals.Link | None:
        """What the journal knows of a document; None where there is no journal. Raises: BackendError."""
        return None if self._journal is None else (await self._journal.links([document_id])).get(document_id)

    async def links(self, document_ids: Sequence[str]) -> dict[str, journals.Link]:
        """What the journal knows of documents. Raises: BackendError."""
        return await self.journal.links(document_ids)

    @property
    def journal(self) -> Journal:
        """Raises: InvalidInputError (the stores have none)."""
        if self._journal is None:
            raise InvalidInputError(UNSUPPORTED)
        return self._journal

    async def _only_one(self, tenant: Tenant, source: str) -> str:
        links = await self.journal.selected(tenant, journals.Selection(source=source), [None], 2)
        if not links:
            raise NotFoundError(f"No document has the source {source!r}")
        if len(links) > 1:
            message = f"Several documents have the source {source!r}: name one by documentId"
            raise InvalidInputError(message, [FieldError("source", message)])
        return links[0].place.id


def _owner(link: journals.Link) -> tuple[str, str, str]:
    tenant = link.tenant.visible
    return tenant.project, tenant.branch, tenant.path_hash


def _forgetting(link: journals.Link, action: journals.Action) -> journals.Move:
    place = link.place
    after = None if action is journals.Action.PURGE else journals.Location("", place.content_hash, Shelf.TRASH)
    return journals.Move(place, after, forgets=True)


def _version(link: journals.Link) -> api.VersionInfo:
    place = link.place
    return api.VersionInfo(
        document_id=place.id,
        source=link.source,
        timestamp=link.timestamp,
        content_hash=place.content_hash,
        superseded_by=place.superseded_by,
        superseded_at=link.superseded_at,
        reason=link.reason,
    )


def _logged(entry: journals.Entry, links: Mapping[str, journals.Link], *, undoable: bool) -> api.LogEntry:
    stored = (link for id_ in journals.ids_of([entry]) if (link := links.get(id_)) is not None)
    return api.LogEntry(
        id=entry.sequence,
        at=entry.at,
        by=entry.by,
        operation=entry.action.value,
        moves=[
            api.MoveInfo(before=_location(move.before), after=_location(move.after))
            for move in entry.moves[: api.SHOWN_IDS]
        ],
        count=len(entry.moves),
        source=next((link.source for link in stored), None),
        reason=entry.reason,
        undoes=entry.undoes,
        undoable=undoable,
    )


def _location(place: journals.Location | None) -> api.LocationInfo | None:
    if place is None:
        return None
    return api.LocationInfo(
        document_id=place.id,
        content_hash=place.content_hash,
        shelf=None if place.shelf is None else "trash" if place.shelf is Shelf.TRASH else "superseded",
        superseded_by=place.superseded_by,
    )
