"""Questions to project documents: their context, the documents that it rests on, and what each retriever did."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.json_schema import WithJsonSchema

from rag_context.api import projects as wire
from rag_context.api.search import QUERY_CHARS, Interpreted, LegStatus, TimeRange
from rag_context.api.wire import (
    PRESENT_PATTERN,
    WHOLE,
    AsOf,
    Count,
    Flag,
    Identifier,
    Milliseconds,
    PlainResponse,
    Score,
    Sentences,
    WireResponse,
)

MAX_DOC_TYPES = 64
MAX_SOURCES = 20
MAX_SEARCH_RESULTS = 50
MAX_LINK_DEPTH = 10
MAX_CONTEXT_TOKENS = 1_000_000
Inclusion = Literal["always", "relevant", "never"]
NullableDate = Annotated[date | None, WithJsonSchema({"type": ["string", "null"], "format": "date"})]
NullableLine = Annotated[int | None, WithJsonSchema({"type": ["integer", "null"]})]


def inclusion(value: Any) -> Any:
    """`always` and `never` may be written as `true` and `false`."""
    if isinstance(value, bool):
        return "always" if value else "never"
    return value


_DocTypes = Annotated[
    list[Identifier] | None,
    Field(max_length=MAX_DOC_TYPES, description="Only documents of these types; list_doc_types names them"),
]
_MinScore = Annotated[
    Score | None, Field(allow_inf_nan=False, description="Minimum relevance of a document, 0 to 1; 0: everything")
]
_MaxSources = Annotated[
    int | None,
    Field(ge=1, le=MAX_SOURCES, description="Maximum number of documents by relevance; absent: the project's, else 3"),
    WHOLE,
]
_Limit = Annotated[
    int | None,
    Field(ge=1, le=MAX_SEARCH_RESULTS, description="Maximum number of results; absent: the project's, else 10"),
    WHOLE,
]
_LinkDepth = Annotated[
    int | None, Field(ge=0, le=MAX_LINK_DEPTH, description="Depth of links to follow; 0: none"), WHOLE
]
_MaxTokens = Annotated[
    int | None,
    Field(
        ge=1,
        le=MAX_CONTEXT_TOKENS,
        description="Most tokens of the context, by the embedding model's tokenizer; default: the "
        "project's, else 8000. Documents that do not fit are included as excerpts",
    ),
    WHOLE,
]
_Superseded = Annotated[Flag, Field(description="Also return superseded documents; they are marked")]


class Quoted(PlainResponse):
    """A document with the passage that it was found by, else its beginning; null where neither was read."""

    path: Annotated[str, Field(description="Path relative to the docs folder")]
    title: str
    document_id: str
    heading: Annotated[wire.NullableText, Field(description="Headings above the passage")] = None
    start_line: Annotated[NullableLine, Field(description="Its first line in the file, from 1")] = None
    end_line: Annotated[NullableLine, Field(description="Its last line")] = None
    snippet: Annotated[wire.NullableText, Field(description="Its text, or the beginning of it")] = None
    excerpt: Annotated[bool, Field(description="Whether the context shows parts of the document only")] = False


class Source(Quoted):
    """A document that an answer rests on."""

    summary: Annotated[wire.NullableText, Field(description="What the document says of itself")] = None
    char_count: Count
    relevance_score: Annotated[Score, Field(description="Relevance with the boost of its promotion level; 0: unknown")]
    doc_type: str
    date: NullableDate = None
    promotion_level: wire.Level
    superseded_by: Annotated[list[str], Field(description="Paths of the documents that replace it")]


class LinkedDoc(Quoted):
    """A document that was reached by a link."""

    char_count: Count
    linked_from: Annotated[str, Field(description="Path of the document whose link led here")]
    link_depth: Annotated[int, Field(ge=1, description="How many links it is away")]


class Leg(PlainResponse):
    """What one part of the search did."""

    status: LegStatus
    latency_ms: Milliseconds
    detail: wire.NullableText = None


class Question(wire.InProjectRequest):
    """A question to the documents of a project."""

    sentences: ClassVar[Mapping[str, Sentences]] = {
        "query": Sentences("Query cannot be empty", "Query too long (max 1000 characters)")
    }

    query: Annotated[
        str,
        Field(
            min_length=1, max_length=QUERY_CHARS, pattern=PRESENT_PATTERN, description="The question, in plain words"
        ),
    ]
    as_of: AsOf = None


class RagQueryRequest(Question):
    """A question that whole documents answer."""

    doc_types: _DocTypes = None
    max_sources: _MaxSources = None
    min_relevance_score: _MinScore = None
    min_promotion_level: Annotated[
        wire.Level | None, Field(description="Only documents of this promotion level or a higher one")
    ] = None
    include_critical: Annotated[
        Inclusion | None,
        BeforeValidator(inclusion),
        WithJsonSchema({"type": "boolean"}),
        Field(
            description="Whether critical documents come first, whatever the question; the text `relevant`: only those "
            "that match"
        ),
    ] = None
    link_depth: _LinkDepth = None
    max_tokens: _MaxTokens = None
    include_superseded: _Superseded = False


def _description_of(model: type[WireResponse], name: str) -> Any:
    return Field(description=model.model_fields[name].description)


class PlainTimeRange(TimeRange):
    """A period, null where it is open."""

    since: Annotated[wire.NullableTime, _description_of(TimeRange, "since")] = None
    until: Annotated[wire.NullableTime, _description_of(TimeRange, "until")] = None


class PlainInterpreted(Interpreted):
    """The time that the question names, as it was understood."""

    model_config = ConfigDict(alias_generator=None)

    time_range: PlainTimeRange
    every_year: Annotated[wire.NullableFlag, _description_of(Interpreted, "every_year")] = None


class LabelledResponse(wire.ProjectResponse):
    """An answer with how it was obtained."""

    fallback: Annotated[bool, Field(description="Whether the search was incomplete")]
    fallback_level: Annotated[
        int, Field(ge=1, le=4, description="1=primary, 2=text search, 3=empty, 4=circuit breaker")
    ]
    circuit_breaker_open: bool
    warnings: Annotated[list[str], Field(description="Why the answer is degraded")]
    legs: dict[str, Leg]
    interpreted: Annotated[
        PlainInterpreted | None,
        Field(exclude_if=lambda value: value is None, description="The time that the question names, if it names one"),
    ] = None
    latency_ms: Milliseconds
    request_id: str


class RagQueryResponse(LabelledResponse):
    """A context, where it comes from, and an answer where a chat model is configured."""

    text_only: ClassVar[frozenset[str]] = frozenset({"context"})

    answer: Annotated[wire.NullableText, Field(description="The chat model's answer; null if there is none")] = None
    citations: Annotated[list[str], Field(description="Paths that the answer cites, all of them in the context")]
    answer_note: Annotated[
        wire.NullableText, Field(description="A note on the answer, or the reason why there is none")
    ] = None
    context: Annotated[
        str,
        Field(
            description="The documents as one text, each under its own heading with its path; over MCP it is the text "
            "beside the structured content"
        ),
    ] = ""
    sources: Annotated[list[Source], Field(description="Documents found by relevance, the best first")]
    linked_docs: list[LinkedDoc]
    critical_docs: Annotated[list[Source], Field(description="Critical documents, at the beginning")]
    omitted: Annotated[Count, Field(description="Number of documents that the token budget left out")]
    omitted_docs: Annotated[list[str], Field(description="Their paths")]
    total_matches: Annotated[Count, Field(description="Number of documents found before the limit, at least")]
    char_count: Annotated[Count, Field(description="Characters of the context")]
    token_count: Annotated[Count, Field(description="Tokens of the context, by the embedding model's tokenizer")]


class SemanticSearchRequest(Question):
    """A question, to be answered by a list of documents."""

    doc_types: _DocTypes = None
    limit: _Limit = None
    min_relevance_score: _MinScore = None
    promotion_levels: Annotated[
        list[wire.Level] | None, Field(max_length=3, description="Only documents of these promotion levels")
    ] = None
    include_superseded: _Superseded = False


class SemanticSearchResponse(LabelledResponse):
    """Documents, the most relevant first."""

    results: list[Source]
    total_matches: Annotated[Count, Field(description="Number of documents found before the limit, at least")]


class SearchExternalDocsRequest(Question):
    """A question to the external documents of a project."""

    limit: _Limit = None
    min_relevance_score: _MinScore = None


class SearchExternalDocsResponse(SemanticSearchResponse):
    """External documents, the most relevant first."""

    external_docs_path: str


class RagQueryExternalRequest(Question):
    """A question that external documents answer."""

    max_sources: _MaxSources = None
    min_relevance_score: _MinScore = None
    link_depth: _LinkDepth = None
    max_tokens: _MaxTokens = None


class RagQueryExternalResponse(RagQueryResponse):
    """A context of external documents."""

    external_docs_path: str
