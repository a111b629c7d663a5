"""Bulk indexing against its baseline: the bare model on the same texts, as many workers as cores."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.corpus import Writer
from benchmarks.figures import Figure
from rag_context.api.index import BulkLine, BulkReceipt
from rag_context.domain.vectors import Matrix
from rag_context.embedders.onnx_model import BUNDLED, load
from rag_context.files.sending import sliced
from rag_context.settings import Settings
from rag_context.wiring.opening import open_service

PASSAGES = 5
CHUNKS_PER_DOCUMENT = 8
"""What becomes of so many passages of rare words, about."""

IN_FLIGHT = 5
"""Slices of documents at once, as a server has by default."""

TURN = 50
"""Documents of one run."""


def fill(data_dir: Path, documents: int) -> list[Figure]:
    """Index through the service and embed the same chunks with the bare model, in turn; chunks a second as a share."""
    lines = [line(number, writer) for writer in [Writer(seed=3)] for number in range(documents)]
    seconds, bare, chunks = asyncio.run(_index(data_dir, lines))
    return [
        Figure("bulk indexing / bare model", bare / seconds, "x", 0.95, at_least=True, note=f"{chunks} chunks"),
        Figure("bulk indexing", chunks / seconds, "chunks/s"),
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


async def _index(data_dir: Path, lines: list[BulkLine]) -> tuple[float, float, int]:
    """Seconds of the service, seconds of the bare model, and how many chunks, measured alternately."""
    model, texts = load(BUNDLED), 0
    seconds = bare = 0.0
    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    async with open_service(Settings(data_dir=data_dir)) as service:
        await service.wait_ready(30)
        places = asyncio.Semaphore(IN_FLIGHT)

        async def index(part: Sequence[BulkLine]) -> None:
            async with places:
                for receipt in await service.bulk_all(part, request_id="bench"):
                    assert isinstance(receipt, BulkReceipt), receipt
                    assert receipt.status == "indexed", receipt

        for begin in range(0, len(lines), TURN):
            started = time.perf_counter()
            await asyncio.gather(*(index(part) for _, part in sliced(lines[begin : begin + TURN])))
            seconds += time.perf_counter() - started
            new = _texts(data_dir)[texts:]
            texts += len(new)
            started = time.perf_counter()
            await asyncio.to_thread(lambda batch: list(pool.map(model.embed, batch)), new)
            bare += time.perf_counter() - started
    pool.shutdown()
    return seconds, bare, texts


def _texts(data_dir: Path) -> list[str]:
    """What was embedded so far, in the order of storing: the passages' texts under their headings."""
    with sqlite3.connect(data_dir / "rag-context.db") as database:
        rows = database.execute("SELECT context, text FROM passages ORDER BY rowid").fetchall()
    database.close()
    return [f"{context}\n{text}" if context else text for context, text in rows]
