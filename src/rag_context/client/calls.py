"""The calls of the API as data: one function per operation, none of which sends anything."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from typing_extensions import TypedDict

from rag_context.api.index import IndexRequest, IndexResponse
from rag_context.api.maintenance import (
    HealthRequest,
    HealthResponse,
    ReindexRequest,
    ReindexResponse,
    StatsRequest,
    StatsResponse,
    TimeRange,
)
from rag_context.api.operations import Operation, memory, projects
from rag_context.api.search import Mode, SearchRequest, SearchResponse
from rag_context.api.stored_documents import (
    DeleteRequest,
    DeleteResponse,
    GetRequest,
    GetResponse,
    ListRequest,
    ListResponse,
    SimilarRequest,
    SimilarResponse,
)
from rag_context.api.wire import metadata_json
from rag_context.client.call import Call, json_object, request_of, run, step_of
from rag_context.domain.documents import Json, Metadata
from rag_context.errors import InvalidInputError

MetadataLike: TypeAlias = Metadata | Mapping[str, object]

PROJECT_TOOLS = frozenset(
    operation.name
    for operation in vars(projects).values()
    if isinstance(operation, Operation) and operation.needs_project and "activation" in operation.request.model_fields
)
"""Tools that work on the project that was activated."""


class TenantOptions(TypedDict, total=False):
    """Whose documents; by default those of the agents' own memory."""

    project: str | None
    branch: str | None
    path_hash: str | None


class Filters(TenantOptions, total=False):
    """What searches and lists are narrowed to; `since`, `until` and `as_of` are aware datetimes."""

    category: str | None
    session_id: str | None
    content_type: str | None
    game: str | None
    tags: Sequence[str] | None
    source: str | None
    since: datetime | None
    until: datetime | None
    as_of: datetime | None


class SearchOptions(Filters, total=False):
    """How a question is answered; the fields of `SearchRequest`."""

    limit: int
    agent: str | None
    min_score: float | None
    mode: Mode
    explain: bool
    max_tokens: int | None
    strict: bool


class IndexOptions(TenantOptions, total=False):
    """What else may be said of a document; `occurred_at`, an aware datetime, is when it was said or written."""

    metadata: MetadataLike | None
    agent: str | None
    occurred_at: datetime | None


def search(query: str, options: SearchOptions) -> Call[SearchResponse]:
    """Ask a question."""
    return run(memory.SEARCH, request_of(SearchRequest, {"query": query, **options}))


def index(content: str, content_type: str, session_id: str, source: str, options: IndexOptions) -> Call[IndexResponse]:
    """Keep a document."""
    request = index_request(content, content_type, session_id, source, options)
    return run(memory.INDEX, request)


def index_request(content: str, content_type: str, session_id: str, source: str, options: IndexOptions) -> IndexRequest:
    """A document to keep, checked. Raises: InvalidInputError."""
    fields = {"content": content, "content_type": content_type, "session_id": session_id, "source": source}
    metadata = _metadata(options.get("metadata"))
    return request_of(IndexRequest, {**fields, **options, "metadata": metadata})


def get(document_id: str, tenant: TenantOptions) -> Call[GetResponse]:
    """Read a document."""
    return run(memory.GET, request_of(GetRequest, {"document_id": document_id, **tenant}))


def listing(limit: int, cursor: str | None, filters: Filters) -> Call[ListResponse]:
    """Read one page of the list."""
    return run(memory.LIST, request_of(ListRequest, {"limit": limit, "cursor": cursor, **filters}))


def similar(document_id: str, limit: int, tenant: TenantOptions) -> Call[SimilarResponse]:
    """Ask for documents like one."""
    request = request_of(SimilarRequest, {"document_id": document_id, "limit": limit, **tenant})
    return run(memory.SIMILAR, request)


def delete(
    document_id: str | None,
    source: str | None,
    session_id: str | None,
    dry_run: bool,
    confirm: bool,
    tenant: TenantOptions,
) -> Call[DeleteResponse]:
    """Remove documents."""
    named = {"document_id": document_id, "source": source, "session_id": session_id}
    fields = {**named, "dry_run": dry_run, "confirm": confirm}
    return run(memory.DELETE, request_of(DeleteRequest, {**fields, **tenant}))


def reindex(force: bool, status_only: bool, wait: bool = False) -> Call[ReindexResponse]:
    """Re-embed the index, or report the progress."""
    return run(memory.REINDEX, ReindexRequest(force=force, status_only=status_only, wait=wait))


def health() -> Call[HealthResponse]:
    """Ask how the system is."""
    return run(memory.HEALTH, HealthRequest())


def stats(time_range: timedelta | TimeRange) -> Call[StatsResponse]:
    """Ask what the searches add up to."""
    named = time_range_of(time_range) if isinstance(time_range, timedelta) else time_range
    return run(memory.STATS, request_of(StatsRequest, {"time_range": named}))


def time_range_of(span: timedelta) -> TimeRange:
    """The shortest time range that covers a span, the longest where none does."""
    if span <= timedelta(hours=1):
        return "1h"
    if span <= timedelta(hours=24):
        return "24h"
    return "7d" if span <= timedelta(hours=168) else "30d"


def tool(name: str, arguments: Mapping[str, object]) -> Call[dict[str, Json]]:
    """Run any tool of the server, with arguments and answer as they are on the wire."""
    try:
        body = json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"The arguments of {name!r} are not JSON: {error}") from None
    return Call(f"/tools/{step_of(name)}", json_object, body)


def in_project(name: str, arguments: Mapping[str, object], activation: str | None) -> Mapping[str, object]:
    """The arguments of a tool, with the activation that the client made before where the tool takes one."""
    is_missing = name in PROJECT_TOOLS and "activation" not in arguments
    return {**arguments, "activation": activation} if is_missing and activation is not None else arguments


def activation_of(name: str, answer: Mapping[str, Json]) -> str | None:
    """The activation that an answer names; None where it is none to `activate_project`."""
    made = answer.get("activation") if name == projects.ACTIVATE_PROJECT.name else None
    return made if isinstance(made, str) else None


def _metadata(metadata: object) -> object:
    if not isinstance(metadata, Metadata | Mapping):
        return metadata
    fields: Mapping[str, object] = metadata_json(metadata) if isinstance(metadata, Metadata) else metadata
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
