"""A retriever for LangChain (`pip install 'rag-context[langchain]'`)."""

from typing import Any

from pydantic import ConfigDict, Field, SkipValidation, model_validator

from rag_context.api.search import SearchResponse
from rag_context.client import AsyncClient, Client, SearchOptions
from rag_context.client.calls import search
from rag_context.integrations import metadata_of

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ImportError as error:
    raise ImportError("LangChain is not installed: pip install 'rag-context[langchain]'", name=error.name) from error


class RagContextRetriever(BaseRetriever):
    """Passages of the memory as LangChain's documents.

    `invoke` needs a `Client`, `ainvoke` works with any: a `Client`, an `AsyncClient`, or what `open_context` gives.

    Example:
        retriever = RagContextRetriever(client=Client(), options={"limit": 3, "content_type": "decision"})
        documents = retriever.invoke("why SQLite?")
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
    """Unknown fields are errors: a filter outside `options` would be ignored, and the results would be wrong."""

    client: Client | AsyncClient = Field(repr=False)
    """The client; the retriever does not close it."""

    options: SkipValidation[SearchOptions] = Field(default_factory=SearchOptions)
    """Arguments of `Client.search`, such as limit and filters."""

    @model_validator(mode="after")
    def _check_options(self) -> "RagContextRetriever":
        search("any", self.options)
        return self

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        if isinstance(self.client, AsyncClient):
            raise TypeError("this retriever has an asynchronous client: use ainvoke, or give it a Client")
        return _documents(self.client.search(query, request_id=str(run_manager.run_id), **self.options))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        if isinstance(self.client, Client):
            found: Any = await super()._aget_relevant_documents(query, run_manager=run_manager)
            return list(found)
        return _documents(await self.client.search(query, request_id=str(run_manager.run_id), **self.options))


def _documents(answer: SearchResponse) -> list[Document]:
    return [
        Document(page_content=result.content, metadata=metadata_of(answer, result), id=result.chunk_id)
        for result in answer.results
    ]
