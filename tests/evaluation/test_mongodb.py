"""Saying hello to MongoDB without a driver, against a server that speaks the protocol and some that do not."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from rag_context.errors import BackendDataError, BackendUnavailableError, InvalidInputError
from rag_context.evaluation.remote import say_hello

OP_MSG = 2013


def document(ok: float) -> bytes:
    fields = b"\x08isWritablePrimary\0\x01" + b"\x01ok\0" + struct.pack("<d", ok)
    return struct.pack("<i", len(fields) + 5) + fields + b"\0"


def reply(ok: float = 1.0, opcode: int = OP_MSG) -> bytes:
    body = struct.pack("<i", 0) + b"\0" + document(ok)
    return struct.pack("<iiii", 16 + len(body), 7, 1, opcode) + body


@dataclass
class Mongo:
    """Answers every message with the same bytes, and keeps what it was sent."""

    answer: bytes
    port: int = 0
    received: list[bytes] = field(default_factory=list)

    async def conversation(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = struct.unpack("<i", await reader.readexactly(4))
        self.received.append(await reader.readexactly(length - 4))
        writer.write(self.answer)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def listening(answer: bytes) -> AsyncIterator[Mongo]:
    mongo = Mongo(answer)
    server = await asyncio.start_server(mongo.conversation, "127.0.0.1", 0)
    mongo.port = server.sockets[0].getsockname()[1]
    async with server:
        yield mongo


async def test_a_server_that_answers_ok_is_there() -> None:
    """G-1: --mongodb-uri."""
    async with listening(reply()) as mongo:
        message = await say_hello(f"mongodb://somebody:pass%40word@127.0.0.1:{mongo.port},other:1/P4NTH30N?tls=false")
    assert message == f"127.0.0.1:{mongo.port} answered hello"
    (received,) = mongo.received
    assert struct.unpack("<i", received[8:12]) == (OP_MSG,)
    assert b"hello" in received
    assert b"somebody" not in received


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (reply(ok=0.0), "did not answer a hello with ok"),
        (reply(opcode=1), "does not speak MongoDB's protocol"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak MongoDB's protocol"),
        (b"\x10", "did not answer a hello"),
        (b"", "did not answer a hello"),
        (reply()[:20], "did not answer a hello"),
    ],
)
async def test_what_is_not_mongodb_is_recognised(answer: bytes, message: str) -> None:
    async with listening(answer) as mongo:
        with pytest.raises(BackendDataError, match=message):
            await say_hello(f"mongodb://127.0.0.1:{mongo.port}")


async def test_an_unreachable_server_is_reported_without_the_password() -> None:
    async with listening(b"") as mongo:
        port = mongo.port
    with pytest.raises(BackendUnavailableError) as caught:
        await say_hello(f"mongodb://u:secret@127.0.0.1:{port}/db")
    assert str(caught.value) == f"127.0.0.1:{port} cannot be reached"


@pytest.mark.parametrize(
    "uri", ["mongodb+srv://u:secret@cluster.example", "http://127.0.0.1", "mongodb://", "mongodb://h:secret"]
)
async def test_addresses_that_cannot_be_used_are_rejected(uri: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        await say_hello(uri)
    assert "secret" not in str(caught.value)
