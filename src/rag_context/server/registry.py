"""The tools by name, from which HTTP and MCP are made, and the service behind them."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeAlias, TypeVar

from rag_context.api.delete import DeleteRequest, DeleteResponse
from rag_context.api.get import GetRequest, GetResponse
from rag_context.api.index import BulkLine, BulkReceipt, IndexRequest, IndexResponse
from rag_context.api.listing import ListRequest, ListResponse
from rag_context.api.maintenance import HealthResponse, ReindexRequest, ReindexResponse, StatsRequest, StatsResponse
from rag_context.api.operations import Operation, Toolset
from rag_context.api.search import SearchOutcome, SearchRequest
from rag_context.api.similar import SimilarRequest, SimilarResponse
from rag_context.api.wire import VersionsRequest, VersionsResponse, Vocabulary, WireRequest, WireResponse
from rag_context.domain.embedding_model import EmbeddingModel
from rag_context.domain.vectors import Matrix
from rag_context.ports.models import Tokenizer
from rag_context.projects.callers import ANONYMOUS, CallerId
from rag_context.service.collections import CollectionService
from rag_context.service.projects import ProjectService

Request = TypeVar("Request", bound=WireRequest)
Progress: TypeAlias = Callable[[int, int], Awaitable[None]]
"""Told how much is done, and of how much."""


class Service(Protocol):
    """The use cases behind HTTP and MCP."""

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


async def unheard(_done: int, _total: int) -> None:
    """Progress that no one follows."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a tool knows of the call that runs it."""

    request_id: str
    on_progress: Progress = unheard
    caller: CallerId = ANONYMOUS
    may_write: bool = True
    """Whether the caller's key may change anything, for tools that do less for one that may not."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool gives back; a `SearchFailure` is told as an error."""

    body: WireResponse
    retry_after_s: float | None = None


Work: TypeAlias = Callable[[Request, Call], Awaitable[WireResponse | Answer]]
WorkByName: TypeAlias = dict[str, Callable[[Any, Call], Awaitable[WireResponse | Answer]]]


def does(operation: Operation[Request, Any], work: Work[Request]) -> tuple[str, Work[Any]]:
    """What does an operation, by its name."""
    return operation.name, work


@dataclass(frozen=True, kw_only=True)
class Tool(Operation[Request, WireResponse]):
    """An operation of a running server: in its vocabulary, with what it does."""

    run: Callable[[Request, Call], Awaitable[Answer]]


def tool_of(operation: Operation[Request, Any], work: Work[Request], vocabulary: Vocabulary) -> Tool[Request]:
    """The operation, done by `work`."""

    async def run(request: Request, call: Call) -> Answer:
        given = await work(request, call)
        return given if isinstance(given, Answer) else Answer(given)

    declared = {each.name: getattr(operation, each.name) for each in fields(operation)}
    return Tool(**{**declared, "request": operation.request.speaking(vocabulary)}, run=run)


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
