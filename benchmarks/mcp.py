"""A search over MCP against the same over plain HTTP, and how long a client waits for a process to answer it."""

import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.corpus import Writer
from benchmarks.figures import Figure
from benchmarks.processes import COMMAND, TIMEOUT_S, UNCACHED, ask, serving, timed, until_ready
from benchmarks.start_up import processor_time

QUESTIONS = 400
WARM_UP = 50
STARTS = 5
_VERSION = "2026-07-28"
_META = {"io.modelcontextprotocol/protocolVersion": _VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": _VERSION,
    "Mcp-Method": "tools/call",
    "Mcp-Name": "rag_context_search",
}
_OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}


def against_rest(data_dir: Path) -> list[Figure]:
    """p50 of a search over MCP, as a multiple of the p50 over plain HTTP, measured alternately in one run."""
    writer = Writer(seed=13)
    over_mcp, over_rest = [], []
    with serving(data_dir, **UNCACHED) as server:
        until_ready(server)
        one, other = server.connection(), server.connection()
        for number in range(QUESTIONS + WARM_UP):
            mcp = timed(partial(_call, one, writer.question()))
            rest = timed(partial(ask, other, "search", {"query": writer.question()}))
            if number >= WARM_UP:
                over_mcp.append(mcp)
                over_rest.append(rest)
    return [
        Figure(
            "search over MCP / over plain HTTP",
            statistics.median(over_mcp) / statistics.median(over_rest),
            "x",
            1.5,
            note="p50, Streamable HTTP",
        ),
        Figure("search over MCP, p50", statistics.median(over_mcp), "ms"),
    ]


def start(data_dir: Path) -> list[Figure]:
    """From the command to the answer to `initialize`, and to the first answer of level 1, over stdio."""
    opened, answered = [], []
    for _ in range(STARTS):
        started = time.perf_counter()
        process = subprocess.Popen(
            [COMMAND, "mcp", "--structured", "--data-dir", str(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        _exchange(process, _OPENING)
        opened.append(time.perf_counter() - started)
        params = {"name": "rag_context_search", "arguments": {"query": "a first question"}}
        answer = _exchange(process, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})
        answered.append(time.perf_counter() - started)
        if answer["result"]["structuredContent"]["fallbackLevel"] != 1:
            raise RuntimeError("the first answer over stdio was not of level 1")
        process.communicate(timeout=TIMEOUT_S)
    note = f"from the command, median of {STARTS}"
    return [
        Figure("stdio: answer to initialize", statistics.median(opened), "s", 1.0, note=note),
        Figure("stdio: first answer of level 1", statistics.median(answered), "s", note=note),
    ]


def opening() -> list[Figure]:
    """Processor time of a process until a client has its lists, against a bare Python in turn.

    The client shows a model only the tools that were listed in time; a search is not among these requests, so nothing
    heavy is loaded.
    """
    opened, listed, bare = [], [], []
    for _ in range(STARTS):
        bare.append(processor_time((sys.executable, "-c", "pass")))
        with tempfile.TemporaryDirectory() as data_dir:
            process = subprocess.Popen(
                [COMMAND, "mcp", "--data-dir", data_dir],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            _exchange(process, _OPENING)
            opened.append(_scheduled_s(process.pid))
            for method in ("tools/list", "prompts/list", "resources/templates/list"):
                _exchange(process, {"jsonrpc": "2.0", "id": method, "method": method})
            listed.append(_scheduled_s(process.pid))
            process.communicate(timeout=TIMEOUT_S)
    last, note = statistics.median(listed), f"CPU, median of {STARTS}"
    return [
        Figure("stdio: last list / answer to initialize", last / statistics.median(opened), "x", 1.3, note=note),
        Figure("stdio: last list / a bare Python", last / statistics.median(bare), "x", 15.0, note=note),
    ]


def _scheduled_s(pid: int) -> float:
    """Seconds that the threads of a process have run (Linux): finer than the ticks of `processor_s`."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def _call(connection: http.client.HTTPConnection, question: str) -> None:
    params = {"name": "rag_context_search", "arguments": {"query": question}, "_meta": _META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    connection.request("POST", "/mcp", json.dumps(message), _HEADERS)
    answer = json.loads(connection.getresponse().read())
    if answer["result"]["isError"]:
        raise RuntimeError(f"no answer over MCP: {answer}")


def _exchange(process: "subprocess.Popen[bytes]", message: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer
