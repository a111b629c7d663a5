"""The tools by name, from which HTTP and MCP are made: what each declared operation does, and the service it needs."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeAlias, TypeVar

from rag_context.api.collection_operations import (
    DeleteCollectionDocumentsRequest,
    ListDocumentsRequest,
    SetMetadataRequest,
    UpdateDocumentRequest,
)
from rag_context.api.index import BulkLine, BulkReceipt, IndexRequest, IndexResponse, VersionsRequest, VersionsResponse
from rag_context.api.maintenance import (
    HealthRequest,
    HealthResponse,
    ReindexRequest,
    ReindexResponse,
    StatsRequest,
    StatsResponse,
)
from rag_context.api.operations import Operation, Toolset, collections, memory, projects
from rag_context.api.operations.routes import OPERATIONS
from rag_context.api.parsing import ErrorCode
from rag_context.api.search import SearchFailure, SearchOutcome, SearchRequest
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
from rag_context.api.wire import Vocabulary, WireRequest, WireResponse
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.errors import BackendError, BackendUnavailableError
from rag_context.ports.models import Tokenizer
from rag_context.projects.callers import ANONYMOUS, CallerId
from rag_context.server.failures import component_sentence, retry_after
from rag_context.server.requests import RequestRejectedError
from rag_context.service.collection_service import CollectionService
from rag_context.service.project_service import ProjectService

_EMPTY_LEVEL = 3

Request = TypeVar("Request", bound=WireRequest)
Progress: TypeAlias = Callable[[int, int], Awaitable[None]]
"""Called with how much is done, and of how much."""


class Service(Protocol):
    """The use cases behind HTTP and MCP."""

    async def search(self, request: SearchRequest, *, request_id: str) -> SearchOutcome: ...

    async def index(self, request: IndexRequest, *, request_id: str) -> IndexResponse: ...

    async def bulk_all(self, lines: Sequence[BulkLine], *, request_id: str) -> list[BulkReceipt | Exception]: ...

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
    """What a tool returns; a `SearchFailure` is reported as an error."""

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
    return Tool(**{**declared, "request": operation.request.with_vocabulary(vocabulary)}, run=run)


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


def build_tools(service: Service, vocabulary: Vocabulary) -> Registry:
    """The tools of this server in its vocabulary, in the order in which the operations are declared."""
    work = memory_work(service)
    if service.collections is not None:
        work |= collection_work(service.collections)
    if service.projects is not None:
        work |= {name: with_project_codes(each) for name, each in project_work(service.projects).items()}
    offered = (operation for name, operation in OPERATIONS.items() if name in work)
    return Registry(*(tool_of(operation, work[operation.name], vocabulary) for operation in offered))


def memory_work(service: Service) -> WorkByName:
    """What does the operations of the agents' memory."""

    async def search(request: SearchRequest, call: Call) -> WireResponse | Answer:
        outcome = await service.search(request, request_id=call.request_id)
        if request.strict and outcome.response.fallback_level >= _EMPTY_LEVEL:
            return Answer(SearchFailure.of(outcome.response), outcome.retry_after_s)
        return outcome.response

    async def health(_request: HealthRequest, _call: Call) -> WireResponse:
        return await service.health()

    return dict(
        (
            does(memory.SEARCH, search),
            does(memory.INDEX, lambda request, call: service.index(request, request_id=call.request_id)),
            does(memory.GET, lambda request, _call: service.get(request)),
            does(memory.LIST, lambda request, _call: service.listing(request)),
            does(memory.SIMILAR, lambda request, _call: service.similar(request)),
            does(memory.DELETE, lambda request, _call: service.delete(request)),
            does(memory.REINDEX, lambda request, call: service.reindex_behind(request, call.on_progress)),
            does(memory.HEALTH, health),
            does(memory.STATS, lambda request, _call: service.stats(request)),
        )
    )


def project_work(service: ProjectService) -> WorkByName:
    """What does the operations of project documents."""
    questions = service.questions
    return dict(
        (
            does(
                projects.ACTIVATE_PROJECT,
                lambda request, call: service.activate(
                    request, call.on_progress, caller=call.caller, may_write=call.may_write
                ),
            ),
            does(
                projects.RAG_QUERY,
                lambda request, call: questions.query(request, caller=call.caller, request_id=call.request_id),
            ),
            does(
                projects.SEMANTIC_SEARCH,
                lambda request, call: questions.search(request, caller=call.caller, request_id=call.request_id),
            ),
            does(projects.READ_DOCUMENT, lambda request, call: service.read(request, caller=call.caller)),
            does(projects.INDEX_DOCUMENT, lambda request, call: service.index_document(request, caller=call.caller)),
            does(projects.LIST_DOC_TYPES, lambda request, call: service.list_doc_types(request, caller=call.caller)),
            does(
                projects.UPDATE_PROMOTION_LEVEL,
                lambda request, call: service.update_promotion_level(request, caller=call.caller),
            ),
            does(
                projects.DELETE_DOCUMENTS, lambda request, call: service.delete_documents(request, caller=call.caller)
            ),
            does(projects.LIST_PROJECTS, lambda _request, _call: service.list_projects()),
            does(
                projects.SEARCH_EXTERNAL_DOCS,
                lambda request, call: questions.search_external(
                    request, caller=call.caller, request_id=call.request_id
                ),
            ),
            does(
                projects.RAG_QUERY_EXTERNAL,
                lambda request, call: questions.query_external(request, caller=call.caller, request_id=call.request_id),
            ),
        )
    )


def with_project_codes(work: Work[Request]) -> Work[Request]:
    """The same, with failures of backends reported in the codes of these tools."""

    async def run(request: Request, call: Call) -> WireResponse | Answer:
        try:
            return await work(request, call)
        except BackendError as error:
            raise _rejection(error) from error

    return run


def _rejection(error: BackendError) -> RequestRejectedError:
    code = ErrorCode.EMBEDDING_SERVICE_ERROR if error.component.startswith("embed") else ErrorCode.DATABASE_ERROR
    wait = error.retry_after_s if isinstance(error, BackendUnavailableError) else None
    return RequestRejectedError(503, code, component_sentence(error.component), retry_after=retry_after(wait))


def collection_work(service: CollectionService) -> WorkByName:
    """What does the operations of collections and providers."""
    return _reading_collections(service) | _writing_collections(service) | _deleting_collections(service)


def _reading_collections(service: CollectionService) -> WorkByName:
    async def documents(request: ListDocumentsRequest, _call: Call) -> WireResponse:
        return await service.documents(
            request.name,
            where=request.where,
            limit=request.limit,
            offset=request.offset,
            ids=request.ids,
            embeddings=request.include is not None,
            connection=request.connection,
        )

    return dict(
        (
            does(collections.CONVERSE, lambda request, _call: service.converse(request)),
            does(
                collections.COLLECTION_QUERY,
                lambda request, _call: service.query(request.name, request, connection=request.connection),
            ),
            does(collections.COLLECTION_LIST, lambda request, _call: service.listing(connection=request.connection)),
            does(
                collections.COLLECTION_GET,
                lambda request, _call: service.get(request.name, connection=request.connection),
            ),
            does(collections.COLLECTION_DOCUMENTS, documents),
            does(
                collections.COLLECTION_VALUES,
                lambda request, _call: service.values(request.name, request.field, connection=request.connection),
            ),
            does(collections.PROVIDER_LIST, lambda _request, _call: service.providers.listing()),
            does(collections.PROVIDER_GET, lambda request, _call: service.providers.get(request.name)),
            does(collections.PROVIDER_TEST, lambda request, _call: service.providers.test(request.name, request)),
        )
    )


def _writing_collections(service: CollectionService) -> WorkByName:
    async def set_metadata(request: SetMetadataRequest, _call: Call) -> WireResponse:
        put = service.merge_metadata if request.merge else service.replace_metadata
        return await put(request.name, request, connection=request.connection)

    async def update(request: UpdateDocumentRequest, _call: Call) -> WireResponse:
        name, connection = request.name, request.connection
        return await service.update(name, request.id, request, merge=request.merge, connection=connection)

    return dict(
        (
            does(
                collections.COLLECTION_CREATE,
                lambda request, _call: service.create(request, connection=request.connection),
            ),
            does(
                collections.COLLECTION_ADD,
                lambda request, _call: service.add(request.name, request.documents, connection=request.connection),
            ),
            does(collections.COLLECTION_UPDATE_DOCUMENT, update),
            does(collections.COLLECTION_SET_METADATA, set_metadata),
        )
    )


def _deleting_collections(service: CollectionService) -> WorkByName:
    async def delete_documents(request: DeleteCollectionDocumentsRequest, _call: Call) -> WireResponse:
        name, connection, dry_run = request.name, request.connection, request.dry_run
        if request.ids is not None:
            return await service.delete_ids(name, request.ids, dry_run=dry_run, connection=connection)
        return await service.delete_matching(
            name,
            request.where,
            every=request.every is True,
            dry_run=dry_run,
            confirm=request.confirm,
            connection=connection,
        )

    return dict(
        (
            does(collections.COLLECTION_DELETE_DOCUMENTS, delete_documents),
            does(
                collections.COLLECTION_DELETE,
                lambda request, _call: service.drop(request.name, connection=request.connection),
            ),
            does(
                collections.COLLECTION_DELETE_DOCUMENT,
                lambda request, _call: service.delete(request.name, request.id, connection=request.connection),
            ),
            does(
                collections.COLLECTION_EMPTY,
                lambda request, _call: service.empty(request.name, connection=request.connection),
            ),
        )
    )
