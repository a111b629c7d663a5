"""The real command as a real process, found and called as its users do."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.end_to_end.loaded import COMMAND, Program

__all__ = ["COMMAND"]

TIMEOUT_S = 120.0
"""Only a failure takes so long. On two cores beside twenty busy processes, servers took 12 s to over 30 s to start."""


PATIENT = {"RAG_CONTEXT_SEARCH__DEADLINE_MS": "10000"}
"""Of servers in tests: answers are complete however busy the machine is. Tests that assert on time take it away."""

OTHERS = ("RAG_", "MCP_", "LOG_LEVEL", "COVERAGE_", "DATABASE_URL", "POSTGRES_URL", "OTEL_")


def environment(**extra: str) -> dict[str, str]:
    """Ours, without settings of the user who runs the tests, and without anything that makes a process slower."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
    return {**kept, "NO_COLOR": "1", **extra}


def command(*arguments: str, data_dir: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run `rag-context` to its end."""
    return run([COMMAND, *arguments, "--data-dir", str(data_dir)], env=environment(**extra))


def run(
    words: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    sent: str | None = None,
    before: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run COMMAND with other words to its end; `sent` is its input, `before` runs in its process first."""
    stdin = None if sent is None else subprocess.PIPE
    pipe = subprocess.PIPE
    with Program(
        words, stdin=stdin, stdout=pipe, stderr=pipe, encoding="utf-8", env=env, cwd=cwd, preexec_fn=before
    ) as process:
        try:
            out, err = process.communicate(sent, timeout=300)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


@dataclass
class Served:
    """A running server."""

    process: subprocess.Popen[bytes]
    url: str

    def get(self, path: str) -> httpx2.Response:
        return httpx2.get(self.url + path, timeout=TIMEOUT_S)

    def post(self, path: str, body: Mapping[str, Any]) -> httpx2.Response:
        return httpx2.post(self.url + path, json=body, timeout=TIMEOUT_S)

    def tool(self, name: str, body: Mapping[str, Any]) -> httpx2.Response:
        return self.post(f"/tools/rag_context_{name}", body)

    def search(self, query: str, **fields: Any) -> dict[str, Any]:
        response = self.tool("search", {"query": query, **fields})
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def index(self, content: str, **fields: Any) -> dict[str, Any]:
        body = {"content": content, "contentType": "documentation", "sessionId": "s", "source": "notes", **fields}
        response = self.tool("index", body)
        assert response.status_code == 200, response.text
        receipt: dict[str, Any] = response.json()
        return receipt

    def health(self) -> dict[str, Any]:
        report: dict[str, Any] = self.get("/health").json()
        return report

    def wait_ready(self) -> None:
        wait_until(lambda: self.get("/ready").status_code == 200)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(TIMEOUT_S)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_S)


def wait_until(condition: Any) -> None:
    """Wait for something another process brings about."""
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


@contextmanager
def served(data_dir: Path, *arguments: str, **extra: str) -> Iterator[Served]:
    """A server on a free port; killed at the end if it still runs. Its log is the file beside its data directory."""
    (data_dir / "server.json").unlink(missing_ok=True)
    with data_dir.with_suffix(".log").open("ab") as log:
        process = Program(
            [COMMAND, "serve", "--port", "0", "--data-dir", str(data_dir), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=environment(**{**PATIENT, **extra}),
        )
    try:
        wait_until(lambda: _announced(data_dir, process.pid) or process.poll() is not None)
        assert process.poll() is None, f"the server ended with {process.returncode}"
        url = _announced(data_dir, process.pid)
        assert url is not None
        wait_until(lambda: is_alive(url))
        yield Served(process, url)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(TIMEOUT_S)


def _announced(data_dir: Path, pid: int) -> str | None:
    """The address of the server with this process; another one on the same directory may announce itself too."""
    try:
        found = json.loads((data_dir / "server.json").read_text())
    except FileNotFoundError:
        return None
    return str(found["url"]) if found["pid"] == pid else None


def is_alive(url: str) -> bool:
    """Whether a server answers at the address."""
    try:
        return httpx2.get(url + "/live", timeout=5.0).status_code == 200
    except httpx2.TransportError:
        return False
