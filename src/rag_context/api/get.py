"""Getting one document: all of it, and how often searches returned it."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rag_context.api.metadata import ReturnedMetadata
from rag_context.api.wire import Branch, Count, Identifier, Project, RootHash, UtcTime, WireRequest, WireResponse

Readiness = Literal["indexed", "pending"]


class GetRequest(WireRequest):
    """Which document."""

    for_programs: ClassVar[frozenset[str]] = frozenset({"branch", "path_hash"})

    document_id: Annotated[Identifier, Field(description="The document's id, as searches and lists return it")]
    project: Project = None
    branch: Branch = None
    path_hash: RootHash = None


class RetrievalStats(WireResponse):
    """How often searches returned a document."""

    query_count: Annotated[Count, Field(description="Searches that returned a passage of it")]
    last_retrieved: Annotated[UtcTime | None, Field(description="When the last of them was; absent: never")] = None


class GetResponse(WireResponse):
    """The document."""

    document_id: str
    title: str
    content: Annotated[str, Field(description="The whole text, as it was stored")]
    content_type: str
    session_id: str
    source: str
    timestamp: Annotated[UtcTime, Field(description="When the content was indexed")]
    metadata: ReturnedMetadata
    status: Annotated[Readiness, Field(description="pending: keyword search finds it, its vectors follow")]
    chunks: Annotated[Count, Field(description="Number of its chunks")]
    retrieval_stats: RetrievalStats
