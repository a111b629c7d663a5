"""A retriever for LlamaIndex (`pip install 'rag-context[llama-index]'`)."""

import asyncio
from typing import Unpack

from rag_context.api.search import SearchRequest, SearchResponse, SearchResult
from rag_context.client import AsyncClient, Client, SearchOptions
from rag_context.client.call import request_of
from rag_context.integrations import metadata_of

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
except ImportError as error:
    raise ImportError("LlamaIndex is not installed: pip install 'rag-context[llama-index]'", name=error.name) from error

_FOR_MODELS = frozenset({"source", "title", "heading", "occurred_at"})
"""Metadata that a language model sees with a passage; the rest is for programs."""


class RagContextRetriever(BaseRetriever):
    """Passages of the memory as LlamaIndex's nodes.

    `retrieve` needs a `Client`, `aretrieve` works with any: a `Client`, an `AsyncClient`, or what `open_context` gives.

    Args:
        client: whom to ask; it is not closed with the retriever.
        options: limit, filters and the rest that `Client.search` takes.

    Raises: InvalidInputError (an option is wrong).
    """

    def __init__(self, client: Client | AsyncClient, **options: Unpack[SearchOptions]) -> None:
        super().__init__()
        request_of(SearchRequest, {"query": "any", **options})
        self._client = client
        self._options = options

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if isinstance(self._client, AsyncClient):
            raise TypeError("this retriever has an asynchronous client: use aretrieve, or give it a Client")
        return _nodes(self._client.search(query_bundle.query_str, **self._options))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if isinstance(self._client, Client):
            return await asyncio.to_thread(self._retrieve, query_bundle)
        return _nodes(await self._client.search(query_bundle.query_str, **self._options))


def _nodes(answer: SearchResponse) -> list[NodeWithScore]:
    return [NodeWithScore(node=_node(answer, result), score=result.score) for result in answer.results]


def _node(answer: SearchResponse, result: SearchResult) -> TextNode:
    metadata = metadata_of(answer, result)
    hidden = [name for name in metadata if name not in _FOR_MODELS]
    node = TextNode(
        text=result.content,
        metadata=metadata,
        excluded_llm_metadata_keys=hidden,
        excluded_embed_metadata_keys=list(metadata),
    )
    if result.chunk_id is not None:
        node.id_ = result.chunk_id
    if result.document_id is not None:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=result.document_id)
    return node
