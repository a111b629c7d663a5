"""Questions to project documents: their context, the documents that it rests on, and what each retriever did."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict
from pydantic.json_schema import WithJsonSchema

from rag_context.api import projects, wire
from rag_context.api.search import QUERY_CHARS, Interpreted, LegStatus, TimeRange

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
    list[wire.Identifier] | None,
    wire.about("Only documents of these types; list_doc_types names them", max_length=MAX_DOC_TYPES),
]
_MinScore = Annotated[
    wire.Score | None, wire.about("Minimum relevance of a document, 0 to 1; 0: everything", allow_inf_nan=False)
]
_MaxSources = Annotated[
    int | None,
    wire.whole("Maximum number of documents by relevance; absent: the project's, else 3", ge=1, le=MAX_SOURCES),
]
_Limit = Annotated[
    int | None, wire.whole("Maximum number of results; absent: the project's, else 10", ge=1, le=MAX_SEARCH_RESULTS)
]
_LinkDepth = Annotated[int | None, wire.whole("Depth of links to follow; 0: none", ge=0, le=MAX_LINK_DEPTH)]
_MaxTokens = Annotated[
    int | None,
    wire.whole(
        "Most tokens of the context, by the embedding model's tokenizer; default: the "
        "project's, else 8000. Documents that do not fit are included as excerpts",
        ge=1,
        le=MAX_CONTEXT_TOKENS,
    ),
]
_Superseded = Annotated[wire.Flag, wire.about("Also return superseded documents; they are marked")]


class Quoted(wire.PlainResponse):
    """A document with the passage that it was found by, else its beginning; null where neither was read."""

    path: Annotated[str, wire.about("Path relative to the docs folder")]
    title: str
    document_id: str
    heading: Annotated[projects.NullableText, wire.about("Headings above the passage")] = None
    start_line: Annotated[NullableLine, wire.about("Its first line in the file, from 1")] = None
    end_line: Annotated[NullableLine, wire.about("Its last line")] = None
    snippet: Annotated[projects.NullableText, wire.about("Its text, or the beginning of it")] = None
    excerpt: Annotated[bool, wire.about("Whether the context shows parts of the document only")] = False


class Source(Quoted):
    """A document that an answer rests on."""

    summary: Annotated[projects.NullableText, wire.about("What the document says of itself")] = None
    char_count: wire.Count
    relevance_score: Annotated[wire.Score, wire.about("Relevance with the boost of its promotion level; 0: unknown")]
    doc_type: str
    date: NullableDate = None
    promotion_level: projects.Level
    superseded_by: Annotated[list[str], wire.about("Paths of the documents that replace it")]


class LinkedDoc(Quoted):
    """A document that was reached by a link."""

    char_count: wire.Count
    linked_from: Annotated[str, wire.about("Path of the document whose link led here")]
    link_depth: Annotated[int, wire.about("How many links it is away", ge=1)]


class Leg(wire.PlainResponse):
    """What one part of the search did."""

    status: LegStatus
    latency_ms: wire.Milliseconds
    detail: projects.NullableText = None


class Question(projects.InProjectRequest):
    """A question to the documents of a project."""

    sentences: ClassVar[Mapping[str, wire.Sentences]] = {
        "query": wire.Sentences("Query cannot be empty", "Query too long (max 1000 characters)")
    }

    query: Annotated[str, wire.present("The question, in plain words", QUERY_CHARS)]
    as_of: wire.AsOf = None


class RagQueryRequest(Question):
    """A question that whole documents answer."""

    doc_types: _DocTypes = None
    max_sources: _MaxSources = None
    min_relevance_score: _MinScore = None
    min_promotion_level: Annotated[
        projects.Level | None, wire.about("Only documents of this promotion level or a higher one")
    ] = None
    include_critical: Annotated[
        Inclusion | None,
        BeforeValidator(inclusion),
        WithJsonSchema({"type": "boolean"}),
        wire.about(
            "Whether critical documents come first, whatever the question; the text `relevant`: only those that match"
        ),
    ] = None
    link_depth: _LinkDepth = None
    max_tokens: _MaxTokens = None
    include_superseded: _Superseded = False


def _description_of(model: type[wire.WireResponse], name: str) -> Any:
    return wire.about(model.model_fields[name].description)


class PlainTimeRange(TimeRange):
    """A period, null where it is open."""

    since: Annotated[projects.NullableTime, _description_of(TimeRange, "since")] = None
    until: Annotated[projects.NullableTime, _description_of(TimeRange, "until")] = None


class PlainInterpreted(Interpreted):
    """The time that the question names, as it was understood."""

    model_config = ConfigDict(alias_generator=None)

    time_range: PlainTimeRange
    every_year: Annotated[projects.NullableFlag, _description_of(Interpreted, "every_year")] = None


class LabelledResponse(projects.ProjectResponse):
    """An answer with how it was obtained."""

    fallback: Annotated[bool, wire.about("Whether the search was incomplete")]
    fallback_level: Annotated[int, wire.about("1=primary, 2=text search, 3=empty, 4=circuit breaker", ge=1, le=4)]
    circuit_breaker_open: bool
    warnings: Annotated[list[str], wire.about("Why the answer is degraded")]
    legs: dict[str, Leg]
    interpreted: Annotated[
        PlainInterpreted | None,
        wire.about("The time that the question names, if it names one", exclude_if=lambda value: value is None),
    ] = None
    latency_ms: wire.Milliseconds
    request_id: str


class RagQueryResponse(LabelledResponse):
    """A context, where it comes from, and an answer where a chat model is configured."""

    text_only: ClassVar[frozenset[str]] = frozenset({"context"})

    answer: Annotated[projects.NullableText, wire.about("The chat model's answer; null if there is none")] = None
    citations: Annotated[list[str], wire.about("Paths that the answer cites, all of them in the context")]
    answer_note: Annotated[
        projects.NullableText, wire.about("A note on the answer, or the reason why there is none")
    ] = None
    context: Annotated[
        str,
        wire.about(
            "The documents as one text, each under its own heading with its path; over MCP it is the text "
            "beside the structured content"
        ),
    ] = ""
    sources: Annotated[list[Source], wire.about("Documents found by relevance, the best first")]
    linked_docs: list[LinkedDoc]
    critical_docs: Annotated[list[Source], wire.about("Critical documents, at the beginning")]
    omitted: Annotated[wire.Count, wire.about("Number of documents that the token budget left out")]
    omitted_docs: Annotated[list[str], wire.about("Their paths")]
    total_matches: Annotated[wire.Count, wire.about("Number of documents found before the limit, at least")]
    char_count: Annotated[wire.Count, wire.about("Characters of the context")]
    token_count: Annotated[wire.Count, wire.about("Tokens of the context, by the embedding model's tokenizer")]


class SemanticSearchRequest(Question):
    """A question, to be answered by a list of documents."""

    doc_types: _DocTypes = None
    limit: _Limit = None
    min_relevance_score: _MinScore = None
    promotion_levels: Annotated[
        list[projects.Level] | None, wire.about("Only documents of these promotion levels", max_length=3)
    ] = None
    include_superseded: _Superseded = False


class SemanticSearchResponse(LabelledResponse):
    """Documents, the most relevant first."""

    results: list[Source]
    total_matches: Annotated[wire.Count, wire.about("Number of documents found before the limit, at least")]


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
