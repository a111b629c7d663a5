"""Runs commands without this user's configuration: by a call in this process, or in processes of their own.

A process takes one or two seconds of processor time before it does anything. Tests of what a command does and prints
therefore call it; only tests of signals, pipes, serving, start and end need a process.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from typer.testing import CliRunner

from rag_context.cli.command_line import app
from tests.end_to_end.loaded import COMMAND, Program

from .restored_logging import restored_logging

TIMEOUT_S = 60.0
_KEPT = ("PATH", "LANG", "TMPDIR", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "COVERAGE_RCFILE")


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        """What it printed for programs."""
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        """The same, one value a line."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Commands:
    """Runs commands in a folder, on a data directory beside it."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def data_dir(self) -> Path:
        return self.folder.parent / f"{self.folder.name}-data"

    def with_variables(self, **variables: str) -> "Commands":
        return Commands(self.folder, {**self.variables, **variables})

    def start(
        self,
        *words: str | Path,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        in_background: bool = False,
    ) -> "subprocess.Popen[str]":
        """Start a command and return at once; `in_background` as a shell's job, which ignores SIGINT."""
        heed_interrupts()
        as_job = ["sh", "-c", 'trap \'\' INT; exec "$0" "$@"'] if in_background else []
        return Program(
            [*as_job, COMMAND, *map(str, words)],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=self.folder,
            env=self._environment(),
        )

    def run(self, *words: str | Path) -> Ended:
        """Run a command to its end, as a process."""
        with self.start(*words) as process:
            return ended(process)

    def __call__(self, *words: str | Path) -> Ended:
        """Run a command to its end in this process, with the environment that a process of its own would have."""
        with chdir(self.folder), _variables(self._environment()), restored_logging():
            result = CliRunner(charset="utf-8").invoke(app, [str(word) for word in words], catch_exceptions=False)
        return Ended(result.exit_code, result.stdout, result.stderr)

    def write(self, name: str, content: str | bytes) -> Path:
        """A file below the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        home = str(self.folder.parent / "home")
        own = {"HOME": home, "XDG_CONFIG_HOME": f"{home}/config", "RAG_CONTEXT_DATA_DIR": str(self.data_dir)}
        return {**kept, **own, **self.variables}


@contextmanager
def _variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """Nothing but these in the environment, for the time of the block."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def heed_interrupts() -> None:
    """A shell starts what it runs in the background with Ctrl-C ignored, and so would we pass it on.

    Set here and not in the child: forking a process in which gRPC has been at work ends in an abort now and then.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ended(process: "subprocess.Popen[str]") -> Ended:
    """Wait for the end of a command."""
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Ended(process.returncode, out, err)


@dataclass(frozen=True)
class Served:
    """A server in a process of its own."""

    process: "subprocess.Popen[str]"
    url: str

    def stop(self, how: signal.Signals = signal.SIGTERM) -> Ended:
        """Send a signal and wait for the end."""
        self.process.send_signal(how)
        return ended(self.process)


@contextmanager
def serving(commands: Commands, *words: str) -> Iterator[Served]:
    """A ready server on a free port, for the time of the block."""
    process = commands.start("serve", "--port", "0", *words)
    try:
        yield Served(process, _ready_url(commands, process))
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def _ready_url(commands: Commands, process: "subprocess.Popen[str]") -> str:
    deadline = time.monotonic() + TIMEOUT_S
    announcement = commands.data_dir / "server.json"
    while time.monotonic() < deadline and process.poll() is None:
        if announcement.is_file():
            url = str(json.loads(announcement.read_text())["url"])
            try:
                if httpx2.get(f"{url}/ready", trust_env=False).is_success:
                    return url
            except httpx2.TransportError:
                pass
        time.sleep(0.05)
    raise AssertionError(f"the server did not become ready: {process.poll()}")
