"""Retrievers for other frameworks; each module needs the extra of its framework."""

from rag_context.api.search import SearchResponse, SearchResult
from rag_context.domain.documents import Json


def metadata_of(answer: SearchResponse, result: SearchResult) -> dict[str, Json]:
    """The source of a passage, and how it was found, as JSON values; keys without a value are left out.

    Fields of the result override the writer's keys.
    `fallback_level` is always there, and `warning` where the answer may be less than it could be.
    """
    ours: dict[str, Json] = {
        "source": result.source,
        "title": result.title,
        "score": result.score,
        "timestamp": result.timestamp.isoformat(),
        "occurred_at": result.occurred_at.isoformat(),
        "content_type": result.content_type,
        "session_id": result.session_id,
        "document_id": result.document_id,
        "chunk_id": result.chunk_id,
        "heading": result.heading,
        "start_line": result.start_line,
        "end_line": result.end_line,
        "newer_version": None if result.newer_version is None else result.newer_version.document_id,
        "fallback_level": answer.fallback_level,
        "warning": answer.warning,
    }
    return {**result.metadata, **{name: value for name, value in ours.items() if value is not None}}
