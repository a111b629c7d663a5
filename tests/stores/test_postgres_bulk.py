"""Loading much into PostgreSQL: whole batches in their order, and indexes after the rows."""

import asyncio
import re

import pytest

from rag_context.domain.documents import Counts, Tenant
from rag_context.domain.journal import Action, Change, Location, Move
from rag_context.domain.reports import Thoroughness
from rag_context.domain.search import Filter
from rag_context.errors import BackendRejectedError
from rag_context.ports.writing import BulkLoad, WholeDocument
from rag_context.stores.postgres import PostgresStore, open_postgres
from rag_context.testing import FakeEmbedder
from tests.servers.postgres import execute, query
from tests.servers.postgres_fixtures import database, postgres, server, template
from tests.stores.builders import DIMENSION, NOON, axis, chunks_of, document, ids, put, unit_vectors

__all__ = ["database", "postgres", "server", "template"]

MODEL = FakeEmbedder(dimension=DIMENSION).model


def whole(name: str, *, tenant: Tenant | None = None, embedded: bool = True) -> WholeDocument:
    each = document(name, f"{name} is here.", tenant=tenant or Tenant(), thread="talk")
    chunks = chunks_of(each, f"{name} is here.", "common words")
    return each, chunks, unit_vectors(2, seed=len(name)) if embedded else None


def indexes(url: str) -> set[str]:
    return {name for (name,) in query(url, "SELECT indexname FROM pg_indexes WHERE schemaname = 'rag_context'")}


async def test_a_batch_is_stored_in_its_order_and_what_is_there_is_left_alone(postgres: PostgresStore) -> None:
    bulk: BulkLoad = postgres.bulk
    await postgres.documents.adopt_model(MODEL)
    await put(postgres, document("b", "An earlier one."), vector=axis(0))
    other = Tenant("wiki", "main", "0" * 16)
    batch = [whole("c"), whole("b"), whole("a"), whole("d", tenant=other), whole("e", embedded=False)]
    stored = await bulk.write_new(batch, MODEL.fingerprint)
    assert stored == [batch[number][0].id for number in (0, 2, 3, 4)]
    assert await postgres.documents.counts() == Counts(5, 1, 9, 7)
    order = await postgres.documents.matching(Filter(), 10)
    assert order == [document(name).id for name in ("b", "c", "a", "e")]
    for each, chunks, vectors in (batch[0], batch[3]):
        assert await postgres.documents.get(each.id) == each
        assert await postgres.documents.chunks(each.id) == chunks
        found = await postgres.vectors.vectors([chunk.id for chunk in chunks])
        assert vectors is not None
        assert [found[chunk.id].tolist() for chunk in chunks] == vectors.tolist()
    hits = await postgres.texts.search("common", limit=10, where=Filter(tenant=other))
    assert ids(hits) == [batch[3][1][1].id]
    neighbours = await postgres.documents.neighbours([batch[0][1][1].id])
    after = neighbours[batch[0][1][1].id].after
    assert after is not None
    assert after.document_id == batch[2][0].id
    assert (await postgres.auditor.examine(lambda _document, _chunks: (), Thoroughness.FULL)).issues == ()
    assert await bulk.write_new(batch, MODEL.fingerprint) == []
    assert await bulk.write_new([], MODEL.fingerprint) == []


async def test_of_a_batch_with_one_that_cannot_be_stored_nothing_is(postgres: PostgresStore) -> None:
    await postgres.documents.adopt_model(MODEL)
    each, chunks, _ = whole("short")
    for vectors in (unit_vectors(1), unit_vectors(2, dimension=DIMENSION + 1)):
        with pytest.raises(BackendRejectedError):
            await postgres.bulk.write_new([whole("good"), (each, chunks, vectors)], MODEL.fingerprint)
    with pytest.raises(BackendRejectedError, match="another model"):
        await postgres.bulk.write_new([whole("good")], "another")
    assert await postgres.documents.counts() == Counts(0, 0, 0, 0)


async def test_of_two_loads_of_the_same_documents_each_is_stored_once(postgres: PostgresStore) -> None:
    batch = [whole(f"{number}") for number in range(20)]
    both = await asyncio.gather(postgres.bulk.write_new(batch, None), postgres.bulk.write_new(batch[::-1], None))
    assert sorted(id_ for stored in both for id_ in stored) == sorted(each.id for each, _, _ in batch)
    assert await postgres.documents.counts() == Counts(20, 0, 40, 40)


async def test_indexes_are_built_at_the_end_of_a_load(database: str) -> None:
    async with open_postgres(database, exact_rows=50) as store:
        shares: list[float] = []
        async with store.bulk.loading(shares.append):
            assert "chunks_by_terms" not in indexes(database)
            await store.bulk.write_new([whole(f"{number}") for number in range(40)], None)
            (hit, *_) = await store.texts.search("7 here", limit=5, where=Filter())
            assert hit.chunk.document_id == document("7").id
            assert "vectors_0_nearest" not in indexes(database)
            assert await store.vectors.ping() == "80 vectors, compared one by one"
        assert {"chunks_by_terms", "vectors_0_nearest"} <= indexes(database)
        assert await store.vectors.ping() == "80 vectors, by index"
        assert all(0 <= share <= 1 for share in shares)
        async with store.bulk.loading(shares.append):
            assert "chunks_by_terms" in indexes(database), "searches of an index in use need it"


async def test_a_load_that_failed_builds_nothing_and_the_next_one_does(database: str) -> None:
    class FailedLoadError(Exception):
        pass

    async with open_postgres(database, exact_rows=50) as store:
        with pytest.raises(FailedLoadError):
            async with store.bulk.loading(lambda _share: None):
                raise FailedLoadError
        async with store.bulk.loading(lambda _share: None):
            await store.bulk.write_new([whole("one")], None)
        assert "chunks_by_terms" in indexes(database)


async def test_a_load_that_is_given_up_ends_without_complaint(database: str, caplog: pytest.LogCaptureFixture) -> None:
    """What Ctrl-C does: the transaction is rolled back before its connection is closed."""
    for delay_s in (0.005, 0.02, 0.05):
        async with open_postgres(database) as store:
            await store.documents.ping()
            batch = [whole(f"{delay_s} {number}") for number in range(200)]
            loading = asyncio.create_task(store.bulk.write_new(batch, None))
            await asyncio.sleep(delay_s)
            loading.cancel()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


MANY_VECTORS = """
INSERT INTO rag_context.vectors_0 (chunk, embedding)
SELECT -n, ARRAY[random(), random(), random(), random(), random(), random(), random(), random(),
                 random(), random(), random(), random(), random(), random(), random(), random()]::real[]::vector
FROM generate_series(1, 10000) AS n
"""


async def test_health_says_how_far_the_index_over_the_vectors_is(database: str) -> None:
    async with open_postgres(database, exact_rows=10) as store:
        await store.bulk.write_new([whole(f"{number}") for number in range(10)], None)
        execute(database, "ALTER TABLE rag_context.vectors_0 DISABLE TRIGGER ALL", MANY_VECTORS)
        building = asyncio.create_task(store.vectors.build_index(0))
        said = []
        while not building.done():
            said.append(await store.vectors.ping())
        assert await building
        assert any(
            re.fullmatch(r"\d+ vectors, compared .* until the index is built \(\d+%\)", each) for each in said
        ), said
        # Their number is counted again meanwhile.
        assert re.fullmatch(r"\d+ vectors, by index", await store.vectors.ping())


async def test_a_load_is_recorded_and_leaves_out_what_was_forgotten(postgres: PostgresStore) -> None:
    gone, kept = whole("gone", embedded=False), whole("kept", embedded=False)
    await put(postgres, gone[0])
    place = Location(gone[0].id, gone[0].content_hash)
    await postgres.journal.make(Change(Action.PURGE, Tenant(), [Move(place, None, forgets=True)], "tester", NOON))
    assert await postgres.bulk.write_new([gone, kept], None) == [kept[0].id]
    latest, *_ = await postgres.journal.entries(Tenant(), before=None, limit=1)
    assert (latest.action, latest.document_ids) == (Action.INDEX, [kept[0].id])
