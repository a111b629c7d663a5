"""Importing a gigabyte of sessions of agents, while a server answers questions: seeded, as Claude Code writes them.

A tenth of the bytes is what people and models said. The rest is tool calls and their output, as in real sessions.
"""

import json
import os
import random
import resource
import statistics
import subprocess
import time
from pathlib import Path

from benchmarks.corpus import Writer
from benchmarks.figures import Figure
from benchmarks.processes import COMMAND, UNCACHED, ask, serving, until_ready

MEGABYTES = 1_000
SESSION_TURNS = 60
OUTPUT_BYTES = 24_000
"""Output of the tools of one turn."""

NEEDLE = "xylograph"
"""A word of the last session alone."""


def write(home: Path, megabytes: int, seed: int = 27) -> int:
    """Sessions of so many megabytes below a home; returns how many."""
    writer, chance = Writer(seed=seed), random.Random(seed)
    output = "".join(f"{number:06d} {' '.join(writer.words(9))}\n" for number in range(4_000))
    folder, size, number = home / ".claude/projects/-work", 0, 0
    folder.mkdir(parents=True)
    while size < megabytes * 1_000_000:
        path = folder / f"session-{number:05d}.jsonl"
        with path.open("w") as file:
            for turn in range(SESSION_TURNS):
                for line in _turn(writer, chance, output, number, turn):
                    file.write(json.dumps(line) + "\n")
        size += path.stat().st_size
        number += 1
    with path.open("a") as file:
        file.write(json.dumps(_line(number - 1, SESSION_TURNS, "user", f"Where is the {NEEDLE}?")) + "\n")
    return number


def _turn(writer: Writer, chance: random.Random, output: str, number: int, turn: int) -> list[dict[str, object]]:
    start = chance.randrange(len(output) - OUTPUT_BYTES)
    call = {"type": "tool_use", "id": f"t{turn}", "name": "Bash", "input": {"command": writer.sentence()}}
    result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": output[start : start + OUTPUT_BYTES]}
    said = "\n\n".join(writer.passage(6) for _ in range(3))
    return [
        _line(number, turn, "user", writer.passage(3)),
        _line(number, turn, "assistant", [call]),
        _line(number, turn, "user", [result]),
        _line(number, turn, "assistant", [{"type": "text", "text": said}]),
    ]


def _line(number: int, turn: int, role: str, content: object) -> dict[str, object]:
    return {
        "type": role, "sessionId": f"session-{number:05d}", "cwd": f"/home/jo/p{number % 20}", "isSidechain": False,
        "timestamp": f"2026-{1 + number % 12:02}-{1 + number % 28:02}T{turn // 6:02}:{turn % 6}0:00.000Z",
        "entrypoint": "cli", "message": {"role": role, "content": content},
    }  # fmt: skip


def measure(scratch: Path, megabytes: int = MEGABYTES) -> list[Figure]:
    """Import sessions into a running server and ask it questions meanwhile."""
    home, data_dir = scratch / "home", scratch / "data"
    sessions = write(home, megabytes)
    environment = {**os.environ, "HOME": str(home)}
    command = [COMMAND, "import-history", "claude-code", "--data-dir", str(data_dir)]
    with serving(data_dir, **UNCACHED) as server:
        until_ready(server)
        connection, writer, latencies, levels = server.connection(), Writer(), list[float](), list[int]()
        before, children = server.processor_with_children_s, resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None:
                asked = time.perf_counter()
                levels.append(ask(connection, "search", {"query": writer.question()})["fallbackLevel"])
                latencies.append((time.perf_counter() - asked) * 1e3)
                time.sleep(0.5)
        wall_s = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = server.processor_with_children_s - before
        cpu_s += after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
        (first, *_) = ask(connection, "search", {"query": NEEDLE})["results"]
        if process.returncode != 0 or NEEDLE not in first["content"]:
            raise RuntimeError("the last session is not found")
        again = time.perf_counter()
        subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=True)
        again_s = time.perf_counter() - again
    size = f"{megabytes} MB of sessions"
    return [
        Figure(
            f"{size}, searchable by keywords", wall_s, "s", 300.0 * megabytes / MEGABYTES, note=f"{sessions} sessions"
        ),
        Figure(f"{size}, processor time of all processes", cpu_s, "s"),
        Figure("a question meanwhile, median", statistics.median(latencies), "ms", note=f"{len(latencies)} questions"),
        Figure("a question meanwhile, slowest", max(latencies), "ms", note=f"levels {sorted(set(levels))}"),
        Figure(f"{size} again, unchanged", again_s, "s"),
    ]
