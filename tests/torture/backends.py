"""Where a tortured server keeps its data, and what empties the files of that of what was deleted."""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import redis

from tests.servers import qdrant
from tests.servers.postgres import execute, postgres_process, url_of
from tests.servers.redis import redis_server

Opened: TypeAlias = tuple[dict[str, str], Callable[[], None]]
"""Environment of the server, and the maintenance of its backend."""

BACKENDS = ("embedded", "postgres", "redis", "qdrant")
ERASED_S = 60.0
MARK = b"canary"
DIGITS = 12

_NO_OLD_LOG = ("-c", "wal_recycle=off", "-c", "min_wal_size=32MB", "-c", "fsync=off")
"""Else PostgreSQL keeps segments of its log, with what they had, as room for later ones."""


@contextmanager
def backend(name: str, place: Path) -> Iterator[Opened]:
    """The embedded store, PostgreSQL or a Redis with all of their files below `place`, or vectors in Qdrant."""
    match name:
        case "postgres":
            place.chmod(0o755)
            with postgres_process(*_NO_OLD_LOG, inside=place) as process:
                url = url_of(process.port)
                yield {"DATABASE_URL": url}, lambda: _vacuum(url)
        case "redis":
            (place / "redis").mkdir()
            with redis_server(None, "--appendonly", "yes", "--dir", str(place / "redis")) as process:
                url = f"redis://127.0.0.1:{process.port}/0"
                stores = {"RAG_CONTEXT_STORES__CACHE": "redis", "RAG_CONTEXT_STORES__REDIS_URL": url}
                yield stores, lambda: _rewrite(url)
        case "qdrant":
            with qdrant.running() as vectors:
                stores = {"VECTORS": "qdrant", "QDRANT_URL": vectors.url}
                yield {f"RAG_CONTEXT_STORES__{key}": value for key, value in stores.items()}, lambda: None
        case _:
            yield {}, lambda: None


def _vacuum(url: str) -> None:
    execute(url, "VACUUM (FULL, ANALYZE)", *["SELECT pg_switch_wal()", "CHECKPOINT"] * 2)


def _rewrite(url: str) -> None:
    with redis.Redis.from_url(url) as server, suppress(redis.ResponseError):  # one may be under way
        server.bgrewriteaof()


def in_files(folder: Path, words: Collection[str]) -> set[str]:
    """Which of these words are in any file."""
    return set(files_of(folder, words))


def files_of(folder: Path, words: Collection[str]) -> dict[str, str]:
    """The words that are in any file, each with the name of one that has it."""
    found: dict[str, str] = {}
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            parts = file.read_bytes().split(MARK)[1:] if file.is_file() else []
            found |= {(MARK + part[:DIGITS]).decode("ascii", "replace"): file.name for part in parts}
    return {word: found[word] for word in set(words) & found.keys()}


def erased(folder: Path, words: Collection[str], maintain: Callable[[], None]) -> dict[str, str]:
    """Wait until none of these words is in any file; returns those that stay, each with the name of a file."""
    ends = time.monotonic() + ERASED_S
    while left := files_of(folder, words):
        if time.monotonic() > ends:
            break
        maintain()
        time.sleep(0.2)
    return left
