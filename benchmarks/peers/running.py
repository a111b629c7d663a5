"""Each peer in an environment and a process of its own, which answers requests one by one (`drivers.py`)."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import platformdirs

from benchmarks.peers.answers import GIVEN
from benchmarks.peers.table import OURS, Peer
from rag_context import __version__
from rag_context.embedders.onnx_model import BUNDLED

ROOT = Path(__file__).parents[2]
LOCKS = Path(__file__).parent / "locks"
CACHE = Path(platformdirs.user_cache_dir("rag-context", appauthor=False)) / "peers"

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

    @property
    def peak_mb(self) -> float:
        """The sum of the most memory that it and each of its processes ever had, in MB (Linux)."""
        kilobytes = 0
        for status in Path("/proc").glob("[0-9]*/status"):
            with suppress(OSError):  # it has just ended
                if os.getsid(int(status.parent.name)) == self._process.pid:
                    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
                    kilobytes += int(lines.get("VmHWM", "0 kB").split()[0])
        return kilobytes * 1024 / 1e6

    def kill(self) -> None:
        """End it and the servers that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


@contextmanager
def driving(peer: Peer, python: Path | PeerError, folder: Path, given: Path | None = None) -> Iterator[Driver]:
    """A peer's driver with an empty folder, which is also its home; at the end it stops its server.

    Texts are not embedded whose vectors stand in the folder `given`.

    Raises: PeerError (it cannot be started, or was not installed: that error is in place of its interpreter).
    """
    if isinstance(python, PeerError):
        raise python
    folder.mkdir(parents=True)
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= {**OFFLINE, "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    environment |= {GIVEN: str(given)} if given is not None else {}
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
        say(f"installing {peer.title} into {folder} ...")
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


def in_turn(items: Sequence[Item], number: int) -> list[Item]:
    """All, in another order each time, because the threads of a peer may still be at work when the next one begins."""
    return random.Random(number).sample(items, len(items))


def one_line(text: str) -> str:
    """The last line that says something, shortened; the user's home is `~`."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason was given"]
    line = lines[-1].replace(str(Path.home()), "~")
    return line if len(line) <= 200 else f"{line[:200]} ..."


def say(what: str) -> None:
    """A line for the person who waits."""
    sys.stderr.write(f"{what}\n")
