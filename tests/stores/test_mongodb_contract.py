"""MongoDB is a document store, text index and metrics store like every other: the shared tests, vectors kept aside.

All of them run against the server at RAG_TEST_MONGODB_URI where that is set, each in a database of its own.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from rag_context.domain.documents import Chunk, Document
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendRejectedError
from rag_context.ports.reading import DocumentStore, KeywordIndex, MetricsStore
from rag_context.ports.writing import DocumentWriter, IndexAuditor, ModelRegistry, Version
from rag_context.stores.mongodb import MongoStore
from rag_context.stores.mongodb.document_store import MongoDocuments
from rag_context.stores.sqlite import open_vectors
from rag_context.stores.sqlite.split import SqliteVectorBackend
from tests.servers.mongodb_fixtures import LEFT_SOCKETS, database, kept, left_sockets, mongodb, server
from tests.stores import test_document_store, test_metrics_store, test_tenants, test_text_index
from tests.stores.builders import Documents
from tests.stores.test_tenants import memory

__all__ = ["database", "kept", "left_sockets", "memory", "mongodb", "server"]

pytestmark = LEFT_SOCKETS

NOT_HERE = {
    "test_vectors_that_do_not_fit_the_chunks_are_rejected_and_nothing_is_stored",
    "test_vectors_of_another_dimension_are_rejected_and_the_old_version_stays",
    "test_one_bad_write_among_many_fails_alone",
    "test_versions_written_together_each_have_a_result_of_their_own",
    "test_chunks_that_stay_keep_their_vectors_while_the_rest_is_pending",
    "test_a_conversation_is_scored_as_one_text",
    "test_every_search_gives_what_scoring_every_chunk_gives",
    "test_many_records_are_pruned_to_the_last",
}
"""The first five take a transaction over documents and vectors, the next one an index that is not there. The last two
take long here: `test_mongodb_texts.py` has them with fewer examples, and of the only step in which MongoDB prunes."""

for _module in (test_document_store, test_tenants, test_text_index, test_metrics_store):
    for _name, _test in vars(_module).items():
        if _name.startswith("test_") and _name not in NOT_HERE:
            globals()[_name] = _test


class Joined:
    """The document store, with the writes that keep the vectors beside it."""

    def __init__(self, documents: MongoDocuments, vectors: SqliteVectorBackend) -> None:
        self._documents = documents
        self._vectors = vectors

    def __getattr__(self, name: str) -> object:
        return getattr(self._documents, name)

    async def write(self, version: Version) -> bool:
        await self._check_model(version.made_by)
        document, chunks, vectors = version.document, version.chunks, version.vectors
        await self._documents.put(document, chunks)
        return vectors is not None and await self._add(document, chunks, vectors, version.made_by)

    async def attach(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str | None = None) -> bool:
        await self._check_model(made_by)
        document = await self._documents.get(document_id)
        if document is None or document.content_hash != content_hash:
            return False
        return await self._add(document, await self._documents.chunks(document_id), vectors, made_by)

    async def delete(self, document_id: str) -> bool:
        await self._vectors.discard([document_id])
        return await self._documents.delete(document_id)

    async def drop_vectors(self) -> int:
        await self._vectors.clear()
        return await self._documents.drop_vectors()

    async def _add(self, document: Document, chunks: Sequence[Chunk], vectors: Matrix, made_by: str | None) -> bool:
        await self._vectors.put(document, chunks, vectors)
        return await self._documents.mark_indexed(document.id, document.content_hash, made_by)

    async def _check_model(self, made_by: str | None) -> None:
        recorded = await self._documents.recorded_model()
        if made_by is not None and (recorded is None or recorded.fingerprint != made_by):
            raise BackendRejectedError("documents", "another model")


@dataclass(frozen=True)
class SplitStores:
    """Documents in MongoDB, vectors in a file."""

    mongodb: MongoStore
    vectors: SqliteVectorBackend

    @property
    def documents(self) -> Documents:
        return cast("Documents", Joined(self.mongodb.documents, self.vectors))

    @property
    def texts(self) -> KeywordIndex:
        return self.mongodb.texts

    @property
    def metrics(self) -> MetricsStore:
        return self.mongodb.metrics


@pytest.fixture
async def store(mongodb: MongoStore, tmp_path: Path) -> AsyncIterator[SplitStores]:
    async with open_vectors(tmp_path / "vectors.db") as vectors:
        yield SplitStores(mongodb, vectors)


async def test_it_fits_every_port(store: SplitStores) -> None:
    opened = store.mongodb
    documents: DocumentStore = opened.documents
    writer: DocumentWriter = opened.documents
    models: ModelRegistry = opened.documents
    texts: KeywordIndex = opened.texts
    metrics: MetricsStore = opened.metrics
    auditor: IndexAuditor = opened.auditor
    assert len({id(port) for port in (documents, texts, metrics, auditor)}) == 4
    assert {id(writer), id(models)} == {id(documents)}
