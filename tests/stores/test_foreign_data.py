"""Collections that other programs use too: their rows stay as they are, and neither count nor are found."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import numpy as np
import pytest
from qdrant_client import AsyncQdrantClient, models

from rag_context.domain.search import Filter
from rag_context.domain.vectors import Calibration, EmbeddingModel
from rag_context.errors import BackendRejectedError, ForeignDataError
from rag_context.stores.chroma import ChromaVectors, open_chroma
from rag_context.stores.qdrant import CollectionPlan, QdrantVectors, open_qdrant
from rag_context.stores.sqlite.embedded import start_vectors
from tests.servers.process import ServerProcess
from tests.servers.qdrant import Endpoint
from tests.stores.builders import DIMENSION, axis, chunks_of, document, unit_vectors

MODEL = EmbeddingModel("mini", DIMENSION, "f00d", 254, Calibration(12.1, -4.01))
WIDER = EmbeddingModel("wide", 2 * DIMENSION, "beef", 254, Calibration(12.1, -4.01))
EVERYTHING = Filter()
THEIRS: dict[str, Any] = {"content": "text", "documentId": "a", "project": "", "branch": "", "pathHash": ""}
"""Fields as ours, without those that only ours have."""


@pytest.fixture(scope="module")
def server(shared_qdrant: Endpoint) -> Endpoint:
    return shared_qdrant


@pytest.fixture
async def admin(server: Endpoint) -> AsyncIterator[AsyncQdrantClient]:
    client = AsyncQdrantClient(url=server.url, api_key=server.api_key, check_compatibility=False)
    yield client
    await client.close()


@pytest.fixture
def name() -> str:
    return f"test-{uuid4().hex}"


@pytest.fixture
async def qdrant(server: Endpoint, name: str) -> AsyncIterator[QdrantVectors]:
    async with open_qdrant(server.url, CollectionPlan(name), api_key=server.api_key) as opened:
        yield opened


async def make(admin: AsyncQdrantClient, name: str, dimension: int) -> None:
    vectors = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
    await admin.create_collection(name, vectors_config=vectors)


async def put_theirs(admin: AsyncQdrantClient, name: str, dimension: int) -> None:
    vector = [1.0] + [0.0] * (dimension - 1)
    points = [models.PointStruct(id=1, vector=vector, payload=THEIRS), models.PointStruct(id=2, vector=vector)]
    await admin.upsert(name, points, wait=True)


async def contents(admin: AsyncQdrantClient, name: str) -> dict[Any, Any]:
    points, _ = await admin.scroll(name, limit=100, with_payload=True, with_vectors=True)
    return {point.id: (point.payload, point.vector) for point in points}


@pytest.mark.parametrize("dimension", [DIMENSION, 2 * DIMENSION])
async def test_a_collection_of_qdrants_with_other_points_alone_is_not_used(
    qdrant: QdrantVectors, admin: AsyncQdrantClient, name: str, dimension: int
) -> None:
    await make(admin, name, dimension)
    await put_theirs(admin, name, dimension)
    before = await contents(admin, name)
    for _ in range(2):
        with pytest.raises(ForeignDataError, match=r"holds 2 points of other programs.*stores\.qdrant_collection"):
            await qdrant.prepare(MODEL)
        with pytest.raises(ForeignDataError):
            await qdrant.require_own()
        assert "0 vectors" in await qdrant.ping()
        assert await qdrant.count() == 0
        await qdrant.discard(["a"])
        await qdrant.clear()
        await qdrant.remove()
    assert await contents(admin, name) == before
    assert (await admin.get_collection(name)).payload_schema == {}


async def test_other_points_beside_ours_in_qdrant_stay_and_are_neither_found_nor_counted(
    qdrant: QdrantVectors, admin: AsyncQdrantClient, name: str
) -> None:
    await qdrant.prepare(MODEL)
    written, other = document("a"), document("b")
    await qdrant.put(written, chunks_of(written), unit_vectors(1))
    await put_theirs(admin, name, DIMENSION)
    theirs = {id_: row for id_, row in (await contents(admin, name)).items() if id_ in (1, 2)}
    await qdrant.prepare(MODEL)
    await qdrant.put(other, chunks_of(other), unit_vectors(1))
    assert await qdrant.count() == 2
    assert "2 vectors" in (line := await qdrant.ping())
    assert "beside 2 points of other programs" in line
    hits = await qdrant.search(axis(0), limit=9, where=EVERYTHING)
    assert {hit.chunk.document_id for hit in hits} == {written.id, other.id}
    assert {id_ async for id_ in qdrant.stored_documents()} == {written.id, other.id}
    await qdrant.discard([written.id, "a"])
    with pytest.raises(ForeignDataError):
        await qdrant.require_own()
    await qdrant.remove()
    assert await contents(admin, name) == theirs


async def test_an_empty_collection_of_qdrants_that_we_did_not_make_keeps_its_dimension(
    qdrant: QdrantVectors, admin: AsyncQdrantClient, name: str
) -> None:
    await make(admin, name, 2 * DIMENSION)
    before = (await admin.get_collection(name)).model_dump()
    with pytest.raises(ForeignDataError, match="is empty"):
        await qdrant.prepare(MODEL)
    await qdrant.clear()
    assert (await admin.get_collection(name)).model_dump() == before


@pytest.fixture(scope="module")
def chroma_url(shared_chroma: ServerProcess) -> str:
    return f"http://{shared_chroma.host}:{shared_chroma.port}"


@pytest.fixture
async def chroma(chroma_url: str, name: str) -> AsyncIterator[ChromaVectors]:
    async with open_chroma(chroma_url, name) as opened:
        yield opened


@pytest.fixture
async def http(chroma_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Chroma's own API, as another program uses it."""
    path = "/api/v2/tenants/default_tenant/databases/default_database/collections"
    async with httpx2.AsyncClient(base_url=f"{chroma_url}{path}") as client:
        yield client


async def collection(http: httpx2.AsyncClient, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await http.get(f"/{name}")).raise_for_status().json()
    return found


async def rows(http: httpx2.AsyncClient, name: str) -> dict[str, tuple[Any, ...]]:
    id_ = (await collection(http, name))["id"]
    body = {"include": ["metadatas", "documents", "embeddings"]}
    found = (await http.post(f"/{id_}/get", json=body)).raise_for_status().json()
    return dict(
        zip(found["ids"], zip(found["metadatas"], found["documents"], found["embeddings"], strict=True), strict=True)
    )


async def put_their_rows(http: httpx2.AsyncClient, id_: str, dimension: int) -> None:
    vector = [1.0] + [0.0] * (dimension - 1)
    body = {
        "ids": ["t1", "t2"],
        "embeddings": [vector, vector],
        "metadatas": [{"documentId": "a", "timestamp": "2026-01-01"}, None],
        "documents": ["one", "two"],
    }
    (await http.post(f"/{id_}/upsert", json=body)).raise_for_status()


async def test_a_collection_of_chromas_with_other_rows_alone_is_not_used(
    chroma: ChromaVectors, http: httpx2.AsyncClient, name: str
) -> None:
    body = {"name": name, "metadata": {"owner": "them"}, "configuration": {"hnsw": {"space": "cosine"}}}
    made = (await http.post(str(http.base_url).rstrip("/"), json=body)).raise_for_status().json()
    await put_their_rows(http, made["id"], 2 * DIMENSION)
    before = await rows(http, name), await collection(http, name)
    with pytest.raises(ForeignDataError, match=r"holds 2 rows of other programs.*stores\.chroma_collection"):
        await chroma.prepare(MODEL)
    with pytest.raises(ForeignDataError):
        await chroma.require_own()
    await chroma.discard(["x"])
    await chroma.clear()
    await chroma.remove()
    assert "beside" in await chroma.ping()
    assert (await rows(http, name), await collection(http, name)) == before


async def test_other_rows_beside_ours_in_chroma_stay_and_are_neither_found_nor_counted(
    chroma: ChromaVectors, http: httpx2.AsyncClient, name: str
) -> None:
    await chroma.prepare(MODEL)
    written = document("a")
    await chroma.put(written, chunks_of(written), np.tile(axis(0), (1, 1)))
    await put_their_rows(http, (await collection(http, name))["id"], DIMENSION)
    theirs = {id_: row for id_, row in (await rows(http, name)).items() if id_.startswith("t")}
    assert "1 vector of dimension" in await chroma.ping()
    hits = await chroma.search(axis(0), limit=9, where=EVERYTHING)
    assert [hit.chunk.document_id for hit in hits] == [written.id]
    assert {id_ async for id_ in chroma.stored_documents()} == {written.id}
    with pytest.raises(ForeignDataError):
        await chroma.require_own()
    with pytest.raises(BackendRejectedError):
        await chroma.prepare(WIDER)
    await chroma.clear()
    assert await rows(http, name) == theirs


async def test_a_file_of_another_program_stays_where_a_generation_of_vectors_would_be(tmp_path: Path) -> None:
    path = tmp_path / "vectors-generation-1.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE theirs (x)")
        file.commit()
    before = path.read_bytes()
    vectors = start_vectors(path)
    with pytest.raises(ForeignDataError, match="another program's file"):
        await vectors.require_own()
    await vectors.remove()
    assert path.read_bytes() == before
