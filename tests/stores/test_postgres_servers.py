"""Several servers on one PostgreSQL database: what one does, the others leave to it."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from rag_context.domain.documents import utc_now
from rag_context.domain.reports import SearchRecord
from rag_context.domain.vectors import Matrix
from rag_context.ingest.indexer import Indexer, IndexingPolicy
from rag_context.memory.background_maintenance import BackgroundMaintenance
from rag_context.memory.bound_embedder import BoundEmbedder
from rag_context.ports.writing import Version
from rag_context.resilience.dependency import Dependency
from rag_context.stores.postgres import PostgresStore, open_postgres
from rag_context.testing import FakeEmbedder
from tests.ingest.split_stores import chunks_of, document
from tests.servers.postgres import execute
from tests.servers.postgres_fixtures import database, server, template

__all__ = ["database", "server", "template"]

DOCUMENTS = 24


class SlowEmbedder(FakeEmbedder):
    """Gives others the time to begin with the same document."""

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        await asyncio.sleep(0.02)
        return await super().embed_documents(texts)


async def write_path(store: PostgresStore, embedder: FakeEmbedder) -> tuple[Indexer, BackgroundMaintenance]:
    """What indexes the documents of a server, and what completes the pending ones."""
    bound = BoundEmbedder(embedder, store.documents)
    await bound.bind()
    guard = Dependency("documents", store.documents.ping)
    indexer = Indexer(
        embedder=bound,
        embedding=Dependency("embedder", bound.ping),
        documents=store.documents,
        document_store=guard,
        writer=store.documents,
        policy=IndexingPolicy(254),
        claims=store.claims,
    )
    return indexer, BackgroundMaintenance((), bound, indexer, store.documents, asyncio.get_running_loop().time)


async def pending(store: PostgresStore) -> int:
    return (await store.documents.counts()).pending


async def test_a_pending_document_is_embedded_by_one_of_two_servers(database: str) -> None:
    embedder = SlowEmbedder()
    async with open_postgres(database) as one, open_postgres(database) as other:
        sweepers = [(await write_path(store, embedder))[1] for store in (one, other)]
        for number in range(DOCUMENTS):
            written = document(f"number {number}", f"Entry {number}")
            await one.documents.write(Version(written, chunks_of(written)))
        embedder.calls = 0
        done = await asyncio.gather(*(each.sweep(lambda _done: None) for each in sweepers))
        assert await pending(one) == 0
        assert embedder.calls == DOCUMENTS
        assert min(done) > 0, "they share the work"


async def test_what_a_server_claimed_is_free_once_it_is_gone(database: str) -> None:
    async with open_postgres(database) as one, open_postgres(database) as other:
        async with one.claims.claimed("a") as first, other.claims.claimed("a") as second:
            assert (first, second) == (True, False)
            async with other.claims.claimed("b") as is_ours:
                assert is_ours
            await one.claims.close()
            async with asyncio.timeout(10.0):
                while not await is_free(other):
                    await asyncio.sleep(0.01)
        async with one.claims.claimed("a") as again:
            assert again


async def is_free(store: PostgresStore) -> bool:
    async with store.claims.claimed("a") as is_ours:
        return is_ours


async def test_without_sessions_and_without_a_session_left_work_goes_on(database: str) -> None:
    async with (
        open_postgres(database, statement_cache_size=0) as behind_a_pooler,
        behind_a_pooler.claims.claimed("a") as one,
        behind_a_pooler.claims.claimed("a") as two,
    ):
        assert (one, two) == (True, True)
    name = database.rpartition("/")[2]
    async with open_postgres(database) as store:
        await store.documents.ping()
        execute(database.replace(name, "postgres"), f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        async with store.claims.claimed("a") as is_ours:
            assert is_ours


async def test_old_records_are_deleted_by_one_server(database: str) -> None:
    async with open_postgres(database) as one, open_postgres(database) as other:
        at = utc_now()
        await one.metrics.append([SearchRecord(at, "id", "q", 3, 1.0, 1.0, None, 2.0, 1, False, "a")] * 50, [])
        deleted = await asyncio.gather(*(store.metrics.prune(at + timedelta(1)) for store in (one, other)))
        assert sorted(deleted) == [0, 50]


async def test_an_index_over_the_vectors_is_built_by_one_server(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_postgres(database, exact_rows=10)) for _ in range(4)]
        written = document("many", *(f"Sentence {number}" for number in range(400)))
        chunks = chunks_of(written)
        vectors = await FakeEmbedder().embed_documents([chunk.text for chunk in chunks])
        await stores[0].documents.write(Version(written, chunks, vectors))
        await asyncio.gather(*(store.vectors.build_index(0) for store in stores))
        assert [await store.vectors.build_index(0) for store in stores] == [True] * 4, "the others find it"
    assert caplog.messages.count("the index over the vectors was built") == 1
