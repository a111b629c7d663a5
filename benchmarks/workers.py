"""Two workers against one: searches a second with their embeddings cached, in turn.

Two virtual cores may be less than two cores. What two processes without anything in common do more than one is measured
in the same turns: no server can gain more.
"""

import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpus import Writer
from benchmarks.figures import Figure
from benchmarks.processes import UNCACHED, Server, processor_s, serving, until_ready

CLIENTS = 8
QUESTIONS = 64
TURNS = 6
SECONDS = 5.0

_LOOP = """
import sys, time
end, rounds = time.perf_counter() + float(sys.argv[1]), 0
while time.perf_counter() < end:
    sum(number % 7 for number in range(1000))
    rounds += 1
print(rounds)
"""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Complete answers a second, and the processor time of one: of all processes of the server, and of the clients."""

    answers_s: float
    server_ms: float
    clients_ms: float


def measure(data_dir: Path, seconds: float = SECONDS) -> list[Figure]:
    """Complete answers a second of one worker and of two, to as many clients; the ratio is the median of turns."""
    writer = Writer(seed=41)
    bodies = [json.dumps({"query": writer.question()}) for _ in range(QUESTIONS)]
    turns: dict[int, list[Throughput]] = {1: [], 2: []}
    resident: list[float] = []
    loops: list[float] = []
    for _ in range(TURNS):
        loops.append(_loops(2, seconds / 4) / _loops(1, seconds / 4))
        for workers, measured in turns.items():
            with serving(data_dir, **UNCACHED, RAG_WORKERS=str(workers)) as server:
                until_ready(server)
                measured.append(_throughput(server, bodies, seconds))
                resident = _resident_mb(server)
    ratios = [two.answers_s / one.answers_s for one, two in zip(turns[1], turns[2], strict=True)]
    return [
        Figure(
            "2 workers / 1 worker, complete answers a second",
            statistics.median(ratios),
            "x",
            1.7,
            at_least=True,
            note=f"embeddings cached, {CLIENTS} clients, {TURNS} turns: {min(ratios):.2f} to {max(ratios):.2f}",
        ),
        Figure(
            "two processes / one, a loop in Python",
            statistics.median(loops),
            "x",
            note=f"{min(loops):.2f} to {max(loops):.2f}",
        ),
        *_figures("1 worker", turns[1]),
        *_figures("2 workers", turns[2]),
        Figure("resident memory of one of 2 workers", max(resident), "MB"),
        Figure("resident memory of their supervisor", min(resident), "MB"),
    ]


def _figures(name: str, turns: Sequence[Throughput]) -> list[Figure]:
    return [
        Figure(f"{name}, complete answers a second", statistics.median(each.answers_s for each in turns), "/s"),
        Figure(f"{name}, processor time of an answer", statistics.median(each.server_ms for each in turns), "ms"),
        Figure(
            f"{name}, processor time of the clients for an answer",
            statistics.median(each.clients_ms for each in turns),
            "ms",
        ),
    ]


def _loops(processes: int, seconds: float) -> int:
    """How often so many processes together run through a loop."""
    command = [sys.executable, "-c", _LOOP, str(seconds)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(processes)]
    return sum(int(process.communicate()[0]) for process in running)


def _resident_mb(server: Server) -> list[float]:
    """Of the server's process and of its workers (Linux)."""
    statuses = [Path(f"/proc/{pid}/statm").read_text().split() for pid in _processes(server)]
    return [int(status[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6 for status in statuses]


def _processor_s(server: Server) -> float:
    """Seconds of processor time of the server's process and of its workers until now (Linux)."""
    return sum(map(processor_s, _processes(server)))


def _processes(server: Server) -> list[int]:
    """The ids of the server's process and of its workers (Linux)."""
    pid = server.process.pid
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def _throughput(server: Server, bodies: list[str], seconds: float) -> Throughput:
    """Of `CLIENTS` connections, after each has sent every question once, so that all are embedded."""
    complete = [0] * CLIENTS
    warm = threading.Barrier(CLIENTS + 1)

    def client(number: int) -> None:
        connection = server.connection()
        for body in bodies:
            _asked(connection, body)
        warm.wait()
        end, asked = time.perf_counter() + seconds, number
        while time.perf_counter() < end:
            complete[number] += b'"fallbackLevel":1,' in _asked(connection, bodies[asked % QUESTIONS])
            asked += 1
        connection.close()

    crowd = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in crowd:
        thread.start()
    warm.wait()
    of_server, of_clients = _processor_s(server), time.process_time()
    for thread in crowd:
        thread.join()
    of_server, of_clients = _processor_s(server) - of_server, time.process_time() - of_clients
    answers = sum(complete)
    return Throughput(answers / seconds, of_server * 1e3 / answers, of_clients * 1e3 / answers)


def _asked(connection: http.client.HTTPConnection, body: str) -> bytes:
    """The bytes of an answer: reading them as JSON would take the cores from the servers."""
    connection.request("POST", "/tools/rag_context_search", body, {"Content-Type": "application/json"})
    return connection.getresponse().read()
