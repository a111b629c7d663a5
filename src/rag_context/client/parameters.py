"""What the methods of the clients take beside their arguments, and how it becomes fields of requests."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, NotRequired, TypeAlias, Union

from typing_extensions import TypedDict

from rag_context.api.maintenance import TimeRange
from rag_context.api.operations import Operation, projects
from rag_context.api.search import Mode
from rag_context.api.wire import MinTrust, metadata_json
from rag_context.domain.documents import Json, Metadata

if TYPE_CHECKING:  # a program that only calls a server does without numpy
    from rag_context.domain.vectors import Vector

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


class TenantCall(TenantOptions, total=False):
    """A call about a document of a tenant; `request_id` is its id in the server's logs."""

    request_id: str | None


class FilterOptions(TypedDict, total=False):
    """`domain.documents.FilterFields` as arguments of callers, for type checkers."""

    category: str | None
    game: str | None


class Filters(TenantOptions, FilterOptions, total=False):
    """What searches and lists are narrowed to; `since`, `until` and `as_of` are aware datetimes."""

    session_id: str | None
    content_type: str | None
    agents: Sequence[str] | None
    tags: Sequence[str] | None
    source: str | None
    since: datetime | None
    until: datetime | None
    as_of: datetime | None
    min_trust: MinTrust


class SearchOptions(Filters, total=False):
    """How a question is answered; the fields of `SearchRequest`."""

    limit: int
    agent: str | None
    min_score: float | None
    mode: Mode
    include_superseded: bool | None
    explain: bool
    max_tokens: int | None
    strict: bool


class IndexOptions(TenantOptions, total=False):
    """What else may be said of a document; `occurred_at`, an aware datetime, is when it was said or written."""

    metadata: MetadataLike | None
    agent: str | None
    occurred_at: datetime | None
    supersedes: Sequence[str] | None
    reason: str | None
    expires_at: datetime | None
    pinned: bool | None
    force: bool | None


class ForgetOptions(TenantOptions, total=False):
    """What is forgotten; exactly one of those that name documents."""

    document_id: str | None
    source: str | None
    session_id: str | None
    agent: str | None
    tag: str | None
    contains: str | None


QueryMode: TypeAlias = Literal["vector", "text", "hybrid"]

Embedding: TypeAlias = Union[Sequence[float], "Vector"]
"""`(dim,)`, any numbers."""


class CollectionDocument(TypedDict):
    """A document for a collection; without an embedding where the server embeds."""

    text: str
    id: NotRequired[str]
    metadata: NotRequired[Mapping[str, object]]
    embedding: NotRequired[Embedding]


def index_fields(
    content: str, content_type: str, session_id: str, source: str, options: IndexOptions
) -> dict[str, object]:
    fields = {"content": content, "content_type": content_type, "session_id": session_id, "source": source}
    return {**fields, **options, "metadata": _metadata(options.get("metadata"))}


def time_range_of(span: timedelta) -> TimeRange:
    """The shortest time range that covers a span, the longest where none does."""
    if span <= timedelta(hours=1):
        return "1h"
    if span <= timedelta(hours=24):
        return "24h"
    return "7d" if span <= timedelta(hours=168) else "30d"


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
