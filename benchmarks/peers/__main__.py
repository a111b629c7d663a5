"""Measure rag-context and other software side by side: `python -m benchmarks.peers [--sizes N ... | --full | --quick]`.

The rows of each size replace its earlier ones in results.json, from which the section of docs/design/benchmarks.md is
written.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import platformdirs

from benchmarks.corpus import Writer
from benchmarks.page import write_page
from benchmarks.peers.table import OURS, PEERS, RESULTS, Peer, Row, as_json, as_markdown, merged, read
from rag_context import __version__
from rag_context.embedders.onnx_model import BUNDLED

ROOT = Path(__file__).parents[2]
LOCKS = Path(__file__).parent / "locks"
CACHE = Path(platformdirs.user_cache_dir("rag-context", appauthor=False)) / "peers"

SIZES = (1_000, 10_000)
FULL = (*SIZES, 100_000)
QUICK = (300,)
SENTENCES = 2
"""Of a text: one chunk of rag-context."""

PARTS = 10
PROBES = 5
WARM_UP = 20
QUESTIONS = 200
STOP_S = 30.0
PAUSE_S = 0.05
"""After each question: threads of a model that still spin would take the core of the peer whose turn is next."""

INSTALL_S = 1800.0
ANSWER_S = 120.0
TEXT_S = 1.0
"""The most that one text may add to the time of its request."""

KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "SYSTEMROOT")
"""Variables that a peer sees. Others could be settings of a peer, such as the address of a database of this user."""

OFFLINE = {"HF_HUB_OFFLINE": "1", "ANONYMIZED_TELEMETRY": "False", "DO_NOT_TRACK": "1", "LANGSMITH_TRACING": "false"}

Item = TypeVar("Item")


class PeerError(Exception):
    """A peer cannot be installed, started or measured; the message is its row's."""


@dataclass(frozen=True, slots=True)
class Step:
    """A request to every peer's driver. `best` is the text that has to be the first result at least once."""

    request: Mapping[str, object]
    timeout_s: float
    best: str = ""


@dataclass
class Run:
    """One peer at one size: its driver, and what was measured."""

    peer: Peer
    driver: "Driver | None" = None
    indexing_s: float = 0.0
    times_ms: list[float] = field(default_factory=list)
    found: int = 0
    empty: int = 0
    failure: str = ""

    def take(self, step: Step) -> None:
        """Carry out one step; after a failure none is."""
        if self.failure or self.driver is None:
            return
        try:
            answer = self.driver.call(step.request, step.timeout_s)
        except PeerError as error:
            self.fail(str(error))
            return
        if step.best:
            self.found += step.best in answer["best"]
        elif "ask" not in step.request:
            self.indexing_s += answer["seconds"]
        else:
            self.times_ms.append(answer["seconds"] * 1000.0)
            self.empty += not answer["results"]

    def fail(self, why: str) -> None:
        """No further step; the reason becomes the row."""
        self.failure = one_line(why)
        _say(f"{self.peer.title}: {self.failure}")


class Driver:
    """A peer's driver, which runs in that peer's environment (`drivers.py`)."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process, self._log = process, log

    def call(self, request: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        """The response to a request. Raises: PeerError, for an error as for silence."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = threading.Event()

        def expire() -> None:
            late.set()
            self.kill()

        watchdog = threading.Timer(timeout_s, expire)
        watchdog.start()
        try:
            with suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if late.is_set():
            raise PeerError(f"no response within {timeout_s:.0f} s to {next(iter(request))!r}")
        if not line.endswith("\n"):
            raise PeerError(f"its driver ended: {self._log.read_text(encoding='utf-8', errors='replace')}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def kill(self) -> None:
        """End it and the servers that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


@contextmanager
def driving(peer: Peer, python: Path, folder: Path) -> Iterator[Driver]:
    """A peer's driver with an empty folder, which is also its home; at the end it stops its server."""
    folder.mkdir(parents=True)
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= {**OFFLINE, "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    with (folder / "log").open("wb") as log:
        process = _started(
            [str(python), "-P", "-m", "benchmarks.peers.drivers", peer.name, str(folder), str(BUNDLED)],
            folder,
            environment,
            log,
        )
    driver = Driver(process, folder / "log")
    try:
        yield driver
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        driver.kill()
        process.wait()
        process.stdout.close()


def _started(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], log: IO[bytes]
) -> "subprocess.Popen[str]":
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
            cwd=folder,
            env=environment,
            start_new_session=True,  # so that it can be ended with its servers
        )
    except OSError as error:
        raise PeerError(f"cannot be started: {error}") from error


def environment_of(peer: Peer, cache: Path) -> Path:
    """The interpreter of a peer's environment, which is made first where it is not whole. Raises: PeerError."""
    if peer == OURS:
        return Path(sys.executable)
    lock = LOCKS / f"{peer.name}.txt"
    key = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = cache / f"{peer.name}-{key}"
    python, whole = folder / "bin" / "python", folder / "installed"
    if not (whole.exists() and python.exists()):
        _say(f"installing {peer.title} into {folder} ...")
        uv = str(Path(sys.executable).with_name("uv"))
        _install([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)])
        _install([uv, "pip", "install", "--quiet", "--python", str(python), "--requirement", str(lock)])
        whole.touch()
    return python


def _install(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.CalledProcessError as error:
        raise PeerError(f"cannot be installed: {' '.join(error.stderr.split())}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"cannot be installed: {error}") from error


def versions_of(peer: Peer) -> str:
    """The versions of the packages that a peer is known by."""
    if peer == OURS:
        return __version__
    lines = (LOCKS / f"{peer.name}.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==", 1) for line in lines if "==" in line and not line.startswith("#"))
    return ", ".join(f"{package} {pins[package].split()[0]}" for package in peer.packages)


def steps(size: int) -> Iterator[Step]:
    """The requests to each peer: all peers do one before the next one begins."""
    writer = Writer(seed=21)
    texts = [writer.passage(SENTENCES) for _ in range(size)]
    part = -(-size // PARTS)
    for begin in range(0, size, part):
        yield Step({"add": texts[begin : begin + part]}, ANSWER_S + part * TEXT_S)
    yield Step({"save": True}, ANSWER_S + size * TEXT_S)
    for text in texts[:: -(-size // PROBES)]:
        yield Step({"ask": text}, ANSWER_S, best=text.strip())
    for _ in range(WARM_UP + QUESTIONS):
        yield Step({"ask": writer.question()}, ANSWER_S)


def in_turn(items: Sequence[Item], number: int) -> list[Item]:
    """All, in another order each time, because the threads of a peer may still be at work when the next one begins."""
    return random.Random(number).sample(items, len(items))


def measure(size: int, pythons: Mapping[Peer, Path | PeerError], scratch: Path) -> list[Row]:
    """Every peer at one size."""
    with ExitStack() as stack:
        runs = []
        for peer, python in pythons.items():
            run = Run(peer)
            runs.append(run)
            try:
                if isinstance(python, PeerError):
                    raise python
                run.driver = stack.enter_context(driving(peer, python, scratch / peer.name))
            except PeerError as error:
                run.fail(str(error))
        for number, step in enumerate(steps(size)):
            for run in in_turn(runs, number):
                run.take(step)
                if "ask" in step.request and not run.failure:
                    time.sleep(PAUSE_S)
    return rows(size, runs)


def rows(size: int, runs: Sequence[Run]) -> list[Row]:
    """What was measured, as multiples of ours where ours was measured."""
    for run in runs:
        if not run.failure and not run.found:
            run.fail(f"found none of {PROBES} texts by themselves")
        if not run.failure and run.empty > len(run.times_ms) // 2:  # a few may well match nothing
            run.fail(f"{run.empty} of {len(run.times_ms)} questions had no result")
    ours = next((run for run in runs if run.peer == OURS and not run.failure), None)
    return [_row(size, run, ours) for run in runs]


def _row(size: int, run: Run, ours: Run | None) -> Row:
    versions = versions_of(run.peer)
    if run.failure:
        return Row(size, run.peer.name, versions, failure=run.failure)
    return Row(
        size,
        run.peer.name,
        versions,
        p50_ms=_p50(run),
        p50_ratio=_p50(run) / _p50(ours) if ours else None,
        texts_per_s=size / run.indexing_s,
        indexing_ratio=ours.indexing_s / run.indexing_s if ours else None,
    )


def _p50(run: Run) -> float:
    return statistics.median(run.times_ms[WARM_UP:])


def one_line(text: str) -> str:
    """The last line that says something, shortened; the user's home is `~`."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason was given"]
    line = lines[-1].replace(str(Path.home()), "~")
    return line if len(line) <= 200 else f"{line[:200]} ..."


def main() -> int:
    """Measure, print and write down; exit 1 where a peer could not be measured."""
    options = _options(sys.argv[1:])
    pythons: dict[Peer, Path | PeerError] = {}
    for peer in PEERS:
        try:
            pythons[peer] = environment_of(peer, options.cache)
        except PeerError as error:
            pythons[peer] = error
    complete = True
    for size in options.sizes:
        _say(f"{size} texts ...")
        with tempfile.TemporaryDirectory(prefix="rag-context-peers-") as name:
            measured = measure(size, pythons, Path(name))
        sys.stdout.write(as_markdown(measured))
        sys.stdout.flush()
        complete &= not any(row.failure for row in measured)
        if not options.quick:
            RESULTS.write_text(as_json(merged(read(RESULTS), measured)), encoding="utf-8")
            write_page()
    return 0 if complete else 1


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sizes", type=int, nargs="+", metavar="N", help=f"numbers of texts; default: {SIZES}")
    which.add_argument("--full", action="store_true", help=f"the sizes {FULL}: hours")
    which.add_argument("--quick", action="store_true", help=f"{QUICK[0]} texts, nothing written: does it run?")
    parser.add_argument(
        "--cache", type=Path, default=CACHE, metavar="DIR", help=f"where the environments are kept; default: {CACHE}"
    )
    options = parser.parse_args(words)
    options.sizes = FULL if options.full else QUICK if options.quick else options.sizes or SIZES
    if min(options.sizes) < PROBES:
        parser.error(f"a size is at least {PROBES}")
    if options.cache.resolve().is_relative_to(ROOT):
        parser.error(f"--cache must be outside the repository, {ROOT}")
    if not shutil.which(str(Path(sys.executable).with_name("uv"))):
        _say("uv is not installed beside this Python; only environments that exist can be used")
    return options


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")


if __name__ == "__main__":
    sys.exit(main())
