"""Moving 100 000 chunks from the embedded file to PostgreSQL and back, beside writing documents one at a time.

python -m benchmarks.moving [--quick]

Vectors are random, texts are made of words: what is measured is the load, not the model. The server is a real one on
this machine, with its default settings, and shares the processors with what loads it.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from tests.servers.postgres import postgres_database, postgres_process, url_of

from benchmarks.figures import Figure, as_markdown
from benchmarks.hundred_thousand import fill
from rag_context.settings import Settings, StoreSettings
from rag_context.stores.postgres import open_postgres
from rag_context.wiring.stores import open_stores
from rag_context.wiring.transfers import EMBEDDED, open_move

CHUNKS = 100_000
ONE_BY_ONE = 10_000
"""Chunks that are written one document at a time, eight at once."""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.moving", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the size: does it run?")
    size = 10 if parser.parse_args().quick else 1
    with tempfile.TemporaryDirectory(prefix="rag-context-bench-") as name:
        sys.stdout.write(as_markdown(asyncio.run(measure(Path(name), CHUNKS // size, ONE_BY_ONE // size))))
    return 0


async def measure(scratch: Path, chunks: int, one_by_one: int) -> list[Figure]:
    """Fill a file, move it, move it back, and write a part of it the slow way."""
    source, back = Settings(data_dir=scratch / "source"), scratch / "back"
    figures: list[Figure] = []
    with postgres_process() as server:
        async with open_stores(source) as stores:
            await fill(stores.registry, stores.writer, chunks)
        with postgres_database(url_of(server.port)) as url:
            figures += await _moved(source, url, f"{chunks} chunks to PostgreSQL")
            there = StoreSettings(documents="postgres", vectors="postgres", postgres_url=url)
            figures += await _moved(Settings(data_dir=back, stores=there), EMBEDDED, f"{chunks} chunks back")
        with postgres_database(url_of(server.port)) as url:
            figures.append(await _written_one_by_one(url, one_by_one))
    return figures


async def _moved(settings: Settings, to: str, what: str) -> list[Figure]:
    figures: list[Figure] = []

    @contextmanager
    def timed(stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        figures.append(Figure(f"{what}: {stage}", time.perf_counter() - started, "s"))

    async with open_move(settings, to) as move:
        with timed("plan"):
            found = await move.mover.compare(_silent)
        bulk, loads = move.target.stores.bulk, AsyncExitStack()
        if bulk is not None:
            await loads.enter_async_context(bulk.loading(lambda _share: None))
        with timed("rows"):
            await move.mover.copy(found.to_copy, _silent)
        with timed("indexes"):
            await loads.aclose()
        with timed("check"):
            left = await move.mover.compare(_silent)
    if left.to_copy or left.extra:
        raise RuntimeError(f"{len(left.to_copy)} documents were not moved")
    return [*figures, Figure(f"{what}: all", sum(figure.value for figure in figures), "s")]


async def _written_one_by_one(url: str, chunks: int) -> Figure:
    async with open_postgres(url) as store:
        started = time.perf_counter()
        await fill(store.documents, store.documents, chunks, together=8)
        seconds = time.perf_counter() - started
    return Figure("one document at a time, eight at once, keyword index in step", chunks / seconds, "chunks/s")


def _silent(_done: int, _total: int | None) -> None:
    """Show no progress."""


if __name__ == "__main__":
    sys.exit(main())
