"""Maps a file of a project to the document that is indexed, and a stored document to a project document.

What filters need is in reserved tags, and what results show is in `Metadata.extra`: every store keeps both. A document
that does not match the schema of its type is indexed anyway, with a warning.
"""

import datetime
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rag_context.domain.documents import DOCUMENTATION, Document, DocumentInput, Json, Listing, Metadata, Tenant
from rag_context.projects import records
from rag_context.projects.doc_types import DocTypes
from rag_context.projects.front_matter import FrontMatter, read_front_matter

READER_VERSION = 2
"""Increased when files are read differently, so that all files are read again."""

_DIGEST_CHARS = 32
_RULES_CHARS = 8


@dataclass(frozen=True)
class DocsFolder:
    """A folder of documents, the tenant that they are stored for, and the types that they may have."""

    tenant: Tenant
    root: Path
    doc_types: DocTypes

    @cached_property
    def rules(self) -> str:
        """Digest of everything except the file that determines a document: this reader's version and the types."""
        types = [[info.name, info.folder, dict(info.schema)] for info in self.doc_types.infos]
        return _digest(json.dumps([READER_VERSION, types], sort_keys=True))[:_RULES_CHARS]

    def revision(self, text: str) -> str:
        """Digest of a file's text and of the rules by which it is read; equal revisions make equal documents."""
        return f"{_digest(text)[:_DIGEST_CHARS]}.{self.rules}"


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A file that was read: the document to index, its revision, and warnings about its front matter."""

    document: DocumentInput
    revision: str
    warnings: tuple[str, ...]


def text_digest(revision: str) -> str:
    """The part of a revision that is the digest of the text; "" if it has none."""
    return revision.partition(".")[0]


def project_input(document: DocumentInput, path: str, folder: DocsFolder) -> ReadDocument:
    """The document of a project's file, with type, level, tags and metadata."""
    front = read_front_matter(document.content)
    revision = folder.revision(document.content)
    doc_type, warnings = _doc_type(front, path, folder.doc_types)
    extra: dict[str, Json] = {
        **front.further,
        **_values(front),
        "path": path,
        "doc_type": doc_type,
        "promotion_level": front.promotion_level.label,
        "char_count": len(document.content) - front.body_start,
        "line_count": document.content.count("\n") + (not document.content.endswith("\n")),
        # Files are compared by it, so that no text is read from the store.
        "revision": revision,
    }
    if warnings:
        extra["warnings"] = list(warnings)
    own_tags = dict.fromkeys(front.tags)
    if own_tags:
        extra["tags"] = list(own_tags)
    metadata = Metadata(
        tags=(records.doc_type_tag(doc_type), records.promotion_tag(front.promotion_level), *own_tags), extra=extra
    )
    indexed = replace(document, content_type=DOCUMENTATION, tenant=folder.tenant, metadata=metadata)
    return ReadDocument(indexed, revision, warnings)


def project_document(stored: Listing | Document) -> records.ProjectDocument:
    """The project document of a stored document; its path is the source if no project wrote it."""
    extra = stored.metadata.extra
    path = _text(extra, "path") or stored.source
    return records.ProjectDocument(
        id=stored.id,
        path=path,
        title=_text(extra, "title") or stored.title,
        doc_type=_text(extra, "doc_type") or records.DEFAULT_DOC_TYPE,
        promotion_level=_level(extra),
        char_count=_number(extra, "char_count"),
        line_count=_number(extra, "line_count"),
        summary=_text(extra, "summary"),
        date=_day(extra),
        significance=_text(extra, "significance"),
        tags=tuple(tag for tag in stored.metadata.tags if not tag.startswith(records.RESERVED_TAGS)),
        supersedes=_texts(extra, "supersedes"),
        related=_texts(extra, "related_docs"),
        docs_folder=stored.source.removesuffix(path).rstrip("/"),
        revision=_text(extra, "revision") or "",
        warnings=_texts(extra, "warnings"),
    )


def _doc_type(front: FrontMatter, path: str, doc_types: DocTypes) -> tuple[str, tuple[str, ...]]:
    """The type of a document, and warnings about its front matter."""
    doc_type = front.doc_type or doc_types.by_folder(path)
    if not front.values:
        return doc_type, front.warnings
    # What the reader of front matter has reported already a schema would say again in other words.
    reported = {warning.partition(" must ")[0] for warning in front.warnings}
    found = doc_types.complaints(doc_type, front.values)
    complaints = [complaint for complaint in found if complaint.partition(" must ")[0] not in reported]
    if front.doc_type and front.doc_type != records.DEFAULT_DOC_TYPE and doc_types.named(front.doc_type) is None:
        complaints = [f"front matter: the doc type {front.doc_type!r} is not declared in the project"]
    return doc_type, (*front.warnings, *complaints)


def _values(front: FrontMatter) -> dict[str, Json]:
    values: dict[str, Json] = {
        "title": front.title,
        "summary": front.summary,
        "date": front.date.isoformat() if front.date else None,
        "significance": front.significance,
        "supersedes": list(front.supersedes),
        "related_docs": list(front.related_docs),
    }
    return {key: value for key, value in values.items() if value}


def _level(extra: Mapping[str, Json]) -> records.PromotionLevel:
    try:
        return records.PromotionLevel.of(_text(extra, "promotion_level") or records.PromotionLevel.STANDARD.label)
    except ValueError:
        return records.PromotionLevel.STANDARD


def _day(extra: Mapping[str, Json]) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(_text(extra, "date") or "")
    except ValueError:
        return None


def _text(extra: Mapping[str, Json], key: str) -> str | None:
    value = extra.get(key)
    return value if isinstance(value, str) and value else None


def _texts(extra: Mapping[str, Json], key: str) -> tuple[str, ...]:
    value = extra.get(key)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _number(extra: Mapping[str, Json], key: str) -> int:
    value = extra.get(key)
    return value if isinstance(value, int) else 0


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
