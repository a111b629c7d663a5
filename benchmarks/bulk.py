"""What taking in costs besides the model: an unchanged folder once more, and a long stream of documents.

python -m benchmarks.bulk [--quick]

The stream is taken in without a model, so that its documents stay pending and their vectors cost nothing.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, as_markdown
from benchmarks.processes import COMMAND, serving

FILES = 10_000
DOCUMENTS = 100_000
TARGET_S = 2.0
WITHOUT_MODEL = {"RAG_CONTEXT_EMBEDDER__MODEL_DIR": "no-model"}
_WORDS = [f"word{number}" for number in range(3000)]


def main() -> int:
    """Measure and print; exit 1 where a target was missed."""
    parser = argparse.ArgumentParser(prog="benchmarks.bulk", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the size: does it run?")
    size = 10 if parser.parse_args().quick else 1
    with tempfile.TemporaryDirectory(prefix="rag-context-bench-") as name:
        scratch = Path(name)
        figures = [*unchanged(scratch / "files", FILES // size), *streamed(scratch / "stream", DOCUMENTS // size)]
    sys.stdout.write(as_markdown(figures))
    return 1 if any(figure.met is False for figure in figures) else 0


def unchanged(scratch: Path, files: int) -> list[Figure]:
    """A folder that was taken in and left alone, taken in again, without and with a server."""
    folder, data_dir = scratch / "folder", scratch / "data"
    rng = random.Random(1)
    for number in range(files):
        path = folder / f"{number // 100:03}" / f"{number:05}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Note {number}\n\n{' '.join(rng.choices(_WORDS, k=40))}.\n")
    _run(data_dir, "index", str(folder))
    _run(data_dir, "index", str(folder))  # what was written within two seconds before it was read is read once more
    alone = min(_run(data_dir, "index", str(folder))[0] for _ in range(3))
    with serving(data_dir):
        served = min(_run(data_dir, "index", str(folder))[0] for _ in range(3))
    return [
        Figure(f"{files} unchanged files again, no server", alone, "s", TARGET_S, note="best of 3, process included"),
        Figure(f"{files} unchanged files again, with a server", served, "s", TARGET_S, note="best of 3"),
    ]


def streamed(scratch: Path, documents: int) -> list[Figure]:
    """A stream of documents through a server: what both processes hold in memory."""
    scratch.mkdir(parents=True)
    small, whole = scratch / "small.jsonl", scratch / "whole.jsonl"
    small.write_text("".join(_lines(documents // 100)))
    with whole.open("w") as file:
        file.writelines(_lines(documents))
    with serving(scratch / "data", **WITHOUT_MODEL) as server:
        _, first_mb = _run(scratch / "data", "index", "--jsonl", str(small), **WITHOUT_MODEL)
        before_mb = server.resident_mb
        seconds, peak_mb = _run(scratch / "data", "index", "--jsonl", str(whole), **WITHOUT_MODEL)
        after_mb = server.resident_mb
    return [
        Figure(f"{documents} documents as JSON lines", documents / seconds, "documents/s"),
        Figure("memory of the command", peak_mb, "MB", 1.25 * first_mb, note=f"{first_mb:.0f} MB for a hundredth"),
        Figure("memory of the server", after_mb, "MB", note=f"{before_mb:.0f} MB after a hundredth"),
    ]


def _lines(documents: int) -> Iterator[str]:
    rng = random.Random(2)
    for number in range(documents):
        content = " ".join(rng.choices(_WORDS, k=8))
        yield json.dumps({"content": content, "contentType": "documentation", "source": f"doc/{number}"}) + "\n"


def _run(data_dir: Path, *words: str, **variables: str) -> tuple[float, float]:
    """Seconds that a command took, and its largest resident memory in MB."""
    environment = {**os.environ, **variables, "RAG_CONTEXT_DATA_DIR": str(data_dir)}
    started = time.perf_counter()
    process = subprocess.Popen([COMMAND, *words], env=environment, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{words[0]} ended with {process.returncode}")
    return time.perf_counter() - started, used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


if __name__ == "__main__":
    sys.exit(main())
