"""A backend's real server as a child process: started, killed, frozen and started again by tests."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

HOST = "127.0.0.1"
TIMEOUT_S = 180.0
LOOK_EVERY_S = 0.02

POLITELY = ("nice", "-n", "15")
"""As if on a machine of its own: a server that starts takes no processor from what waits for it."""


class ServerProcess:
    """A server, and the processes that it starts, with which it lives and stops.

    Args:
        command: what is run.
        port: where it listens once it is up.
        log: file that takes what it prints.
        ready: says whether it answers by now; may raise OSError where it does not.
        environment: of the process; ours where None. Nothing of ours is measured there.
        user: whose process it is; ours where None.
    """

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        log: Path,
        ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        self.host = HOST
        self.port = port
        self._command = list(command)
        self._log = log
        self._ready = ready
        given = os.environ if environment is None else environment
        self._environment = {name: value for name, value in given.items() if not name.startswith("COVERAGE_")}
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its number. Raises: RuntimeError where it does not run."""
        if self._process is None:
            raise RuntimeError(f"{self._command[0]} does not run")
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers. Raises: RuntimeError where it ends instead, or does neither."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [*POLITELY, *self._command], stdout=log, stderr=log, env=self._environment, user=self._user
            )
        self._process = process
        give_up_at = time.monotonic() + TIMEOUT_S
        while not self._answers():
            if process.poll() is not None or time.monotonic() > give_up_at:
                self.kill()
                raise RuntimeError(f"{self._command[0]} did not start: {self._log.read_text(errors='replace')}")
            time.sleep(LOOK_EVERY_S)
        _raise_priority(process.pid)

    def kill(self) -> None:
        """End it without a warning. Nothing happens where it has ended."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Stop it where it stands: its connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def serve(self) -> None:
        """Wait until it ends, or this process is stopped by Ctrl-C or SIGTERM."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            if self._process is not None:
                self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            started = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
            with suppress(OSError):
                for pid in started.read_text().split():
                    os.kill(int(pid), number)
            self._process.send_signal(number)

    def _answers(self) -> bool:
        try:
            return self._ready()
        except OSError:
            return False


def free_port() -> int:
    """A port of 127.0.0.1 that no one has now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def _raise_priority(pid: int) -> None:
    """Give a server that has started as much of the processor as anyone; without the right to, it stays polite."""
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)
