"""Bodies of servers: bounded before and after decompression."""

import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest

from rag_context.openai_server import read_body

BODY = b'{"data": []}' * 100


async def parts(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 1000):
        yield body[start : start + 1000]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("", BODY), ("identity", BODY), ("gzip", gzip.compress(BODY, mtime=0)), ("X-GZIP ", gzip.compress(BODY, mtime=0))],
)
async def test_a_body_is_what_was_sent(encoding: str, body: bytes) -> None:
    assert await read_body(parts(body), encoding, len(BODY)) == BODY


async def test_deflate_is_understood_and_an_empty_body_is_empty_in_every_encoding() -> None:
    assert await read_body(parts(zlib.compress(BODY)), "deflate", len(BODY)) == BODY
    assert await read_body(parts(b""), "gzip", 1) == b""


@pytest.mark.parametrize(("encoding", "body"), [("", BODY), ("gzip", gzip.compress(BODY, mtime=0))])
async def test_one_byte_too_many_is_rejected(encoding: str, body: bytes) -> None:
    with pytest.raises(ValueError, match=f"^more than {len(BODY) - 1} bytes$"):
        await read_body(parts(body), encoding, len(BODY) - 1)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("br", BODY),
        ("gzip", BODY),
        ("gzip", gzip.compress(BODY, mtime=0)[:-9]),
        ("gzip, gzip", gzip.compress(BODY, mtime=0)),
    ],
)
async def test_what_cannot_be_decoded_is_rejected(encoding: str, body: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be decoded"):
        await read_body(parts(body), encoding, len(BODY))


async def test_a_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(64 << 20), compresslevel=1)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="more than"):
            await read_body(parts(bomb), "gzip", 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
