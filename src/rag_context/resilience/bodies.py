"""Bodies that servers answer: bounded in bytes, also after decompression, which never happens on the event loop."""

import asyncio
import zlib
from collections.abc import AsyncIterable

_ANY_HEADER = 47
"""`wbits` by which zlib takes gzip's header and its own."""

AT_ONCE = 64 << 10
"""So many bytes are decompressed or parsed where they are: handing them to a thread would take longer."""


async def read_body(parts: AsyncIterable[bytes], encoding: str, limit: int) -> bytes:
    """The whole body, decompressed, of at most `limit` bytes either way.

    Args:
        parts: the body as it comes over the wire.
        encoding: its Content-Encoding; "" where there is none.
        limit: most bytes.

    Raises:
        ValueError: it is longer, or cannot be decompressed; the message goes on where "the server answered" ends.
    """
    body = bytearray()
    async for part in parts:
        body += part
        if len(body) > limit:
            raise ValueError(f"more than {limit} bytes")
    match encoding.strip().lower():
        case "" | "identity":
            return bytes(body)
        case "gzip" | "x-gzip" | "deflate":
            return await asyncio.to_thread(_inflated, bytes(body), limit)
        case _:
            raise ValueError("bytes that cannot be decoded")


def _inflated(body: bytes, limit: int) -> bytes:
    if not body:  # what has no body may still name an encoding
        return body
    inflate = zlib.decompressobj(_ANY_HEADER)
    try:
        whole = inflate.decompress(body, limit + 1)
    except zlib.error as error:
        raise ValueError("bytes that cannot be decoded") from error
    if len(whole) > limit:
        raise ValueError(f"more than {limit} bytes")
    if not inflate.eof:
        raise ValueError("bytes that cannot be decoded")
    return whole
