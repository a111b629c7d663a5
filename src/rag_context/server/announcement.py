"""The file by which commands find a running server: written at its start, and again if it is lost."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from rag_context.client.address import FILE_NAME, Announcement, read_announcement
from rag_context.resilience.deadline import set_within
from rag_context.whole_files import write_whole

logger = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0
"""How often a server checks that it, or another one, is still announced."""

STOP_S = 2.0


def announce(data_dir: Path, announcement: Announcement) -> None:
    """Write the file, whole or not at all, readable by this user only. Raises: OSError."""
    write_whole(data_dir / FILE_NAME, json.dumps(asdict(announcement)).encode())


def withdraw(data_dir: Path, instance: str) -> None:
    """Remove the file, unless another server has replaced it."""
    announcement = read_announcement(data_dir)
    if announcement is not None and announcement.instance == instance:
        with suppress(OSError):
            (data_dir / FILE_NAME).unlink()


@asynccontextmanager
async def announced(data_dir: Path, announcement: Announcement) -> AsyncIterator[None]:
    """Have the file there for the time of the block, as far as it can be written.

    The last of several servers on one directory to start is the one that is announced. When it stops or dies, another
    one takes its place. A file that cannot be written is no reason not to serve: it is tried again.
    """
    keeper = _Keeper(data_dir, announcement)
    await asyncio.to_thread(keeper.begin)
    stop = asyncio.Event()
    keeping = asyncio.create_task(keeper.run(stop), name="announce this server")
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait({keeping}, timeout=STOP_S)
        keeping.cancel()
        await asyncio.to_thread(withdraw, data_dir, announcement.instance)


class _Keeper:
    """Writes the file, and writes it again if it, or the server that it names, no longer exists."""

    def __init__(self, data_dir: Path, announcement: Announcement) -> None:
        self._data_dir = data_dir
        self._announcement = announcement
        self._replaced: set[str] = set()
        self._has_failed = False

    def begin(self) -> None:
        with suppress(OSError):  # said by what follows
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._announce()

    async def run(self, stop: asyncio.Event) -> None:
        while not await set_within(stop, CHECK_EVERY_S):
            await asyncio.to_thread(self._check)

    def _check(self) -> None:
        found = read_announcement(self._data_dir)
        if found is None:
            self._announce()
        elif found.instance not in self._replaced and not found.is_running:
            # Once only: one that announces itself again lives where its process has another number.
            self._replaced.add(found.instance)
            self._announce()

    def _announce(self) -> None:
        try:
            announce(self._data_dir, self._announcement)
        except OSError as error:
            if not self._has_failed:
                logger.warning("commands will not find this server: %s cannot be written: %s", FILE_NAME, error)
            self._has_failed = True
        else:
            self._has_failed = False
