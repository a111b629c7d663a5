"""The data types of project documents, and the errors of requests about them.

The errors form a tree of their own below `RagContextError`; clients distinguish them by `code`.

    ProjectError
    ├── ProjectNotActivatedError          PROJECT_NOT_ACTIVATED           HTTP 409
    ├── DocumentNotFoundError             DOCUMENT_NOT_FOUND              HTTP 404
    ├── InvalidDocTypeError               INVALID_DOC_TYPE                HTTP 400
    ├── SchemaValidationError             SCHEMA_VALIDATION_FAILED        HTTP 400
    ├── ExternalDocsNotConfiguredError    EXTERNAL_DOCS_NOT_CONFIGURED    HTTP 400
    ├── ExternalDocsNotPromotableError    EXTERNAL_DOCS_NOT_PROMOTABLE    HTTP 400
    └── FileSystemError                   FILE_SYSTEM_ERROR               HTTP 503
"""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any, ClassVar

from rag_context.domain.documents import Json
from rag_context.errors import FieldError, RagContextError
from rag_context.search.query import Level, RetrieverReport
from rag_context.search.question_times import Window

DEFAULT_DOC_TYPE = "document"
"""The type of a document without `doc_type` in its front matter and outside the declared folders."""

DOC_TYPE_TAG = "doc_type:"
PROMOTION_TAG = "promotion:"
RESERVED_TAGS = (DOC_TYPE_TAG, PROMOTION_TAG)
"""Prefixes of the tags by which stores filter; a document's own tags never begin with them."""


class PromotionLevel(IntEnum):
    """How important a document is in its project; ordered."""

    STANDARD = 0
    IMPORTANT = 1
    CRITICAL = 2

    @property
    def label(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, label: str) -> "PromotionLevel":
        try:
            return cls[label.strip().upper()]
        except KeyError:
            names = ", ".join(level.label for level in cls)
            raise ValueError(f"{label!r} is not a promotion level; use one of {names}") from None


class CriticalInclusion(StrEnum):
    ALWAYS = "always"
    RELEVANT = "relevant"
    NEVER = "never"


def doc_type_tag(name: str) -> str:
    return f"{DOC_TYPE_TAG}{name}"


def promotion_tag(level: PromotionLevel) -> str:
    return f"{PROMOTION_TAG}{level.label}"


@dataclass(frozen=True, slots=True)
class PromotionBoosts:
    """The additions to the relevance of promoted documents, which stays at most 1.0."""

    important: float = 0.10
    critical: float = 0.15


DEFAULT_BOOSTS = PromotionBoosts()

DEFAULT_MAX_TOKENS = 8_000
"""The default for the most tokens of an assembled context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalOptions:
    """How documents are retrieved.

    `min_relevance_score` is a strict minimum; None: the model's threshold, except for documents with rare terms of the
    question. `boosts` None: no boosts. `doc_types` and `promotion_levels` are filters, () means all; `max_tokens`
    bounds an assembled context, None: no bound. `as_of` excludes documents that were written later, also as critical or
    linked ones, and as ones that replace others.
    """

    min_relevance_score: float | None = None
    max_results: int = 3
    max_linked_docs: int = 5
    max_link_depth: int = 2
    include_critical: CriticalInclusion = CriticalInclusion.ALWAYS
    min_promotion_level: PromotionLevel = PromotionLevel.STANDARD
    promotion_levels: tuple[PromotionLevel, ...] = ()
    doc_types: tuple[str, ...] = ()
    boosts: PromotionBoosts | None = DEFAULT_BOOSTS
    include_superseded: bool = False
    follow_related_docs: bool = False
    max_tokens: int | None = DEFAULT_MAX_TOKENS
    as_of: datetime.datetime | None = None

    def overridden(self, **values: object) -> "RetrievalOptions":
        """These options with the values of a call, by name; None means that the call does not set the option."""
        given: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        return replace(self, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectDocument:
    """A document of a project without its content. `path`, `supersedes` and `related` are relative to the docs folder.

    `char_count` counts the characters without the front matter, `line_count` the file's lines.
    """

    id: str
    path: str
    title: str
    doc_type: str
    promotion_level: PromotionLevel
    char_count: int
    line_count: int = 0
    summary: str | None = None
    date: datetime.date | None = None
    significance: str | None = None
    tags: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    docs_folder: str = ""
    """Absolute POSIX path of the folder that `path` is relative to."""
    revision: str = ""
    """Digest of the file and of the reader's rules; "" if it was not read from a project."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quote:
    """A part of a document: its text, the headings above it, and its lines in the file (from 1)."""

    text: str
    heading: str
    start_line: int
    end_line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievedDocument:
    """A document that answers a query, with scores of 0..1; `content` is "" if it was not read.

    `quote` is the passage that the search found, else the beginning; `is_excerpt`: the context has only parts of it.
    """

    path: str
    title: str
    content: str
    char_count: int
    doc_type: str
    promotion_level: PromotionLevel
    raw_relevance_score: float = 0.0
    boosted_relevance_score: float = 0.0
    summary: str | None = None
    date: datetime.date | None = None
    document_id: str = ""
    superseded_by: tuple[str, ...] = ()
    """Paths of the documents that replace this one; () if it is current."""
    line_count: int = 0
    quote: Quote | None = None
    is_excerpt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedDocument(RetrievedDocument):
    """A document that a link leads to; `link_depth` is 1 for direct links."""

    linked_from: str
    link_depth: int


@dataclass(frozen=True, slots=True)
class Label:
    """How results were obtained."""

    level: Level = Level.PRIMARY
    legs: Mapping[str, RetrieverReport] = field(default_factory=dict)
    breaker_open: bool = False
    warnings: tuple[str, ...] = ()
    windows: tuple[Window, ...] = ()
    """The times that the question names."""


_ORDINARY = Label()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalResult:
    """Documents by descending relevance; `total_matches` counts those before the limit."""

    documents: tuple[RetrievedDocument, ...]
    total_matches: int
    label: Label = _ORDINARY


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalResultWithLinks(RetrievalResult):
    """Documents, and those that they link to, breadth first."""

    linked_documents: tuple[LinkedDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RagContext:
    """An assembled context, its sources, and the paths of documents that did not fit the budget, in their order."""

    critical_documents: tuple[RetrievedDocument, ...]
    relevant_documents: tuple[RetrievedDocument, ...]
    linked_documents: tuple[LinkedDocument, ...]
    formatted_context: str
    tokens: int
    omitted: tuple[str, ...] = ()
    total_matches: int = 0
    label: Label = _ORDINARY

    @property
    def total_char_count(self) -> int:
        return len(self.formatted_context)

    @property
    def documents(self) -> Iterator[RetrievedDocument]:
        seen: set[str] = set()
        for document in (*self.critical_documents, *self.relevant_documents, *self.linked_documents):
            if document.path not in seen:
                seen.add(document.path)
                yield document


@dataclass(frozen=True, slots=True)
class DocTypeInfo:
    """A document type: the folder of its files, and the JSON Schema of their front matter."""

    name: str
    description: str
    folder: str
    schema: Mapping[str, Json]
    custom: bool = False


class ProjectError(RagContextError):
    """A request about project documents fails; `details` names the wrong fields."""

    code: ClassVar[str]

    def __init__(self, message: str, details: Sequence[FieldError] = ()) -> None:
        super().__init__(message)
        self.details = tuple(details)


class ProjectNotActivatedError(ProjectError):
    """The caller has activated no project, and the request names none."""

    code = "PROJECT_NOT_ACTIVATED"


class DocumentNotFoundError(ProjectError):
    code = "DOCUMENT_NOT_FOUND"


class InvalidDocTypeError(ProjectError):
    code = "INVALID_DOC_TYPE"


class SchemaValidationError(ProjectError):
    code = "SCHEMA_VALIDATION_FAILED"


def invalid_config(location: str, message: str) -> SchemaValidationError:
    sentence = f"The project configuration is invalid: {location}: {message}"
    return SchemaValidationError(sentence, [FieldError(location, message)])


class ExternalDocsNotConfiguredError(ProjectError):
    code = "EXTERNAL_DOCS_NOT_CONFIGURED"


class ExternalDocsNotPromotableError(ProjectError):
    code = "EXTERNAL_DOCS_NOT_PROMOTABLE"


class FileSystemError(ProjectError):
    code = "FILE_SYSTEM_ERROR"
