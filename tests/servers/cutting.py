"""A proxy whose connections are cut at a chosen message, before it arrives or after: a crash within a call."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.servers.process import HOST

CHUNK = 65536


class CuttingProxy:
    """Counts what clients send; made by `cutting_proxy`."""

    def __init__(self, host: str, port: int) -> None:
        self._backend = (host, port)
        self._left: int | None = None
        self._is_late = False
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    def cut_at(self, message: int, *, is_late: bool) -> None:
        """Cut every connection at the message of this number, from now and from 0; late: the server does it first."""
        self._left, self._is_late = message, is_late

    def mend(self) -> None:
        """Cut nothing."""
        self._left = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        answers, backend = await asyncio.open_connection(*self._backend)
        self._writers |= {writer, backend}
        back = asyncio.create_task(_copy(answers, writer))
        try:
            with suppress(OSError):
                while data := await reader.read(CHUNK):
                    if self._left is not None:
                        self._left -= 1
                    is_last = self._left is not None and self._left < 0
                    if is_last:
                        back.cancel()
                    if not is_last or self._is_late:
                        backend.write(data)
                        await backend.drain()
                    if is_last:
                        if self._is_late:
                            await answers.read(1)  # it was done
                        return
        finally:
            back.cancel()
            for each in (writer, backend):
                self._writers.discard(each)
                each.close()

    def close(self) -> None:
        """End all connections."""
        for writer in self._writers:
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def cutting_proxy(host: str, port: int) -> AsyncIterator[CuttingProxy]:
    """A proxy in front of a server."""
    proxy = CuttingProxy(host, port)
    async with await asyncio.start_server(proxy.serve, HOST, 0) as listening:
        proxy.port = listening.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            proxy.close()
