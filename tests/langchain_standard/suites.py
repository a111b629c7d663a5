"""LangChain's own suites for retrievers and vector stores, on a real server.

The name of this file is none that the other tests collect: `make test` runs it in a process of its own.
"""

from collections.abc import Iterator

import pytest
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests

from rag_context.client import Client
from rag_context.integrations.langchain import RagContextRetriever, RagContextVectorStore
from tests.end_to_end.process import Served, served

COLLECTION = "langchain"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that holds what the retriever's questions are about."""
    with served(tmp_path_factory.mktemp("data")) as server:
        server.wait_ready()
        for number in range(4):
            server.index(f"Barn owl {number} hunts voles at night.", source=f"owls-{number}.md")
        yield server


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[Client]:
    with Client(server.url, api_key="") as client:
        yield client


class TestRetriever(RetrieversIntegrationTests):
    """The retriever."""

    @pytest.fixture(autouse=True)
    def _reached(self, client: Client) -> None:
        self.client = client

    @property
    def retriever_constructor(self) -> type[RagContextRetriever]:
        return RagContextRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, object]:
        return {"client": self.client}

    @property
    def retriever_query_example(self) -> str:
        return "what do owls hunt?"


class TestVectorStore(VectorStoreIntegrationTests):
    """The vector store over a collection, embedded by the suite."""

    @pytest.fixture
    def vectorstore(self, client: Client) -> Iterator[VectorStore]:
        client.collections.create(COLLECTION)
        yield RagContextVectorStore(client, COLLECTION, self.get_embeddings())
        client.collections.drop(COLLECTION)
