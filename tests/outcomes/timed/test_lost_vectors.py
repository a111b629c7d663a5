"""Vectors that vanish behind the documents: answers and health say so at once, and the documents are embedded again."""

import itertools
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeAlias

import httpx2
import pytest

from rag_context.stores.sqlite.embedded import FILE_NAME
from tests.end_to_end.process import Served, served, wait_until
from tests.outcomes.embedding_server import EmbeddingServer, embedding_server
from tests.outcomes.quotations import index_all, texts
from tests.servers.chroma import chroma_server
from tests.servers.postgres import FAST, execute, postgres_database, postgres_process, url_of
from tests.servers.qdrant import running

DOCUMENTS = 40
NOTICED_S = 2.5
"""Every second the stores are compared by their counts; the rest is for a busy machine."""

COLLECTIONS = "/api/v2/tenants/default_tenant/databases/default_database/collections"


@contextmanager
def drained(embedder: EmbeddingServer) -> Iterator[None]:
    """Passages are not embedded during the block: what is lost stays lost."""
    embedder.long_text_s = 60.0
    try:
        yield
    finally:
        embedder.long_text_s = 0.0


Lossy: TypeAlias = tuple[Served, str, EmbeddingServer]
"""A server with documents, where its vectors are, and what embeds them."""


@contextmanager
def lossy(data_dir: Path, place: str, **extra: str) -> Iterator[Lossy]:
    with (
        embedding_server() as embedder,
        served(
            data_dir,
            RAG_CONTEXT_EMBEDDER__KIND="openai_compatible",
            RAG_CONTEXT_EMBEDDER__URL=embedder.url,
            RAG_CONTEXT_EMBEDDER__MODEL="words",
            **extra,
        ) as server,
    ):
        fill(server)
        yield server, place, embedder


@pytest.fixture(scope="module")
def on_chroma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lossy]:
    with chroma_server() as chroma:
        url = f"http://{chroma.host}:{chroma.port}"
        stores = {"RAG_CONTEXT_STORES__VECTORS": "chroma", "RAG_CONTEXT_STORES__CHROMA_URL": url}
        with lossy(tmp_path_factory.mktemp("lost") / "data", url, **stores) as found:
            yield found


def drop(url: str) -> None:
    """Remove every collection of the server."""
    for each in httpx2.get(url + COLLECTIONS).json():
        assert httpx2.delete(f"{url}{COLLECTIONS}/{each['name']}").status_code == 200


def delete_some(url: str) -> None:
    """Remove a third of the rows of every collection."""
    for each in httpx2.get(url + COLLECTIONS).json():
        ids = httpx2.post(f"{url}{COLLECTIONS}/{each['id']}/get", json={"include": []}).json()["ids"]
        if ids:
            done = httpx2.post(f"{url}{COLLECTIONS}/{each['id']}/delete", json={"ids": ids[: len(ids) // 3]})
            assert done.status_code == 200, done.text


@pytest.fixture(scope="module")
def on_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lossy]:
    data_dir = tmp_path_factory.mktemp("file") / "data"
    with lossy(data_dir, str(data_dir / FILE_NAME)) as found:
        yield found


@pytest.fixture(scope="module")
def on_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lossy]:
    with (
        postgres_process(*FAST) as process,
        postgres_database(url_of(process.port)) as url,
        lossy(tmp_path_factory.mktemp("postgres") / "data", url, DATABASE_URL=url) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def on_qdrant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lossy]:
    with (
        running() as qdrant,
        lossy(tmp_path_factory.mktemp("qdrant") / "data", qdrant.url, QDRANT_URL=qdrant.url) as found,
    ):
        yield found


def fill(server: Served) -> None:
    server.wait_ready()
    made = enumerate(texts(DOCUMENTS))
    index_all(server, [{"content": text, "source": f"/{number}.md"} for number, text in made])
    wait_until(lambda: server.search("river", mode="vector")["fallbackLevel"] == 1)


def delete_rows(path: str) -> None:
    """Remove a third of the vectors from the file, beside the server that has it open."""
    with closing(sqlite3.connect(path, timeout=10.0)) as connection, connection:
        connection.execute("DELETE FROM vectors WHERE chunk % 3 = 0")


def delete_rows_of_the_table(url: str) -> None:
    """Remove a third of the vectors from the database."""
    execute(url, "DELETE FROM rag_context.vectors_0 WHERE chunk % 3 = 0")


def delete_points(url: str) -> None:
    """Remove a third of the points of every collection."""
    for each in httpx2.get(f"{url}/collections").json()["result"]["collections"]:
        points = f"{url}/collections/{each['name']}/points"
        listed = httpx2.post(f"{points}/scroll", json={"limit": 1000}).json()["result"]["points"]
        done = httpx2.post(f"{points}/delete", json={"points": [point["id"] for point in listed[: len(listed) // 3]]})
        assert done.status_code == 200, done.text


@pytest.mark.parametrize(("lose", "mode"), [(drop, "vector"), (delete_some, "hybrid")])
def test_vectors_that_a_server_lost_are_said_and_come_back(
    on_chroma: Lossy, lose: Callable[[str], None], mode: str
) -> None:
    check(*on_chroma, lose, mode)


@pytest.mark.parametrize("mode", ["vector", "hybrid"])
def test_vectors_that_the_file_lost_are_said_and_come_back(on_file: Lossy, mode: str) -> None:
    check(*on_file, delete_rows, mode)


@pytest.mark.parametrize("mode", ["vector", "hybrid"])
def test_vectors_that_a_database_lost_are_said_and_come_back(on_postgres: Lossy, mode: str) -> None:
    check(*on_postgres, delete_rows_of_the_table, mode)


def test_points_that_are_deleted_are_said_and_come_back(on_qdrant: Lossy) -> None:
    check(*on_qdrant, delete_points, "hybrid")


def check(server: Served, place: str, embedder: EmbeddingServer, lose: Callable[[str], None], mode: str) -> None:
    asked = (f"river bridge {number}" for number in itertools.count(time.time_ns()))
    assert server.search(next(asked), mode=mode)["results"]
    with drained(embedder):
        lose(place)
        time.sleep(NOTICED_S)
        report, answer = server.health(), server.search(next(asked), mode=mode)
        assert report["qdrantStatus"] != "healthy" or report["pendingDocuments"] > 0
        assert (answer["fallbackLevel"], bool(answer["results"]), bool(answer["warning"])) == (2, True, True)
    wait_until(lambda: server.search(next(asked), mode=mode)["fallbackLevel"] == 1)
    assert server.search(next(asked), mode=mode)["results"]
    wait_until(lambda: server.health()["healthy"])
