"""New vectors beside those that answer, in a store that has documents too: never mixed, never half."""

from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from rag_context.domain.documents import Counts, Document
from rag_context.domain.search import Filter
from rag_context.domain.vectors import Calibration, EmbeddingModel
from rag_context.errors import BackendRejectedError
from rag_context.ports.writing import Version
from rag_context.stores.postgres import PostgresStore
from rag_context.stores.sqlite.embedded import SqliteStore, open_database
from tests.stores.builders import axis, chunks_of, document, unit_vectors

OLD = EmbeddingModel("old", 16, "0" * 64, 254, Calibration(12.1, -4.01))
NEW = EmbeddingModel("new", 8, "e" * 64, 254, Calibration(12.1, -4.01))


Store: TypeAlias = SqliteStore | PostgresStore


@pytest.fixture(params=["sqlite", "postgres"])
def store_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def file(store: Store) -> Store:
    """Three documents with the old model's vectors, along the first three axes."""
    await store.documents.adopt_model(OLD)
    for number, name in enumerate("abc"):
        written = document(name)
        await store.documents.write(Version(written, chunks_of(written), axis(number)[None], OLD.fingerprint))
    return store


async def add(file: Store, written: Document, seed: int) -> bool:
    rows = unit_vectors(1, dimension=8, seed=seed) if seed else unit_vectors(1, dimension=8)
    return await file.rebuilder.add(written.id, written.content_hash, rows, NEW.fingerprint)


async def nearest(file: Store, number: int) -> str:
    return (await file.vectors.search(axis(number), limit=1, where=Filter()))[0].chunk.document_id


async def test_the_old_vectors_answer_until_the_new_ones_are_complete(file: Store) -> None:
    await file.rebuilder.begin(NEW)
    everything = sorted(document(name).id for name in "abc")
    assert await file.rebuilder.missing("", 10) == everything
    assert await file.rebuilder.missing(everything[0], 1) == [everything[1]]
    for number, name in enumerate("abc"):
        assert not await file.rebuilder.switch(NEW.fingerprint, ())
        assert await nearest(file, 1) == document("b").id
        assert file.vectors.made_by == OLD.fingerprint
        assert await add(file, document(name), number)
    assert await file.rebuilder.remaining() == 0
    assert await file.rebuilder.switch(NEW.fingerprint, ())
    assert (await file.documents.recorded_model(), await file.rebuilder.under_way()) == (NEW, None)
    assert await file.documents.counts() == Counts(3, 0, 3, 3)
    assert len(await file.vectors.search(unit_vectors(1, dimension=8)[0], limit=5, where=Filter())) == 3
    assert file.vectors.made_by == NEW.fingerprint


async def test_it_can_be_done_again_and_again(file: Store) -> None:
    for _ in range(3):
        await file.rebuilder.begin(NEW)
        for number, name in enumerate("abc"):
            assert await add(file, document(name), number)
        assert await file.rebuilder.switch(NEW.fingerprint, ())
        written = document("a", "replaced")
        await file.documents.write(
            Version(written, chunks_of(written, "replaced"), unit_vectors(1, dimension=8), NEW.fingerprint)
        )
        await file.documents.delete(written.id)
        assert await file.documents.counts() == Counts(2, 0, 2, 2)
        written = document("a")
        await file.documents.write(Version(written, chunks_of(written), unit_vectors(1, dimension=8), NEW.fingerprint))


async def test_what_is_written_or_deleted_meanwhile_is_right_in_both(file: Store) -> None:
    await file.rebuilder.begin(NEW)
    for number, name in enumerate("abc"):
        await add(file, document(name), number)
    changed = document("a", "another text")
    await file.documents.write(Version(changed, chunks_of(changed, "another text"), axis(5)[None], OLD.fingerprint))
    await file.documents.delete(document("b").id)
    assert await file.rebuilder.missing("", 10) == [changed.id]
    assert not await add(file, document("a"), 0), "an earlier version"
    assert not await add(file, document("b"), 0), "it is gone"
    assert await nearest(file, 5) == changed.id
    assert await add(file, changed, 1)
    assert await file.rebuilder.switch(NEW.fingerprint, ())
    assert await file.documents.counts() == Counts(2, 0, 2, 2)


async def test_a_document_that_can_have_no_vectors_keeps_no_caller_waiting(file: Store) -> None:
    await file.rebuilder.begin(NEW)
    await add(file, document("a"), 0)
    await add(file, document("b"), 1)
    assert await file.rebuilder.switch(NEW.fingerprint, {document("c").id})
    assert await file.documents.counts() == Counts(3, 1, 3, 2)
    assert await file.documents.pending(10) == [document("c").id]


async def test_a_pending_document_has_its_vectors_with_the_others(file: Store) -> None:
    late = document("d")
    await file.documents.write(Version(late, chunks_of(late)))
    await file.rebuilder.begin(NEW)
    for number, name in enumerate("abcd"):
        await add(file, document(name), number)
    assert await file.rebuilder.switch(NEW.fingerprint, ())
    assert await file.documents.counts() == Counts(4, 0, 4, 4)


async def test_vectors_of_another_model_than_the_runs_are_rejected(file: Store) -> None:
    with pytest.raises(BackendRejectedError):
        await add(file, document("a"), 0)
    await file.rebuilder.begin(OLD)
    with pytest.raises(BackendRejectedError):
        await add(file, document("a"), 0)
    with pytest.raises(BackendRejectedError):
        await file.rebuilder.switch(NEW.fingerprint, ())
    assert await nearest(file, 2) == document("c").id


@pytest.mark.parametrize("store_name", ["sqlite"], indirect=True)
@pytest.mark.parametrize("how", ["abandon", "begin", "drop"])
async def test_what_an_abandoned_run_has_made_is_forgotten(file: SqliteStore, how: str) -> None:
    await file.rebuilder.begin(NEW)
    await add(file, document("a"), 0)
    match how:
        case "abandon":
            await file.rebuilder.abandon()
        case "begin":
            await file.rebuilder.begin(replace(NEW, fingerprint="another"))
        case "drop":
            await file.documents.drop_vectors()
    left = await file.database.read(
        lambda connection: connection.execute("SELECT count(*) FROM next_vectors").fetchone()
    )
    assert left == (0,)
    assert (await file.rebuilder.under_way() is None) is (how != "begin")


@pytest.mark.parametrize("store_name", ["sqlite"], indirect=True)
async def test_another_process_follows(file: SqliteStore, tmp_path: Path) -> None:
    async with open_database(tmp_path / "rag-context.db") as other:
        assert await nearest(other, 1) == document("b").id
        await file.rebuilder.begin(NEW)
        for number, name in enumerate("abc"):
            await add(file, document(name), number)
        await file.rebuilder.switch(NEW.fingerprint, ())
        assert len(await other.vectors.search(unit_vectors(1, dimension=8)[0], limit=5, where=Filter())) == 3
        written = document("d")
        await other.documents.write(Version(written, chunks_of(written), unit_vectors(1, dimension=8), NEW.fingerprint))
        assert len(await file.vectors.search(unit_vectors(1, dimension=8)[0], limit=5, where=Filter())) == 4
