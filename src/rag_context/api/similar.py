"""Finding the documents that are most like one."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from rag_context.api.metadata import ReturnedMetadata
from rag_context.api.wire import (
    Branch,
    Identifier,
    Otherwise,
    Project,
    RootHash,
    Score,
    UtcTime,
    WireRequest,
    WireResponse,
    whole,
)

MAX_SIMILAR = 20
DEFAULT_SIMILAR = 5


class SimilarRequest(WireRequest):
    """Like which document."""

    for_programs: ClassVar[frozenset[str]] = frozenset({"branch", "path_hash"})

    document_id: Annotated[Identifier, Field(description="The document's id, as searches and lists return it")]
    limit: Annotated[
        int,
        Field(ge=1, le=MAX_SIMILAR, description="Maximum number of documents"),
        BeforeValidator(whole),
        Otherwise(DEFAULT_SIMILAR),
    ] = DEFAULT_SIMILAR
    project: Project = None
    branch: Branch = None
    path_hash: RootHash = None


class SimilarDocument(WireResponse):
    """A document, with the passage of it that comes nearest."""

    document_id: str
    score: Annotated[Score, Field(description="Similarity; comparable between answers of the same method")]
    title: str
    content: Annotated[str, Field(description="Its nearest passage")]
    content_type: str
    session_id: str
    source: str
    timestamp: Annotated[UtcTime, Field(description="When the content was indexed")]
    metadata: ReturnedMetadata


class SimilarResponse(WireResponse):
    """The documents, nearest first, with a label that says how they were found."""

    results: list[SimilarDocument]
    method: Annotated[Literal["vector", "text"], Field(description="vector: vector search; text: keyword search")]
    fallback: Annotated[bool, Field(description="Whether keyword search had to replace vector search")]
    fallback_level: Annotated[int, Field(ge=1, le=2, description="1=vector search, 2=keyword search")]
    warning: Annotated[str | None, Field(description="Why the answer is degraded")] = None
