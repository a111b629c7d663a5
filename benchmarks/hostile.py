"""Memory of a server, and questions beside it, while it takes in hostile texts and files of the allowed size.

`python -m benchmarks.hostile [PART OF A NAME ...]` measures some, or all.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from tests.end_to_end.process import COMMAND, Served, environment, served
from tests.outcomes import hostile_files

from benchmarks.figures import Figure, as_markdown

MOST_MB = 300
KEPT_MB = 100
GIVEN_BACK_S = 10.0
MOST_S = 0.5
TEXT_S = 5.0
TIMEOUT_S = 600.0
EVERY_S = 0.1


@dataclass
class Beside:
    """What was seen meanwhile."""

    peak_mb: int = 0
    late_s: float = 0.0
    stall_s: float = 0.0
    """Longest time for which the machine did not run a thread that only sleeps and wakes up."""
    levels: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Outcome:
    """One input: what became of it, by how much memory grew and how much of that stayed, and the slowest question.

    `cpu_s` is of the server and its workers. A busy machine lets questions wait as well: `stall_s`.
    """

    name: str
    status: str
    took_s: float
    grown_mb: int
    kept_mb: int
    late_s: float
    stall_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def is_bad(self) -> bool:
        return self.grown_mb > MOST_MB or self.kept_mb > KEPT_MB or self.late_s > MOST_S + self.stall_s


def resident_mb(pid: int, parent: bytes = b"") -> int:
    """Memory of a process and of those that it has started."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = [each.read_text().split() for each in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it has just ended
        return 0
    if command == parent:  # not yet the program that it becomes: its memory is its parent's
        return 0
    return pages * 4096 // 10**6 + sum(resident_mb(int(child), command) for found in children for child in found)


def computed_s(pid: int) -> float:
    """CPU time of a process, of those that it has started and of those that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = [each.read_text().split() for each in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(computed_s(int(child)) for found in children for child in found)


@contextmanager
def _beside(url: str, pid: Callable[[], int]) -> Iterator[Beside]:
    seen, over = Beside(), threading.Event()

    def watch() -> None:
        began = time.monotonic()
        while not over.wait(EVERY_S / 2):
            seen.stall_s = max(seen.stall_s, time.monotonic() - began - EVERY_S / 2)
            seen.peak_mb = max(seen.peak_mb, resident_mb(pid()))
            began = time.monotonic()

    def ask() -> None:
        with httpx2.Client(base_url=url, timeout=TIMEOUT_S) as client:
            while not over.wait(EVERY_S):
                began = time.monotonic()
                answer = client.post("/tools/rag_context_search", json={"query": f"tide tables {began}"}).json()
                seen.late_s = max(seen.late_s, time.monotonic() - began)
                seen.levels.add(answer.get("fallbackLevel", 0))

    threads = [threading.Thread(target=each) for each in (watch, ask)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _text(server: Served, name: str, kind: str, text: str) -> Outcome:
    pid = server.process.pid
    line = json.dumps({"content": text, "contentType": kind, "sessionId": "hostile", "source": name})
    before, began, cpu_s = resident_mb(pid), time.monotonic(), computed_s(pid)
    with _beside(server.url, lambda: pid) as seen:
        headers = {"content-type": "application/x-ndjson"}
        stored = httpx2.post(f"{server.url}/bulk", content=line, headers=headers, timeout=TIMEOUT_S).json()
        took_s = time.monotonic() - began
        server.tool("delete", {"documentId": stored.get("documentId", "none")})
    grown, cpu_s = seen.peak_mb - before, computed_s(pid) - cpu_s
    beside = (_kept(pid, before), seen.late_s, seen.stall_s, cpu_s)
    return Outcome(f"{kind} {name} {text[:12]!r}", stored["status"], took_s, grown, *beside)


def _kept(pid: int, before: int) -> int:
    end = time.monotonic() + GIVEN_BACK_S
    while (kept := resident_mb(pid) - before) > KEPT_MB and time.monotonic() < end:
        time.sleep(EVERY_S)
    return kept


def _file(server: Served, path: Path, data_dir: Path, idle_mb: int) -> Outcome:
    """By the command, which converts files in workers of its own."""
    began = time.monotonic()
    index = subprocess.Popen(
        [COMMAND, "index", str(path), "--data-dir", str(data_dir), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        text=True,
    )
    with _beside(server.url, lambda: index.pid) as seen:
        try:
            printed, _ = index.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            index.kill()
            printed, _ = index.communicate()
    lines = [json.loads(line) for line in printed.splitlines()]
    status = str(lines[0].get("status", lines[0].get("error"))) if lines else f"ended at {TIMEOUT_S:.0f} s"
    return Outcome(path.name, status, time.monotonic() - began, seen.peak_mb - idle_mb, 0, seen.late_s, seen.stall_s)


def outcomes(parts: list[str]) -> Iterator[Outcome]:
    """Measure what has one of the parts in its name, or everything."""
    with tempfile.TemporaryDirectory(prefix="rag-context-bench-") as scratch:
        data_dir = Path(scratch) / "data"
        with served(data_dir, RAG_CONTEXT_INDEXING__TIMEOUT_S="0.3") as server:
            server.wait_ready()
            server.index("The harbour master keeps the tide tables.", source="harbour")
            _text(server, "warm.md", "documentation", "word " * 100_000)
            for name, kind, text in (*hostile_files.large(), *hostile_files.every()):
                if not parts or any(part in f"{kind} {name}" for part in parts):
                    yield _text(server, name, kind, text)
            folder = hostile_files.more_archives(Path(scratch) / "files")
            (Path(scratch) / "plain.md").write_text("# Plain\n")
            idle_mb = _file(server, Path(scratch) / "plain.md", data_dir, 0).grown_mb
            for path in sorted(folder.iterdir()):
                if not parts or any(part in path.name for part in parts):
                    yield _file(server, path, data_dir, idle_mb)


def main() -> int:
    """Print a line for each, and the worst."""
    found = []
    for each in outcomes(sys.argv[1:]):
        found.append(each)
        measured = (
            f"{each.took_s:6.1f} s ({each.cpu_s:5.1f} of CPU) {each.grown_mb:5} MB, kept {each.kept_mb:4}, "
            f"question {1e3 * each.late_s:6.0f} ms, stall {1e3 * each.stall_s:4.0f}"
        )
        sys.stdout.write(f"{measured}  {each.status[:30]:30} {each.name}{'  <<<' if each.is_bad else ''}\n")
        sys.stdout.flush()
    sys.stdout.write(as_markdown(figures(found)))
    return int(any(each.is_bad for each in found))


def figures(found: list[Outcome]) -> list[Figure]:
    """The worst of all."""
    note = f"{len(found)} hostile inputs"
    return [
        Figure("memory above the baseline", max(each.grown_mb for each in found), "MB", MOST_MB, note=note),
        Figure("memory 10 s after", max(each.kept_mb for each in found), "MB", KEPT_MB),
        Figure("a question beside them", 1e3 * max(each.late_s for each in found), "ms", 1e3 * MOST_S),
        Figure("one of them", max(each.took_s for each in found), "s"),
    ]


if __name__ == "__main__":
    sys.exit(main())
