"""Posting lists of common terms are read ahead, so that no search has to wait for them."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import numpy as np
import pytest

from rag_context.domain.documents import Chunk, Span
from rag_context.domain.search import Filter
from rag_context.errors import BackendStartingError
from rag_context.stores.sqlite import FILE_NAME, SqliteStore, open_database, open_documents
from rag_context.stores.sqlite import vectors as sqlite_vectors
from rag_context.stores.sqlite.store import SqliteDocumentBackend
from rag_context.stores.sqlite.texts import SqliteTexts
from tests.stores.builders import document, put

MANY = 50_000
"""As few chunks as there must be before any list is long."""

Open = Callable[[Path], AbstractAsyncContextManager[SqliteStore | SqliteDocumentBackend]]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of one document of very many chunks: one word in all of them, seven in many, the rest rare."""
    path = tmp_path_factory.mktemp("large") / FILE_NAME

    async def write() -> None:
        made = document("large", "")
        words = [f"common often{number % 7} rare{number}" for number in range(MANY)]
        chunks = [Chunk(f"c{i}", made.id, i, text, Span(0, len(text), 1, 1)) for i, text in enumerate(words)]
        async with open_database(path) as store:
            await store.documents.write(made, chunks, None)

    asyncio.run(write())
    return path


def held(texts: SqliteTexts) -> set[str]:
    """Terms whose posting lists are in memory."""
    return {match.partition('"')[2].rstrip('"') for _, _, match in list(texts._postings._lists)}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_small_index_has_nothing_to_read_ahead(path: Path) -> None:
    async with open_database(path) as store:
        assert await store.texts.warm() == ()
        await put(store, document("a", "wolf"))
        assert await store.texts.warm() == ()
        assert held(store.texts) == set()


@pytest.mark.parametrize("open_", [open_database, open_documents])
async def test_the_posting_lists_of_common_terms_are_read_when_a_large_index_is_opened(
    large: Path, open_: Open
) -> None:
    common = {"common", *(f"often{number}" for number in range(7))}
    async with open_(large) as store:
        await until(lambda: held(store.texts) >= common)
        assert held(store.texts) == common
        words = await store.texts.warm()
        assert words[0] == "common"
        assert set(words) == common


async def test_what_was_read_ahead_follows_the_index_and_answers_as_before(large: Path) -> None:
    where = Filter()
    async with open_database(large) as cold:
        expected = await cold.texts.search("rare77 often0 common", limit=5, where=where)
    async with open_database(large) as store:
        await store.texts.warm()
        assert await store.texts.search("rare77 often0 common", limit=5, where=where) == expected
        assert expected[0].chunk.id == "c77"
        (new,) = await put(store, document("new", "common often0 wolf"))
        hits = await store.texts.search("often0 wolf", limit=1, where=where)
        assert [hit.chunk.id for hit in hits] == [new]
        await store.documents.delete(document("new").id)


async def test_closing_does_not_wait_for_what_is_still_being_read(large: Path) -> None:
    async with asyncio.timeout(30), open_database(large):
        pass


async def test_a_search_does_not_wait_for_a_large_index_that_is_still_being_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = threading.Event()

    def slowly(generation: int, connection: sqlite3.Connection) -> object:
        assert read.wait(60)
        return load(generation, connection)

    load = sqlite_vectors._load
    monkeypatch.setattr(sqlite_vectors, "_load", slowly)
    async with open_database(path) as store:
        try:
            with pytest.raises(BackendStartingError, match="still being read"):
                await store.vectors.search(np.ones(3, np.float32), limit=5, where=Filter())
        finally:
            read.set()
        assert "0 vectors" in await store.vectors.ping()
        assert await store.vectors.search(np.ones(3, np.float32), limit=5, where=Filter()) == []
