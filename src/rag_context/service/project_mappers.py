"""Maps project documents to wire models: retrieved documents, projects, warnings, and the lines of a document."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Any, Literal, cast

from rag_context.api.project_queries import Leg, LinkedDoc, Source
from rag_context.api.projects import DocType, ListedProject, TypeCount
from rag_context.domain.documents import ProjectRecord, Tenant
from rag_context.errors import FieldError, InvalidInputError
from rag_context.projects.document_lists import DocumentList
from rag_context.projects.housekeeping import removal_time
from rag_context.projects.links import reference_candidates, spellings
from rag_context.projects.project_following import FollowState
from rag_context.projects.project_opening import Activation
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

_NOT_INDEXED = (FileOutcome.REJECTED, FileOutcome.DEFERRED)

LevelName = Literal["standard", "important", "critical"]


def level_name(level: PromotionLevel) -> LevelName:
    """The name of a promotion level on the wire."""
    return cast("LevelName", level.label)


def tenant_fields(tenant: Tenant) -> dict[str, Any]:
    """The fields of a response that name its project."""
    return {"project_name": tenant.project, "branch_name": tenant.branch, "path_hash": tenant.path_hash}


def labelled(label: Label, request_id: str, latency_ms: float, behind: Sequence[str]) -> dict[str, Any]:
    """The fields that say how a response was obtained; `behind` says why the index may be older than the files."""
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
    """The fields that name a document, and its best passage."""
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
    """A document that a search found, or a critical one."""
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
    """The number of documents of each type: first the declared types, then types that only documents name."""
    declared = [TypeCount(name=info.name, doc_count=counts.get(info.name, 0), custom=info.custom) for info in infos]
    known = {info.name for info in infos}
    return declared + [
        TypeCount(name=name, doc_count=count) for name, count in sorted(counts.items()) if name not in known
    ]


def doc_types(infos: Sequence[DocTypeInfo], counts: Mapping[str, int]) -> list[DocType]:
    """The document types with their descriptions, folders, schemas and numbers of documents."""
    by_name = {info.name: info for info in infos}
    found = []
    for counted in type_counts(infos, counts):
        undeclared = "Documents without a type" if counted.name == DEFAULT_DOC_TYPE else "Not declared in the project"
        info = by_name.get(counted.name) or DocTypeInfo(counted.name, undeclared, "", {})
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
class StoredProject:
    """A stored project; `gone` says why its files no longer exist, None if they exist."""

    tenant: Tenant
    record: ProjectRecord | None
    gone: str | None
    documents: int
    is_followed: bool


def listed_project(stored: StoredProject, behind: Sequence[str], grace: timedelta, now: datetime) -> ListedProject:
    """An entry of the list of all projects."""
    record, gone = stored.record, stored.gone
    end = None if record is None or gone is None else removal_time(record.gone_since or now, record, grace)
    return ListedProject(
        **tenant_fields(stored.tenant),
        documents=stored.documents,
        last_used=record.last_used if record is not None else None,
        path=record.root if record is not None else None,
        exists=gone is None if record is not None else None,
        followed=stored.is_followed,
        removed_after=end,
        warnings=[*([gone] if gone is not None else []), *behind],
    )


def catching_up(state: FollowState | None, resuming: str | None = None) -> list[str]:
    """Warnings that say why the index may be older than the files.

    Args:
        state: the progress of the first indexing, and problems; None if the files are not followed.
        resuming: why a project is not followed again yet after a restart; None if it is.
    """
    warnings = [f"The project's documents may be older than its files: {resuming}"] if resuming is not None else []
    if state is None:
        return warnings
    if not state.complete:
        progress = state.progress
        files = (
            f"{progress.done} of {progress.total} files so far" if progress is not None else "the files are being read"
        )
        warnings.append(f"Still indexing ({files}); answers use the documents that are indexed so far")
    if state.problem is not None:
        warnings.append(f"The project cannot be followed as it is configured now: {state.problem}")
    return warnings


def following_warnings(
    activation: Activation, state: FollowState | None, documents: Sequence[ProjectDocument]
) -> list[str]:
    """Warnings about a project: its configuration, the progress of its first indexing, and its files."""
    config = activation.config
    warnings = [*config.warnings, *catching_up(state)]
    if state is not None and state.first is not None:
        warnings += _not_indexed(state.first, "docs folder", config.docs_path)
    if state is not None and state.first_external is not None and config.external is not None:
        warnings += _not_indexed(state.first_external, "external documents", config.external.path)
    return warnings + [f"{each.path}: {warning}" for each in documents for warning in each.warnings]


def _not_indexed(report: SyncReport, what: str, folder: str) -> list[str]:
    """The files that were not indexed, with the reasons; `what` and `folder` describe the folder itself."""
    return [
        f"{what} {folder!r}: {each.reason}" if each.path == "." else f"{each.path}: {each.reason}"
        for each in report.receipts
        if each.reason and each.outcome in _NOT_INDEXED
    ]


MAX_WARNINGS = 100
"""Warnings about single documents in one response."""


def limited(warnings: Sequence[str]) -> list[str]:
    """The first warnings, and the number of the others."""
    more = len(warnings) - MAX_WARNINGS
    return [*warnings[:MAX_WARNINGS], f"and {more} more"] if more > 0 else list(warnings)


MAX_CHARS = 40_000
"""Characters of one response, about: its first line is complete, however long it is."""

SIMILAR = 3


def named_document(document_list: DocumentList, requested: str) -> ProjectDocument:
    """The document with a path: relative to the docs folder, relative to the repository's root, or absolute.

    Raises:
        DocumentNotFoundError: there is no such document; the message names the most similar paths.
    """
    documents = document_list.documents
    folder = documents[0].docs_folder if documents else ""
    for path in (spelt for candidate in _candidates(requested, folder) for spelt in spellings(candidate)):
        if (document := document_list.by_path(path)) is not None:
            return document
    paths = [document.path for document in documents]
    same_name = [path for path in paths if PurePosixPath(path).name == PurePosixPath(requested).name]
    near = (same_name or get_close_matches(requested, paths, SIMILAR))[:SIMILAR]
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    message = f"The project has no document {requested!r}{hint}"
    raise DocumentNotFoundError(message, [FieldError("path", "No such document")])


def lines_of(content: str, start: int | None, end: int | None) -> dict[str, Any]:
    """The fields of a response with the lines from `start` to `end` (from 1, both included).

    Raises:
        InvalidInputError: the document has no such lines.
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


def _candidates(path: str, folder: str) -> Iterator[str]:
    path = path.replace("\\", "/").strip()
    if folder and path.startswith(f"{folder}/"):
        path = path.removeprefix(f"{folder}/")
    name = PurePosixPath(folder).name
    yield from reference_candidates(path, "", name)
    if name and path.startswith(f"{name}/"):
        yield from reference_candidates(path.removeprefix(f"{name}/"), "", name)
