"""A retriever for LangChain (`pip install 'rag-context[langchain]'`)."""

from pydantic import ConfigDict, Field, SkipValidation, model_validator

from rag_context.api.search import SearchResponse
from rag_context.client import AsyncClient, Client, SearchOptions
from rag_context.client.calls import search
from rag_context.integrations import metadata_of

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import run_in_executor
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

    k: int | None = None
    """How many passages to return: LangChain's name of the option `limit`, before which it goes."""

    @model_validator(mode="after")
    def _check_options(self) -> "RagContextRetriever":
        search("any", self._options(None))
        return self

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        if isinstance(self.client, AsyncClient):
            raise TypeError("this retriever has an asynchronous client: use ainvoke, or give it a Client")
        return _documents(self.client.search(query, request_id=str(run_manager.run_id), **self._options(k)))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        if isinstance(self.client, Client):
            return await run_in_executor(
                None, self._get_relevant_documents, query, run_manager=run_manager.get_sync(), k=k
            )
        return _documents(await self.client.search(query, request_id=str(run_manager.run_id), **self._options(k)))

    def _options(self, k: int | None) -> SearchOptions:
        """Those of one call: its `k` goes before the retriever's, which goes before the option `limit`."""
        options, limit = self.options.copy(), k if k is not None else self.k
        if limit is not None:
            options["limit"] = limit
        return options


def _documents(answer: SearchResponse) -> list[Document]:
    return [
        Document(page_content=result.content, metadata=metadata_of(answer, result), id=result.chunk_id)
        for result in answer.results
    ]
