"""Processes of the command that do not load it again: each is forked off a process that has loaded it.

To load the program takes more than a second of processor time, and tests start it more than a thousand times. What is
forked does what the command does from there on: arguments, folder, environment, streams and signals are its own, it is
a child of the test, and it ends as any program does. What is special about a start is started as users do it, and so is
everything with RAG_TEST_FORK=0. `tests/cli/test_start_up.py` is about what loading does.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from ctypes import CDLL
from functools import cache
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).with_name("rag-context"))

_OF_THE_START = ("PYTHON", "COVERAGE_", "LANG", "LC_", "LD_", "MALLOC_", "TZ")
"""What Python, libraries or what measures read once: there is a loaded process for each set of these variables."""

_PR_SET_CHILD_SUBREAPER = 36

_one_at_a_time = threading.Lock()


class Program(subprocess.Popen[Any]):
    """`subprocess.Popen`, which forks where COMMAND is started in an ordinary way."""

    def _execute_child(self, args: Any, *details: Any) -> None:
        """Take the place of CPython's method, which is the same in 3.11 to 3.13."""
        executable, before, _, handed_on, folder, environment, _, _, shell, *pipes = details[:15]
        _, *identity, umask, session, group = details[15:]
        variables = dict(os.environ if environment is None else environment)
        ordinary = (
            not any((executable, before, handed_on, shell, session)) and {*identity} <= {None} and umask == group == -1
        )
        if not ordinary or args[0] != COMMAND or "PYTHONPATH" in variables or os.environ.get("RAG_TEST_FORK") != "1":
            super()._execute_child(args, *details)  # type: ignore[misc]
            return
        of_child = [standard if fd == -1 else fd for standard, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
        ignores = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # which a process passes on
        request = [[os.fspath(word) for word in args], os.fspath(folder or Path.cwd()), variables, ignores]
        self.pid = _forked(request, of_child)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def _forked(request: list[Any], streams: list[int]) -> int:
    """The process that has become what is requested: a child of this one, adopted from the one that forks it."""
    kept = {name: value for name, value in request[2].items() if name.startswith(_OF_THE_START)}
    with _one_at_a_time:
        door = _door(tuple(sorted(kept.items())))
        _adopting(True)
        try:
            socket.send_fds(door, [json.dumps(request).encode()], streams)
            pid = int(door.recv(64))
        finally:
            _adopting(
                False
            )  # else what outlives its parent would become ours, and be a zombie where a test looks for it
    return pid


@cache
def _door(start: tuple[tuple[str, str], ...]) -> socket.socket:
    """Where a loaded process listens; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        theirs.set_inheritable(True)
        words = [sys.executable, str(Path(__file__).with_name("loading.py")), str(theirs.fileno())]
        nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
        os.posix_spawn(words[0], words, {"PATH": os.environ["PATH"], **dict(start)}, file_actions=nowhere)
    return ours


def _adopting(yes: bool) -> None:
    if CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0):
        raise OSError("this system adopts no processes")
