"""The embedded store fits its ports; the type checker is the test."""

from rag_context.ports.reading import DocumentStore, KeywordIndex, MetricsStore, VectorStore
from rag_context.ports.writing import IndexWriter, ModelRegistry
from rag_context.stores.sqlite.embedded import SqliteStore
from tests.stores.builders import Stores


def test_the_embedded_store_fits_every_port(store: SqliteStore) -> None:
    documents: DocumentStore = store.documents
    writer: IndexWriter = store.documents
    models: ModelRegistry = store.documents
    vectors: VectorStore = store.vectors
    texts: KeywordIndex = store.texts
    metrics: MetricsStore = store.metrics
    whole: Stores = store
    assert len({id(port) for port in (documents, vectors, texts, metrics)}) == 4
    assert {id(writer), id(models)} == {id(whole.documents)}
