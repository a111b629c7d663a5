"""Where the time of a search, and of a bulk index, goes: a sampling profiler looks at a process that does only that.

`python -m benchmarks.profile` writes docs/design/profiles.md. Every sample is one thread that is at work; what waits
for work is not counted.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks import indexing
from benchmarks.corpus import Writer
from rag_context.api.handlers import CallContext
from rag_context.api.index import BulkLine
from rag_context.api.search import SearchRequest
from rag_context.files.sending import sliced
from rag_context.memory.service import Service
from rag_context.settings.sections import SearchSettings, Settings
from rag_context.wiring.opening import open_service

SECONDS = 15
RATE = 400
DOCUMENTS = 300

WAITING = (
    "Condition.wait",
    "Event.wait",
    "Database._serve",
    "Writer._take",
    "_worker (concurrent",
    "Runner.run",
    "select",
)
"""Where a thread stands that has nothing to do."""

PLACES = (
    ("embedding", ("rag_context/embedders/", "onnxruntime/", "tokenizers/")),
    ("the store: SQLite, vectors, postings and BM25", ("rag_context/stores/", "rag_context/domain/text.py")),
    ("chunking, redaction, titles, identity", ("rag_context/ingest/",)),
    ("fusion and ranking", ("search/ranking.py", "search/selection.py")),
    ("request and response: validation, mapping, statistics", ("rag_context/api/", "pydantic/", "rag_context/memory/")),
    ("the chain: retrievers, deadlines, breakers, tasks", ("rag_context/search/", "rag_context/resilience/")),
)
"""A sample belongs to the first place that any of its frames, from the innermost out, is in."""


def main() -> int:
    """Profile both, print and write down."""
    if len(sys.argv) > 1:
        asyncio.run(_work(sys.argv[1], Path(sys.argv[2])))
        return 0
    with tempfile.TemporaryDirectory(prefix="rag-context-profile-") as name:
        data = Path(name)
        indexed = _profiled("index", data)
        searched = _profiled("search", data)
    page = _HEAD + _table("A search", searched) + _table("A bulk index", indexed)
    sys.stdout.write(page)
    (Path(__file__).parent.parent / "docs" / "design" / "profiles.md").write_text(page, encoding="utf-8")
    return 0


def _profiled(what: str, data: Path) -> Counter[str]:
    """Samples by place while `what` goes on in a process of its own."""
    stacks = data / f"{what}.txt"
    spy = Path(sys.executable).with_name("py-spy")
    command = [str(spy), "record", "--format", "raw", "--nonblocking", "--rate", str(RATE), "--output", str(stacks)]
    subprocess.run(
        [*command, "--", sys.executable, "-m", "benchmarks.profile", what, str(data)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LOG_LEVEL": "error"},
    )
    places: Counter[str] = Counter()
    for line in stacks.read_text(encoding="utf-8").splitlines():
        stack, _, count = line.rpartition(" ")
        if "benchmarks/corpus.py" not in stack and ("_measured" in stack or "Thread._bootstrap" in stack):
            places[_place(stack.split(";"))] += int(count)
    del places[""]
    return places


def _place(frames: list[str]) -> str:
    if any(frames[-1].startswith(name) for name in WAITING):
        return ""
    for frame in reversed(frames):
        for place, parts in PLACES:
            if any(part in frame for part in parts):
                return place
    return "anything else"


async def _work(what: str, data: Path) -> None:
    settings = Settings(data_dir=data / "index", search=SearchSettings(cache_size=0))
    async with open_service(settings) as service:
        await service.wait_ready(30)
        if what == "search":
            await _measured_searches(service)
        else:
            await _measured_indexing(service)


async def _measured_searches(service: Service) -> None:
    writer, end = Writer(seed=11), time.monotonic() + SECONDS
    while time.monotonic() < end:
        await service.search(SearchRequest(query=writer.question()), CallContext("profile"))


async def _measured_indexing(service: Service) -> None:
    writer = Writer(seed=3)
    lines = [indexing.line(number, writer) for number in range(DOCUMENTS)]
    places = asyncio.Semaphore(indexing.IN_FLIGHT)

    async def index(part: Sequence[BulkLine]) -> None:
        async with places:
            await service.bulk_all(part, request_id="profile")

    await asyncio.gather(*(index(part) for _, part in sliced(lines)))


def _table(title: str, places: Counter[str]) -> str:
    total = places.total()
    rows = [f"| {place} | {100 * count / total:.1f} % |" for place, count in places.most_common()]
    return "\n".join([f"## {title}", "", f"{total} samples.", "", "| where | share |", "|---|---|", *rows, "", ""])


_HEAD = """# Profiles

<!-- Written by `python -m benchmarks.profile`; run it again rather than editing. -->

This page says where the processor time of a search and of a bulk index goes. A sampling profiler (py-spy, 400 samples
per second) profiles a process that only searches, one query after the other with the cache off, and one that only
indexes. Each sample is one running thread, on any core. `python -m benchmarks.profile` measures it again.

"""

if __name__ == "__main__":
    sys.exit(main())
