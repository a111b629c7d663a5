"""Project documents: requests to a team's knowledge base, and their responses.

Names are snake_case here, on the wire too: that is how these tools are known to the agents that call them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic.json_schema import WithJsonSchema

from rag_context.api.project_sources import Leg, Level, LinkedDoc, NullableText, Source
from rag_context.api.search import QUERY_CHARS
from rag_context.api.wire import (
    PRESENT_PATTERN,
    Count,
    Identifier,
    Milliseconds,
    Otherwise,
    PathHash,
    PlainRequest,
    PlainResponse,
    Score,
    Sentences,
    whole,
)

PATH_CHARS = 4096
MAX_DOC_TYPES = 64
MAX_SOURCES = 20
MAX_SEARCH_RESULTS = 50
MAX_LINK_DEPTH = 10
MAX_CONTEXT_TOKENS = 1_000_000

Inclusion = Literal["always", "relevant", "never"]


def _inclusion(value: Any) -> Any:
    if isinstance(value, bool):
        return "always" if value else "never"
    return value


_Query = Annotated[
    str,
    Field(min_length=1, max_length=QUERY_CHARS, pattern=PRESENT_PATTERN, description="The question, in plain words"),
]
DocumentPath = Annotated[str, Field(min_length=1, max_length=PATH_CHARS, pattern=PRESENT_PATTERN)]
_Project = Annotated[Identifier | None, Field(description="Name of the project; absent: the one that you activated")]
_Branch = Annotated[Identifier | None, Field(description="Branch of the project, where it is stored of several")]
_RootHash = Annotated[
    PathHash | None, Field(description="First 16 hex digits of the SHA-256 of the repository's root, where several fit")
]
Handle = Annotated[
    Identifier | None,
    Field(description="activation that activate_project returned; for clients without a session of their own"),
]
_DocTypes = Annotated[
    list[Identifier] | None,
    Field(max_length=MAX_DOC_TYPES, description="Only documents of these types; list_doc_types names them"),
]
_MinScore = Annotated[
    Score | None,
    Field(allow_inf_nan=False, description="Minimum relevance of a document, 0 to 1; 0: everything"),
]
_MaxSources = Annotated[
    int | None,
    Field(ge=1, le=MAX_SOURCES, description="Most documents found by relevance; absent: as the project says, else 3"),
    BeforeValidator(whole),
]
_Limit = Annotated[
    int | None,
    Field(ge=1, le=MAX_SEARCH_RESULTS, description="Most results; absent: as the project says, else 10"),
    BeforeValidator(whole),
]
_LinkDepth = Annotated[
    int | None,
    Field(ge=0, le=MAX_LINK_DEPTH, description="Depth of links to follow; 0: none"),
    BeforeValidator(whole),
]
_MaxTokens = Annotated[
    int | None,
    Field(
        ge=1,
        le=MAX_CONTEXT_TOKENS,
        description="Most tokens of the context, by the embedding model's tokenizer; absent: as the project says, "
        "else 8000. Documents that do not fit stand there in parts",
    ),
    BeforeValidator(whole),
]
_Line = Annotated[int | None, Field(ge=1, description="First line, from 1; absent: the first"), BeforeValidator(whole)]
_Superseded = Annotated[bool, Field(description="Also return superseded documents; they are marked"), Otherwise(False)]

_ASKED = {"query": Sentences("Query cannot be empty", "Query too long (max 1000 characters)")}


class ProjectRequest(PlainRequest):
    """A request about the project that the caller activated, or the one it names."""


class ProjectResponse(PlainResponse):
    """A reply: every field is there, null where there is no value; and for which project it is."""

    project_name: str
    branch_name: str
    path_hash: str

    def to_json(self) -> bytes:
        """The body of a reply, fields without a value as null."""
        return self.__pydantic_serializer__.to_json(self, by_alias=True)


class RagQueryRequest(ProjectRequest):
    """A question that whole documents answer."""

    sentences: ClassVar[Mapping[str, Sentences]] = _ASKED

    query: _Query
    doc_types: _DocTypes = None
    max_sources: _MaxSources = None
    min_relevance_score: _MinScore = None
    min_promotion_level: Annotated[
        Level | None, Field(description="Only documents of this promotion level or a higher one")
    ] = None
    include_critical: Annotated[
        Inclusion | None,
        BeforeValidator(_inclusion),
        WithJsonSchema({"type": "boolean"}),
        Field(
            description="Whether critical documents are put in front whatever was asked; the text `relevant` instead "
            "puts those in front that match"
        ),
    ] = None
    link_depth: _LinkDepth = None
    max_tokens: _MaxTokens = None
    include_superseded: _Superseded = False
    project: _Project = None
    branch: _Branch = None
    path_hash: _RootHash = None
    activation: Handle = None


class LabelledResponse(ProjectResponse):
    """An answer with how it was obtained."""

    fallback: Annotated[bool, Field(description="Whether the search was incomplete")]
    fallback_level: Annotated[
        int, Field(ge=1, le=4, description="1=primary, 2=text search, 3=empty, 4=circuit breaker")
    ]
    circuit_breaker_open: bool
    warnings: Annotated[list[str], Field(description="Why the answer is degraded")]
    legs: dict[str, Leg]
    latency_ms: Milliseconds
    request_id: str


class RagQueryResponse(LabelledResponse):
    """A context, where it comes from, and an answer where a chat model is configured."""

    text_only: ClassVar[frozenset[str]] = frozenset({"context"})

    answer: Annotated[NullableText, Field(description="The chat model's answer; null if there is none")] = None
    citations: Annotated[list[str], Field(description="Paths that the answer cites, all of them in the context")]
    answer_note: Annotated[NullableText, Field(description="A note on the answer, or the reason why there is none")] = (
        None
    )
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


class SemanticSearchRequest(ProjectRequest):
    """A question, to be answered by a list of documents."""

    sentences: ClassVar[Mapping[str, Sentences]] = _ASKED

    query: _Query
    doc_types: _DocTypes = None
    limit: _Limit = None
    min_relevance_score: _MinScore = None
    promotion_levels: Annotated[
        list[Level] | None, Field(max_length=3, description="Only documents of these promotion levels")
    ] = None
    include_superseded: _Superseded = False
    project: _Project = None
    branch: _Branch = None
    path_hash: _RootHash = None
    activation: Handle = None


class SemanticSearchResponse(LabelledResponse):
    """Documents, the most relevant first."""

    results: list[Source]
    total_matches: Annotated[Count, Field(description="Number of documents found before the limit, at least")]


class ReadDocumentRequest(ProjectRequest):
    """A document, or some of its lines."""

    path: Annotated[DocumentPath, Field(description="Path of the document, relative to the docs folder")]
    start_line: _Line = None
    end_line: Annotated[_Line, Field(description="Last line; absent: as far as one reply carries")] = None
    project: _Project = None
    branch: _Branch = None
    path_hash: _RootHash = None
    activation: Handle = None


class ReadDocumentResponse(ProjectResponse):
    """The text as it was indexed, front matter included."""

    text_only: ClassVar[frozenset[str]] = frozenset({"content"})

    path: str
    title: str
    document_id: str
    doc_type: str
    promotion_level: Level
    content: Annotated[
        str, Field(description="The lines; over MCP they are the text beside the structured content")
    ] = ""
    start_line: Annotated[int, Field(ge=1)]
    end_line: Annotated[int, Field(ge=0, description="The last line of the reply; more is behind it where it is cut")]
    total_lines: Count
    truncated: Annotated[bool, Field(description="Whether the reply ends before the last requested line")]
    superseded_by: Annotated[list[str], Field(description="Paths of the documents that replace it")]


class IndexDocumentRequest(ProjectRequest):
    """A file to index now."""

    path: Annotated[DocumentPath, Field(description="Path of the document, relative to the docs folder")]
    project: _Project = None
    branch: _Branch = None
    path_hash: _RootHash = None
    activation: Handle = None


class IndexDocumentResponse(ProjectResponse):
    """What became of it."""

    status: Annotated[
        Literal["indexed", "pending"], Field(description="pending: keyword search finds it, its vectors follow")
    ]
    path: str
    embedding_dimensions: Annotated[int, Field(ge=0, description="Length of its vectors; 0 while there are none")]
    warnings: list[str]


class ListDocTypesRequest(ProjectRequest):
    """Whose document types to list."""

    project: _Project = None
    branch: _Branch = None
    path_hash: _RootHash = None
    activation: Handle = None


class DocType(PlainResponse):
    """A kind of document."""

    name: str
    description: str
    folder: Annotated[str, Field(description="Folder below the docs folder whose documents are of this type")]
    schema_: Annotated[
        dict[str, Any],
        Field(alias="schema", description="JSON Schema of the front matter"),
        WithJsonSchema({"type": "object"}),
    ]
    doc_count: Count
    custom: Annotated[bool, Field(description="Whether the project itself declares the type")] = False


class ListDocTypesResponse(ProjectResponse):
    """The kinds of document of a project."""

    doc_types: list[DocType]
    total_docs: Count


class UpdatePromotionLevelRequest(ProjectRequest):
    """How much a document matters from now on."""

    document_path: Annotated[DocumentPath, Field(description="Path of the document, relative to the docs folder")]
    promotion_level: Level
    project: _Project = None
    branch: _Branch = None
    path_hash: _RootHash = None
    activation: Handle = None


class UpdatePromotionLevelResponse(ProjectResponse):
    """What it was and what it is."""

    status: Annotated[Literal["updated"], WithJsonSchema({"type": "string", "enum": ["updated"]})]
    document_path: str
    previous_level: Level
    new_level: Level


class SearchExternalDocsRequest(ProjectRequest):
    """A question to the external documents of a project."""

    sentences: ClassVar[Mapping[str, Sentences]] = _ASKED

    query: _Query
    limit: _Limit = None
    min_relevance_score: _MinScore = None
    project: _Project = None
    branch: _Branch = None
    path_hash: _RootHash = None
    activation: Handle = None


class SearchExternalDocsResponse(SemanticSearchResponse):
    """External documents, the most relevant first."""

    external_docs_path: str


class RagQueryExternalRequest(ProjectRequest):
    """A question that external documents answer."""

    sentences: ClassVar[Mapping[str, Sentences]] = _ASKED

    query: _Query
    max_sources: _MaxSources = None
    min_relevance_score: _MinScore = None
    link_depth: _LinkDepth = None
    max_tokens: _MaxTokens = None
    project: _Project = None
    branch: _Branch = None
    path_hash: _RootHash = None
    activation: Handle = None


class RagQueryExternalResponse(RagQueryResponse):
    """A context of external documents."""

    external_docs_path: str
