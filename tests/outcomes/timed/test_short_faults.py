"""A fault that lasts a moment costs a moment: searches are whole again within two seconds of its end."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.end_to_end.process import Served, served
from tests.outcomes.clients import Reply, ask_together
from tests.outcomes.embedding_server import embedding_server
from tests.servers.faults import Pass, Refuse, ThreadedFaultProxy, fault_proxy_in_thread
from tests.servers.postgres import postgres_database, postgres_server

BEFORE_S, WITHIN_S, AFTER_S = 0.3, 2.0, 4.0
TEXTS = [f"The harbour office keeps key number {n} beside the lantern of pier {n % 7}." for n in range(40)]


@dataclass(frozen=True, slots=True)
class Asked:
    """Replies to clients that ask through a fault without a break, and when it ended."""

    replies: list[Reply]
    ended: float

    def levels(self, since_s: float = float("-inf")) -> Counter[int]:
        """How many replies had each level, of those whose question came so many seconds after the fault's end."""
        asked = [
            reply for reply in self.replies if reply.began >= self.ended + since_s and reply.status == HTTPStatus.OK
        ]
        return Counter(reply.level for reply in asked)


def ask_through(
    server: Served, clients: int, seconds: float, begin: Callable[[], object], end: Callable[[], object]
) -> Asked:
    ended: list[float] = []

    def fault() -> None:
        time.sleep(BEFORE_S)
        begin()
        time.sleep(seconds)
        end()
        ended.append(time.monotonic())

    thread = threading.Thread(target=fault)
    run = time.time_ns()
    # In a process of their own: as threads beside the proxies, many clients would slow down what comes back.
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        other.submit(time.monotonic).result()  # it has started
        thread.start()
        asking = (server.url, clients, BEFORE_S + seconds + AFTER_S, partial(question, run))
        replies = other.submit(ask_together, *asking).result()
    thread.join()
    return Asked(replies, ended[0])


def question(run: int, client: int, number: int) -> dict[str, Any]:
    return {"query": f"where is key {number} {client} {run}"}


def check(asked: Asked) -> None:
    assert any(reply.level > 1 for reply in asked.replies), "nothing was tried"
    late = asked.levels(WITHIN_S)
    assert late, "nobody asked after the fault"
    assert set(late) == {1}, (late, asked.levels())


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    data_dir = tmp_path_factory.mktemp("short") / "data"
    with served(data_dir, RAG_CACHE_SIZE="0") as server:
        server.wait_ready()
        for text in TEXTS:
            server.index(text, source=text)
        yield server, data_dir


# Open files answer on; whether the directory is there is checked from time to time, with 64 clients every few seconds.
@pytest.mark.parametrize(("clients", "seconds"), [(1, 0.7), (8, 3.1), (64, 4.5)])
def test_a_data_directory_that_is_away_for_a_moment(
    embedded: tuple[Served, Path], clients: int, seconds: float
) -> None:
    server, data_dir = embedded
    away = data_dir.with_name("away")
    check(ask_through(server, clients, seconds, lambda: data_dir.rename(away), lambda: away.rename(data_dir)))


@dataclass(frozen=True, slots=True)
class OnServers:
    """A server whose documents and vectors are in PostgreSQL, and whose embeddings come from a server too."""

    server: Served
    proxies: tuple[ThreadedFaultProxy, ...]

    def cut(self) -> None:
        for proxy in self.proxies:
            proxy.fault = Refuse()

    def restore(self) -> None:
        for proxy in self.proxies:
            proxy.fault = Pass()


@pytest.fixture(scope="module")
def on_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnServers]:
    data_dir = tmp_path_factory.mktemp("servers") / "data"
    with (
        embedding_server() as embedder,
        postgres_server() as running,
        postgres_database(running) as url,
        _proxy(embedder.url) as to_embedder,
        _proxy(url) as to_postgres,
        served(
            data_dir,
            RAG_CACHE_SIZE="0",
            RAG_CONTEXT_EMBEDDER__KIND="openai_compatible",
            RAG_CONTEXT_EMBEDDER__URL=to_embedder.url(),
            RAG_CONTEXT_EMBEDDER__MODEL="words",
            DATABASE_URL=urlunsplit(urlsplit(url)._replace(netloc=_netloc(url, to_postgres))),
        ) as server,
    ):
        server.wait_ready()
        for text in TEXTS:
            server.index(text, source=text)
        yield OnServers(server, (to_embedder, to_postgres))


def _proxy(url: str) -> AbstractContextManager[ThreadedFaultProxy]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return fault_proxy_in_thread(parts.hostname, parts.port)


def _netloc(url: str, proxy: ThreadedFaultProxy) -> str:
    user, _, _ = urlsplit(url).netloc.rpartition("@")
    return f"{user}@{urlsplit(proxy.url()).netloc}"


@pytest.mark.parametrize(("clients", "seconds"), [(1, 5.0), (8, 0.5), (64, 2.0)])
def test_all_servers_reject_connections_for_a_moment(on_servers: OnServers, clients: int, seconds: float) -> None:
    check(ask_through(on_servers.server, clients, seconds, on_servers.cut, on_servers.restore))
