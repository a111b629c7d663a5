"""Checks and repairs an index: describes every kind of issue and its repair, and checks documents by computation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from rag_context.api.maintenance import CheckResponse, IssueReport
from rag_context.domain.documents import (
    Chunk,
    Counts,
    Document,
    DocumentInput,
    Origin,
    chunk_ids,
    content_hash,
    document_id,
)
from rag_context.domain.reports import IntegrityReport, Issue, IssueKind, Thoroughness
from rag_context.errors import BackendDataError, ForeignIndexError, LostIndexError
from rag_context.ingest.chunking.prose import body_start
from rag_context.ports.writing import IndexAuditor

RESCUE = (
    "stop the server, keep a copy of the data, then restore a backup; of an embedded file, what can be read is saved "
    "with `sqlite3 rag-context.db .recover | sqlite3 rescued.db`"
)

RENEWAL = "marks them as outdated: then index their sources again"


@dataclass(frozen=True, slots=True)
class IssueType:
    """The description of a kind of issue, and of its repair."""

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
    """Examines and repairs an index.

    Args:
        auditor: the checks and repairs of the store.
    """

    def __init__(self, auditor: IndexAuditor) -> None:
        self._auditor = auditor

    async def examine(self, thoroughness: Thoroughness) -> IntegrityReport:
        """Find what is wrong. An index that is too damaged to be examined is reported as an issue.

        Raises:
            ForeignIndexError: another program or a newer version wrote the index.
            LostIndexError: the index has disappeared.
            BackendUnavailableError: the store cannot be read now.
        """
        try:
            return await self._auditor.examine(document_issues, thoroughness)
        except (ForeignIndexError, LostIndexError):
            raise
        except BackendDataError as error:
            return IntegrityReport(Counts(0, 0, 0, 0), 0, (Issue(IssueKind.DAMAGED_FILE, 1, (str(error),)),))

    async def repair(self, found: IntegrityReport) -> None:
        """Repair what the store can repair, and mark documents as outdated that only their source can repair.

        A damaged file is not touched. Raises: BackendError.
        """
        kinds = {issue.kind for issue in found.issues}
        if IssueKind.DAMAGED_FILE not in kinds:
            await self._auditor.repair(kinds)
            if found.damaged:
                await self._auditor.invalidate(found.damaged)


def document_issues(document: Document, chunks: Sequence[Chunk]) -> Iterator[IssueKind]:
    """What is wrong with a document and its chunks (by position), as far as it can be computed from them."""
    inputs = [_input(document, origin) for origin in Origin]
    if content_hash(inputs[0]) != document.content_hash:
        yield IssueKind.CHANGED_CONTENT
    elif document.id not in map(document_id, inputs):
        yield IssueKind.WRONG_ID
    if _is_uuid(document.id) and not _are_chunks_of(document, chunks):
        yield IssueKind.BROKEN_CHUNKS


def report(found: IntegrityReport, thoroughness: Thoroughness, before: IntegrityReport | None = None) -> CheckResponse:
    """The report of an examination; after a repair, `before` is the examination before it."""
    left = {issue.kind for issue in found.issues}
    repaired = None if before is None else [_issue(issue) for issue in before.issues if issue.kind not in left]
    return CheckResponse(
        sound=not found.issues,
        thoroughness=thoroughness.value,
        documents=found.counts.documents,
        pending=found.counts.pending,
        chunks=found.counts.chunks,
        vectors=found.counts.vectors,
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


def _input(document: Document, origin: Origin) -> DocumentInput:
    return DocumentInput(
        document.content,
        document.content_type,
        document.session_id,
        document.source,
        document.metadata,
        document.tenant,
        origin,
    )


def _is_uuid(text: str) -> bool:
    """Whether it is a UUID, which the computation of chunk ids needs."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _are_chunks_of(document: Document, chunks: Sequence[Chunk]) -> bool:
    """Whether the chunks are slices that cover the content without a gap, in order and with their computed ids.

    The front matter of a project's file belongs to no chunk.
    """
    end = body_start(document.content) if document.tenant.has_files else 0
    for position, chunk in enumerate(chunks):
        span = chunk.span
        if chunk.position != position or not 0 <= span.start <= end <= span.end:
            return False
        if chunk.text != document.content[span.start : span.end]:
            return False
        end = span.end
    expected = chunk_ids(document.id, [(chunk.context, chunk.text) for chunk in chunks])
    return bool(chunks) and end == len(document.content) and [chunk.id for chunk in chunks] == expected
