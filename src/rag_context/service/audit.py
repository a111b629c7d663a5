"""Checking and repairing an index: what each flaw means, what mends it, and which documents are not what they say."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from rag_context.api.maintenance import CheckResponse, FlawReport
from rag_context.domain.documents import Chunk, Counts, Document, DocumentInput, Origin
from rag_context.domain.integrity import IntegrityReport, Issue, IssueKind, Thoroughness
from rag_context.errors import BackendDataError, ForeignIndexError, LostIndexError
from rag_context.ingest.chunking.markdown import body_start
from rag_context.ingest.identity import chunk_ids, content_hash, document_id
from rag_context.ports.maintenance import IndexAuditor

RESCUE = (
    "stop the server, keep a copy of the data directory, then restore a backup, or save what can be read with "
    "`sqlite3 rag-context.db .recover | sqlite3 rescued.db`"
)

RENEWAL = "forgets their versions: then index their sources again"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a kind of flaw is, and what a repair does about it."""

    says: str
    repair: str
    mendable: bool = True


MEANINGS: Mapping[IssueKind, Meaning] = {
    IssueKind.DAMAGED_FILE: Meaning("the file itself is damaged", f"nothing: {RESCUE}", mendable=False),
    IssueKind.WRONG_COUNTERS: Meaning("counters that are not what is there", "counts again"),
    IssueKind.ORPHANS: Meaning("rows that belong to nothing", "deletes them"),
    IssueKind.LOST_CONTENT: Meaning("documents that are lost or damaged", RENEWAL, mendable=False),
    IssueKind.CHANGED_CONTENT: Meaning("documents whose content is not what was indexed", RENEWAL, mendable=False),
    IssueKind.WRONG_ID: Meaning(
        "documents whose id is not the computed one",
        "nothing: delete them and index their sources again",
        mendable=False,
    ),
    IssueKind.WRONG_TAGS: Meaning("documents that a tag filter would judge wrongly", "lists their tags again"),
    IssueKind.BROKEN_CHUNKS: Meaning("documents whose chunks do not give back their content", "cuts them again"),
    IssueKind.MISSING_VECTORS: Meaning("documents that lack vectors and do not say so", "embeds them again"),
    IssueKind.BAD_VECTORS: Meaning("vectors of a wrong length or norm", "drops them and embeds their documents again"),
    IssueKind.STALE_VECTORS: Meaning("vectors of another version of their document", "embeds their documents again"),
    IssueKind.NO_MODEL: Meaning("no record of the model that made the vectors", "drops all vectors and embeds again"),
    IssueKind.STALE_TERMS: Meaning("passages whose terms are not the analyser's", "analyses them again"),
    IssueKind.TEXT_INDEX: Meaning("terms for which the text index is wrong", "builds the text index again"),
    IssueKind.STATISTICS: Meaning("sums of searches that are not those of the records", "sums up again"),
}


class Audit:
    """Examines and mends an index, in the words of a report.

    Args:
        auditor: the store's part.
    """

    def __init__(self, auditor: IndexAuditor) -> None:
        self._auditor = auditor

    async def examine(self, thoroughness: Thoroughness) -> IntegrityReport:
        """What is wrong. An index too damaged to be examined is a finding.

        Raises:
            ForeignIndexError: it is another program's, or a newer version's.
            LostIndexError: it is gone.
            BackendUnavailableError: it cannot be read now.
        """
        try:
            return await self._auditor.examine(judged, thoroughness)
        except (ForeignIndexError, LostIndexError):
            raise
        except BackendDataError as error:
            return IntegrityReport(Counts(0, 0, 0, 0), 0, (Issue(IssueKind.DAMAGED_FILE, 1, (str(error),)),))

    async def mend(self, found: IntegrityReport) -> None:
        """Mend what the store can mend by itself, and have replaced what only a source can mend.

        A damaged file is not touched. Raises: BackendError.
        """
        kinds = {flaw.kind for flaw in found.issues}
        if IssueKind.DAMAGED_FILE not in kinds:
            await self._auditor.repair(kinds)
            if found.damaged:
                await self._auditor.invalidate(found.damaged)


def judged(document: Document, chunks: Sequence[Chunk]) -> Iterator[IssueKind]:
    """What is wrong with a document and its chunks (by position), by what can be computed from them."""
    drafts = [_draft(document, origin) for origin in Origin]
    if content_hash(drafts[0]) != document.content_hash:
        yield IssueKind.CHANGED_CONTENT
    elif document.id not in map(document_id, drafts):
        yield IssueKind.WRONG_ID
    if _is_uuid(document.id) and not _are_cut_from(document, chunks):
        yield IssueKind.BROKEN_CHUNKS


def report(found: IntegrityReport, thoroughness: Thoroughness, before: IntegrityReport | None = None) -> CheckResponse:
    """The report on what is there; of a repair also what was there before it and is mended."""
    left = {flaw.kind for flaw in found.issues}
    mended = None if before is None else [_flaw(flaw) for flaw in before.issues if flaw.kind not in left]
    return CheckResponse(
        sound=not found.issues,
        thoroughness=thoroughness.value,
        documents=found.counts.documents,
        pending=found.counts.pending,
        chunks=found.counts.chunks,
        vectors=found.counts.vectors,
        compared_terms=found.compared_terms,
        flaws=[_flaw(flaw) for flaw in found.issues],
        mended=mended,
    )


def _flaw(flaw: Issue) -> FlawReport:
    meaning = MEANINGS[flaw.kind]
    return FlawReport(
        kind=flaw.kind.value,
        says=meaning.says,
        count=flaw.count,
        examples=list(flaw.examples),
        repair=meaning.repair,
        mendable=meaning.mendable,
    )


def _draft(document: Document, origin: Origin) -> DocumentInput:
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
    """Whether chunk ids can be computed from it at all."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _are_cut_from(document: Document, chunks: Sequence[Chunk]) -> bool:
    """Whether the chunks are slices that cover the content without a gap, in order and under their computed ids.

    The front matter of a project's file is in none of them.
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
