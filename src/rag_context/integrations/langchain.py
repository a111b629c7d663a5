"""A retriever and a vector store for LangChain (`pip install 'rag-context[langchain]'`)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, Self

import numpy as np
from pydantic import ConfigDict, Field, SkipValidation, model_validator

from rag_context.api.collections import QueryResult, StoredDocument
from rag_context.api.search import SearchRequest, SearchResponse
from rag_context.client import AsyncClient, Client, CollectionDocument, ConflictError, NotFoundError, SearchOptions
from rag_context.client.call import DEFAULT_CONNECTION, request_of
from rag_context.client.parameters import QueryMode
from rag_context.domain.vectors import Matrix, Vector
from rag_context.integrations import metadata_of

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import run_in_executor
    from langchain_core.vectorstores import VectorStore
except ImportError as error:
    raise ImportError("LangChain is not installed: pip install 'rag-context[langchain]'", name=error.name) from error

BATCH, BATCH_CHARS = 100, 4_000_000
"""A request to store texts holds at most so many, and ends with the one that brings it above this size."""

OWN_EMBEDDER = "rag-context"
"""The embedding provider of collections whose texts the server embeds."""

IDS = 50
"""Ids in one request for documents: they are a part of its URL."""


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
        request_of(SearchRequest, {"query": "any", **self._options(None)})
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


class RagContextVectorStore(VectorStore):
    """A collection as LangChain's vector store; the methods for coroutines run the others in threads.

    The first documents create the collection if it does not exist; a search in one that does not exist raises
    `NotFoundError`. Searches take `filter` (a `where` filter of metadata), `min_score` (on the scale of the mode), and
    `mode`. Scores are higher the better.

    Args:
        client: the client; the store does not close it.
        collection: the collection's name.
        embedding: embeds documents and queries here; None: the server embeds them with its own model.
        connection: the connection that the collection lives on.
        mode: how a text is searched for: `vector`, `text` (keywords) or `hybrid`.

    Example:
        store = RagContextVectorStore(Client(), "papers")
        store.add_texts(["Barn owls hunt voles."], [{"year": 2026}])
        documents = store.similarity_search("what do owls eat?", k=1, filter={"year": 2026})
    """

    def __init__(
        self,
        client: Client,
        collection: str,
        embedding: Embeddings | None = None,
        *,
        connection: str = DEFAULT_CONNECTION,
        mode: QueryMode = "vector",
    ) -> None:
        self._collections = client.collections.on(connection)
        self._name = collection
        self._embedding = embedding
        self._mode: QueryMode = mode

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """A store with these texts; further arguments are those of the store."""
        store = cls(embedding=embedding, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    @property
    def embeddings(self) -> Embeddings | None:
        return self._embedding

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Store texts in batches, each of them whole or not at all; a known id is replaced.

        Returns:
            The ids; where none is given, it is computed from the text and the metadata.
        """
        _reject(kwargs)
        stored: list[str] = []
        for batch in _batches(texts, metadatas, ids):
            if self._embedding is not None:
                vectors = self._embedding.embed_documents([each["text"] for each in batch])
                for document, vector in zip(batch, vectors, strict=True):
                    document["embedding"] = vector
            stored += self._add(batch)
        return stored

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Delete the documents with these ids, as far as they exist; None: all documents."""
        _reject(kwargs)
        if ids is None:
            self._collections.empty(self._name)
        for id_ in ids or ():
            with suppress(NotFoundError):
                self._collections.delete(self._name, id_)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        return [_document(each) for each in self._read(ids)]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        return [document for document, _ in self.similarity_search_with_score(query, k, **kwargs)]

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        return [(_document(each), each.score) for each in self._query(query, k, **kwargs)]

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[Document]:
        return [_document(each) for each in self._query(embedding, k, **kwargs)]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Of the `fetch_k` documents nearest to a text, `k` that differ from one another.

        `lambda_mult` of 1 chooses by relevance alone, of 0 by difference alone.
        """
        return self._diverse(self._query(query, fetch_k, mode="vector", **kwargs), k, lambda_mult)

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """As `max_marginal_relevance_search`, for a vector."""
        return self._diverse(self._query(embedding, fetch_k, **kwargs), k, lambda_mult)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """Scores of every mode are relevances already; LangChain wants none below 0."""
        return lambda score: max(score, 0.0)

    def _add(self, documents: list[CollectionDocument]) -> list[str]:
        try:
            return self._collections.add(self._name, documents).ids
        except NotFoundError:
            provider = None if self._embedding is not None else OWN_EMBEDDER
            with suppress(ConflictError):  # another program has just created it
                self._collections.create(self._name, embedding_provider=provider)
            return self._collections.add(self._name, documents).ids

    def _query(
        self,
        query: str | list[float],
        k: int,
        *,
        mode: QueryMode | None = None,
        filter: Mapping[str, object] | None = None,  # noqa: A002  (LangChain's name for it)
        min_score: float | None = None,
    ) -> list[QueryResult]:
        mode = (mode or self._mode) if isinstance(query, str) else "vector"
        text, vector = (query, None) if isinstance(query, str) else (None, query)
        if text is not None and self._embedding is not None and mode != "text":
            vector = self._embedding.embed_query(text)
            text = text if mode == "hybrid" else None
        return self._collections.query(
            self._name, text=text, embedding=vector, where=filter, top_k=k, mode=mode, min_score=min_score
        ).results

    def _read(self, ids: Sequence[str], *, embeddings: bool = False) -> Iterator[StoredDocument]:
        for start in range(0, len(ids), IDS):
            part = ids[start : start + IDS]
            yield from self._collections.documents(self._name, ids=part, limit=IDS, embeddings=embeddings).documents

    def _diverse(self, found: list[QueryResult], k: int, lambda_mult: float) -> list[Document]:
        stored = {each.id: each.embedding for each in self._read([each.id for each in found], embeddings=True)}
        found = [each for each in found if each.id in stored]  # without those that were deleted meanwhile
        scores = np.array([each.score for each in found], np.float32)
        vectors = np.array([stored[each.id] for each in found], np.float32)
        return [_document(found[position]) for position in _marginal(scores, vectors, k, lambda_mult)]


def _batches(
    texts: Iterable[str], metadatas: Sequence[Mapping[str, object]] | None, ids: Sequence[str | None] | None
) -> Iterator[list[CollectionDocument]]:
    texts = list(texts)
    for name, values in (("metadatas", metadatas), ("ids", ids)):
        if values is not None and len(values) != len(texts):
            raise ValueError(f"{len(texts)} texts need as many {name}, not {len(values)}")
    batch: list[CollectionDocument] = []
    chars = 0
    for text, metadata, id_ in zip(texts, metadatas or repeat({}), ids or repeat(None), strict=False):
        document = CollectionDocument(text=text, metadata=metadata)
        if id_ is not None:
            document["id"] = id_
        batch.append(document)
        chars += len(text)
        if len(batch) >= BATCH or chars > BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def _document(found: QueryResult | StoredDocument) -> Document:
    return Document(page_content=found.text, metadata=found.metadata, id=found.id)


def _marginal(scores: Vector, vectors: Matrix, k: int, lambda_mult: float) -> list[int]:
    """Places of documents by maximal marginal relevance (Carbonell & Goldstein 1998); `vectors` have length 1."""
    selected: list[int] = []
    nearest = np.zeros_like(scores)  # to what is chosen, of each document
    values = lambda_mult * scores
    for _ in range(min(k, len(scores))):
        best = int(np.argmax(values))
        selected.append(best)
        similarity = vectors @ vectors[best]
        nearest = similarity if len(selected) == 1 else np.maximum(nearest, similarity)
        values = lambda_mult * scores - (1.0 - lambda_mult) * nearest
        values[selected] = -np.inf
    return selected


def _reject(others: Mapping[str, object]) -> None:
    """Raises: TypeError. An argument that is ignored would promise what does not happen."""
    if others:
        raise TypeError(f"RagContextVectorStore does not know the argument {next(iter(others))!r}")
