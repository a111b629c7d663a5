"""Project documents to wire models: what was retrieved, and one document with the lines that a request names."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Any, Literal, cast

from rag_context.api.project_sources import Leg, LinkedDoc, Source
from rag_context.api.project_tenants import ListedProject, TypeCount
from rag_context.api.projects import DocType
from rag_context.domain.documents import Tenant
from rag_context.domain.files import ProjectRecord
from rag_context.errors import FieldError, InvalidInputError
from rag_context.projects.following import FollowState
from rag_context.projects.housekeeping import removal_time
from rag_context.projects.listing import DocumentList
from rag_context.projects.opening import Activation
from rag_context.projects.paths import reference_candidates, spellings
from rag_context.projects.records import (
    DEFAULT_DOC_TYPE,
    DocTypeInfo,
    DocumentNotFoundError,
    Label,
    LinkedDocument,
    ProjectDocument,
    PromotionLevel,
    RetrievedDocument,
)
from rag_context.projects.sync import FileOutcome, SyncReport

_TROUBLE = (FileOutcome.REJECTED, FileOutcome.DEFERRED)

LevelName = Literal["standard", "important", "critical"]


def level_name(level: PromotionLevel) -> LevelName:
    """A promotion level as replies say it."""
    return cast("LevelName", level.label)


def tenant_fields(tenant: Tenant) -> dict[str, Any]:
    """For whom a reply is."""
    return {"project_name": tenant.project, "branch_name": tenant.branch, "path_hash": tenant.path_hash}


def labelled(label: Label, request_id: str, latency_ms: float, behind: Sequence[str]) -> dict[str, Any]:
    """How an answer was obtained, and why the index may be `behind` the files."""
    return {
        "fallback": label.level > 1,
        "fallback_level": int(label.level),
        "circuit_breaker_open": label.breaker_open,
        "warnings": [*label.warnings, *behind],
        "legs": {
            name: Leg(status=leg.status.value, latency_ms=round(leg.latency_ms, 3), detail=leg.detail)
            for name, leg in label.legs.items()
        },
        "latency_ms": round(latency_ms, 3),
        "request_id": request_id,
    }


def _quoted(document: RetrievedDocument) -> dict[str, Any]:
    """Which document, and the passage that speaks for it."""
    quote = document.quote
    return {
        "path": document.path,
        "title": document.title,
        "document_id": document.document_id,
        "heading": quote.heading or None if quote is not None else None,
        "start_line": quote.start_line if quote is not None else None,
        "end_line": quote.end_line if quote is not None else None,
        "snippet": quote.text if quote is not None else None,
        "excerpt": document.is_excerpt,
    }


def source(document: RetrievedDocument) -> Source:
    """A document that was found, or stands in front."""
    return Source(
        **_quoted(document),
        summary=document.summary,
        char_count=document.char_count,
        relevance_score=round(document.boosted_relevance_score, 4),
        doc_type=document.doc_type,
        date=document.date,
        promotion_level=level_name(document.promotion_level),
        superseded_by=list(document.superseded_by),
    )


def linked_doc(document: LinkedDocument) -> LinkedDoc:
    """A document that a link led to."""
    return LinkedDoc(
        **_quoted(document),
        char_count=document.char_count,
        linked_from=document.linked_from,
        link_depth=document.link_depth,
    )


def type_counts(infos: Sequence[DocTypeInfo], counts: Mapping[str, int]) -> list[TypeCount]:
    """How many documents of each type there are: the declared types, then those that documents alone name."""
    declared = [TypeCount(name=info.name, doc_count=counts.get(info.name, 0), custom=info.custom) for info in infos]
    known = {info.name for info in infos}
    return declared + [
        TypeCount(name=name, doc_count=count) for name, count in sorted(counts.items()) if name not in known
    ]


def doc_types(infos: Sequence[DocTypeInfo], counts: Mapping[str, int]) -> list[DocType]:
    """The same, with all that is said of each type."""
    by_name = {info.name: info for info in infos}
    found = []
    for counted in type_counts(infos, counts):
        said = "Documents of no declared type" if counted.name == DEFAULT_DOC_TYPE else "Not declared in the project"
        info = by_name.get(counted.name) or DocTypeInfo(counted.name, said, "", {})
        found.append(
            DocType(
                name=info.name,
                description=info.description,
                folder=info.folder,
                schema_=dict(info.schema),
                doc_count=counted.doc_count,
                custom=info.custom,
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class Listed:
    """What is known of a stored project; `gone` says why nothing is left of its files, None where they are there."""

    tenant: Tenant
    record: ProjectRecord | None
    gone: str | None
    documents: int
    is_followed: bool


def listed_project(listed: Listed, behind: Sequence[str], grace: timedelta, now: datetime) -> ListedProject:
    """A project in the list of all."""
    record, gone = listed.record, listed.gone
    end = None if record is None or gone is None else removal_time(record.gone_since or now, record, grace)
    return ListedProject(
        **tenant_fields(listed.tenant),
        documents=listed.documents,
        last_used=record.last_used if record is not None else None,
        path=record.root if record is not None else None,
        exists=gone is None if record is not None else None,
        followed=listed.is_followed,
        removed_after=end,
        warnings=[*([gone] if gone is not None else []), *behind],
    )


def catching_up(state: FollowState | None, resuming: str | None = None) -> list[str]:
    """Why the index may not be as the files are.

    Args:
        state: how far the following is; None where the files are not followed.
        resuming: what is to be said of a project that is not followed again yet.
    """
    said = [f"The project's documents may be older than its files: {resuming}"] if resuming is not None else []
    if state is None:
        return said
    if not state.complete:
        progress = state.progress
        far = (
            f"{progress.done} of {progress.total} files so far" if progress is not None else "the files are being read"
        )
        said.append(f"Still indexing ({far}); questions are answered from what is there")
    if state.trouble is not None:
        said.append(f"The project cannot be followed as it is configured now: {state.trouble}")
    return said


def following_warnings(
    activation: Activation, state: FollowState | None, documents: Sequence[ProjectDocument]
) -> list[str]:
    """What is wrong with a project: its configuration, its first reconciliation while that lasts, its files."""
    config = activation.config
    said = [*config.warnings, *catching_up(state)]
    if state is not None and state.first is not None:
        said += _trouble(state.first, "docs folder", config.docs_path)
    if state is not None and state.first_external is not None and config.external is not None:
        said += _trouble(state.first_external, "external documents", config.external.path)
    return said + [f"{each.path}: {warning}" for each in documents for warning in each.warnings]


def _trouble(report: SyncReport, what: str, folder: str) -> list[str]:
    """What a reconciliation could not do, by path; of the folder itself by what it is."""
    return [
        f"{what} {folder!r}: {each.reason}" if each.path == "." else f"{each.path}: {each.reason}"
        for each in report.receipts
        if each.reason and each.outcome in _TROUBLE
    ]


MAX_CHARS = 40_000
"""Characters that one reply carries, about; the first line comes whole, however long it is."""

SIMILAR = 3


def named_document(catalogue: DocumentList, said: str) -> ProjectDocument:
    """The document that a path names: from the docs folder, from the repository's root, or absolute.

    Raises:
        DocumentNotFoundError: there is none; the message names the likeliest ones.
    """
    documents = catalogue.documents
    folder = documents[0].docs_folder if documents else ""
    for path in (spelt for candidate in _candidates(said, folder) for spelt in spellings(candidate)):
        if (document := catalogue.by_path(path)) is not None:
            return document
    paths = [document.path for document in documents]
    same_name = [path for path in paths if PurePosixPath(path).name == PurePosixPath(said).name]
    near = (same_name or get_close_matches(said, paths, SIMILAR))[:SIMILAR]
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise DocumentNotFoundError(f"The project has no document {said!r}{hint}", [FieldError("path", "No such document")])


def lines_of(content: str, start: int | None, end: int | None) -> dict[str, Any]:
    """The lines from `start` to `end` (from 1, both included) as the wire has them.

    Raises:
        InvalidInputError: there are no such lines.
    """
    lines = content.removesuffix("\n").split("\n") if content else []
    first = start or 1
    last = min(end or len(lines), len(lines))
    if first > len(lines) > 0:
        message = f"The document has {len(lines)} lines"
        raise InvalidInputError(message, [FieldError("start_line", message)])
    if end is not None and end < first:
        message = "end_line must not be before start_line"
        raise InvalidInputError(message, [FieldError("end_line", message)])
    shown: list[str] = []
    chars = 0
    for line in lines[first - 1 : last]:
        chars += len(line) + 1
        if shown and chars > MAX_CHARS:
            break
        shown.append(line)
    through = first + len(shown) - 1
    return {
        "content": "\n".join(shown),
        "start_line": first,
        "end_line": through,
        "total_lines": len(lines),
        "truncated": through < last,
    }


def _candidates(said: str, folder: str) -> Iterator[str]:
    said = said.replace("\\", "/").strip()
    if folder and said.startswith(f"{folder}/"):
        said = said.removeprefix(f"{folder}/")
    name = PurePosixPath(folder).name
    yield from reference_candidates(said, "", name)
    if name and said.startswith(f"{name}/"):
        yield from reference_candidates(said.removeprefix(f"{name}/"), "", name)
