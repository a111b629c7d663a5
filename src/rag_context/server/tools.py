"""The tools of a running server: what does each declared operation."""

from rag_context.api.maintenance import HealthRequest
from rag_context.api.operations import memory
from rag_context.api.operations.table import OPERATIONS
from rag_context.api.search import SearchFailure, SearchRequest
from rag_context.api.wire import Vocabulary, WireResponse
from rag_context.server.collection_tools import collection_work
from rag_context.server.project_tools import project_work, told_of_projects
from rag_context.server.registry import Answer, Call, Registry, Service, WorkByName, does, tool_of

_EMPTY_LEVEL = 3


def build_tools(service: Service, vocabulary: Vocabulary) -> Registry:
    """The tools of this server in its vocabulary, in the order in which the operations are declared."""
    work = memory_work(service)
    if service.collections is not None:
        work |= collection_work(service.collections)
    if service.projects is not None:
        work |= {name: told_of_projects(each) for name, each in project_work(service.projects).items()}
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
