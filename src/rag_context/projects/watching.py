"""Keeps the index of one folder up to date: synchronises it once, then after each change of its files."""

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
"""Delays before files that could not be stored or read are tried again: doubled each time, up to the last."""

logger = logging.getLogger(__name__)


class Watch(Protocol):
    """Yields the changed paths below a folder. The first set is empty: from then on changes are watched."""

    def __call__(
        self, root: Path, *, debounce_s: float = ..., stop: asyncio.Event
    ) -> AsyncIterator[frozenset[Path]]: ...


class OnReport(Protocol):
    """Called with the report of a synchronisation that changed something."""

    def __call__(self, report: SyncReport) -> None: ...


class Follower:
    """Keeps the index of one folder up to date, from `run` until `stop`.

    Args:
        synchroniser: compares files with the index and indexes them.
        on_report: called after every synchronisation that changed something.
        should_continue: called before files are read; if it returns False, following ends.
        watch: reports changes.
    """

    def __init__(
        self,
        synchroniser: Synchroniser,
        *,
        on_report: OnReport,
        should_continue: Callable[[], Awaitable[bool]],
        watch: Watch = watch,
    ) -> None:
        self._synchroniser = synchroniser
        self._on_report = on_report
        self._should_continue = should_continue
        self._watch = watch
        self._stop = asyncio.Event()
        self._problem = asyncio.Event()
        self.first: asyncio.Future[SyncReport] = asyncio.get_running_loop().create_future()
        """The report of the first synchronisation, or the `BackendError` that stopped it."""
        self.first.add_done_callback(_noticed)

    def stop(self) -> None:
        """Stop following, after the files that are being indexed."""
        self._stop.set()

    async def run(self, progress: Progress = no_progress) -> None:
        """Follow the folder until it is stopped. Never raises because of a file or a backend."""
        retrying = asyncio.create_task(self._retry(), name="retry project files")
        try:
            await self._watch_changes(progress)
        finally:
            retrying.cancel()
            await asyncio.wait({retrying})
            if not self.first.done():
                self.first.cancel()

    async def _watch_changes(self, progress: Progress) -> None:
        root = self._synchroniser.reader.docs_root
        try:
            async for paths in self._watch(root, stop=self._stop):
                if not await self._should_continue():
                    return
                if self.first.done():
                    await self._run_once(partial(self._synchroniser.follow, paths))
                else:
                    await self._run_once(partial(self._synchroniser.reconcile, progress))
        except ConfigurationError as error:
            logger.warning("changes of project documents are not detected until the next activation: %s", error)
            if not self.first.done():
                await self._run_once(partial(self._synchroniser.reconcile, progress))
            await self._stop.wait()

    async def _run_once(self, work: Callable[[], Awaitable[SyncReport]]) -> None:
        try:
            report = await work()
        except BackendError as error:
            if not self.first.done():
                self.first.set_exception(error)
            logger.warning("project documents could not be compared with the index: %s", error)
            self._problem.set()
            return
        if report.incomplete:
            self._problem.set()
        if report.changed:
            self._on_report(report)
        if not self.first.done():
            self.first.set_result(report)

    async def _retry(self) -> None:
        """Synchronise again as long as some files could not be indexed."""
        delay_s = FIRST_RETRY_S
        while True:
            await self._problem.wait()
            await asyncio.sleep(delay_s)
            if not await self._should_continue():
                return
            self._problem.clear()
            await self._run_once(self._synchroniser.reconcile)
            delay_s = min(2 * delay_s, LAST_RETRY_S) if self._problem.is_set() else FIRST_RETRY_S


def _noticed(first: "asyncio.Future[SyncReport]") -> None:
    """Mark the exception as retrieved: it was logged already, and asyncio must not log it again."""
    if not first.cancelled():
        first.exception()
