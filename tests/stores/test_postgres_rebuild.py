"""What is PostgreSQL's own of new vectors beside those that answer: their tables, and other servers."""

from dataclasses import replace

import pytest

from rag_context.domain.documents import Counts
from rag_context.domain.search import Filter
from rag_context.ports.writing import Version
from rag_context.stores.postgres import PostgresStore, open_postgres
from tests.stores.builders import axis, chunks_of, document, unit_vectors
from tests.stores.test_rebuild import NEW, file

__all__ = ["file"]

_TABLES = "SELECT relname FROM pg_class WHERE relname ~ '^vectors_[0-9]+$' ORDER BY relname"


@pytest.fixture
def store_name() -> str:
    return "postgres"


async def add(file: PostgresStore, name: str, seed: int) -> bool:
    written = document(name)
    rows = unit_vectors(1, dimension=8, seed=seed)
    return await file.rebuilder.add(written.id, written.content_hash, rows, NEW.fingerprint)


@pytest.mark.parametrize("how", ["abandon", "begin", "drop"])
async def test_the_table_of_an_abandoned_run_is_dropped(file: PostgresStore, how: str) -> None:
    await file.rebuilder.begin(NEW)
    await add(file, "a", 0)
    match how:
        case "abandon":
            await file.rebuilder.abandon()
        case "begin":
            await file.rebuilder.begin(replace(NEW, fingerprint="another"))
        case "drop":
            await file.documents.drop_vectors()
    assert (await file.rebuilder.under_way() is None) is (how != "begin")
    rows = await file.database.fetch("SELECT generation, next_generation FROM rag_context.state")
    if how != "drop":  # there, by the upkeep
        used = [f"vectors_{number}" for number in tuple(rows[0]) if number is not None]
        assert [name for (name,) in await file.database.fetch(_TABLES)] == used


async def test_the_previous_vectors_are_dropped_after_the_switch(file: PostgresStore) -> None:
    await file.rebuilder.begin(NEW)
    for number, name in enumerate("abc"):
        await add(file, name, number)
    assert await file.rebuilder.switch(NEW.fingerprint, ())
    assert [name for (name,) in await file.database.fetch(_TABLES)] == ["vectors_1"]


async def test_another_server_follows_the_switch(file: PostgresStore, contract_postgres: str) -> None:
    query_vector = unit_vectors(1, dimension=8)[0]
    async with open_postgres(contract_postgres) as other:
        assert len(await other.vectors.search(axis(1), limit=1, where=Filter())) == 1
        await file.rebuilder.begin(NEW)
        for number, name in enumerate("abc"):
            await add(file, name, number)
        await file.rebuilder.switch(NEW.fingerprint, ())
        assert len(await other.vectors.search(query_vector, limit=5, where=Filter())) == 3
        assert other.vectors.made_by == NEW.fingerprint
        written = document("d")
        await other.documents.write(Version(written, chunks_of(written), unit_vectors(1, dimension=8), NEW.fingerprint))
        assert len(await file.vectors.search(query_vector, limit=5, where=Filter())) == 4
        assert await file.documents.counts() == Counts(4, 0, 4, 4)
