"""`rag-context move`: all of the data directory is in PostgreSQL afterwards, and back, whatever came in between."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rag_context.collections.provider_connections import DEFAULT
from rag_context.domain.clauses import EVERYTHING
from rag_context.domain.documents import Document, Tenant
from rag_context.domain.search import Filter
from rag_context.ports.provider import Collection, Entry, Provider
from rag_context.ports.writing import Version
from rag_context.settings import Settings, StoreSettings
from rag_context.stores.postgres import open_postgres
from rag_context.testing import FakeEmbedder
from rag_context.wiring.collection_providers import open_connections
from rag_context.wiring.stores import Stores, open_stores
from rag_context.wiring.transfers import open_move
from tests.cli.run_command import Commands
from tests.servers.postgres import execute, postgres_database, query
from tests.servers.postgres_fixtures import database, server, template
from tests.servers.process import HOST, free_port
from tests.stores.builders import NOON, chunks_of, document, unit_vectors

__all__ = ["database", "server", "template"]

MODEL = FakeEmbedder(dimension=16).model
PROJECT = Tenant("wiki", "main", "0" * 16)
TALK = "the talk"
NAMES = [f"turn {number}" for number in range(150)]
"""One conversation: its order is that of the first writes, not that of the ids."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory, to be copied."""
    folder = tmp_path_factory.mktemp("filled")
    asyncio.run(fill(Settings(data_dir=folder)))
    return folder


@pytest.fixture
def commands(tmp_path: Path, filled: Path) -> Commands:
    (tmp_path / "here").mkdir()
    commands = Commands(tmp_path / "here")
    shutil.copytree(filled, commands.data_dir)
    return commands


@pytest.fixture
def elsewhere(tmp_path: Path) -> Commands:
    """The same without anything in the data directory."""
    (tmp_path / "there").mkdir()
    return Commands(tmp_path / "there")


def in_postgres(url: str, data_dir: Path) -> Settings:
    return Settings(data_dir=data_dir, stores=StoreSettings(documents="postgres", vectors="postgres", postgres_url=url))


async def put(stores: Stores, *documents: Document, seed: int = 0) -> None:
    for number, each in enumerate(documents):
        chunks = chunks_of(each, f"{each.content} one", f"{each.content} two")
        await stores.writer.write(Version(each, chunks, unit_vectors(2, seed=seed + number), MODEL.fingerprint))


async def fill(settings: Settings) -> None:
    async with open_stores(settings) as stores:
        await stores.registry.adopt_model(MODEL)
        await put(stores, *(document(name, f"{name} is said.", thread=TALK, content_type="chat") for name in NAMES))
        await put(stores, document("page", "A page.", tenant=PROJECT), document("nul", "A \x00 in it."))
        pending = document("pending", "Not embedded yet.")
        await stores.writer.write(Version(pending, chunks_of(pending)))
    async with opened_collections(settings) as notes:
        await notes.create(Collection("notes", {"kept": True}, "somewhere", "some-model"))
        await notes.upsert("notes", [Entry(f"{n}", f"note {n}", {"n": n}) for n in range(20)], unit_vectors(20))
        await notes.create(Collection("empty"))


@asynccontextmanager
async def opened_collections(settings: Settings) -> AsyncIterator[Provider]:
    async with open_connections(settings) as connections:
        yield await connections.require(DEFAULT).opened()


async def content(settings: Settings) -> dict[str, object]:
    """All that an index has, as it answers."""
    found: dict[str, object] = {}
    async with open_stores(settings) as stores, opened_collections(settings) as collections:
        page = await stores.documents.inventory("", 1000)
        for id_, stored in page.items():
            vectors = await stores.vectors.vectors(stored.chunk_ids)
            found[id_] = (
                await stores.documents.get(id_),
                await stores.documents.chunks(id_),
                {chunk: vector.tolist() for chunk, vector in vectors.items()},
                stored,
            )
        found["model"] = await stores.registry.recorded_model()
        found["counts"] = await stores.documents.counts()
        found["order"] = await stores.documents.matching(Filter(), 1000)
        chunks = [chunk for id_ in found["order"] for chunk in page[id_].chunk_ids]  # type: ignore[attr-defined]
        found["neighbours"] = await stores.documents.neighbours(chunks)
        for each in await collections.collections():
            ids = [entry.id for entry in (await collections.entries(each.name, EVERYTHING, limit=1000)).entries]
            held = await collections.vectors(each.name, ids)
            found[f"collection {each.name}"] = (
                replace(each, created=None),
                await collections.entries(each.name, EVERYTHING, limit=1000),
                {id_: vector.tolist() for id_, vector in held.items()},
            )
    return found


def indexes(url: str) -> set[str]:
    return {name for (name,) in query(url, "SELECT indexname FROM pg_indexes WHERE schemaname = 'rag_context'")}


def test_everything_is_there_afterwards_and_back(commands: Commands, elsewhere: Commands, empty: str) -> None:
    before = asyncio.run(content(Settings(data_dir=commands.data_dir)))
    moved = commands("move", "--to", empty)
    assert moved.status == 0, moved.err
    place = f"PostgreSQL at {empty.rpartition('@')[2]}"
    assert f"153 documents of {commands.data_dir} are in {place}, 153 of them new." in moved.out
    assert "1 document waits for its vectors" in moved.out
    assert "2 collections with 20 documents are there too." in moved.out
    assert "Not moved, and still where they were: statistics" in moved.err
    assert "To use it, set DATABASE_URL to that address." in moved.err
    assert "secret" not in moved.out + moved.err
    assert asyncio.run(content(in_postgres(empty, commands.data_dir))) == before
    assert "chunks_by_terms" in indexes(empty)
    back = elsewhere.with_variables(DATABASE_URL=empty)("move", "--to", "embedded", "--json")
    assert back.status == 0, back.err
    assert json.loads(back.out)["collections"] == {"empty": 0, "notes": 20}
    assert asyncio.run(content(Settings(data_dir=elsewhere.data_dir))) == before


def test_a_repeated_move_copies_what_is_new(commands: Commands, database: str) -> None:
    assert commands("move", "--to", database).status == 0

    async def add() -> None:
        async with open_stores(Settings(data_dir=commands.data_dir)) as stores:
            await put(stores, document("later", "Said later.", thread=TALK))

    asyncio.run(add())
    again = commands("move", "--to", database, "--json")
    assert again.status == 0, again.err
    report = json.loads(again.out)
    assert (report["documents"], report["copied"], report["complete"]) == (154, 1, True)
    assert json.loads(commands("move", "--to", database, "--json").out)["copied"] == 0


async def test_an_interrupted_move_loses_nothing_and_goes_on(commands: Commands, database: str) -> None:
    class InterruptedMoveError(Exception):
        pass

    def interrupt(done: int, _total: int | None) -> None:
        if done >= 100:
            assert "chunks_by_terms" not in indexes(database)  # it is built at the end, or after the interruption
            raise InterruptedMoveError

    settings = Settings(data_dir=commands.data_dir)
    with pytest.raises(InterruptedMoveError):
        async with open_move(settings, database) as move:
            found = await move.mover.compare(lambda _done, _total: None)
            assert move.target.stores.bulk is not None
            async with move.target.stores.bulk.loading(lambda _share: None):
                await move.mover.copy(found.to_copy, interrupt)
    there = query(database, "SELECT count(*) FROM rag_context.documents")[0][0]
    assert 100 <= there < 153
    moved = await asyncio.to_thread(commands, "move", "--to", database, "--json")
    assert moved.status == 0, moved.err
    assert json.loads(moved.out)["copied"] == 153 - there
    assert await content(in_postgres(database, commands.data_dir)) == await content(settings)
    assert "chunks_by_terms" in indexes(database)


async def test_a_server_builds_the_keyword_index_that_a_killed_load_has_left_out(database: str) -> None:
    await asyncio.to_thread(execute, database, "DROP INDEX rag_context.chunks_by_terms")
    async with open_postgres(database):
        for _ in range(100):
            if "chunks_by_terms" in await asyncio.to_thread(indexes, database):
                return
            await asyncio.sleep(0.1)
    pytest.fail("the index was not built")


def test_a_target_that_holds_something_else_is_left_alone_without_merge(commands: Commands, database: str) -> None:
    newer = document("turn 0", "turn 0 was said better.", timestamp=NOON + timedelta(days=1))
    older = document("turn 1", "turn 1 was said once.", timestamp=NOON - timedelta(days=1))

    async def held() -> None:
        async with open_stores(in_postgres(database, commands.data_dir)) as stores:
            await stores.registry.adopt_model(MODEL)
            await put(stores, newer, older, document("only there", "Only there."))

    asyncio.run(held())
    rejected = commands("move", "--to", database)
    assert rejected.status == 1
    assert "holds 1 document that the source does not have and another version of 2 documents" in rejected.err
    assert "Nothing was changed. Name an empty target, or use --merge" in rejected.err
    assert query(database, "SELECT count(*) FROM rag_context.documents")[0][0] == 3
    merged = commands("move", "--to", database, "--merge")
    assert merged.status == 0, merged.err
    assert "1 document stays in the newer version that was there." in merged.out
    texts = {text for (text,) in query(database, "SELECT content FROM rag_context.documents")}
    assert len(texts) == 154
    assert {newer.content, "turn 1 is said.", "Only there."} <= texts


def test_a_target_with_another_collection_is_left_alone_without_merge(commands: Commands, database: str) -> None:
    async def held() -> None:
        async with opened_collections(in_postgres(database, commands.data_dir)) as collections:
            await collections.create(Collection("theirs"))

    asyncio.run(held())
    rejected = commands("move", "--to", database)
    assert rejected.status == 1
    assert "holds 1 collection that the source does not have ('theirs')" in rejected.err
    assert commands("move", "--to", database, "--merge").status == 0
    names = {name for (name,) in query(database, "SELECT name FROM rag_context.collections")}
    assert names == {"notes", "empty", "theirs"}


def test_vectors_of_another_model_are_no_target(commands: Commands, database: str) -> None:
    async def held() -> None:
        async with open_stores(in_postgres(database, commands.data_dir)) as stores:
            await stores.registry.adopt_model(FakeEmbedder(dimension=8).model)
            one = document("turn 0", "turn 0 is said.", thread=TALK, content_type="chat")
            await stores.writer.write(Version(one, chunks_of(one), unit_vectors(1, dimension=8)))

    asyncio.run(held())
    rejected = commands("move", "--to", database)
    assert rejected.status != 0
    assert "The index was made by" in rejected.err
    assert query(database, "SELECT count(*) FROM rag_context.documents")[0][0] == 1


def test_what_changed_meanwhile_is_reported(commands: Commands, database: str) -> None:
    """The source is in use: what is written during the move is in the next one."""
    settings = Settings(data_dir=commands.data_dir)

    async def moved() -> tuple[int, int]:
        async with open_move(settings, database) as move, open_stores(settings) as own:
            found = await move.mover.compare(lambda _done, _total: None)
            await put(own, document("turn 3", "turn 3 is said again.", thread=TALK), document("new", "New."))
            await move.mover.copy(found.to_copy, lambda _done, _total: None)
            await put(own, document("turn 4", "turn 4 is said again.", thread=TALK))
            left = await move.mover.compare(lambda _done, _total: None)
            return len(left.missing), len(left.changed)

    assert asyncio.run(moved()) == (1, 1)


def test_where_nothing_can_be_moved_it_says_why(commands: Commands, elsewhere: Commands, database: str) -> None:
    for words, status, said in (
        (("--to", "mongodb://localhost"), 2, 'a postgresql:// address, or "embedded"'),
        (("--to", "embedded"), 2, "there is nothing to move"),
        (("--to", f"postgresql://nobody@{HOST}:{free_port()}/none"), 75, "cannot be reached"),
        (("--to", f"postgresql://nobody@{HOST}:port/none"), 2, "percent-encoded"),
        (("--to", f"postgresql://nobody@[{HOST}/none"), 2, "percent-encoded"),
        (("--to", f"postgresql://nobody@/none?host={HOST}&port=x"), 1, "percent-encoded"),
    ):
        rejected = commands("move", *words)
        assert (rejected.status, said in rejected.err) == (status, True), rejected
    same = commands.with_variables(DATABASE_URL=database)("move", "--to", database)
    assert (same.status, "unset DATABASE_URL" in same.err) == (2, True), same
    nothing = elsewhere("move", "--to", database)
    assert nothing.status == 78, nothing


@pytest.fixture
def empty(server: str) -> Iterator[str]:
    with postgres_database(server) as url:
        yield url
