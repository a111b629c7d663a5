"""The command as a program for shells and clients, which start it themselves: it, too, is forked where others are.

It sends its arguments, folder, environment and streams to the process of the tests, which starts COMMAND with them by
`Program`, passes signals on, and ends as that does.
"""

import json
import os
import socket
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.end_to_end.loaded import COMMAND, Program

_PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as starter:
    starter.connect({address!r})
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(starter, [request], [0, 1, 2])
    for number in signal.SIGTERM, signal.SIGINT:
        signal.signal(number, lambda number, _: starter.send(str(number).encode()))
    for stream in 0, 1, 2:
        os.close(stream)
    ended = int(starter.recv(64))
os._exit(ended if ended >= 0 else 128 - ended)
"""

_kept: list[TemporaryDirectory[str]] = []


@cache
def handed_on() -> Path:
    """The program, in a folder with nothing else. Both are there as long as this process."""
    _kept.append(TemporaryDirectory(prefix="command-"))
    folder = Path(_kept[0].name)
    address, program = folder / "socket", folder / "bin" / Path(COMMAND).name
    program.parent.mkdir()
    program.write_text(_PROGRAM.format(python=sys.executable, address=str(address)))
    program.chmod(0o755)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(address))
    listening.listen()
    threading.Thread(target=_accept, args=(listening,), daemon=True).start()
    return program


def _accept(listening: socket.socket) -> None:
    while True:
        caller, _ = listening.accept()
        threading.Thread(target=_start, args=(caller,), daemon=True).start()


def _start(caller: socket.socket) -> None:
    """Run one command to its end."""
    message, streams, _, _ = socket.recv_fds(caller, 1 << 20, 3)
    for fd in streams:
        os.set_inheritable(fd, False)  # another child would keep a pipe open
    words, folder, variables = json.loads(message)
    stdin, stdout, stderr = streams
    process = Program([COMMAND, *words], stdin=stdin, stdout=stdout, stderr=stderr, cwd=folder, env=variables)
    for fd in streams:
        os.close(fd)
    passing = threading.Thread(target=_pass_signals, args=(caller, process))
    passing.start()
    ended = process.wait()
    with suppress(OSError):  # the caller was ended
        caller.send(str(ended).encode())
        caller.shutdown(socket.SHUT_RDWR)
    passing.join()
    caller.close()


def _pass_signals(caller: socket.socket, process: Program) -> None:
    """Pass on what the caller is sent; its end, where it is killed, ends what it started."""
    while process.poll() is None and (number := caller.recv(64)):
        process.send_signal(int(number))
    if process.poll() is None:
        process.terminate()
