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


def name_of(message: bytes) -> str:
    """The name of a message's command; "" where it is no OP_MSG that begins with one."""
    _, _, _, opcode = _HEADER.unpack_from(message)
    start = _HEADER.size + 5 + 4 + 1
    return message[start : message.index(0, start)].decode() if opcode == OP_MSG and message[start - 6] == 0 else ""


def whole_command_of(message: bytes) -> Command:
    """The command of a message with the documents that follow it in sections of their own."""
    (flags,) = struct.unpack_from("<I", message, _HEADER.size)
    at, end = _HEADER.size + 4, len(message) - (4 if flags & _CHECKSUM_PRESENT else 0)
    command: Command = {}
    while at < end:
        kind, (length,) = message[at], struct.unpack_from("<i", message, at + 1)
        section = message[at + 1 : at + 1 + length]
        if kind == 0:
            command |= bson.decode(section, OPTIONS)
        else:
            name_end = section.index(0, 4)
            command[section[4:name_end].decode()] = bson.decode_all(section[name_end + 1 :], OPTIONS)
        at += 1 + length
    return command


def message_of(command: Mapping[str, Any], *, request: int, answers: int = 0) -> bytes:
    """The document as a message."""
    body = struct.pack("<IB", 0, 0) + bson.encode(command)
    return _HEADER.pack(_HEADER.size + len(body), request, answers, OP_MSG) + body


def request_id(message: bytes) -> int:
    """The number by which the answer names its question."""
    number: int = _HEADER.unpack_from(message)[1]
    return number
