"""What a hook costs the person who waits for it: the program that clients run, in turn with a bare Python."""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from benchmarks.processes import COMMAND, ask, serving, until_ready
from rag_context.agents.workspace import workspace

RUNS = 100
WARM_UP = 5
CLIENTS = 50
HOOKS = 1_000

PROGRAM = f"{COMMAND}-hook"
DECISION = (
    "We decided to retry failed payments three times with exponential backoff, because the sandbox drops requests."
)
QUESTION = "How often do we retry failed payments, and with what backoff?"


def measure(data_dir: Path, folder: Path) -> list[Figure]:
    """Hooks of an agent in `folder`, with a server over the index and without one, in turn with a bare Python."""
    folder.mkdir()
    project = workspace(folder)
    if project is None:
        raise RuntimeError(f"{folder} is no project")
    empty = folder / "empty"
    metadata = {"tags": [project.tag]}
    with serving(data_dir) as server:
        until_ready(server)
        body = {
            "content": DECISION,
            "contentType": "decision",
            "sessionId": "s",
            "source": "d.md",
            "metadata": metadata,
        }
        ask(server.connection(), "index", body)
        while not any((data_dir / "hooks").glob("*.digest.json")):
            time.sleep(0.1)
        taken: dict[str, list[float]] = {
            name: [] for name in ("bare", "shown", "silent", "start", "none", "bare CPU", "shown CPU")
        }
        spoken = 0
        for number in range(RUNS + WARM_UP):
            session = {"session_id": f"s{number}", "cwd": str(folder), "hook_event_name": "UserPromptSubmit"}
            prompt = {**session, "prompt": QUESTION}
            times, printed = _round(data_dir, empty, session, prompt)
            if number >= WARM_UP:
                spoken += printed
                for name, each in times.items():
                    taken[name].append(each)
        left, sockets = _crowd(data_dir, folder, server.process.pid)
    p95 = {name: statistics.quantiles(each, n=20)[-1] for name, each in taken.items()}
    note = f"p95 of {RUNS}"
    return [
        Figure("hook at a prompt, with a server that shows something", p95["shown"], "ms", 120, note=note),
        Figure("hook at a prompt, with a server that says nothing", p95["silent"], "ms", 120, note=note),
        Figure("hook at a prompt, without a server", p95["none"], "ms", 300, note=note),
        Figure("hook at the start of a session, from the digest", p95["start"], "ms", 120, note=note),
        Figure("a bare Python, in turn with them", p95["bare"], "ms", note=note),
        Figure("processor time of a hook at a prompt", statistics.median(taken["shown CPU"]), "ms"),
        Figure("processor time of a bare Python", statistics.median(taken["bare CPU"]), "ms"),
        Figure("prompts that were answered within the bound", 100 * spoken / RUNS, "%", 95, at_least=True),
        Figure(f"processes left by {HOOKS} hooks of {CLIENTS} clients", left, "", 0),
        Figure(f"sockets left in the server by {HOOKS} hooks", sockets, "", 0),
    ]


def _round(
    data_dir: Path, empty: Path, session: Mapping[str, str], prompt: Mapping[str, str]
) -> tuple[dict[str, float], bool]:
    """Milliseconds of each, and whether the prompt was answered."""
    began = _processor_ms()
    bare, _ = _run([sys.executable, "-c", "pass"], {})
    after = _processor_ms()
    shown, printed = _hook("prompt", prompt, data_dir)
    cpu = _processor_ms()
    silent, _ = _hook("prompt", prompt, data_dir)
    start, _ = _hook("session-start", {**session, "source": "startup"}, data_dir)
    none, _ = _hook("prompt", prompt, empty)
    times = {"bare": bare, "shown": shown, "silent": silent, "start": start, "none": none}
    return {**times, "bare CPU": after - began, "shown CPU": cpu - after}, DECISION[:40] in printed


def _hook(event: str, payload: Mapping[str, str], data_dir: Path) -> tuple[float, str]:
    return _run([PROGRAM, event, "--client", "claude-code", "--data-dir", str(data_dir)], payload)


def _run(words: list[str], payload: Mapping[str, Any]) -> tuple[float, str]:
    """Milliseconds from the start of the process to its end, and what it printed."""
    started = time.perf_counter()
    done = subprocess.run(words, input=json.dumps(payload), capture_output=True, text=True, check=True)
    return (time.perf_counter() - started) * 1e3, done.stdout


def _processor_ms() -> float:
    """Processor time of all processes that ended, in ms."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1e3


def _crowd(data_dir: Path, folder: Path, server: int) -> tuple[int, int]:
    """Let many clients run hooks at once; how many processes and sockets are left (Linux)."""
    before = _sockets(server)

    def client(number: int) -> None:
        for turn in range(HOOKS // CLIENTS):
            payload = {"session_id": f"c{number}", "cwd": str(folder), "prompt": f"{QUESTION} {turn}"}
            _hook("prompt", payload, data_dir)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(CLIENTS)))
    time.sleep(2)
    commands = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    left = sum(PROGRAM in command and str(data_dir) in command for command in commands)
    return left, max(_sockets(server) - before, 0)


def _sockets(pid: int) -> int:
    files = [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()]
    return sum(file.startswith("socket:") for file in files)
