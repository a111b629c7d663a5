"""A whole memory whose model is behind an address: what happens to documents and searches when that goes or changes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rag_context.api.handlers import CallContext
from rag_context.api.index import IndexRequest, IndexResponse
from rag_context.api.search import SearchRequest, SearchResponse
from rag_context.errors import IndexMismatchError
from rag_context.memory.service import Service
from rag_context.settings import EmbedderSettings, Settings
from rag_context.testing import FakeEmbedder
from rag_context.wiring.model_adapters import OnMismatch, former_embedders
from rag_context.wiring.opening import open_service
from tests.servers.embedding_stub import EmbeddingStub, embedding_stub

TIMEOUT_S = 30.0


@asynccontextmanager
async def memory(directory: Path, stub: EmbeddingStub) -> AsyncIterator[Service]:
    """A memory in a directory, its model behind the stub's address."""
    embedder = EmbedderSettings(kind="openai_compatible", url=stub.url, model="stub")
    async with open_service(Settings(data_dir=directory, embedder=embedder)) as service:
        await service.wait_ready(TIMEOUT_S)
        yield service


async def index(service: Service, content: str) -> IndexResponse:
    fields = {"content": content, "contentType": "documentation", "sessionId": "s", "source": content}
    return await service.index(IndexRequest.model_validate(fields), CallContext("r"))


async def search(service: Service, query: str) -> SearchResponse:
    request = SearchRequest.model_validate({"query": query, "minScore": 0})
    return await service.search(request, CallContext("r"))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what the background work brings about."""
    async with asyncio.timeout(TIMEOUT_S):
        while not await condition():
            await asyncio.sleep(0.02)


async def test_without_the_server_keyword_search_answers_and_documents_wait_for_it(tmp_path: Path) -> None:
    """M-5, F-7: a server that is down never stops the start; what it missed follows."""
    async with embedding_stub() as stub:
        await stub.stop()
        async with memory(tmp_path, stub) as service:
            assert (await index(service, "mongodb retry")).status == "pending"
            answer = await search(service, "mongodb")
            assert (answer.fallback_level, len(answer.results)) == (2, 1)
            assert not (await service.health()).healthy
            await stub.start()

            async def healed() -> bool:
                report = await service.health()
                return report.healthy and report.pending_documents == 0

            await until(healed)
            assert (await search(service, "mongodb again")).fallback_level == 1


async def test_another_model_behind_the_address_is_rejected_until_the_index_is_rebuilt(tmp_path: Path) -> None:
    """D-10: its vectors are rejected, keyword search answers, documents wait, health says why."""
    async with embedding_stub() as stub, memory(tmp_path, stub) as service:
        assert (await index(service, "mongodb retry")).status == "indexed"
        assert (await search(service, "mongodb")).fallback_level == 1
        stub.seed = stub.name = "another"
        assert (await index(service, "grand jackpot")).status == "pending"
        answer = await search(service, "mongodb jackpot")
        assert (answer.fallback_level, len(answer.results)) == (2, 2)
        report = await service.health()
        (part,) = (component for component in report.components if component.name == "embedder")
        assert part.status == "unavailable"
        assert "rag-context reindex" in (part.detail or "")
        assert await service.reindexing.run(lambda _done, _total: None) == 2
        assert (await search(service, "mongodb jackpots")).fallback_level == 1
        assert (await service.health()).healthy


async def test_a_restart_on_both_sides_leaves_everything_as_it_was(tmp_path: Path) -> None:
    async with embedding_stub(dimension=384) as stub:
        async with memory(tmp_path, stub) as service:
            assert (await index(service, "mongodb retry")).status == "indexed"
        await stub.stop()
        stub.noise = 1e-3
        await stub.start()
        async with memory(tmp_path, stub) as service:
            assert (await search(service, "mongodb")).fallback_level == 1
            assert (await index(service, "grand jackpot")).status == "indexed"
            assert (await service.health()).healthy


async def test_another_model_at_the_start_is_rejected_in_one_sentence_and_accepted_on_request(tmp_path: Path) -> None:
    """D-10, M-5."""
    async with embedding_stub() as stub:
        async with memory(tmp_path, stub) as service:
            assert (await index(service, "mongodb retry")).status == "indexed"
        stub.seed = stub.name = "another"
        embedder = EmbedderSettings(kind="openai_compatible", url=stub.url, model="stub")
        settings = Settings(data_dir=tmp_path, embedder=embedder)
        with pytest.raises(IndexMismatchError, match="rag-context reindex"):
            async with open_service(settings):
                pass
        async with open_service(settings, OnMismatch.REINDEX) as service:
            await until(lambda: _is_whole(service))
            assert (await search(service, "mongodb")).fallback_level == 1


async def _is_whole(service: Service) -> bool:
    report = await service.health()
    return report.healthy and report.pending_documents == 0


async def test_a_server_that_changed_its_model_is_not_queried_for_the_previous_one(tmp_path: Path) -> None:
    async with embedding_stub(dimension=384) as stub:
        model = FakeEmbedder("all-MiniLM-L6-v2", dimension=384).model
        chosen = EmbedderSettings(kind="openai_compatible", url=stub.url, model=model.name)
        async with former_embedders(Settings(data_dir=tmp_path, embedder=chosen)) as open_former:
            assert await open_former(model) is None
            assert stub.requests == []
            other = replace(model, name="stub", fingerprint="f00d")
            assert await open_former(other) is None, "it has another fingerprint"
            assert stub.requests != []
