"""Measure full garbage collections of a server under searches, with three ways to keep them short.

    python scripts/measure_collections.py [PASSAGES SEARCHES]

`none` leaves the collector alone, `frozen` calls gc.freeze() once when the server is started, `pauses` is what
`rag_context.cli.command_line.tune_interpreter` does. Each way serves an index that is there already, and one that
grows while it serves.
docs/design/dependencies.md has the outcome. Times depend on what else the machine does; the number of objects does not.
"""

import gc
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.corpus import Writer  # noqa: E402
from tests.end_to_end.process import environment, wait_until  # noqa: E402

WAYS = ("none", "frozen", "pauses")
OLDEST = 2


def serve(way: str, data_dir: Path, out: Path) -> None:
    """Be the server, and write down every full collection at the end."""
    from rag_context.cli import command_line, main, serving  # noqa: PLC0415  (in the process that serves)

    seen: list[tuple[float, float]] = []
    began = 0.0

    def hear(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if info["generation"] == OLDEST and phase == "start":
            began = time.perf_counter()
        elif info["generation"] == OLDEST:
            seen.append((time.time(), (time.perf_counter() - began) * 1000.0))

    def keep_short() -> None:
        sys.setswitchinterval(command_line.SWITCH_S)
        if way == "pauses":
            gc.callbacks.append(command_line.FreezeSurvivors())

    serve_until_stopped = serving.serve_here

    async def frozen(*arguments: Any) -> None:
        gc.collect()
        gc.freeze()
        await serve_until_stopped(*arguments)

    command_line.tune_interpreter = keep_short
    if way == "frozen":
        serving.serve_here = frozen  # type: ignore[assignment]
    gc.callbacks.append(hear)
    sys.argv = ["rag-context", "serve", "--port", "0", "--data-dir", str(data_dir)]
    try:
        main()
    finally:
        gc.callbacks.remove(hear)
        out.write_text(json.dumps({"seen": seen, "objects": len(gc.get_objects())}))


def started(way: str, data_dir: Path, out: Path) -> tuple["subprocess.Popen[bytes]", httpx2.Client]:
    """A server that is ready, and a client of it."""
    data_dir.mkdir(exist_ok=True)
    announced = data_dir / "server.json"
    announced.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--serve", way, str(data_dir), str(out)]
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)
    wait_until(lambda: announced.exists() or process.poll() is not None)
    client = httpx2.Client(base_url=json.loads(announced.read_text())["url"], timeout=120.0)
    wait_until(lambda: client.get("/ready").status_code == httpx2.codes.OK)
    return process, client


def fill(client: httpx2.Client, passages: int) -> None:
    """Have invented passages taken in."""
    writer = Writer()
    for first in range(0, passages, 100):
        lines = [
            json.dumps(
                {"content": writer.passage(), "contentType": "documentation", "sessionId": "s", "source": str(number)}
            )
            for number in range(first, min(first + 100, passages))
        ]
        client.post(
            "/bulk", content="\n".join(lines), headers={"content-type": "application/x-ndjson"}
        ).raise_for_status()


def ask(client: httpx2.Client, searches: int) -> None:
    """Ask different questions, one after the other."""
    writer = Writer(seed=3)
    for number in range(searches):
        query = f"{writer.question()} {number}"
        client.post("/tools/rag_context_search", json={"query": query}).raise_for_status()


def end(process: "subprocess.Popen[bytes]", client: httpx2.Client) -> None:
    """Stop the server as a person would."""
    client.close()
    process.send_signal(signal.SIGTERM)
    process.wait(60)


def measure(passages: int, searches: int, folder: Path) -> None:
    """Print a line for each way and index."""
    filled, out = folder / "filled", folder / "collections.json"
    process, client = started("none", filled, out)
    fill(client, passages)
    end(process, client)
    for index in ("restarted", "growing"):
        for way in WAYS:
            data_dir = folder / f"{index}-{way}"
            if index == "restarted":
                shutil.copytree(filled, data_dir)
            process, client = started(way, data_dir, out)
            if index == "growing":
                fill(client, passages)
            began = time.time()
            ask(client, searches)
            end(process, client)
            found = json.loads(out.read_text())
            during = [took_ms for at, took_ms in found["seen"] if at >= began]
            print(
                f"{index}, {way}: {len(during)} full collections, the longest {max(during, default=0.0):.0f} ms, "
                f"together {sum(during):.0f} ms, {found['objects']} objects for the next",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            passages, searches = (int(each) for each in sys.argv[1:3] or ("1000", "3000"))
            measure(passages, searches, Path(scratch))
