"""PostgreSQL keeps documents, vectors, texts and metrics like every other store: the shared tests, on a real server.

All of them run against the server at RAG_TEST_POSTGRES_URL where that is set, each in a database of its own.
"""

import pytest

from rag_context.ports.reading import DocumentStore, KeywordIndex, MetricsStore, VectorStore
from rag_context.ports.writing import IndexWriter, ModelRegistry, VectorRebuilder
from rag_context.stores.postgres import PostgresStore
from tests.servers.postgres_fixtures import database, postgres, server, template
from tests.stores import (
    test_document_store,
    test_journal,
    test_listing,
    test_metrics_store,
    test_tenants,
    test_text_index,
    test_vector_store,
)
from tests.stores.builders import Stores
from tests.stores.test_tenants import memory

__all__ = ["database", "memory", "postgres", "server", "template"]

for _module in (
    test_document_store,
    test_journal,
    test_listing,
    test_metrics_store,
    test_tenants,
    test_text_index,
    test_vector_store,
):
    for _name, _test in vars(_module).items():
        if _name.startswith("test_"):
            globals()[_name] = _test


@pytest.fixture
def store(postgres: PostgresStore) -> PostgresStore:
    return postgres


def test_it_fits_every_port(postgres: PostgresStore) -> None:
    documents: DocumentStore = postgres.documents
    writer: IndexWriter = postgres.documents
    models: ModelRegistry = postgres.documents
    vectors: VectorStore = postgres.vectors
    texts: KeywordIndex = postgres.texts
    metrics: MetricsStore = postgres.metrics
    rebuilder: VectorRebuilder = postgres.rebuilder
    whole: Stores = postgres
    assert len({id(port) for port in (documents, vectors, texts, metrics, rebuilder)}) == 5
    assert {id(writer), id(models)} == {id(whole.documents)}
