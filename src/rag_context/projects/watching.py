"""A folder that is followed: reconciled when the following begins, then kept up with each change."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from rag_context.errors import BackendError, ConfigurationError
from rag_context.files.watch import watch
from rag_context.projects.sync import Progress, Synchroniser, SyncReport, no_progress

FIRST_RETRY_S = 2.0
LAST_RETRY_S = 60.0
"""What could not be stored, or could not be seen, is tried again after this long, doubled each time up to the last."""

logger = logging.getLogger(__name__)


class Watch(Protocol):
    """Tells what changes below a folder; the first set, which is empty, says that from now on nothing is missed."""

    def __call__(
        self, root: Path, *, debounce_s: float = ..., stop: asyncio.Event
    ) -> AsyncIterator[frozenset[Path]]: ...


class Told(Protocol):
    """Hears of a reconciliation in which something changed."""

    def __call__(self, report: SyncReport) -> None: ...


class Follower:
    """Keeps the index of one folder as its files are, from `run` until `stop`.

    Args:
        synchroniser: does the work.
        told: hears of what changed.
        goes_on: asked before files are looked at; where it says no, they are not, and the following ends.
        watch: tells what changes.
    """

    def __init__(
        self,
        synchroniser: Synchroniser,
        *,
        told: Told,
        goes_on: Callable[[], Awaitable[bool]],
        watch: Watch = watch,
    ) -> None:
        self._synchroniser = synchroniser
        self._told = told
        self._goes_on = goes_on
        self._watch = watch
        self._stop = asyncio.Event()
        self._trouble = asyncio.Event()
        self.first: asyncio.Future[SyncReport] = asyncio.get_running_loop().create_future()
        """The report of the first reconciliation, or the `BackendError` that kept it from happening in time."""
        self.first.add_done_callback(_noticed)

    def stop(self) -> None:
        """End the following; what is being indexed is finished."""
        self._stop.set()

    async def run(self, progress: Progress = no_progress) -> None:
        """Follow the folder until it is stopped. Never raises because of a file or a backend."""
        retrying = asyncio.create_task(self._retry(), name="retry project files")
        try:
            await self._take_up(progress)
        finally:
            retrying.cancel()
            await asyncio.wait({retrying})
            if not self.first.done():
                self.first.cancel()

    async def _take_up(self, progress: Progress) -> None:
        root = self._synchroniser.reader.docs_root
        try:
            async for paths in self._watch(root, stop=self._stop):
                if not await self._goes_on():
                    return
                if self.first.done():
                    await self._settle(partial(self._synchroniser.follow, paths))
                else:
                    await self._settle(partial(self._synchroniser.reconcile, progress))
        except ConfigurationError as error:
            logger.warning("changes of project documents are not seen until the next activation: %s", error)
            if not self.first.done():
                await self._settle(partial(self._synchroniser.reconcile, progress))
            await self._stop.wait()

    async def _settle(self, work: Callable[[], Awaitable[SyncReport]]) -> None:
        try:
            report = await work()
        except BackendError as error:
            if not self.first.done():
                self.first.set_exception(error)
            logger.warning("project documents could not be compared with the index: %s", error)
            self._trouble.set()
            return
        if report.incomplete:
            self._trouble.set()
        if report.changed:
            self._told(report)
        if not self.first.done():
            self.first.set_result(report)

    async def _retry(self) -> None:
        """Reconcile again for as long as something is left to be done."""
        delay_s = FIRST_RETRY_S
        while True:
            await self._trouble.wait()
            await asyncio.sleep(delay_s)
            if not await self._goes_on():
                return
            self._trouble.clear()
            await self._settle(self._synchroniser.reconcile)
            delay_s = min(2 * delay_s, LAST_RETRY_S) if self._trouble.is_set() else FIRST_RETRY_S


def _noticed(first: "asyncio.Future[SyncReport]") -> None:
    """What went wrong was logged, whether or not anybody waits for it."""
    if not first.cancelled():
        first.exception()
