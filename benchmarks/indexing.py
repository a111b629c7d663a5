"""Bulk indexing against its floor: the bare model on the same texts, as many workers as cores."""

import asyncio
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.corpus import Writer
from benchmarks.figures import Figure
from rag_context.contract.index import BulkLine
from rag_context.embedders.onnx_model import BUNDLED, load
from rag_context.settings import Settings
from rag_context.types import Matrix
from rag_context.wiring import open_service

PASSAGES = 5
CHUNKS_PER_DOCUMENT = 8
"""What becomes of so many passages of rare words, about."""

IN_FLIGHT = 5


def fill(data_dir: Path, documents: int) -> list[Figure]:
    """Index through the service, then embed the same chunks with the bare model; chunks per second as a share."""
    lines = [line(number, writer) for writer in [Writer(seed=3)] for number in range(documents)]
    seconds, texts = asyncio.run(_index(data_dir, lines))
    model, cores = load(BUNDLED), os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        started = time.perf_counter()
        list(pool.map(model.embed, texts))
        bare = time.perf_counter() - started
    return [
        Figure("bulk indexing / bare model", bare / seconds, "x", 0.85, at_least=True, note=f"{len(texts)} chunks"),
        Figure("bulk indexing", len(texts) / seconds, "chunks/s"),
    ]


def vectors_of(data_dir: Path) -> Matrix:
    """All vectors of an index, `(n, dim) float32`."""
    with sqlite3.connect(data_dir / "rag-context.db") as database:
        rows = database.execute("SELECT vector FROM vectors").fetchall()
    database.close()
    return np.stack([np.frombuffer(row, np.float32) for (row,) in rows])


def line(number: int, writer: Writer) -> BulkLine:
    """A document of some passages."""
    paragraphs = "\n\n".join(writer.passage() for _ in range(PASSAGES))
    return BulkLine(
        content=f"# Note {number}\n\n{paragraphs}\n",
        content_type="documentation",
        session_id="files",
        source=f"/notes/{number}.md",
        from_file=True,
    )


async def _index(data_dir: Path, lines: list[BulkLine]) -> tuple[float, list[str]]:
    async with open_service(Settings(data_dir=data_dir)) as service:
        await service.wait_ready(30)
        places = asyncio.Semaphore(IN_FLIGHT)

        async def one(line: BulkLine) -> None:
            async with places:
                receipt = await service.bulk(line, request_id="bench")
                assert receipt.status == "indexed", receipt

        started = time.perf_counter()
        await asyncio.gather(*(one(line) for line in lines))
        seconds = time.perf_counter() - started
    return seconds, _texts(data_dir)


def _texts(data_dir: Path) -> list[str]:
    """What was embedded, as near as the file tells: the passages' texts."""
    with sqlite3.connect(data_dir / "rag-context.db") as database:
        rows = database.execute("SELECT text FROM passages").fetchall()
    database.close()
    return [text for (text,) in rows]
