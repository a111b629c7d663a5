"""The registry of tools: what each is called, takes, gives and may do. Every door is made from it."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from rag_context.contract.delete import MAX_DELETED, DeleteRequest, DeleteResponse
from rag_context.contract.health import HealthRequest, HealthResponse
from rag_context.contract.index import BulkLine, BulkReceipt, IndexRequest, IndexResponse
from rag_context.contract.schema import Schema, json_schema
from rag_context.contract.search import SearchFailure, SearchOutcome, SearchRequest, SearchResponse
from rag_context.contract.stats import StatsRequest, StatsResponse
from rag_context.contract.vocabulary import Vocabulary
from rag_context.contract.wire import WireRequest, WireResponse
from rag_context.ports import Tokenizer
from rag_context.server.options import Access
from rag_context.types import EmbeddingModel, Matrix

Request = TypeVar("Request", bound=WireRequest)
_EMPTY_LEVEL = 3


class Service(Protocol):
    """The use cases behind the doors."""

    async def search(self, request: SearchRequest, *, request_id: str) -> SearchOutcome: ...

    async def index(self, request: IndexRequest, *, request_id: str) -> IndexResponse: ...

    async def bulk(self, line: BulkLine, *, request_id: str) -> BulkReceipt: ...

    async def delete(self, request: DeleteRequest) -> DeleteResponse: ...

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Embed texts as passages: `(n, dim) float32`."""
        ...

    def model(self) -> EmbeddingModel:
        """The model in use. Raises: BackendError while it is not known."""
        ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    async def health(self) -> HealthResponse: ...

    async def stats(self, request: StatsRequest) -> StatsResponse: ...

    async def ready(self) -> bool: ...

    def prometheus(self) -> bytes:
        """The metrics in Prometheus' text format."""
        ...


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
    run: Callable[[Request, str], Awaitable[Answer]]
    access: Access
    read_only: bool
    example: Mapping[str, Any]
    destructive: bool = False
    idempotent: bool = True
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


def build_tools(service: Service, vocabulary: Vocabulary) -> Registry:
    """The tools of this server, bound to its service and speaking its vocabulary."""
    return Registry(
        _search_tool(service, vocabulary),
        _index_tool(service, vocabulary),
        _delete_tool(service),
        _health_tool(service),
        _stats_tool(service),
    )


def _search_tool(service: Service, vocabulary: Vocabulary) -> Tool[SearchRequest]:
    async def run(request: SearchRequest, request_id: str) -> Answer:
        outcome = await service.search(request, request_id=request_id)
        if request.strict and outcome.response.fallback_level >= _EMPTY_LEVEL:
            return Answer(SearchFailure.of(outcome.response), outcome.retry_after_s)
        return Answer(outcome.response)

    return Tool(
        name="rag_context_search",
        title="Search context",
        description=(
            "Search earlier chats, decisions, code and documentation for the passages that answer a question. "
            "Call it before you rely on memory: when something may have been decided, tried or written before. "
            "Ask in plain words or with exact names and error codes; both are found. Narrow with contentType, "
            "category, game, tags, source, sessionId, since and until only when you mean it: a filter excludes. "
            "Each result carries its text, a relevance from 0 to 1, its source and time. fallbackLevel 2 means words "
            "only were matched; 3 and 4 mean that nothing could be searched: go on without context and say so."
        ),
        request=SearchRequest.speaking(vocabulary),
        response=SearchResponse,
        run=run,
        access=Access.READ,
        read_only=True,
        example={"query": "mongodb retry logic", "limit": 3, "category": "architecture", "agent": "orchestrator"},
    )


def _index_tool(service: Service, vocabulary: Vocabulary) -> Tool[IndexRequest]:
    async def run(request: IndexRequest, request_id: str) -> Answer:
        return Answer(await service.index(request, request_id=request_id))

    return Tool(
        name="rag_context_index",
        title="Keep context",
        description=(
            "Keep a chat, decision, piece of code or document so that later searches find it. What replaces what: "
            "code replaces what the same source held before; documentation and a decision replace the earlier one "
            "with the same source and sessionId; a chat replaces nothing, each text is added. The same text again "
            "changes nothing (status unchanged). status pending means it is stored and found by its words now, by "
            "meaning a little later. Secrets such as keys and tokens are blanked out before storing."
        ),
        request=IndexRequest.speaking(vocabulary),
        response=IndexResponse,
        run=run,
        access=Access.WRITE,
        read_only=False,
        destructive=True,
        example={
            "content": "FireKirin jackpot threshold configuration...",
            "contentType": "documentation",
            "sessionId": "doc-firekirin-thresholds",
            "source": "docs/casino/firekirin.md",
            "metadata": {"category": "casino", "game": "FireKirin", "tags": ["jackpot", "threshold"]},
        },
    )


def _delete_tool(service: Service) -> Tool[DeleteRequest]:
    async def run(request: DeleteRequest, _request_id: str) -> Answer:
        return Answer(await service.delete(request))

    return Tool(
        name="rag_context_delete",
        title="Delete context",
        description=(
            "Remove documents for good: one by documentId, all of a source, or all of a session; name exactly one of "
            "the three. Only the agents' own memory is touched unless project names another. What is not there is no "
            f"error: deletedCount is 0. At most {MAX_DELETED} go in one call, the oldest first. There is no way back: "
            "call it with dryRun first and look at what would go."
        ),
        request=DeleteRequest,
        response=DeleteResponse,
        run=run,
        access=Access.WRITE,
        read_only=False,
        destructive=True,
        example={"source": "docs/casino/firekirin.md", "dryRun": True},
    )


def _health_tool(service: Service) -> Tool[HealthRequest]:
    async def run(_request: HealthRequest, _request_id: str) -> Answer:
        return Answer(await service.health())

    return Tool(
        name="rag_context_health",
        title="Check health",
        description=(
            "Say whether searching and indexing work now: the state of the vector store, the embedder and the "
            "document store, how many documents are indexed and how many wait. Use it when answers look incomplete."
        ),
        request=HealthRequest,
        response=HealthResponse,
        run=run,
        access=Access.READ,
        read_only=True,
        in_url=True,
        example={},
    )


def _stats_tool(service: Service) -> Tool[StatsRequest]:
    async def run(request: StatsRequest, _request_id: str) -> Answer:
        return Answer(await service.stats(request))

    return Tool(
        name="rag_context_stats",
        title="Usage statistics",
        description=(
            "Sum up the searches of the last hour, day, week or month: how many, how fast, how often from the cache, "
            "how often at a fallback level, by which agents."
        ),
        request=StatsRequest,
        response=StatsResponse,
        run=run,
        access=Access.READ,
        read_only=True,
        in_url=True,
        example={"timeRange": "24h"},
    )
