"""Short texts in bulk: messages of some 110 characters through `/bulk`, in turn with the bare model on the same texts.

    python -m benchmarks.short_texts [MESSAGES]

Server and model alternate, eighty messages at a time, and the ratio is the median of the turns': processor time of the
model alone by that of the server, which runs the model too.
"""

import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.figures import Figure, as_markdown
from benchmarks.processes import serving, until_ready
from rag_context.embedders.onnx_model import BUNDLED, load

TURN = 80
CHARS = 108
PAGES = Path(__file__).parent.parent / "docs"


def messages(count: int) -> list[str]:
    """Pieces of this project's pages."""
    pages = " ".join(page.read_text("utf-8") for page in sorted(PAGES.glob("*.md")))
    words, rng = re.findall(r"[a-z][a-z'-]+", pages.lower()), random.Random(3)
    starts = [rng.randrange(len(words) - 40) for _ in range(count)]
    return [" ".join(words[at : at + 40])[:CHARS].strip().capitalize() + "." for at in starts]


def measure(data_dir: Path, count: int) -> list[Figure]:
    """Processor time of both, and how many messages a second."""
    texts, model, pool = messages(count), load(BUNDLED), ThreadPoolExecutor(os.cpu_count())
    list(pool.map(model.embed, texts[:TURN]))
    served: list[tuple[float, float]] = []
    alone: list[float] = []
    with serving(data_dir) as server, pool:
        until_ready(server)
        connection = server.connection()
        for start in range(0, count, TURN):
            part = texts[start : start + TURN]
            processor_s, seconds = server.processor_s, time.perf_counter()
            connection.request("POST", "/bulk", _body(part, start), {"Content-Type": "application/x-ndjson"})
            receipts = connection.getresponse().read()
            served.append((server.processor_s - processor_s, time.perf_counter() - seconds))
            assert receipts.count(b'"indexed"') == len(part), receipts[:300]
            processor_s = time.process_time()
            list(pool.map(model.embed, part))
            alone.append(time.process_time() - processor_s)
    ratio = statistics.median(bare / took for bare, (took, _) in zip(alone, served, strict=True))
    return [
        Figure("short texts in bulk, bare model / server (processor time)", ratio, "x", 0.85, at_least=True),
        Figure("processor time of a short text", sum(took for took, _ in served) / count * 1e3, "ms"),
        Figure("processor time of the bare model on it", sum(alone) / count * 1e3, "ms"),
        Figure("short texts in bulk", count / sum(seconds for _, seconds in served), "texts/s"),
    ]


def _body(part: list[str], start: int) -> bytes:
    lines = [
        {
            "content": text,
            "contentType": "chat",
            "sessionId": "bench",
            "metadata": {"role": "user"},
            "source": f"m/{number}",
        }
        for number, text in enumerate(part, start)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rag-context-bench-") as scratch:
        print(as_markdown(measure(Path(scratch), int(sys.argv[1]) if len(sys.argv) > 1 else 1600)))
