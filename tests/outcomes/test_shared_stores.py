"""Servers on each combination of backends that the Compose files and the manifests offer share all that they hold."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.deploy.files import MANIFESTS, POSTGRES_CONFIG, compose
from tests.end_to_end.process import TIMEOUT_S, Served, command, served, wait_until
from tests.servers import qdrant
from tests.servers.chroma import chroma_server
from tests.servers.mongodb import mongodb_database, mongodb_process, uri_of
from tests.servers.postgres_fixtures import empty, server
from tests.servers.redis import redis_server

__all__ = ["empty", "server"]

GIVEN = {"RAG_CONTEXT_API_KEY": "a-key", "BACKEND_PASSWORD": "a1b2c3"}
MACHINES_OWN = {
    "server.json",
    "hooks",
    "audit",
    *(f"{name}.db{suffix}" for name in ("projects", "injections") for suffix in ("", "-wal", "-shm")),
}
"""What a server may keep on its own disk: its address, the folders of its machine that it follows, what the agents of
its machine were shown, and who called it."""


@dataclass(frozen=True)
class Backends:
    """The addresses of the test servers, by the variables that name them."""

    addresses: dict[str, str]

    def applied(self, environment: dict[str, Any]) -> dict[str, str]:
        """The environment of a file with these addresses, as a server on this machine without a key has it."""
        kept = {name: str(value) for name, value in environment.items() if name != "RAG_CONTEXT_API_KEY"}
        return {**kept, **{name: self.addresses[name] for name in kept if name in self.addresses}}


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Qdrant, MongoDB and Redis, started once."""
    with ExitStack() as stack:
        vectors = stack.enter_context(qdrant.running())
        documents = stack.enter_context(mongodb_process(tmp_path_factory.mktemp("mongodb") / "data"))
        cache = stack.enter_context(redis_server())
        yield {
            "QDRANT_URL": vectors.url,
            "RAG_CONTEXT_STORES__QDRANT_API_KEY": "unused",
            "MONGODB_URI": uri_of(documents.port),
            "REDIS_URL": f"redis://127.0.0.1:{cache.port}/0",
        }


@pytest.fixture
def backends(processes: dict[str, str], empty: str) -> Iterator[Backends]:
    """All of them, with a MongoDB and a PostgreSQL database of the test's own, and an empty Qdrant."""
    httpx2.post(processes["QDRANT_URL"] + "/reset", timeout=TIMEOUT_S)
    with mongodb_database(processes["MONGODB_URI"]) as database:
        yield Backends({**processes, "MONGODB_URI": database, "DATABASE_URL": empty})


def of_compose(name: str) -> dict[str, Any]:
    found: dict[str, Any] = compose("compose.yaml", name, environment=GIVEN)["services"]["rag-context"]["environment"]
    return found


def of_manifests(path: Path, *secret: str) -> dict[str, Any]:
    """The ConfigMap, and names of the Secret that `deploy.sh` fills in."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["data"]
    return {**found, **dict.fromkeys(secret, "filled in by the test")}


COMBINATIONS = {
    "compose.full": of_compose("compose.full.yaml"),
    "compose.postgres": of_compose("compose.postgres.yaml"),
    "manifests of Qdrant": of_manifests(MANIFESTS / "server-config.yaml", "MONGODB_URI", "REDIS_URL"),
    "manifests of PostgreSQL": of_manifests(POSTGRES_CONFIG, "DATABASE_URL", "REDIS_URL"),
}


@contextmanager
def started(directory: Path, environment: dict[str, str]) -> Iterator[Served]:
    with served(directory, **environment) as running:
        running.wait_ready()
        yield running


def add(running: Served, collection: str, text: str) -> None:
    made = running.post("/collections", {"name": collection, "metadata": {}, "embedding_provider": "rag-context"})
    assert made.status_code == 201, made.text
    added = running.post(f"/collections/{collection}/documents", {"documents": [{"id": "1", "text": text}]})
    assert added.status_code in (200, 201), added.text


def best(running: Served, collection: str) -> str:
    answer = running.post(f"/collections/{collection}/query", {"text": "What colour is the pump?", "top_k": 1})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["results"][0]["text"])


def searches(running: Served) -> int:
    return int(running.tool("stats", {"timeRange": "1h"}).json()["totalQueries"])


def leave(running: Served, directory: Path) -> None:
    """Kill a server and delete its disk, on which nothing was that others need."""
    running.kill()
    assert {path.name for path in directory.iterdir()} <= MACHINES_OWN
    shutil.rmtree(directory)


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_nothing_acknowledged_is_lost_with_the_disk_of_a_server(
    combination: str, backends: Backends, tmp_path: Path
) -> None:
    environment = backends.applied(COMBINATIONS[combination])
    with started(tmp_path / "one", environment) as one, started(tmp_path / "two", environment) as two:
        receipt = one.index("The harbour keeps key number4711x.")
        assert receipt["status"] == "indexed"
        add(one, "pumps", "The pump in the cellar is blue.")
        assert two.search("number4711x")["results"][0]["documentId"] == receipt["documentId"]
        assert best(two, "pumps") == "The pump in the cellar is blue."
        add(two, "boats", "The pump of the boat is red.")
        wait_until(lambda: searches(one) == 1)
        assert "this machine" not in one.get("/health").text
        leave(one, tmp_path / "one")
        assert best(two, "pumps") == "The pump in the cellar is blue."
        leave(two, tmp_path / "two")
    with started(tmp_path / "three", environment) as three:
        assert three.search("number4711x")["results"][0]["documentId"] == receipt["documentId"]
        assert (best(three, "pumps"), best(three, "boats")) == (
            "The pump in the cellar is blue.",
            "The pump of the boat is red.",
        )
        wait_until(lambda: searches(three) == 2)
    assert "this machine" not in (tmp_path / "three.log").read_text()


def test_collections_on_this_machine_stay_reachable_when_the_stores_become_servers(
    backends: Backends, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with started(data, {}) as running:
        add(running, "pumps", "The pump in the cellar is blue.")
    environment = backends.applied(of_compose("compose.full.yaml"))
    with started(data, environment) as running:
        assert running.get("/collections").json()["count"] == 0
        (component,) = [one for one in running.health()["components"] if "data-directory" in one["name"]]
        for said in (component["detail"], (tmp_path / "data.log").read_text()):
            assert "'pumps'" in said
            assert "on this machine only" in said
            assert "rag-context collections copy data-directory:NAME NAME" in said
        assert running.health()["healthy"]
        query = {"text": "What colour is the pump?", "top_k": 1}
        answer = running.post("/collections/pumps/query?connection=data-directory", query)
        assert answer.json()["results"][0]["text"] == "The pump in the cellar is blue."
        copied = command("collections", "copy", "data-directory:pumps", "pumps", data_dir=data, **environment)
        assert copied.returncode == 0, copied.stderr
        assert best(running, "pumps") == "The pump in the cellar is blue."


def test_what_stays_on_one_machine_beside_a_server_is_named(tmp_path: Path) -> None:
    with (
        chroma_server() as chroma,
        started(tmp_path / "data", {"CHROMA_URL": f"http://127.0.0.1:{chroma.port}"}) as one,
    ):
        components = {component["name"]: component["detail"] for component in one.health()["components"]}
        assert "documents and statistics on this machine only" in components["documents"]
        assert "this machine" not in components["vectors"]
        add(one, "pumps", "The pump in the cellar is blue.")
        with started(tmp_path / "two", {"CHROMA_URL": f"http://127.0.0.1:{chroma.port}"}) as two:
            assert best(two, "pumps") == "The pump in the cellar is blue."
    assert "documents and statistics on this machine only" in (tmp_path / "data.log").read_text()
