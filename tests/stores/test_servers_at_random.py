"""Writes, deletions, crashes and repairs in any order: MongoDB and Qdrant end with what one SQLite file has."""

from pathlib import Path
from uuid import uuid4

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from rag_context.stores.mongodb import open_mongodb
from rag_context.stores.qdrant import CollectionPlan, open_qdrant
from rag_context.wiring.stores import DocumentBackend
from tests.ingest.split_stores import SplitStores
from tests.ingest.test_split_stores_at_random import TwoStoresAtRandom
from tests.servers.mongodb import empty
from tests.servers.mongodb_fixtures import kept, server
from tests.servers.qdrant import Endpoint

__all__ = ["kept", "server"]


def test_two_servers_end_with_what_one_file_has(kept: str, shared_qdrant: Endpoint) -> None:
    class Servers(TwoStoresAtRandom):
        async def _open_apart(self, directory: Path) -> SplitStores:
            empty(kept)
            store = await self.stack.enter_async_context(open_mongodb(kept))
            vectors = await self.stack.enter_async_context(
                open_qdrant(shared_qdrant.url, CollectionPlan(f"test-{uuid4().hex}"), api_key=shared_qdrant.api_key)
            )
            self.stack.push_async_callback(vectors.clear)
            split = SplitStores(DocumentBackend(store.documents, store.texts, store.metrics, store.auditor), vectors)
            await split.writer.adopt_model(split.fake.model)
            split.wire.mend()
            return split

    run_state_machine_as_test(
        Servers,
        settings=settings(
            max_examples=4, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
