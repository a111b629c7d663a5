"""One call to a store that has it all gives what several calls to several stores give, to the last bit."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rag_context.domain.documents import Metadata
from rag_context.domain.search import Filter
from rag_context.errors import BackendUnavailableError
from rag_context.resilience.breaker import Breaker, constant_cooldown
from rag_context.resilience.dependency import Dependency
from rag_context.search.chain import SearchChain
from rag_context.search.query import Answer, Level, Mode, Query
from rag_context.search.reads import completed
from rag_context.search.retrievers import Backends
from rag_context.stores.sqlite import SqliteStore, open_database
from rag_context.testing import FakeEmbedder
from tests.stores.builders import axis, chunks_of, document

WORDS = "valve pump reactor pressure bar opens closes nine seven retry timeout".split()  # noqa: SIM905
QUERIES = ("valve opens at nine bar", "retry timeout", "pump", "nothing that is there", "the")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Conversations, code and prose, some of it without vectors."""
    rng = np.random.default_rng(2)
    embedder = FakeEmbedder()
    async with open_database(tmp_path / "rag-context.db") as store:
        for number in range(120):
            kind = ("chat", "code", "documentation")[number % 3]
            texts = [" ".join(rng.choice(WORDS, rng.integers(3, 12))) for _ in range(rng.integers(1, 5))]
            each = document(
                f"{number}",
                "\n".join(texts),
                content_type=kind,
                source=f"{number % 7}.md",
                metadata=Metadata(tags=("red",) if number % 4 else ()),
                thread=f"talk {number % 5}" if kind == "chat" else None,
            )
            vectors = None if number % 11 == 0 else await embedder.embed_documents(texts)
            await store.documents.write(each, chunks_of(each, *texts), vectors)
        yield store


def chain(store: SqliteStore, *, one_call: bool) -> SearchChain:
    embedder = FakeEmbedder()
    sources = Backends(
        embedder=embedder,
        vectors=store.vectors,
        texts=store.texts,
        documents=store.documents,
        embedding=Dependency("embedder", embedder.ping),
        vector_store=Dependency("vectors", store.vectors.ping),
        document_store=Dependency("documents", store.documents.ping),
        candidates=store.candidates if one_call else None,
        keyword_candidates=store.keyword_candidates if one_call else None,
    )
    return SearchChain(sources, Breaker("search", threshold=5, cooldown=constant_cooldown(60.0)), deadline_s=10.0)


def without_times(answer: Answer) -> Answer:
    legs = {name: replace(report, latency_ms=0.0) for name, report in sorted(answer.legs.items())}
    return replace(answer, legs=legs)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    "where", [Filter(), Filter(content_type="chat"), Filter(tags=("red",), source_prefix="3"), Filter(game="nowhere")]
)
async def test_both_ways_give_the_same_answers(store: SqliteStore, mode: Mode, where: Filter) -> None:
    whole, several = chain(store, one_call=True), chain(store, one_call=False)
    for text in QUERIES:
        for query in (
            Query(text, where=where, mode=mode),
            Query(text, limit=20, where=where, mode=mode, min_score=0.0, per_document=1),
        ):
            assert without_times(await whole.search(query)) == without_times(await several.search(query))


async def test_a_vector_that_the_caller_brings_needs_no_text(store: SqliteStore) -> None:
    vector = await FakeEmbedder().embed_query("valve")
    query = Query("", vector=vector, min_score=0.0)
    answers = [without_times(await chain(store, one_call=way).search(query)) for way in (True, False)]
    assert answers[0] == answers[1]
    assert answers[0].results


async def test_an_index_of_another_dimension_still_answers_by_keywords(store: SqliteStore) -> None:
    query = Query("valve", vector=axis(0))
    answers = [without_times(await chain(store, one_call=way).search(query)) for way in (True, False)]
    assert answers[0] == answers[1]
    assert (answers[0].level, answers[0].legs["vector"].status.value) == (Level.TEXT, "failed")


async def test_a_store_that_fails_in_the_one_call_is_reported(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_args: object) -> None:
        raise BackendUnavailableError("documents", "gone")

    broken = chain(store, one_call=True)
    monkeypatch.setattr(store.candidates, "read", fails)
    monkeypatch.setattr(store.keyword_candidates, "read", fails)
    answer = await broken.search(Query("valve"))
    assert answer.level is Level.EMPTY
    assert answer.legs["vector"].status.value == "failed"


def test_a_coroutine_that_waits_is_not_run_without_a_loop() -> None:
    async def waits() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="must not wait"):
        completed(waits())
