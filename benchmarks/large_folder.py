"""How fast keyword search finds a folder, and what that costs: its vectors are not made.

    python -m benchmarks.large_folder FOLDER [--alone]

With `--alone` the process that stores also prepares all documents: the difference is what the others gain.
Processor time is that of the process that stores, and of the processes that prepare documents and parse sources.
"""

import asyncio
import resource
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from benchmarks.figures import Figure, as_markdown
from rag_context.cli.index_files import open_sync
from rag_context.domain.documents import Metadata
from rag_context.files import file_jobs
from rag_context.files.file_reading import Labels
from rag_context.files.folder_sync import Gone
from rag_context.files.walk import roots
from rag_context.ingest import preparing
from rag_context.memory.background_maintenance import Duties
from rag_context.memory.hook_service import LocalTarget
from rag_context.settings import Settings
from rag_context.stores.sqlite.embedded import FILE_NAME
from rag_context.wiring.opening import open_service

IN_FLIGHT = 5


async def measure(folder: Path, data_dir: Path) -> list[Figure]:
    """Store every document of a folder, all of them pending."""
    file_jobs.EMBEDDED_CHARS = 0
    settings, counts = Settings(data_dir=data_dir), Counter[str]()
    # Another process would look after the index: no vectors are made here.
    async with open_service(settings, duties=Duties.OWN) as service:
        await service.wait_ready(30)
        target, labels = LocalTarget(service, IN_FLIGHT), Labels(None, None, Metadata())
        seconds, processor_s = time.perf_counter(), time.process_time()
        with open_sync(target, settings, labels, Gone.REPORT, lambda receipt: counts.update([receipt.status])) as sync:
            await sync.run(roots([folder]))
        seconds, processor_s = time.perf_counter() - seconds, time.process_time() - processor_s
    with closing(sqlite3.connect(data_dir / FILE_NAME)) as database:
        (chunks,) = database.execute("SELECT count(*) FROM chunks").fetchone()
    others = resource.getrusage(resource.RUSAGE_CHILDREN)  # they have ended by now
    others_s = others.ru_utime + others.ru_stime
    return [
        Figure("keyword search finds", chunks / seconds, "chunks/s", note=f"{counts.total()} files, {chunks} chunks"),
        Figure("processor time of a chunk, the storing process", processor_s / chunks * 1e3, "ms"),
        Figure("processor time of a chunk, all processes", (processor_s + others_s) / chunks * 1e3, "ms"),
        Figure("processors in use", (processor_s + others_s) / seconds, ""),
    ]


if __name__ == "__main__":
    if sys.argv[2:] == ["--alone"]:
        vars(preparing)["REUSED_CHARS"] = -1  # no document is short enough for another process
    with tempfile.TemporaryDirectory(prefix="rag-context-bench-") as scratch:
        print(as_markdown(asyncio.run(measure(Path(sys.argv[1]), Path(scratch)))))
