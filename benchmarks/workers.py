"""Two workers against one: searches a second with their embeddings cached, in turn."""

import http.client
import json
import os
import statistics
import threading
import time
from pathlib import Path

from benchmarks.corpus import Writer
from benchmarks.figures import Figure
from benchmarks.processes import Server, serving, until_ready
from benchmarks.searching import UNCACHED

CLIENTS = 8
QUESTIONS = 64
TURNS = 6
SECONDS = 5.0


def measure(data_dir: Path, seconds: float = SECONDS) -> list[Figure]:
    """Whole answers a second of one worker and of two, to as many clients; the ratio is the median of turns."""
    writer = Writer(seed=41)
    bodies = [json.dumps({"query": writer.question()}) for _ in range(QUESTIONS)]
    rates: dict[int, list[float]] = {1: [], 2: []}
    resident: list[float] = []
    for _ in range(TURNS):
        for workers, measured in rates.items():
            with serving(data_dir, **UNCACHED, RAG_WORKERS=str(workers)) as server:
                until_ready(server)
                measured.append(_rate(server, bodies, seconds))
                resident = _resident_mb(server)
    ratios = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    return [
        Figure(
            "2 workers / 1 worker, whole answers a second",
            statistics.median(ratios),
            "x",
            1.7,
            at_least=True,
            note=f"embeddings cached, {CLIENTS} clients, {TURNS} turns: {min(ratios):.2f} to {max(ratios):.2f}",
        ),
        *(
            Figure(f"{workers} worker{'s' * (workers > 1)}, whole answers a second", statistics.median(measured), "/s")
            for workers, measured in rates.items()
        ),
        Figure("resident memory of one of 2 workers", max(resident), "MB"),
        Figure("resident memory of their supervisor", min(resident), "MB"),
    ]


def _resident_mb(server: Server) -> list[float]:
    """Of the server's process and of its workers (Linux)."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    statuses = [Path(f"/proc/{pid}/statm").read_text().split() for pid in (server.process.pid, *children)]
    return [int(status[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6 for status in statuses]


def _rate(server: Server, bodies: list[str], seconds: float) -> float:
    """Whole answers a second, after every connection has asked every question once, so that all are embedded."""
    whole = [0] * CLIENTS
    warm = threading.Barrier(CLIENTS + 1)

    def client(number: int) -> None:
        connection = server.connection()
        for body in bodies:
            _asked(connection, body)
        warm.wait()
        end, asked = time.perf_counter() + seconds, number
        while time.perf_counter() < end:
            whole[number] += b'"fallbackLevel":1,' in _asked(connection, bodies[asked % QUESTIONS])
            asked += 1
        connection.close()

    crowd = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in crowd:
        thread.start()
    warm.wait()
    for thread in crowd:
        thread.join()
    return sum(whole) / seconds


def _asked(connection: http.client.HTTPConnection, body: str) -> bytes:
    """The bytes of an answer: reading them as JSON would take the cores from the servers."""
    connection.request("POST", "/tools/rag_context_search", body, {"Content-Type": "application/json"})
    return connection.getresponse().read()
