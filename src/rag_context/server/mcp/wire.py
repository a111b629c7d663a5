"""The two ends of the pipe that a stdio client holds, kept from everybody else in this process.

Once it is claimed, descriptor 1 is stderr and descriptor 0 is empty, so that a stray print, of a C library too,
cannot break the protocol.
"""

import os
import sys

LINE_BYTES = 4 * 1024 * 1024
"""Longest message that is read."""


class OversizedLineError(Exception):
    """A message is longer than `LINE_BYTES`; it was read to its end."""


class Wire:
    """Lines in and lines out, blocking."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._in = os.fdopen(read_fd, "rb", closefd=False)
        self._write_fd = write_fd

    def read_line(self) -> bytes | None:
        """The next line that is not blank; None at the end. Raises: OversizedLineError."""
        while line := self._in.readline(LINE_BYTES):
            if len(line) == LINE_BYTES and not line.endswith(b"\n"):
                while (rest := self._in.readline(LINE_BYTES)) and not rest.endswith(b"\n"):
                    pass
                raise OversizedLineError
            if line.strip():
                return line
        return None

    def write_line(self, line: bytes) -> None:
        """Write a line, all of it. Raises: OSError (the client has stopped reading)."""
        left = memoryview(line + b"\n")
        while left:
            left = left[os.write(self._write_fd, left) :]


def claim_wire() -> Wire:
    """Take stdin and stdout for the wire, for as long as this process lives: a thread may print to the very end."""
    sys.stdout.flush()
    kept_in, kept_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return Wire(kept_in, kept_out)
