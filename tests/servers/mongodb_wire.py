"""MongoDB's wire messages, as far as a proxy must understand them: one command document in, one out."""

import asyncio
import struct
from collections.abc import Mapping
from typing import Any

import bson
from bson.codec_options import CodecOptions

OP_MSG = 2013
_HEADER = struct.Struct("<iiii")
_CHECKSUM_PRESENT = 1
OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True)

Command = dict[str, Any]


async def read_message(reader: asyncio.StreamReader) -> bytes | None:
    """One whole message; None at the end of the stream."""
    try:
        header = await reader.readexactly(_HEADER.size)
        (length, *_) = _HEADER.unpack(header)
        return header + await reader.readexactly(length - _HEADER.size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def command_of(message: bytes) -> Command | None:
    """The command of a message; None where it is no OP_MSG, or carries more than its one document."""
    _, _, _, opcode = _HEADER.unpack_from(message)
    (flags,) = struct.unpack_from("<I", message, _HEADER.size)
    start = _HEADER.size + 5
    if opcode != OP_MSG or message[start - 1] != 0:
        return None
    (length,) = struct.unpack_from("<i", message, start)
    if start + length + (4 if flags & _CHECKSUM_PRESENT else 0) != len(message):
        return None
    return bson.decode(message[start : start + length], OPTIONS)


def message_of(command: Mapping[str, Any], *, request: int, answers: int = 0) -> bytes:
    """The document as a message."""
    body = struct.pack("<IB", 0, 0) + bson.encode(command)
    return _HEADER.pack(_HEADER.size + len(body), request, answers, OP_MSG) + body


def request_id(message: bytes) -> int:
    """The number by which the answer names its question."""
    number: int = _HEADER.unpack_from(message)[1]
    return number
