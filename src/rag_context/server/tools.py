"""The tools: what each is called, takes, gives and may do, told for a model that must choose."""

from typing import Any

from rag_context.api.converse import ConverseRequest, ConverseResponse
from rag_context.api.delete import MANY, MAX_DELETED, DeleteRequest, DeleteResponse
from rag_context.api.get import GetRequest, GetResponse
from rag_context.api.index import IndexRequest, IndexResponse
from rag_context.api.listing import ListRequest, ListResponse
from rag_context.api.maintenance import (
    HealthRequest,
    HealthResponse,
    ReindexRequest,
    ReindexResponse,
    StatsRequest,
    StatsResponse,
)
from rag_context.api.search import SearchFailure, SearchRequest, SearchResponse
from rag_context.api.similar import SimilarRequest, SimilarResponse
from rag_context.api.wire import Vocabulary
from rag_context.server.collection_tools import build_collection_tools
from rag_context.server.options import Access
from rag_context.server.project_tools import build_project_tools
from rag_context.server.registry import Answer, Call, Registry, Service, Tool, Toolset
from rag_context.service.collections import CollectionService

_EMPTY_LEVEL = 3
_AN_ID = "7c9e6679-7425-50de-944b-e07fc1f90ae7"


def build_tools(service: Service, vocabulary: Vocabulary) -> Registry:
    """The tools of this server, bound to its service and speaking its vocabulary."""
    return Registry(
        _search_tool(service, vocabulary),
        _index_tool(service, vocabulary),
        _get_tool(service),
        _list_tool(service, vocabulary),
        _similar_tool(service),
        *(_collection_tools(service.collections) if service.collections is not None else ()),
        _delete_tool(service),
        _reindex_tool(service),
        _health_tool(service),
        _stats_tool(service),
        *(build_project_tools(service.projects) if service.projects is not None else ()),
    )


def _search_tool(service: Service, vocabulary: Vocabulary) -> Tool[SearchRequest]:
    async def run(request: SearchRequest, call: Call) -> Answer:
        outcome = await service.search(request, request_id=call.request_id)
        if request.strict and outcome.response.fallback_level >= _EMPTY_LEVEL:
            return Answer(SearchFailure.of(outcome.response), outcome.retry_after_s)
        return Answer(outcome.response)

    return Tool(
        name="rag_context_search",
        title="Search context",
        description=(
            "Search earlier chats, decisions, code and documentation for the passages that answer a question. Call it "
            "before you rely on memory: something may have been decided, tried or written before. Ask in plain words "
            "or with exact names and error codes. A filter excludes documents: use one only if you mean it. "
            "maxTokens limits the answer; rag_context_get returns the whole document of a passage."
        ),
        request=SearchRequest.speaking(vocabulary),
        response=SearchResponse,
        run=run,
        access=Access.READ,
        read_only=True,
        example={"query": "mongodb retry logic", "limit": 3, "category": "architecture", "agent": "orchestrator"},
    )


def _index_tool(service: Service, vocabulary: Vocabulary) -> Tool[IndexRequest]:
    async def run(request: IndexRequest, call: Call) -> Answer:
        return Answer(await service.index(request, request_id=call.request_id))

    return Tool(
        name="rag_context_index",
        title="Store context",
        description=(
            "Store a chat, decision, piece of code or document so that later searches find it. Code replaces the "
            "earlier version of the same source; documentation and a decision replace the earlier one with the same "
            "source and sessionId; a chat replaces nothing. The same text again changes nothing. Keys and tokens are "
            "masked before storing."
        ),
        request=IndexRequest.speaking(vocabulary),
        response=IndexResponse,
        run=run,
        access=Access.WRITE,
        read_only=False,
        destructive=True,
        example={
            "content": "We retry a failed payment three times, then tell the customer.",
            "contentType": "decision",
            "sessionId": "payments",
            "source": "docs/decisions/payment-retries.md",
            "metadata": {"category": "architecture", "tags": ["payments", "retries"]},
        },
    )


def _get_tool(service: Service) -> Tool[GetRequest]:
    async def run(request: GetRequest, _call: Call) -> Answer:
        return Answer(await service.get(request))

    return Tool(
        name="rag_context_get",
        title="Read a document",
        description=(
            "Read one document in full by its documentId, which rag_context_search and rag_context_list return: when "
            "a passage is right but not enough."
        ),
        request=GetRequest,
        response=GetResponse,
        run=run,
        access=Access.READ,
        read_only=True,
        names_one=True,
        example={"documentId": _AN_ID},
    )


def _list_tool(service: Service, vocabulary: Vocabulary) -> Tool[ListRequest]:
    async def run(request: ListRequest, _call: Call) -> Answer:
        return Answer(await service.listing(request))

    return Tool(
        name="rag_context_list",
        title="List documents",
        description=(
            "List stored documents, newest first, without the texts: those of a session, or those since a time. To "
            "find a document by its content, use rag_context_search."
        ),
        request=ListRequest.speaking(vocabulary),
        response=ListResponse,
        run=run,
        access=Access.READ,
        read_only=True,
        example={"sessionId": "payments", "limit": 10},
    )


def _similar_tool(service: Service) -> Tool[SimilarRequest]:
    async def run(request: SimilarRequest, _call: Call) -> Answer:
        return Answer(await service.similar(request))

    return Tool(
        name="rag_context_similar",
        title="Find similar documents",
        description=(
            "Find the documents that are most similar to a stored one: related decisions, an earlier instance of the "
            "same problem, near-duplicates. Each has its nearest passage and a score from 0 to 1. method says whether "
            "vectors (vector) or only keywords (text) were compared."
        ),
        request=SimilarRequest,
        response=SimilarResponse,
        toolset=Toolset.OPERATIONS,
        run=run,
        access=Access.READ,
        read_only=True,
        names_one=True,
        example={"documentId": _AN_ID, "limit": 3},
    )


def _collection_tools(collections: CollectionService) -> list[Tool[Any]]:
    return [_converse_tool(collections), *build_collection_tools(collections)]


def _converse_tool(collections: CollectionService) -> Tool[ConverseRequest]:
    async def run(request: ConverseRequest, _call: Call) -> Answer:
        return Answer(await collections.converse(request))

    return Tool(
        name="rag_context_converse",
        title="Search collections in a conversation",
        description=(
            "Find documents in named collections for the user's last message. From the second message on, give "
            "currentTopic: the topic of the conversation so far, with its names spelt out. It replaces the message as "
            "the query, because words such as it and that refer to earlier messages. Only collections whose texts "
            "this server embeds can be searched; the others are in omitted. Scores are cosines, the nearest first. To "
            "search the agents' own memory, use rag_context_search instead."
        ),
        request=ConverseRequest,
        response=ConverseResponse,
        toolset=Toolset.COLLECTIONS,
        run=run,
        access=Access.READ,
        read_only=True,
        names_one=True,
        example={
            "userMessage": "Does it integrate with OpenShift AI?",
            "currentTopic": "InstructLab and OpenShift AI integration",
            "collections": ["handbook"],
        },
    )


def _delete_tool(service: Service) -> Tool[DeleteRequest]:
    async def run(request: DeleteRequest, _call: Call) -> Answer:
        return Answer(await service.delete(request))

    return Tool(
        name="rag_context_delete",
        title="Delete context",
        description=(
            "Remove documents for good: one by documentId, all of a source, or all of a session; name exactly one of "
            "the three. This cannot be undone: call it with dryRun first and check the result. At most "
            f"{MAX_DELETED} are removed in one call, the oldest first; more than {MANY}, or more than half of all, "
            "only with confirm."
        ),
        request=DeleteRequest,
        response=DeleteResponse,
        run=run,
        access=Access.WRITE,
        read_only=False,
        destructive=True,
        example={"source": "docs/decisions/payment-retries.md", "dryRun": True},
    )


def _reindex_tool(service: Service) -> Tool[ReindexRequest]:
    async def run(request: ReindexRequest, call: Call) -> Answer:
        return Answer(await service.reindex_behind(request, call.on_progress))

    return Tool(
        name="rag_context_reindex",
        title="Re-embed the index",
        description=(
            "Re-embed the whole index after a change of the embedding model, and report the progress. Nothing is "
            "lost: the old vectors answer until the new ones are complete. It runs in the background, once, and "
            "survives a restart; call it again, or with statusOnly, for the progress. If the vectors are already the "
            "model's it does nothing, unless force is set. Call it only if the user asks for it, or if "
            "rag_context_health reports another model."
        ),
        request=ReindexRequest,
        response=ReindexResponse,
        toolset=Toolset.OPERATIONS,
        run=run,
        access=Access.WRITE,
        read_only=False,
        example={"statusOnly": True},
    )


def _health_tool(service: Service) -> Tool[HealthRequest]:
    async def run(_request: HealthRequest, _call: Call) -> Answer:
        return Answer(await service.health())

    return Tool(
        name="rag_context_health",
        title="Check health",
        description=(
            "Report whether searching and indexing work now: the state of the vector store, the embedder and the "
            "document store, and the number of indexed and of pending documents. Use it when answers look incomplete."
        ),
        request=HealthRequest,
        response=HealthResponse,
        toolset=Toolset.OPERATIONS,
        run=run,
        access=Access.READ,
        read_only=True,
        in_url=True,
        example={},
    )


def _stats_tool(service: Service) -> Tool[StatsRequest]:
    async def run(request: StatsRequest, _call: Call) -> Answer:
        return Answer(await service.stats(request))

    return Tool(
        name="rag_context_stats",
        title="Usage statistics",
        description=(
            "Statistics of the searches of the last hour, day, week or month: number, latency, cache hit rate, share "
            "of fallback levels, and agents."
        ),
        request=StatsRequest,
        response=StatsResponse,
        toolset=Toolset.OPERATIONS,
        run=run,
        access=Access.READ,
        read_only=True,
        in_url=True,
        example={"timeRange": "24h"},
    )
