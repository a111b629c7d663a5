"""Writes, deletions, crashes and repairs in any order: two stores end with what one store has."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rag_context.domain.documents import Document
from rag_context.domain.search import Filter
from rag_context.errors import BackendError
from rag_context.ports.writing import Version
from rag_context.stores.sqlite.embedded import FILE_NAME, open_database
from tests.ingest.split_stores import SplitStores, chunks_of, document, opened

SENTENCES = ("The wolf sleeps", "Nobody stirs", "A dragon wakes", "It is hungry")
QUERIES = ("wolf", "dragon hungry", "nobody stirs", "sleeps")

names = st.sampled_from("abc")
versions = st.builds(
    lambda name, sentences, tags: document(name, *sentences, tags=tuple(tags)),
    names,
    st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(("x", "y")), max_size=1),
)
Crash = tuple[int, bool] | None
crashes: st.SearchStrategy[Crash] = st.none() | st.tuples(st.integers(0, 4), st.booleans())
"""At which call a process ends, and whether that call was done."""


class TwoStoresAtRandom(RuleBasedStateMachine):
    """Two stores, and one beside them that gets what the two acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.runner.run(self._open())

    async def _open(self) -> None:
        directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.split = await self._open_apart(directory)
        self.one = await self.stack.enter_async_context(open_database(directory / FILE_NAME))
        await self.one.documents.adopt_model(self.split.fake.model)

    async def _open_apart(self, directory: Path) -> SplitStores:
        return await self.stack.enter_async_context(opened(directory))

    def teardown(self) -> None:
        try:
            self.runner.run(self._end_as_one_store())
        finally:
            self.runner.run(self.stack.aclose())
            self.runner.close()

    @rule(version=versions, at=crashes)
    def write(self, version: Document, at: Crash) -> None:
        with self._crashing(at):
            self.runner.run(self._written(self.split.write(version), version))

    @rule(version=versions)
    def write_without_vectors(self, version: Document) -> None:
        self.runner.run(self._written(self.split.writer.write(Version(version, chunks_of(version))), version))

    @rule(place=st.integers(0, 2), at=crashes)
    def delete(self, place: int, at: Crash) -> None:
        there = sorted(self.runner.run(self.one.documents.inventory("", 10)))
        if there:
            with self._crashing(at):
                self.runner.run(self._deleted(there[place % len(there)]))

    @rule(at=crashes)
    def sweep(self, at: Crash) -> None:
        with self._crashing(at):
            self.runner.run(self._tried(self.split.sweep()))

    @rule()
    def reconcile(self) -> None:
        self.runner.run(self.split.reconcile())

    @rule(at=crashes)
    def reindex(self, at: Crash) -> None:
        """What it leaves half done is seen from the counts, and repaired at the next look."""
        with self._crashing(at):
            done = self.runner.run(self._tried(self.split.writer.drop_vectors()))
        if not done:
            assert self.runner.run(self.split.torn()) == [] or self.runner.run(self.split.reconciler.differ())
            self.reconcile()
        self.runner.run(self.split.writer.adopt_model(self.split.fake.model))

    @invariant()
    def no_document_is_said_to_have_vectors_that_it_lacks(self) -> None:
        assert self.runner.run(self.split.torn()) == []

    @contextmanager
    def _crashing(self, at: Crash) -> Iterator[None]:
        """The process ends at a call that is made in the block, and another one takes its place."""
        self.split.restart()
        if at is not None:
            call, is_late = at
            cut: Callable[[int], None] = self.split.wire.break_after if is_late else self.split.wire.break_at
            cut(call)
        yield
        self.split.restart()

    async def _tried(self, work: Awaitable[object]) -> bool:
        try:
            await work
        except BackendError:
            return False
        return True

    async def _written(self, work: Awaitable[object], version: Document) -> None:
        """Acknowledged, it is there; rejected, it may be, and nothing else may have changed."""
        before = await self.split.home.documents.get(version.id)
        acknowledged = await self._tried(work)
        there = await self.split.home.documents.get(version.id)
        if there == version:
            vectors = await self.split.embedded(chunks_of(version))
            await self.one.documents.write(Version(version, chunks_of(version), vectors))
        else:
            assert not acknowledged
            assert there == before

    async def _deleted(self, id_: str) -> None:
        before = await self.split.home.documents.get(id_)
        acknowledged = await self._tried(self.split.writer.delete(id_))
        there = await self.split.home.documents.get(id_)
        if there is None:
            await self.one.documents.delete(id_)
        else:
            assert not acknowledged
            assert there == before

    async def _end_as_one_store(self) -> None:
        await self.split.recover()
        assert not await self.split.reconciler.compare()
        assert not await self.split.reconciler.differ()
        assert await self.split.home.documents.counts() == await self.one.documents.counts()
        for query in QUERIES:
            vector = await self.split.fake.embed_query(query)
            for where in (Filter(), Filter(tags=("x",))):
                texts = [await each.texts.search(query, limit=50, where=where) for each in (self.split.home, self.one)]
                assert texts[0] == texts[1]
                here, there = [
                    {hit.chunk: hit.cosine for hit in await each.search(vector, limit=50, where=where)}
                    for each in (self.split.vectors, self.one.vectors)
                ]
                assert here == pytest.approx(there, abs=1e-6)
                ids = [chunk.id for chunk in there]
                assert await self.split.home.documents.passages(ids) == await self.one.documents.passages(ids)
                assert await self.split.vectors.passages(ids) == await self.one.documents.passages(ids)


TestTwoStoresAtRandom = TwoStoresAtRandom.TestCase
TestTwoStoresAtRandom.settings = settings(
    max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
