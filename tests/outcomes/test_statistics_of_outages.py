"""What could not be answered while the stores were down is in the statistics once they are back, each search once."""

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TypeAlias

import pymongo
import pytest

from tests.end_to_end.process import Served, served, wait_until
from tests.servers.chroma import chroma_server
from tests.servers.mongodb import mongodb_process, uri_of
from tests.servers.postgres import postgres_process, query, url_of

CLIENTS = 2
PAUSE_S = 0.05
"""Between the searches of a client: answers without a search come at once, and stores that start need the processor."""

ENOUGH = 5
"""Searches of each level that the outage lasts for."""


@dataclass(frozen=True)
class Setup:
    """A set-up whose stores can be taken away, and the number of errors that it has stored."""

    data_dir: Path
    down: Callable[[], None]
    up: Callable[[], None]
    stored_errors: Callable[[], int]
    environment: dict[str, str] = field(default_factory=dict)


Make: TypeAlias = Callable[[Path, ExitStack], Setup]


def embedded(folder: Path, _: ExitStack) -> Setup:
    data_dir, away = folder / "data", folder / "away"

    def stored_errors() -> int:
        with closing(sqlite3.connect(data_dir / "rag-context.db")) as connection:
            return int(connection.execute("SELECT count(*) FROM errors WHERE level <> 'access'").fetchone()[0])

    def down() -> None:
        data_dir.replace(away)

    def up() -> None:
        away.replace(data_dir)

    return Setup(data_dir, down, up, stored_errors)


def postgres(folder: Path, stack: ExitStack) -> Setup:
    process = stack.enter_context(postgres_process())
    url = url_of(process.port)

    def stored_errors() -> int:
        return int(query(url, "SELECT count(*) FROM rag_context.errors WHERE level <> 'access'")[0][0])

    return Setup(folder / "data", process.kill, process.start, stored_errors, {"DATABASE_URL": url})


def mongodb_and_chroma(folder: Path, stack: ExitStack) -> Setup:
    documents = stack.enter_context(mongodb_process(folder / "mongodb"))
    vectors = stack.enter_context(chroma_server(folder=folder / "chroma"))
    uri = uri_of(documents.port, "memory")

    def down() -> None:
        """They hang, so that a write may be done although its writer gave it up."""
        documents.freeze()
        vectors.freeze()

    def up() -> None:
        documents.thaw()
        vectors.thaw()

    def stored_errors() -> int:
        with pymongo.MongoClient[dict[str, object]](uri) as client:
            return int(client.get_default_database()["errors"].count_documents({"level": {"$ne": "access"}}))

    addresses = {"MONGODB_URI": uri, "CHROMA_URL": f"http://127.0.0.1:{vectors.port}"}
    return Setup(folder / "data", down, up, stored_errors, addresses)


@pytest.fixture(params=[embedded, postgres, mongodb_and_chroma], ids=lambda make: make.__name__)
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setup]:
    make: Make = request.param
    with ExitStack() as stack:
        yield make(tmp_path, stack)


def counted(server: Served, metric: str) -> float:
    lines = re.findall(rf"^{metric}{{.*}} (\S+)$", server.get("/metrics").text, re.MULTILINE)
    return sum(map(float, lines))


def test_each_search_and_each_error_of_an_outage_is_counted_once(setup: Setup) -> None:
    levels: Counter[str] = Counter()
    # Failures within one deadline are one for the circuit breaker: with the usual one it opens soon.
    soon = {"RAG_CONTEXT_BREAKER__TIMEOUT_MS": "1000", "RAG_CONTEXT_SEARCH__DEADLINE_MS": "500"}
    with served(setup.data_dir, **soon, **setup.environment) as server:
        server.wait_ready()
        server.index("The harbour keeps the key.")

        stop = Event()

        def ask(client: int) -> Counter[str]:
            asked: Counter[str] = Counter()
            while not stop.wait(PAUSE_S):
                level = str(server.search(f"Where is the key {client} {asked.total()}?")["fallbackLevel"])
                asked[level] += 1
                levels[level] += 1
            return asked

        with ThreadPoolExecutor(CLIENTS) as pool:
            try:
                asking = [pool.submit(ask, client) for client in range(CLIENTS)]
                wait_until(lambda: levels["1"] >= ENOUGH)
                setup.down()
                wait_until(lambda: levels["3"] >= ENOUGH and levels["4"] >= ENOUGH)
                setup.up()
                answered = levels["1"]
                wait_until(lambda: levels["1"] >= answered + ENOUGH)
            finally:
                stop.set()
        expected = sum((each.result() for each in asking), Counter[str]())

        def stats() -> dict[str, int]:
            answer = server.tool("stats", {"timeRange": "1h"})
            return dict(answer.json().get("queriesByLevel", {})) if answer.status_code == 200 else {}

        wait_until(lambda: sum(stats().values()) >= sum(expected.values()))
        assert stats() == dict(expected)
        assert counted(server, "rag_queries_total") == sum(expected.values())
        errors = counted(server, "rag_errors_total")
        assert errors >= expected["3"]
        wait_until(lambda: setup.stored_errors() >= errors)
        assert setup.stored_errors() == errors == counted(server, "rag_errors_total")
        assert "rag_records_dropped_total 0.0" in server.get("/metrics").text
