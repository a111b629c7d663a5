"""What a bounded worker process is: the resources that it may use, and the frames that it exchanges with its parent.

A message is a frame: its length, then its bytes. Imported by every worker: nothing here loads more than the standard
library, so that a worker needs little memory.
"""

import os
import signal
import struct
import sys
from dataclasses import dataclass
from typing import Protocol

if sys.platform != "win32":
    import resource

_LENGTH = struct.Struct(">I")
MAX_FRAME_BYTES = 1 << 30
_FORBIDDEN = (
    "socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.startfile", "os.system",
    "urllib.", "http.", "ftplib.", "webbrowser.",
)  # fmt: skip
"""Beginnings of the names of audit events."""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Bounds of one request.

    `cpu_s` is computing time, so that a busy machine changes no outcome; `wall_s` ends a process that waits instead.
    Memory is address space; where a platform cannot bound it (macOS, Windows), the size of what is unpacked still is.
    """

    cpu_s: int = 30
    wall_s: float = 180.0
    memory_bytes: int = 208 << 20
    unpacked_bytes: int = 256 << 20
    niceness: int = 10
    """So that searches go first."""


class ByteSource(Protocol):
    def read(self, size: int, /) -> bytes: ...


class ByteSink(Protocol):
    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> None: ...


class CutOffError(Exception):
    """The other process has ended."""


def send(sink: ByteSink, *frames: bytes) -> None:
    """Write frames. Raises: OSError if the other process has ended."""
    for frame in frames:
        sink.write(_LENGTH.pack(len(frame)))
        sink.write(frame)
    sink.flush()


def receive(source: ByteSource) -> bytes:
    """The next frame. Raises: CutOffError at the end of the stream, or for an impossible length."""
    size: int = _LENGTH.unpack(_exactly(source, _LENGTH.size))[0]
    if size > MAX_FRAME_BYTES:  # a worker that a file has taken over may announce any length
        raise CutOffError
    return _exactly(source, size)


def _exactly(source: ByteSource, size: int) -> bytes:
    # A buffered stream returns less only at its end.
    data = source.read(size)
    if len(data) < size:
        raise CutOffError
    return data


def confine(limits: ProcessLimits) -> None:
    """Restrict this process: memory, priority, no network, no other programs, no core dumps."""
    sys.dont_write_bytecode = True
    # An audit hook cannot be removed, whatever a file makes a library do.
    sys.addaudithook(_deny)
    if sys.platform != "win32":
        os.nice(limits.niceness)
        # A core dump would hold the content of the file.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if sys.platform != "darwin":  # where a limit below what is mapped already is an error
            resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))


def renew(limits: ProcessLimits) -> None:
    """Allow the next request its computing time, counted from now; beyond it the system ends the process (SIGPROF)."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, limits.cpu_s)


def _deny(event: str, _args: object) -> None:
    if event.startswith(_FORBIDDEN):
        raise PermissionError(event)
