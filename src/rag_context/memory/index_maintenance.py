"""What maintains an index on request: its check and repair, and the embedding of all documents again.

Every kind of issue has its description and its repair here; documents are checked by computation. The state of a
reindexing is in the store alone, so it survives the end of the process, and every process that uses the index sees its
progress.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from rag_context.api.maintenance import CheckResponse, IssueReport, ReindexRequest, ReindexResponse
from rag_context.domain import documents
from rag_context.domain.documents import counted
from rag_context.domain.reports import IntegrityReport, Issue, IssueKind, Thoroughness
from rag_context.errors import BackendDataError, BackendError, BackendRejectedError, ForeignIndexError, LostIndexError
from rag_context.ingest.chunking.prose import body_start
from rag_context.ingest.indexer import STORE_S, Indexer
from rag_context.ingest.redaction import MARK
from rag_context.memory.background_maintenance import SWEEP_TOGETHER, BackgroundMaintenance
from rag_context.memory.bound_embedder import BoundEmbedder, Rebuilding
from rag_context.ports.writing import IndexAuditor, ModelRegistry
from rag_context.search.retrievers import Backends

WAIT_S = 300.0
"""Longest wait for a reindexing in one request."""

POLL_EVERY_S = 0.1

OnReindexed: TypeAlias = Callable[[int, int], Awaitable[None]]

RESCUE = (
    "stop the server, keep a copy of the data, then restore a backup; of an embedded file, what can be read is saved "
    "with `sqlite3 rag-context.db .recover | sqlite3 rescued.db`"
)

RENEWAL = "marks them as outdated: then index their sources again"


@dataclass(frozen=True, slots=True)
class IssueType:
    message: str
    repair: str
    is_repairable: bool = True


ISSUE_TYPES: Mapping[IssueKind, IssueType] = {
    IssueKind.DAMAGED_FILE: IssueType("the file itself is damaged", f"nothing: {RESCUE}", is_repairable=False),
    IssueKind.WRONG_COUNTERS: IssueType("counters that differ from what is stored", "counts again"),
    IssueKind.ORPHANS: IssueType("rows that belong to no document", "deletes them"),
    IssueKind.LOST_CONTENT: IssueType("documents that are lost or damaged", RENEWAL, is_repairable=False),
    IssueKind.CHANGED_CONTENT: IssueType(
        "documents whose content differs from what was indexed", RENEWAL, is_repairable=False
    ),
    IssueKind.WRONG_ID: IssueType(
        "documents whose id is not the computed one",
        "nothing: delete them and index their sources again",
        is_repairable=False,
    ),
    IssueKind.WRONG_TAGS: IssueType("documents for which a tag filter is wrong", "lists their tags again"),
    IssueKind.BROKEN_CHUNKS: IssueType("documents whose chunks differ from their content", "chunks them again"),
    IssueKind.MISSING_VECTORS: IssueType("documents that lack vectors and are not pending", "embeds them again"),
    IssueKind.BAD_VECTORS: IssueType("vectors of a wrong length or norm", "deletes them and embeds again"),
    IssueKind.STALE_VECTORS: IssueType("vectors of another version of their document", "embeds the documents again"),
    IssueKind.NO_MODEL: IssueType(
        "no record of the model that made the vectors", "deletes all vectors and embeds again"
    ),
    IssueKind.STALE_TERMS: IssueType("passages with terms of another text analyser", "analyses them again"),
    IssueKind.TEXT_INDEX: IssueType("terms for which the text index is wrong", "builds the text index again"),
    IssueKind.STATISTICS: IssueType("statistics that differ from the records of searches", "sums them up again"),
}


class Audit:
    def __init__(self, auditor: IndexAuditor) -> None:
        self._auditor = auditor

    async def examine(self, thoroughness: Thoroughness) -> IntegrityReport:
        """Find what is wrong; too much damage is an issue. Raises: ForeignIndexError, LostIndexError, BackendError."""
        try:
            return await self._auditor.examine(document_issues, thoroughness)
        except (ForeignIndexError, LostIndexError):
            raise
        except BackendDataError as error:
            return IntegrityReport(documents.Counts(0, 0, 0, 0), 0, (Issue(IssueKind.DAMAGED_FILE, 1, (str(error),)),))

    async def repair(self, found: IntegrityReport) -> None:
        """Repair what the store can, and mark as outdated what only its source can. Raises: BackendError."""
        kinds = {issue.kind for issue in found.issues}
        if IssueKind.DAMAGED_FILE not in kinds:
            await self._auditor.repair(kinds)
            if found.damaged:
                await self._auditor.invalidate(found.damaged)


def document_issues(document: documents.Document, chunks: Sequence[documents.Chunk]) -> Iterator[IssueKind]:
    """What is wrong with a document and its chunks (by position), as far as it can be computed from them."""
    inputs = [_input(document, channel) for channel in documents.Channel]
    has_own_id = document.tenant.shelf is None  # else it may have left it to a newer version
    if documents.content_hash(document) != document.content_hash:
        yield IssueKind.CHANGED_CONTENT
    elif (
        has_own_id
        and MARK not in document.source + document.session_id
        and document.id not in map(documents.document_id, inputs)
    ):
        # The id of a document with a secret in its source is that of the source as it was submitted.
        yield IssueKind.WRONG_ID
    if documents.is_uuid(document.id) and not _are_chunks_of(document, chunks):
        yield IssueKind.BROKEN_CHUNKS


def report(found: IntegrityReport, thoroughness: Thoroughness, before: IntegrityReport | None = None) -> CheckResponse:
    """The report of an examination; after a repair, `before` is the examination before it."""
    left = {issue.kind for issue in found.issues}
    repaired = None if before is None else [_issue(issue) for issue in before.issues if issue.kind not in left]
    counts, is_unknown = found.counts, IssueKind.DAMAGED_FILE in left
    return CheckResponse(
        sound=not found.issues,
        thoroughness=thoroughness.value,
        documents=None if is_unknown else counts.documents,
        pending=None if is_unknown else counts.pending,
        chunks=None if is_unknown else counts.chunks,
        vectors=None if is_unknown else counts.vectors,
        compared_terms=found.compared_terms,
        flaws=[_issue(issue) for issue in found.issues],
        mended=repaired,
    )


def _issue(issue: Issue) -> IssueReport:
    issue_type = ISSUE_TYPES[issue.kind]
    return IssueReport(
        kind=issue.kind.value,
        says=issue_type.message,
        count=issue.count,
        examples=list(issue.examples),
        repair=issue_type.repair,
        mendable=issue_type.is_repairable,
    )


def _input(document: documents.Document, channel: documents.Channel) -> documents.DocumentInput:
    return documents.DocumentInput(
        document.content,
        document.content_type,
        document.session_id,
        document.source,
        document.metadata,
        document.tenant,
        channel,
    )


def _are_chunks_of(document: documents.Document, chunks: Sequence[documents.Chunk]) -> bool:
    """Whether the chunks cover the content (without a file's front matter) in order, with their computed ids."""
    end = body_start(document.content) if document.tenant.has_files else 0
    for position, chunk in enumerate(chunks):
        span = chunk.span
        if chunk.position != position or not 0 <= span.start <= end <= span.end:
            return False
        if chunk.text != document.content[span.start : span.end]:
            return False
        end = span.end
    expected = documents.chunk_ids(document.id, [(chunk.context, chunk.text) for chunk in chunks])
    return bool(chunks) and end == len(document.content) and [chunk.id for chunk in chunks] == expected


def not_reindexed(counts: documents.Counts) -> str | None:
    """What a reindexing leaves out: documents of other programs, which are read and never changed; None: nothing."""
    if not counts.others:
        return None
    theirs = f"{counted(counts.others, 'document')} of other programs"
    return f"{theirs} in the same store are not embedded: `rag-context adopt` takes over a copy of them"


@dataclass(eq=False)
class Reindexing:
    backends: Backends
    embedder: BoundEmbedder
    registry: ModelRegistry
    indexer: Indexer
    maintenance: BackgroundMaintenance
    clock: Callable[[], float] = time.monotonic
    rebuilding: Rebuilding | None = None

    def __post_init__(self) -> None:
        store = self.backends.document_store
        self._documents = store.guard(self.backends.documents, STORE_S)
        self._rebuilding_state = None if self.rebuilding is None else store.guard(self.rebuilding, STORE_S)
        self._one_at_a_time = asyncio.Lock()

    async def run(self, on_progress: Callable[[int, int], None]) -> int:
        """Embed all documents again with the configured model and wait for the end; returns their number.

        Searches use the old vectors meanwhile; the next start, or call, finishes an interrupted run. `on_progress` is
        called with the number that are done, and of all. Raises: BackendError (also where another process uses another
        model).
        """
        rebuilding = self.rebuilding
        if rebuilding is not None:
            await rebuilding.begin()
            total = await rebuilding.remaining() or 0
            on_progress(0, total)
            while not await rebuilding.work(lambda done: on_progress(done, max(total, done)), together=SWEEP_TOGETHER):
                left = await rebuilding.remaining()
                if left is None:  # the background maintenance or another process has finished it, or replaced it
                    await rebuilding.require_ended()
                    break
                on_progress(max(total - left, 0), total)
                await asyncio.sleep(POLL_EVERY_S)
            counts = await self._documents.counts()  # the background maintenance may have done all before `begin`
            return counts.documents - counts.pending
        total = await self.registry.drop_vectors()
        await self.embedder.bind()
        _ = self.embedder.model  # raises if another process has recorded its own model meanwhile
        on_progress(0, total)
        await self.maintenance.sweep(lambda done: on_progress(min(done, total), total))
        # The sweep of the background maintenance may have completed a part of them.
        return total - (await self._documents.counts()).pending

    async def left_out(self) -> str | None:
        """What a run does not embed, and what to do about it; None if that is nothing. Raises: BackendError."""
        return not_reindexed(await self._documents.counts())

    async def restore(self, broken: Sequence[str], on_progress: Callable[[int, int], None]) -> int:
        """Chunk documents again from their stored content, then embed all pending ones; returns their number.

        `on_progress` is called with the number that are embedded, and of all. Raises: BackendError (the rest stays
        pending).
        """
        for id_ in broken:
            await self.indexer.rechunk(id_)
        total = (await self._documents.counts()).pending
        # Documents that others store meanwhile are embedded too; a total that grows would never be reached.
        return await self.maintenance.sweep(lambda done: on_progress(min(done, total), total))

    async def reindex(self, request: ReindexRequest, on_progress: OnReindexed) -> ReindexResponse:
        """Start a run in the background if one is needed; wait for its end if requested. Raises: BackendError."""
        if not request.status_only:
            async with self._one_at_a_time:
                await self._begin(force=request.force)
        counts = await self._count()
        if request.wait:
            counts = await self._wait(counts, on_progress)
        return await self._report(counts)

    async def _wait(self, counts: documents.Counts, on_progress: OnReindexed) -> documents.Counts:
        until = self.clock() + WAIT_S
        reported = -1
        while True:
            done = counts.documents - counts.pending
            if done > reported:
                reported = done
                await on_progress(done, counts.documents)
            if not counts.pending or self.clock() >= until:
                return counts
            await asyncio.sleep(POLL_EVERY_S)
            counts = await self._count()

    async def _begin(self, *, force: bool) -> None:
        pending = (await self._count()).pending
        try:
            _ = self.embedder.model
        except BackendRejectedError:
            is_needed = True
        else:
            # A run that has begun is finished first: otherwise repeated calls would restart it without end.
            is_needed = force and not pending
        if is_needed and self.rebuilding is not None:
            await self.rebuilding.begin()
        elif is_needed:
            await self.registry.drop_vectors()
            await self.embedder.bind()
        self.maintenance.sweep_soon()

    async def _report(self, counts: documents.Counts) -> ReindexResponse:
        status: Literal["current", "running", "waiting", "needed"] = "running" if counts.pending else "current"
        detail = None
        try:
            _ = self.embedder.model
        except BackendRejectedError as error:
            if self.rebuilding is None or await self.rebuilding.remaining() is None:
                status, detail = "needed", str(error)
        except BackendError as error:
            if counts.pending:
                status, detail = "waiting", str(error)
        return ReindexResponse(
            status=status,
            documents=counts.documents,
            done=counts.documents - counts.pending,
            pending=counts.pending,
            detail=detail or not_reindexed(counts),
        )

    async def _count(self) -> documents.Counts:
        """The counts, in which a document without its new vectors counts as pending during a run."""
        counts = await self._documents.counts()
        if self._rebuilding_state is None:
            return counts
        left = await self._rebuilding_state.remaining()
        if left is None:
            return counts
        # At 0 the new vectors are complete and about to replace the old ones: the run is not over yet.
        return replace(counts, pending=min(max(left, counts.pending, 1), counts.documents))
