"""What every door is made from: the tools by name, and the service behind them."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from rag_context.api.delete import DeleteRequest, DeleteResponse
from rag_context.api.get import GetRequest, GetResponse
from rag_context.api.index import BulkLine, BulkReceipt, IndexRequest, IndexResponse
from rag_context.api.listing import ListRequest, ListResponse
from rag_context.api.maintenance import HealthResponse, ReindexRequest, ReindexResponse, StatsRequest, StatsResponse
from rag_context.api.schema import Schema, json_schema
from rag_context.api.search import SearchOutcome, SearchRequest
from rag_context.api.similar import SimilarRequest, SimilarResponse
from rag_context.api.wire import VersionsRequest, VersionsResponse, WireRequest, WireResponse
from rag_context.domain.embedding_model import EmbeddingModel
from rag_context.domain.vectors import Matrix
from rag_context.ports.models import Tokenizer
from rag_context.projects.callers import NOBODY, CallerId
from rag_context.server.options import Access
from rag_context.service.collections import CollectionService
from rag_context.service.projects import ProjectService

Request = TypeVar("Request", bound=WireRequest)
Progress: TypeAlias = Callable[[int, int], Awaitable[None]]
"""Told how much is done, and of how much."""


class Service(Protocol):
    """The use cases behind the doors."""

    async def search(self, request: SearchRequest, *, request_id: str) -> SearchOutcome: ...

    async def index(self, request: IndexRequest, *, request_id: str) -> IndexResponse: ...

    async def bulk(self, line: BulkLine, *, request_id: str) -> BulkReceipt: ...

    async def missing(self, request: VersionsRequest) -> VersionsResponse: ...

    async def delete(self, request: DeleteRequest) -> DeleteResponse: ...

    async def get(self, request: GetRequest) -> GetResponse: ...

    async def listing(self, request: ListRequest) -> ListResponse: ...

    async def similar(self, request: SimilarRequest) -> SimilarResponse: ...

    async def reindex_behind(self, request: ReindexRequest, on_progress: Progress) -> ReindexResponse: ...

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Embed texts as passages: `(n, dim) float32`."""
        ...

    def model(self) -> EmbeddingModel:
        """The model in use. Raises: BackendError while it is not known."""
        ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def projects(self) -> ProjectService | None:
        """The use cases of project documents; None where they are not offered."""
        ...

    @property
    def collections(self) -> CollectionService | None:
        """The use cases of collections and their providers; None where they are not offered."""
        ...

    async def health(self) -> HealthResponse: ...

    async def stats(self, request: StatsRequest) -> StatsResponse: ...

    async def ready(self) -> bool: ...

    async def prometheus(self) -> bytes:
        """The metrics in Prometheus' text format."""
        ...


class Toolset(StrEnum):
    """Tools that are offered together."""

    MEMORY = "memory"
    OPERATIONS = "operations"
    PROJECTS = "projects"
    COLLECTIONS = "collections"
    ALL = "all"


async def unheard(_done: int, _total: int) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a tool knows of the call that runs it."""

    request_id: str
    on_progress: Progress = unheard
    caller: CallerId = NOBODY
    may_write: bool = True
    """Whether the caller's key may change anything, for tools that do less for one that may not."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool gives back; a `SearchFailure` is told as an error."""

    body: WireResponse
    retry_after_s: float | None = None


@dataclass(frozen=True)
class Tool(Generic[Request]):
    """One tool. `description` is written for a model that must choose; `example` is a body it takes."""

    name: str
    title: str
    description: str
    request: type[Request]
    response: type[WireResponse]
    run: Callable[[Request, Call], Awaitable[Answer]]
    access: Access
    read_only: bool
    example: Mapping[str, Any]
    destructive: bool = False
    idempotent: bool = True
    names_one: bool = False
    """Whether it is about one thing that may not be there (404)."""

    toolset: Toolset = Toolset.MEMORY
    needs_project: bool = False
    """Whether a project must be active, or named (409)."""

    in_url: bool = False
    """Whether GET works too, with the fields in the query string."""

    @cached_property
    def input_schema(self) -> Schema:
        """JSON Schema of the arguments."""
        return json_schema(self.request, "validation")

    @cached_property
    def output_schema(self) -> Schema:
        """JSON Schema of the result."""
        return json_schema(self.response, "serialization")

    @property
    def may_be_empty(self) -> bool:
        """Whether an empty body is `{}`."""
        required = any(field.is_required() for field in self.request.model_fields.values())
        return not required and not self.request.exactly_one_of


class Registry(Mapping[str, Tool[Any]]):
    """The tools by name, in the order in which they are listed."""

    def __init__(self, *tools: Tool[Any]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def __getitem__(self, name: str) -> Tool[Any]:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def only(self, toolset: Toolset) -> "Registry":
        """The tools of one set."""
        return Registry(*(tool for tool in self.values() if toolset in (Toolset.ALL, tool.toolset)))

    def listing(self) -> list[dict[str, Any]]:
        """What `GET /tools` says of each."""
        return [
            {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.input_schema,
                "outputSchema": tool.output_schema,
            }
            for tool in self.values()
        ]
