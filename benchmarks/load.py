"""As many clients as come: throughput, the shares of complete and of rejected answers, 1 to 128, and a pause."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.corpus import Writer
from benchmarks.figures import Figure
from benchmarks.processes import UNCACHED, Server, ask, serving, until_ready
from rag_context.evaluation.measures import percentile

CLIENTS = (1, 4, 8, 32, 64, 128)
FEW, MANY, TURNS = 4, 64, 4
SECONDS = 20.0
PAUSED_CLIENTS, PAUSE_S = 12, 2.0


@dataclass(frozen=True, slots=True)
class Asked:
    """An answer and how long it took, in milliseconds."""

    answer: dict[str, Any]
    took_ms: float

    @property
    def is_complete(self) -> bool:
        return self.answer.get("fallbackLevel") == 1 and "warning" not in self.answer and "error" not in self.answer

    @property
    def is_refused(self) -> bool:
        return self.answer.get("code") == "OVERLOADED"


def measure(data_dir: Path, seconds: float = SECONDS) -> list[Figure]:
    """Crowds of growing size, each for so many seconds, then a crowd while the process is stopped."""
    figures: list[Figure] = []
    with serving(data_dir, **UNCACHED) as server:
        until_ready(server)
        _crowd(server, FEW, seconds / 4)
        for clients in CLIENTS:
            asked = _crowd(server, clients, seconds)
            figures += _figures(clients, asked, seconds)
        many_to_few = _in_turn(server, seconds)
        with _paused(server):
            asked = _crowd(server, PAUSED_CLIENTS, PAUSE_S + 3.0)
    note = f"{PAUSED_CLIENTS} clients, the process stopped for {PAUSE_S:g} s"
    return [
        *figures,
        Figure("64 clients / 4 clients, complete answers a second", many_to_few, "x", 0.9, at_least=True),
        Figure("a pause, complete answers", _share_complete(asked), "%", 99.0, at_least=True, note=note),
    ]


def _in_turn(server: Server, seconds: float) -> float:
    """Complete answers to many clients / those to few, alternately: a machine does not stay equally fast."""
    complete = {FEW: 0, MANY: 0}
    for _ in range(TURNS):
        for clients in complete:
            complete[clients] += sum(each.is_complete for each in _crowd(server, clients, seconds / TURNS))
    return complete[MANY] / complete[FEW]


def _figures(clients: int, asked: Sequence[Asked], seconds: float) -> list[Figure]:
    named = f"{clients} client{'s' if clients > 1 else ''} back to back"
    refused = 100.0 * sum(each.is_refused for each in asked) / len(asked)
    return [
        Figure(f"{named}, complete answers", _share_complete(asked), "%", 99.0, at_least=True),
        Figure(f"{named}, complete answers a second", sum(each.is_complete for each in asked) / seconds, "/s"),
        Figure(f"{named}, p99", percentile([each.took_ms for each in asked], 0.99), "ms"),
        Figure(f"{named}, rejected at once (503)", refused, "%"),
    ]


def _share_complete(asked: Sequence[Asked]) -> float:
    """Share of complete answers among those that were not rejected."""
    answered = [each for each in asked if not each.is_refused]
    return 100.0 * sum(each.is_complete for each in answered) / len(answered)


def _crowd(server: Server, clients: int, seconds: float) -> list[Asked]:
    asked: list[Asked] = []
    end = time.perf_counter() + seconds

    def client(number: int) -> None:
        writer = Writer(seed=1000 + number)
        connection = server.connection()
        while (started := time.perf_counter()) < end:
            answer = ask(connection, "search", {"query": writer.question()})
            asked.append(Asked(answer, (time.perf_counter() - started) * 1000.0))
        connection.close()

    crowd = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    return asked


@contextmanager
def _paused(server: Server) -> Iterator[None]:
    """Stop the process a second from now, for `PAUSE_S`."""

    def pause() -> None:
        os.kill(server.process.pid, signal.SIGSTOP)
        time.sleep(PAUSE_S)
        os.kill(server.process.pid, signal.SIGCONT)

    timer = threading.Timer(1.0, pause)
    timer.start()
    try:
        yield
    finally:
        timer.join()
