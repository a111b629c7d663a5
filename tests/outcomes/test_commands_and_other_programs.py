"""No command changes a byte of what other programs store beside an index, in any backend."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pymongo
import pytest
from bson import ObjectId
from qdrant_client import QdrantClient, models

from rag_context.stores.chroma.chroma_api import Rows
from rag_context.stores.chroma.server import open_api
from tests.cli.run_command import Commands
from tests.servers.mongodb import mongodb_database
from tests.servers.postgres import execute, postgres_database, query
from tests.servers.process import ServerProcess
from tests.servers.qdrant import Endpoint

DIMENSION = 384
VECTOR = [1.0, *[0.0] * (DIMENSION - 1)]
THEIRS = {"content": "A wolverine crossed the river.", "source": "river.md", "sessionId": "s", "documentId": "a"}
NOTES = {"heron.md": "# Heron\n\nA heron waits at the weir.\n", "otter.md": "# Otter\n\nAn otter swims below it.\n"}


@dataclass(frozen=True)
class SharedBackend:
    """A backend in which another program has something, too.

    Attributes:
        settings: of the index.
        fill: stores something of the other program's, beside what we have stored.
        theirs: all of it.
        first: commands before all others, of an index in the data directory.
        last: commands after all others.
        collection: one of the other program's, where the backend has collections.
        adopted: the command that takes over what it has.
    """

    settings: dict[str, str]
    fill: Callable[[], None]
    theirs: Callable[[], object]
    first: tuple[tuple[str, ...], ...] = ()
    last: tuple[tuple[str, ...], ...] = ()
    collection: str | None = None
    adopted: tuple[str, ...] = ("adopt",)


def in_qdrant(server: Endpoint) -> Iterator[SharedBackend]:
    """Points beside ours, a collection of the name that a reindex would take, and one with another name."""
    name = f"ours-{uuid4().hex}"
    other = f"theirs-{uuid4().hex}"
    names = [name, f"{name}-generation-1", other]
    with closing(QdrantClient(url=server.url, api_key=server.api_key, check_compatibility=False)) as admin:

        def fill() -> None:
            vectors = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
            for each in names[1:]:
                admin.create_collection(each, vectors_config=vectors)
            points = [models.PointStruct(id=7, vector=VECTOR, payload=THEIRS), models.PointStruct(id=8, vector=VECTOR)]
            for each in names:
                admin.upsert(each, points, wait=True)

        def theirs() -> object:
            points = [
                [point.model_dump() for point in admin.retrieve(each, [7, 8], with_payload=True, with_vectors=True)]
                for each in names
            ]
            infos = [admin.get_collection(each) for each in names[1:]]
            return points, [(info.points_count, info.config.params, info.payload_schema) for info in infos]

        settings = {"QDRANT_URL": server.url, "RAG_CONTEXT_STORES__QDRANT_COLLECTION": name}
        yield SharedBackend(settings, fill, theirs, collection=other, adopted=("adopt", "--collection", other))
        for each in names:
            admin.delete_collection(each)


def in_order(fields: Mapping[str, Any]) -> str:
    """Fields of a row, which Chroma returns in any order."""
    return json.dumps(dict(fields), sort_keys=True)


def in_chroma(place: str | Path) -> Iterator[SharedBackend]:
    """Rows beside ours, a collection of the name that a reindex would take, and one with another name."""
    name, other = f"ours-{uuid4().hex}", f"theirs-{uuid4().hex}"
    names = [name, f"{name}-generation-1", other]

    async def fill() -> None:
        async with open_api(place) as api:
            rows = Rows(["t1", "t2"], [THEIRS, {"x": 1}], ["one", "two"], np.array([VECTOR, VECTOR], dtype=np.float32))
            for each in names:
                info = await api.find(each) or await api.create(each, {"owner": "them"})
                assert info is not None
                await api.upsert(info.id, rows)

    async def theirs() -> object:
        found = []
        async with open_api(place) as api:
            for each in names:
                info = await api.find(each)
                assert info is not None
                rows = await api.get(info.id, ["metadatas", "documents", "embeddings"], ids=["t1", "t2"])
                assert rows.vectors is not None
                whole = sorted(
                    zip(rows.ids, map(in_order, rows.fields), rows.texts, rows.vectors.tolist(), strict=True)
                )
                found.append((whole, None if each == name else (info, await api.count(info.id))))
        return found

    async def drop() -> None:
        async with open_api(place) as api:
            for each in names:
                await api.drop(each)

    key = "RAG_CONTEXT_STORES__CHROMA_DIR" if isinstance(place, Path) else "CHROMA_URL"
    settings = {key: str(place), "RAG_CONTEXT_STORES__VECTORS": "chroma", "RAG_CONTEXT_STORES__CHROMA_COLLECTION": name}
    adopted = ("adopt", "--chroma", str(place), "--collection", other)
    yield SharedBackend(
        settings, lambda: asyncio.run(fill()), lambda: asyncio.run(theirs()), collection=other, adopted=adopted
    )
    asyncio.run(drop())


def in_postgres(server: str) -> Iterator[SharedBackend]:
    """Tables in other schemas, and in ours, one of which is called as vectors of ours are."""
    tables = ("public.documents", "other.tenants", "rag_context.notes", "rag_context.vectors_77")
    with postgres_database(server) as url:

        def fill() -> None:
            execute(url, "CREATE SCHEMA other")
            for table in tables:
                execute(url, f"CREATE TABLE {table} (id integer, content text)", f"INSERT INTO {table} VALUES (1, 'x')")

        def theirs() -> object:
            rows = [query(url, f"SELECT xmin::text, ctid::text, t.* FROM {table} AS t") for table in tables]
            files = [
                query(url, f"SELECT oid, relfilenode FROM pg_class WHERE oid = '{each}'::regclass") for each in tables
            ]
            return list(map(list, rows)), list(map(list, files))

        to, back = ("move", "--to", url, "--merge"), ("move", "--to", "embedded", "--merge")
        yield SharedBackend({"POSTGRES_URL": url}, fill, theirs, first=(to,), last=(back,))


def in_mongodb(server: str) -> Iterator[SharedBackend]:
    """Documents and searches beside ours, and a collection of its own."""
    at = datetime(2020, 1, 1, tzinfo=UTC)
    entry = {"sessionId": "s", "timestamp": at, "contentType": "chat", "source": "river.md", "content": "A wolverine."}
    with mongodb_database(server) as uri, pymongo.MongoClient[dict[str, Any]](uri, tz_aware=True) as client:
        database = client.get_default_database()

        def fill() -> None:
            database["C0N7EXT"].insert_many(
                [{**entry, "_id": ObjectId(f"65f0000000000000000000{n:02x}")} for n in (1, 2)]
            )
            database["R4G_M37R1C5"].insert_one({"timestamp": at, "query": "old", "latencyMs": 5})
            database["theirs"].insert_one({"_id": "index", "x": 1})
            database["theirs"].create_index("x")

        def theirs() -> object:
            return (
                list(database["C0N7EXT"].find({"_id": {"$type": "objectId"}}).sort("_id")),
                list(database["R4G_M37R1C5"].find({"query": "old"})),
                list(database["theirs"].find()),
                database["theirs"].index_information(),
            )

        yield SharedBackend({"MONGODB_URI": uri}, fill, theirs)


@pytest.fixture(params=["qdrant", "chroma", "chroma folder", "postgres", "mongodb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedBackend]:
    match request.param:
        case "qdrant":
            yield from in_qdrant(request.getfixturevalue("shared_qdrant"))
        case "chroma":
            server: ServerProcess = request.getfixturevalue("shared_chroma")
            yield from in_chroma(f"http://{server.host}:{server.port}")
        case "chroma folder":
            yield from in_chroma(tmp_path / "chroma")
        case "postgres":
            yield from in_postgres(request.getfixturevalue("shared_postgres"))
        case _:
            yield from in_mongodb(request.getfixturevalue("shared_mongodb"))


def test_no_command_changes_what_other_programs_store_beside_the_index(place: SharedBackend, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    without = Commands(tmp_path / "here")
    commands = without.with_variables(**place.settings)
    for name, text in NOTES.items():
        commands.write(f"notes/{name}", text)
    heron = commands.write("notes/heron.md", NOTES["heron.md"])
    for words in (("index", "notes"), *place.first):
        done = (without if place.first else commands)(*words)
        assert done.status == 0, (words, done.err)
    place.fill()
    before = place.theirs()

    def run(*words: str) -> Any:
        done = commands(*words)
        assert place.theirs() == before, (words, done.out, done.err)
        return done

    assert run("search", "a heron at the weir").status == 0
    heron.write_text("# Heron\n\nThe heron has flown to the mill.\n")
    assert run("index", "notes").status == 0
    assert "mill" in run("search", "where is the heron", "--json").out
    run("reindex")
    assert run("check", "--repair").status in (0, 1)
    assert run(*place.adopted).status in (0, 2)
    assert run("delete", "--source", str(heron), "--yes").status == 0
    (tmp_path / "here" / "notes" / "otter.md").unlink()
    assert run("index", "notes", "--prune").status == 0
    assert run("clear-queries", "--yes").status == 0
    if place.collection is not None:
        for words in (("delete", place.collection, "--yes"), ("empty", place.collection, "--yes")):
            assert run("collections", *words).status != 0, words
    for words in place.last:
        assert run(*words).status == 0
