"""Messages between this process and its workers: the length, then the bytes."""

import struct
from typing import Protocol

_LENGTH = struct.Struct(">I")
MAX_FRAME_BYTES = 1 << 30


class Source(Protocol):
    """A stream that is read from."""

    def read(self, size: int, /) -> bytes: ...


class Sink(Protocol):
    """A stream that is written to."""

    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> None: ...


class CutOffError(Exception):
    """The other process has ended."""


def send(sink: Sink, *frames: bytes) -> None:
    """Write frames. Raises: OSError if the other process has ended."""
    for frame in frames:
        sink.write(_LENGTH.pack(len(frame)))
        sink.write(frame)
    sink.flush()


def receive(source: Source) -> bytes:
    """The next frame. Raises: CutOffError at the end of the stream, or for an impossible length."""
    size: int = _LENGTH.unpack(_exactly(source, _LENGTH.size))[0]
    if size > MAX_FRAME_BYTES:
        raise CutOffError
    return _exactly(source, size)


def _exactly(source: Source, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise CutOffError
    return data
