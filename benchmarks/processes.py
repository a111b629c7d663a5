"""Real servers for the benchmarks, and what they cost."""

import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).with_name("rag-context"))
TIMEOUT_S = 60.0
UNCACHED = {"RAG_CACHE_SIZE": "0"}
"""Environment of a server without a cache of results."""


@dataclass
class Server:
    """A running server, and when it was started (`time.perf_counter`)."""

    process: subprocess.Popen[bytes]
    host: str
    port: int
    started: float

    def connection(self) -> http.client.HTTPConnection:
        """A connection to keep."""
        return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)

    @property
    def resident_mb(self) -> float:
        """Resident memory in MB (Linux)."""
        return self._memory_mb("VmRSS")

    @property
    def peak_mb(self) -> float:
        """The most that it ever was, in MB (Linux)."""
        return self._memory_mb("VmHWM")

    @property
    def processor_s(self) -> float:
        """Seconds of processor time of all its threads until now (Linux)."""
        return processor_s(self.process.pid)

    @property
    def processor_with_children_s(self) -> float:
        """The same with the processes that it has started and that still run, such as those that cut documents."""
        files = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return self.processor_s + sum(processor_s(int(pid)) for file in files for pid in file.read_text().split())

    def _memory_mb(self, name: str) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith(f"{name}:"))
        return int(kilobytes) * 1024 / 1e6


def ask(connection: http.client.HTTPConnection, tool: str, body: dict[str, Any]) -> dict[str, Any]:
    """Call a tool over a kept connection."""
    connection.request("POST", f"/tools/rag_context_{tool}", json.dumps(body), {"Content-Type": "application/json"})
    answer: dict[str, Any] = json.loads(connection.getresponse().read())
    return answer


def processor_s(pid: int) -> float:
    """Seconds of processor time of all threads of a process until now (Linux)."""
    return time.clock_gettime((~pid << 3) | 2)  # the id that clock_getcpuclockid(3) makes


@dataclass(frozen=True, slots=True)
class Cost:
    """What a question cost."""

    ms: float
    processor_ms: float


def cost_of(server: Server, connection: http.client.HTTPConnection, body: dict[str, Any], tool: str = "search") -> Cost:
    """Search, or call another tool; what it cost the caller in time and the server in processor time."""
    processor_s, started = server.processor_s, time.perf_counter()
    ask(connection, tool, body)
    return Cost((time.perf_counter() - started) * 1e3, (server.processor_s - processor_s) * 1e3)


def median(costs: Sequence[Cost]) -> Cost:
    """Of each of the two numbers."""
    return Cost(statistics.median(cost.ms for cost in costs), statistics.median(cost.processor_ms for cost in costs))


def timed(work: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000.0


def get(connection: http.client.HTTPConnection, path: str) -> int:
    """Status of a GET."""
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    return response.status


@contextmanager
def serving(data_dir: Path, **environment: str) -> Iterator[Server]:
    """A server on a free port, up as soon as its port is open; stopped at the end."""
    announcement = data_dir / "server.json"
    announcement.unlink(missing_ok=True)
    started = time.perf_counter()
    process = subprocess.Popen(
        [COMMAND, "serve", "--port", "0", "--data-dir", str(data_dir), "--log-level", "error"],
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    try:
        host, port = _address(announcement, process)
        yield Server(process, host, port, started)
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def _address(announcement: Path, process: subprocess.Popen[bytes]) -> tuple[str, int]:
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end and process.poll() is None:
        try:
            url = json.loads(announcement.read_text())["url"]
        except (OSError, ValueError):
            time.sleep(0.002)
            continue
        host, _, port = url.removeprefix("http://").rpartition(":")
        return host, int(port)
    raise RuntimeError(f"the server did not come up (status {process.poll()})")


def until_ready(server: Server, timeout_s: float = TIMEOUT_S) -> None:
    """Wait for level 1."""
    connection = server.connection()
    end = time.monotonic() + timeout_s
    while get(connection, "/ready") != 200:
        if time.monotonic() > end:
            raise RuntimeError("the server did not become ready")
        time.sleep(0.005)
    connection.close()
