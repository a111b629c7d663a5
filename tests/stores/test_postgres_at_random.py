"""Writes, deletions, crashes, damage and repairs in any order: PostgreSQL ends with what one embedded file has."""

import asyncio
import tempfile
from collections.abc import Awaitable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from rag_context.domain.documents import Document
from rag_context.domain.reports import IntegrityReport, IssueKind, Thoroughness
from rag_context.domain.search import Filter
from rag_context.errors import BackendError
from rag_context.memory.index_maintenance import document_issues
from rag_context.ports.writing import Version
from rag_context.stores.postgres.audit import PostgresAuditor
from rag_context.stores.postgres.connection import PostgresDatabase
from rag_context.stores.postgres.documents import PostgresDocuments
from rag_context.stores.postgres.keywords import PostgresTexts
from rag_context.stores.postgres.state import IndexState
from rag_context.stores.postgres.vector_search import PostgresVectors
from rag_context.stores.sqlite.embedded import FILE_NAME, open_database
from rag_context.testing import FakeEmbedder
from tests.ingest.split_stores import chunks_of, document
from tests.ingest.test_split_stores_at_random import QUERIES, SENTENCES, Crash
from tests.servers.cutting import CuttingProxy, cutting_proxy
from tests.servers.postgres import execute, postgres_database
from tests.servers.postgres_fixtures import server, template

__all__ = ["server", "template"]

names = st.sampled_from("abc")
versions = st.builds(
    lambda name, sentences, tags: document(name, *sentences, tags=tuple(tags)),
    names,
    st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(("x", "y")), max_size=1),
)
crashes: st.SearchStrategy[Crash] = st.none() | st.tuples(st.integers(0, 25), st.booleans())
"""At which message to the server the connection is cut, and whether the message arrives."""

DAMAGE = (
    "DELETE FROM rag_context.vectors_{g} WHERE chunk = (SELECT min(chunk) FROM rag_context.vectors_{g})",
    "UPDATE rag_context.vectors_{g} SET embedding = embedding + embedding",
    "UPDATE rag_context.chunks SET terms = terms[1:1], counts = counts[1:1]",
    "UPDATE rag_context.chunks SET tags = '{{}}', source = 'elsewhere'",
    "UPDATE rag_context.state SET documents = documents + 1, vectors = 0",
)
"""What a repair makes good by itself."""


class PostgresAtRandom(RuleBasedStateMachine):
    """A database, and an embedded file that gets what it has acknowledged."""

    url = ""
    template = ""

    def __init__(self) -> None:
        super().__init__()
        self.fake = FakeEmbedder(dimension=16)
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.own = self.stack.enter_context(postgres_database(self.url, self.template))
        self.runner.run(self._open())

    async def _open(self) -> None:
        directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.one = await self.stack.enter_async_context(open_database(directory / FILE_NAME))
        await self.one.documents.adopt_model(self.fake.model)
        host, _, port = self.own.partition("@")[2].partition("/")[0].partition(":")
        self.proxy: CuttingProxy = await self.stack.enter_async_context(cutting_proxy(host, int(port)))
        # Without the task that follows the database, whose messages would be counted too.
        database = PostgresDatabase(self.own.replace(f":{port}/", f":{self.proxy.port}/"))
        self.stack.push_async_callback(database.close)
        self.state = IndexState(database)
        self.documents = PostgresDocuments(database, self.state)
        self.vectors = PostgresVectors(database, self.state, self.documents)
        self.texts = PostgresTexts(database, self.state)
        self.auditor = PostgresAuditor(database, self.state)
        await self.documents.adopt_model(self.fake.model)

    def teardown(self) -> None:
        try:
            self.runner.run(self._end_as_one_file())
        finally:
            self.runner.run(self.stack.aclose())
            self.runner.close()

    @rule(version=versions, at=crashes, has_vectors=st.booleans())
    def write(self, version: Document, at: Crash, has_vectors: bool) -> None:
        chunks = chunks_of(version)
        vectors = self.runner.run(self.fake.embed_documents([chunk.text for chunk in chunks])) if has_vectors else None
        by = self.fake.model.fingerprint if has_vectors else None
        before = self.runner.run(self.documents.get(version.id))
        with self._crashing(at):
            acknowledged = self.runner.run(_tried(self.documents.write(Version(version, chunks, vectors, by))))
        there = self.runner.run(self.documents.get(version.id))
        assert there == version if acknowledged else there in (before, version)
        if there == version:
            self.runner.run(self._copied(version))

    @rule(place=st.integers(0, 2), at=crashes)
    def delete(self, place: int, at: Crash) -> None:
        known = sorted(self.runner.run(self.one.documents.inventory("", 10)))
        if not known:
            return
        id_ = known[place % len(known)]
        with self._crashing(at):
            acknowledged = self.runner.run(_tried(self.documents.delete(id_)))
        is_gone = self.runner.run(self.documents.get(id_)) is None
        assert is_gone or not acknowledged
        if is_gone:
            self.runner.run(self.one.documents.delete(id_))

    @rule(at=crashes)
    def sweep(self, at: Crash) -> None:
        with self._crashing(at):
            self.runner.run(_tried(self._sweep()))

    @rule(damage=st.sampled_from(DAMAGE), at=crashes)
    def damage_and_repair(self, damage: str, at: Crash) -> None:
        """A repair that is cut off is begun again, and finds what is left."""
        generation = self.runner.run(self.state.refresh()).generation
        execute(self.own, damage.format(g=generation))
        with self._crashing(at):
            self.runner.run(_tried(self._repair()))
        self.runner.run(self._repair())

    @rule(at=crashes)
    def drop_vectors(self, at: Crash) -> None:
        with self._crashing(at):
            self.runner.run(_tried(self.documents.drop_vectors()))
        self.runner.run(self.documents.adopt_model(self.fake.model))

    @invariant()
    def the_index_is_sound(self) -> None:
        assert self.runner.run(self._examined()).issues == ()

    @contextmanager
    def _crashing(self, at: Crash) -> Iterator[None]:
        if at is not None:
            self.proxy.cut_at(at[0], is_late=at[1])
        yield
        self.proxy.mend()
        self.runner.run(self._used_again())

    async def _used_again(self) -> None:
        while not await _tried(self.state.refresh()):  # the connections that were cut are noticed one by one
            pass

    async def _sweep(self) -> None:
        for id_ in await self.documents.pending(1000):
            stored = await self.documents.stored(id_)
            assert stored is not None
            vectors = await self.fake.embed_documents([chunk.text for chunk in await self.documents.chunks(id_)])
            await self.documents.attach(id_, stored.content_hash, vectors, self.fake.model.fingerprint)

    async def _examined(self) -> IntegrityReport:
        found = await self.auditor.examine(document_issues, Thoroughness.FULL)
        made = {IssueKind.CHANGED_CONTENT, IssueKind.WRONG_ID, IssueKind.BROKEN_CHUNKS}  # as these tests make them
        issues = tuple(issue for issue in found.issues if issue.kind not in made)
        return IntegrityReport(found.counts, found.compared_terms, issues)

    async def _repair(self) -> None:
        await self.auditor.repair({issue.kind for issue in (await self._examined()).issues})

    async def _copied(self, version: Document) -> None:
        chunks = chunks_of(version)
        vectors = await self.fake.embed_documents([chunk.text for chunk in chunks])
        await self.one.documents.write(Version(version, chunks, vectors))

    async def _end_as_one_file(self) -> None:
        await self._sweep()
        assert (await self._examined()).issues == ()
        assert await self.documents.counts() == await self.one.documents.counts()
        for query in QUERIES:
            vector = await self.fake.embed_query(query)
            for where in (Filter(), Filter(tags=("x",))):
                here, there = [
                    {hit.chunk.id: hit.bm25 for hit in await each.search(query, limit=50, where=where)}
                    for each in (self.texts, self.one.texts)
                ]
                assert here == pytest.approx(there, abs=1e-6)
                near, there = [
                    {hit.chunk.id: hit.cosine for hit in await each.search(vector, limit=50, where=where)}
                    for each in (self.vectors, self.one.vectors)
                ]
                assert near == pytest.approx(there, abs=1e-6)
                assert await self.documents.passages(list(there)) == await self.one.documents.passages(list(there))


async def _tried(work: Awaitable[object]) -> bool:
    try:
        await work
    except BackendError:
        return False
    return True


def test_a_database_ends_with_what_one_file_has(server: str, template: str) -> None:
    class OnServer(PostgresAtRandom):
        url = server

    OnServer.template = template
    run_state_machine_as_test(
        OnServer,
        settings=settings(
            max_examples=3, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
