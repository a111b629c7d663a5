"""`search` and `fetch`: the agents' memory in the two calls that ChatGPT and deep-research clients make."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import quote

from rag_context.api.handlers import CallContext, performs
from rag_context.api.operations import memory
from rag_context.api.search import (
    FetchRequest,
    FetchResponse,
    FindRequest,
    FindResponse,
    FoundDocument,
    SearchRequest,
    SearchResponse,
    SearchResult,
)
from rag_context.api.stored_documents import GetRequest, GetResponse

FOUND = 10

Search: TypeAlias = Callable[[SearchRequest, CallContext], Awaitable[SearchResponse]]
Get: TypeAlias = Callable[[GetRequest], Awaitable[GetResponse]]


class SearchFetch:
    def __init__(self, search: Search, get: Get) -> None:
        self._search = search
        self._get = get

    @performs(memory.FIND)
    async def find(self, request: FindRequest, context: CallContext) -> FindResponse:
        answer = await self._search(SearchRequest(query=request.query, limit=FOUND, agent=request.agent), context)
        best: dict[str, SearchResult] = {}
        for result in answer.results:
            if result.document_id is not None:
                best.setdefault(result.document_id, result)
        found = [
            FoundDocument(id=id_, title=each.title or each.source, url=_url(id_, each.source), text=each.content)
            for id_, each in best.items()
        ]
        return FindResponse(results=found, warning=answer.warning)

    @performs(memory.FETCH)
    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Read a document. Raises: NotFoundError, BackendError."""
        document = await self._get(GetRequest(document_id=request.id))
        return FetchResponse(
            id=document.document_id,
            title=document.title or document.source,
            text=document.content,
            url=_url(document.document_id, document.source),
            metadata={**document.metadata, "source": document.source, "occurredAt": document.occurred_at.isoformat()},
        )


def _url(document_id: str, source: str) -> str:
    """Where a document is from: its source where that is an address, else its resource."""
    is_address = source.startswith(("https://", "http://"))
    return source if is_address else f"rag-context://documents/{quote(document_id, safe='')}"
