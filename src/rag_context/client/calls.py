"""What can be asked, as data: one function a question, none of which sends anything."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeAlias, TypeVar
from urllib.parse import quote

from pydantic import ValidationError
from typing_extensions import TypedDict

from rag_context.api.delete import DeleteRequest, DeleteResponse
from rag_context.api.get import GetRequest, GetResponse
from rag_context.api.index import BulkLine, IndexRequest, IndexResponse
from rag_context.api.listing import ListRequest, ListResponse
from rag_context.api.maintenance import (
    HealthRequest,
    HealthResponse,
    ReindexRequest,
    ReindexResponse,
    StatsRequest,
    StatsResponse,
    TimeRange,
)
from rag_context.api.metadata import metadata_json
from rag_context.api.operations import Operation, memory, projects
from rag_context.api.operations.operation import Request, Response
from rag_context.api.reading import invalid_input
from rag_context.api.search import Mode, SearchRequest, SearchResponse
from rag_context.api.similar import SimilarRequest, SimilarResponse
from rag_context.api.wire import WireRequest
from rag_context.domain.documents import Json, Metadata
from rag_context.errors import InvalidInputError

Answer = TypeVar("Answer")

MetadataLike: TypeAlias = Metadata | Mapping[str, object]
BulkLike: TypeAlias = BulkLine | Mapping[str, object]
"""A document for `bulk`; a mapping has the fields of `BulkLine`, in camelCase or snake_case."""


PROJECT_TOOLS = frozenset(
    operation.name
    for operation in vars(projects).values()
    if isinstance(operation, Operation) and operation.needs_project and "activation" in operation.request.model_fields
)
"""Tools that work on the project that was activated."""


class TenantOptions(TypedDict, total=False):
    """Whose documents are meant; the agents' own memory where nothing is said."""

    project: str | None
    branch: str | None
    path_hash: str | None


class Filters(TenantOptions, total=False):
    """What searches and lists are narrowed to; `since` and `until` are aware datetimes."""

    category: str | None
    session_id: str | None
    content_type: str | None
    game: str | None
    tags: Sequence[str] | None
    source: str | None
    since: datetime | None
    until: datetime | None


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
    """What else may be said of a document."""

    metadata: MetadataLike | None
    agent: str | None


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One question: where it goes, what is sent, how the answer is read (ValueError: it is none)."""

    path: str
    read: Callable[[bytes], Answer]
    body: bytes | None = None
    method: str = "POST"
    repeatable: bool = True
    """Whether doing it twice leaves what doing it once does. Ids are computed, so that all but making a
    collection is: a document that is there already is `unchanged`, one that is gone already is no error."""


def search(query: str, options: SearchOptions) -> Call[SearchResponse]:
    """Ask a question."""
    return run(memory.SEARCH, _request(SearchRequest, {"query": query, **options}))


def index(content: str, content_type: str, session_id: str, source: str, options: IndexOptions) -> Call[IndexResponse]:
    """Keep a document."""
    request = index_request(content, content_type, session_id, source, options)
    return run(memory.INDEX, request)


def index_request(content: str, content_type: str, session_id: str, source: str, options: IndexOptions) -> IndexRequest:
    """A document to keep, checked. Raises: InvalidInputError."""
    fields = {"content": content, "content_type": content_type, "session_id": session_id, "source": source}
    metadata = _metadata(options.get("metadata"))
    return _request(IndexRequest, {**fields, **options, "metadata": metadata})


def get(document_id: str, tenant: TenantOptions) -> Call[GetResponse]:
    """Read a document."""
    return run(memory.GET, _request(GetRequest, {"document_id": document_id, **tenant}))


def listing(limit: int, cursor: str | None, filters: Filters) -> Call[ListResponse]:
    """Read one page of the list."""
    return run(memory.LIST, _request(ListRequest, {"limit": limit, "cursor": cursor, **filters}))


def similar(document_id: str, limit: int, tenant: TenantOptions) -> Call[SimilarResponse]:
    """Ask for documents like one."""
    request = _request(SimilarRequest, {"document_id": document_id, "limit": limit, **tenant})
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
    return run(memory.DELETE, _request(DeleteRequest, {**fields, **tenant}))


def reindex(force: bool, status_only: bool, wait: bool = False) -> Call[ReindexResponse]:
    """Re-embed the index, or report the progress."""
    return run(memory.REINDEX, ReindexRequest(force=force, status_only=status_only, wait=wait))


def health() -> Call[HealthResponse]:
    """Ask how the system is."""
    return run(memory.HEALTH, HealthRequest())


def stats(time_range: timedelta | TimeRange) -> Call[StatsResponse]:
    """Ask what the searches add up to."""
    named = time_range_of(time_range) if isinstance(time_range, timedelta) else time_range
    return run(memory.STATS, _request(StatsRequest, {"time_range": named}))


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
    return Call(f"/tools/{step_of(name)}", _json_object, body)


def in_project(name: str, arguments: Mapping[str, object], activation: str | None) -> Mapping[str, object]:
    """The arguments of a tool, with the activation that the client made before where the tool takes one."""
    is_missing = name in PROJECT_TOOLS and "activation" not in arguments
    return {**arguments, "activation": activation} if is_missing and activation is not None else arguments


def activation_of(name: str, answer: Mapping[str, Json]) -> str | None:
    """The activation that an answer names; None where it is none to `activate_project`."""
    made = answer.get("activation") if name == projects.ACTIVATE_PROJECT.name else None
    return made if isinstance(made, str) else None


def bulk_line(document: BulkLike) -> bytes:
    """A line of a bulk stream. Raises: InvalidInputError."""
    if not isinstance(document, BulkLine | Mapping):
        raise InvalidInputError("Not a JSON object")
    line = document if isinstance(document, BulkLine) else _request(BulkLine, document)
    return _body(line) + b"\n"


def step_of(name: str) -> str:
    """A name as a step of an address. Raises: InvalidInputError, where no address can hold it."""
    try:
        step = quote(name, safe="")
    except UnicodeEncodeError:
        step = ""
    if step in {"", ".", ".."}:
        raise InvalidInputError(f"{name!r} cannot be the name of anything here")
    return step


def run(operation: Operation[Request, Response], request: Request) -> Call[Response]:
    """Run an operation with a request that is checked already."""
    return Call(operation.path, operation.response.model_validate_json, _body(request))


def _request(model: type[Request], fields: Mapping[str, object]) -> Request:
    given = {
        name: list(value) if isinstance(value, tuple | set | frozenset) else value for name, value in fields.items()
    }
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise invalid_input(model, error) from None


def _metadata(metadata: object) -> object:
    if not isinstance(metadata, Metadata | Mapping):
        return metadata
    fields: Mapping[str, object] = metadata_json(metadata) if isinstance(metadata, Metadata) else metadata
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def _body(request: WireRequest) -> bytes:
    return request.__pydantic_serializer__.to_json(request, by_alias=True, exclude_none=True)


def _json_object(body: bytes) -> dict[str, Json]:
    value = json.loads(body)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  (an answer that cannot be read, like bad JSON)
    return value
