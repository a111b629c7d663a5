"""Data of other programs where ours would be: it is named and never changed, and one command takes a copy of it."""

import asyncio
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pymongo
import pytest
from bson import ObjectId
from qdrant_client import QdrantClient, models

from rag_context.stores.qdrant import CollectionPlan, open_qdrant
from tests.end_to_end.process import Served, command, served, wait_until
from tests.servers.mongodb import mongodb_process, uri_of
from tests.servers.qdrant import Endpoint
from tests.stores.builders import chunks_of, document, unit_vectors

DEFAULT = "p4nth30n_context"
TEXTS = [f"The wolverine with the number {number} crossed the river at dawn." for number in range(3)]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def qdrant(shared_qdrant: Endpoint) -> Endpoint:
    return shared_qdrant


@pytest.fixture
def admin(qdrant: Endpoint) -> Iterator[QdrantClient]:
    """Another program, which uses the same server."""
    client = QdrantClient(url=qdrant.url, api_key=qdrant.api_key, check_compatibility=False)
    yield client
    client.close()


def put_points(admin: QdrantClient, name: str, dimension: int) -> None:
    """Three passages in the form of the earlier programs, and a point with nothing but a vector."""
    numbers = random.Random(7)
    vectors = [[numbers.gauss(0.0, 1.0) for _ in range(dimension)] for _ in range(len(TEXTS) + 1)]
    admin.create_collection(name, vectors_config=models.VectorParams(size=dimension, distance=models.Distance.COSINE))
    points = [
        models.PointStruct(id=chunk_id(number), vector=vectors[number], payload=payload(number))
        for number in range(len(TEXTS))
    ]
    admin.upsert(name, [*points, models.PointStruct(id=77, vector=vectors[-1])], wait=True)


def chunk_id(number: int) -> str:
    return str(UUID(int=number + 1))


def payload(number: int) -> dict[str, Any]:
    return {
        "sessionId": "s-1",
        "contentType": "chat",
        "content": TEXTS[number],
        "source": "river.md",
        "category": "casino",
        "game": "FireKirin",
        "agent": "opus",
        "tags": ["x"],
        "timestamp": (NOON + timedelta(minutes=number)).isoformat(),
        "chunkId": chunk_id(number),
    }


def everything_in(admin: QdrantClient, name: str) -> tuple[object, ...]:
    """All of a collection: points with payloads and vectors, its configuration, its indexes."""
    points, _ = admin.scroll(name, limit=100, with_payload=True, with_vectors=True)
    info = admin.get_collection(name)
    return ([point.model_dump() for point in points], info.config.params.model_dump(), info.payload_schema)


def detail_of(server: Served, name: str) -> str:
    return " ".join(each["detail"] for each in server.health()["components"] if each["name"] == name)


def test_no_command_changes_a_collection_of_another_program(
    qdrant: Endpoint, admin: QdrantClient, tmp_path: Path
) -> None:
    put_points(admin, DEFAULT, 768)
    before, names = everything_in(admin, DEFAULT), admin.get_collections()
    settings = {"QDRANT_URL": qdrant.url}
    with served(tmp_path / "data", "--reindex", **settings) as server:
        assert server.index("A heron waits at the weir.")["status"] == "pending"
        wait_until(lambda: "4 points of other programs" in detail_of(server, "embedder"))
        assert "set stores.qdrant_collection to another name" in detail_of(server, "embedder")
        for _ in range(2):
            reply = server.tool("reindex", {"force": True})
            assert (reply.status_code, reply.json()["code"]) == (409, "CONFLICT")
            assert "stores.qdrant_collection" in reply.json()["error"]
        answer = server.search("wolverine", mode="hybrid")
        assert (answer["fallbackLevel"], answer["totalIndexed"]) == (2, 1)
        assert all("wolverine" not in result["content"] for result in answer["results"])
        for arguments in (("check", "--repair"), ("reindex",)):
            done = command(*arguments, data_dir=tmp_path / "data", **settings)
            assert everything_in(admin, DEFAULT) == before, arguments
        assert done.returncode == 1
        assert "4 points of other programs" in done.stderr
        server.stop()
    assert admin.get_collections() == names
    taken = command("adopt", "--qdrant", qdrant.url, "--json", data_dir=tmp_path / "other")
    (receipt,) = json.loads(taken.stdout)["sources"]
    assert (receipt["documents"], receipt["withoutText"], receipt["outcomes"]) == (3, 1, {"indexed": 3}), taken
    assert everything_in(admin, DEFAULT) == before
    admin.delete_collection(DEFAULT)


async def _put_ours(url: str, api_key: str | None, name: str) -> None:
    async with open_qdrant(url, CollectionPlan(name), api_key=api_key) as vectors:
        written = document("earlier")
        await vectors.put(written, chunks_of(written), unit_vectors(1, dimension=32))


def test_our_own_collection_of_another_dimension_is_reindexed_over_http(
    qdrant: Endpoint, admin: QdrantClient, tmp_path: Path
) -> None:
    name = f"ours-{uuid4().hex}"
    asyncio.run(_put_ours(qdrant.url, qdrant.api_key, name))
    with served(tmp_path / "data", QDRANT_URL=qdrant.url, RAG_CONTEXT_STORES__QDRANT_COLLECTION=name) as server:
        server.index("A heron waits at the weir.")
        wait_until(lambda: "rag-context reindex" in detail_of(server, "embedder"))
        reply = server.tool("reindex", {})
        assert reply.status_code == 200, reply.text
        wait_until(lambda: server.tool("reindex", {"statusOnly": True}).json()["status"] == "current")
        answer = server.search("heron", mode="vector")
        assert (answer["fallbackLevel"], len(answer["results"])) == (1, 1)


def test_documents_of_other_programs_are_labelled_and_taken_over_by_one_command(
    qdrant: Endpoint, admin: QdrantClient, tmp_path: Path
) -> None:
    put_points(admin, DEFAULT, 768)
    (tmp_path / "data").mkdir()
    with mongodb_process(tmp_path / "mongodb") as process:
        uri = uri_of(process.port, "outcomes")
        with pymongo.MongoClient[dict[str, Any]](uri, tz_aware=True) as client:
            documents = client.get_default_database()["C0N7EXT"]
            documents.insert_many([_entry(number) for number in range(len(TEXTS))])
            searches = client.get_default_database()["R4G_M37R1C5"]
            searches.insert_one({"timestamp": NOON - timedelta(days=900), "query": "old", "latencyMs": 5})
            settings = {
                "MONGODB_URI": uri,
                "QDRANT_URL": qdrant.url,
                "RAG_CONTEXT_STORES__QDRANT_COLLECTION": f"rag-context-{uuid4().hex}",
                "RAG_CONTEXT_SEARCH__DEADLINE_MS": "10000",  # what is tested is not how fast the stub is
            }

            def theirs() -> tuple[object, ...]:
                return (
                    list(documents.find({"_id": {"$type": "objectId"}}).sort("_id")),
                    list(searches.find({"query": "old"})),
                    everything_in(admin, DEFAULT),
                )

            before = theirs()
            with served(tmp_path / "data", **settings) as server:
                server.wait_ready()
                _check_labels(server)
                dry = command("adopt", "--dry-run", "--json", data_dir=tmp_path / "data", **settings)
                assert [each["documents"] for each in json.loads(dry.stdout)["sources"]] == [3, 0], dry
                assert documents.count_documents({}) == 3
                for outcomes in ({"indexed": 3}, {"unchanged": 3}):
                    done = command("adopt", "--json", data_dir=tmp_path / "data", **settings)
                    of_documents, of_points = json.loads(done.stdout)["sources"]
                    assert of_documents["outcomes"] == outcomes, done
                    assert (of_points["covered"], of_points["documents"]) == (3, 0)
                wait_until(lambda: server.health()["indexedDocuments"] == 3)
                wait_until(lambda: server.search("wolverine", mode="vector")["fallbackLevel"] == 1)
                answer = server.search("wolverine river", limit=10)
                assert sorted(result["content"] for result in answer["results"]) == TEXTS
                assert {result["metadata"]["game"] for result in answer["results"]} == {"FireKirin"}
                assert "of other programs" not in detail_of(server, "documents")
                server.stop()
            assert theirs() == before
    admin.delete_collection(DEFAULT)


def _check_labels(server: Served) -> None:
    for mode in ("hybrid", "vector"):
        answer = server.search("wolverine", mode=mode)
        assert (answer["fallbackLevel"], len(answer["results"])) == (2, 3), answer
        assert "3 of 3 passages have no vectors" in answer["warning"]
    health = server.health()
    assert health["indexedDocuments"] == 0
    assert "0 documents in 0 chunks, 0 pending; 3 documents of other programs" in detail_of(server, "documents")
    report = server.tool("reindex", {"force": True, "wait": True}).json()
    assert (report["documents"], report["done"]) == (0, 0)
    assert "rag-context adopt" in report["detail"]
    (first, *_) = server.search("wolverine")["results"]
    assert server.tool("delete", {"documentId": first["documentId"]}).status_code == 409
    assert server.tool("delete", {"sessionId": "s-1", "confirm": True}).json()["deletedCount"] == 0


def _entry(number: int) -> dict[str, Any]:
    """A document as the earlier programs store it."""
    embedding = [0.25] * 8
    return {
        "_id": ObjectId(f"65f0000000000000000000{number:02x}"),
        "sessionId": "s-1",
        "timestamp": NOON + timedelta(minutes=number),
        "contentType": ("chat", "decision", "documentation")[number],
        "source": "river.md",
        "content": TEXTS[number],
        "chunks": [
            {"chunkId": chunk_id(number), "text": TEXTS[number], "vectorId": chunk_id(number), "embedding": embedding}
        ],
        "metadata": {"agent": "opus", "tags": ["x"], "category": "casino", "game": "FireKirin"},
        "retrievalStats": {"queryCount": 0},
    }
