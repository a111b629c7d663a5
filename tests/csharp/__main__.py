"""Compiles the client with its example for C# 7, runs it, and compares what it says."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from tests.client.scripted_server import SILENCE, reply, scripted
from tests.end_to_end.process import served

FOLDER = Path(__file__).resolve().parents[2] / "clients" / "csharp"
INSTALL = (
    "apt-get install mono-mcs mono-runtime libmono-system-net-http4.0-cil libmono-system-runtime-serialization4.0-cil"
)
TIMEOUT_S = 120.0

WELL = """\
healthy: True, vectors healthy
kept: indexed, 1 chunk
found: The jackpot of FireKirin is checked every 30 seconds; "sofort" heißt ≤ 30 s. [thresholds, FireKirin]
level 1, 1 indexed
dated: True
remembered: True
asked by csharp: 2
refused: Query cannot be empty (400 INVALID_INPUT; query: Query cannot be empty)
"""
CONSUMER = f"""\
2026-03-01 12:00:00Z
all kept: False
32 indexed, 1 failed, 0 wait
at most five at once: True
{", ".join(f"text {number}" for number in range(1, 30, 3))}
h0und://decision/D-7 D-7
{uuid5(NAMESPACE_URL, "src/a.cs")}
refused: refused
1 documents wait already.
1 indexed
all kept: False, 2 reported
"""
BUSY = reply(503, {"error": "Database unavailable", "code": "SERVICE_UNAVAILABLE"}, Retry_After="0")
LATER = reply(429, {"error": "Too many requests", "code": "RATE_LIMITED"}, Retry_After="60")


def main() -> int:
    """Returns the exit status."""
    missing = [program for program in ("mcs", "mono") if shutil.which(program) is None]
    if missing:
        print(f"{' and '.join(missing)} cannot be found: {INSTALL}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        consumer = _compiled(Path(folder) / "Consumer.exe", Path(__file__).with_name("Consumer.cs"), "-define:P4NTHE0N")
        differences = _differs("a program with a fake and a queue", _run(consumer), (0, CONSUMER, ""))
        program = _compiled(Path(folder) / "Example.exe", FOLDER / "example" / "Program.cs")
        with served(Path(folder) / "data") as server:
            server.wait_ready()
            differences += _differs("a server that is well", _run(program, server.url), (0, WELL, ""))
            key = _run(program, server.url, "key with\nline")
        differences += _differs("a key that cannot be one", (key[0] != 0, "", ""), (True, "", ""))
        with scripted([BUSY, SILENCE, BUSY]) as troubled:
            differences += _differs("trouble", _run(program, troubled.url), (1, "", "Database unavailable\n"))
            differences += _differs("three tries", (len(troubled.requests), "", ""), (3, "", ""))
        with scripted([LATER]) as throttled:
            differences += _differs("a long wait", _run(program, throttled.url), (1, "", "Too many requests\n"))
        for body in (b"<html>", b"null", b'{"healthy": "abc"}'):
            with scripted([reply(200, body)]) as other_program:
                reported = f"{other_program.url} returned an invalid response\n"
                differences += _differs(f"a stranger: {body!r}", _run(program, other_program.url), (1, "", reported))
        with scripted([]) as other_program:
            reported = f"No server answers at {other_program.url}\n"
            differences += _differs("nobody", _run(program, other_program.url), (1, "", reported))
    return 1 if differences else 0


def _compiled(program: Path, main: Path, *options: str) -> Path:
    sources = [*sorted(FOLDER.glob("*.cs")), main]
    references = ("-r:System.Net.Http", "-r:System.Runtime.Serialization")
    command: list[str | Path] = [
        "mcs",
        "-langversion:7",
        "-warnaserror+",
        *options,
        *references,
        f"-out:{program}",
        *sources,
    ]
    subprocess.run(command, check=True)
    return program


def _run(program: Path, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        ["mono", program, *arguments], capture_output=True, encoding="utf-8", timeout=TIMEOUT_S, check=False
    )
    return done.returncode, done.stdout, done.stderr


def _differs(what: str, seen: Sequence[object], expected: Sequence[object]) -> int:
    same = tuple(seen) == tuple(expected)
    print(f"{'ok  ' if same else 'FAIL'} {what}")
    if not same:
        print(f"     expected {tuple(expected)!r}\n     seen     {tuple(seen)!r}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
