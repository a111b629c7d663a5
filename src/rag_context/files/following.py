"""Watches files and folders and indexes every change, also after times when the index was unavailable."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from rag_context.errors import BackendError, RagContextError
from rag_context.files.sync import FolderSync
from rag_context.files.walk import Root
from rag_context.files.watch import watch

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 15.0
"""How long to wait for an index that cannot be reached, the first time and at most; doubled in between."""

RETRY_S = 30.0
"""After how long a file is read again that was rejected for a temporary reason."""

LOOK_S = 600.0
"""How often all files are checked, for changes that the system did not report."""

OpenSync = Callable[[], AbstractAsyncContextManager[FolderSync]]
"""Connects to the index."""


@dataclass
class Follower:
    """Keeps the index in step with files and folders until stopped.

    Args:
        roots: absolute, without links.
        open_sync: connects to the index, and again after the connection was lost.
        on_ready: called when the index is in step for the first time.
        on_failure: called with why the index cannot be reached, and in how many seconds it is tried again.
        debounce_s: how long nothing must change before a change is indexed.
        retry_s: after how long a rejected file is read again.
    """

    roots: Sequence[Path]
    open_sync: OpenSync
    on_ready: Callable[[], None]
    on_failure: Callable[[RagContextError, float], None]
    debounce_s: float = 0.5
    retry_s: float = RETRY_S
    _waiting: dict[Path, set[Path]] = field(default_factory=dict, init=False)
    """The changed paths, by root."""

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set; changes that were noticed before are indexed.

        Raises:
            ConfigurationError: the files cannot be watched, or the index cannot be used.
            BackendError: the index could not be reached at the end; the next run indexes the missed changes.
        """
        changed = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                listeners = [group.create_task(self._listen(root, stop, changed)) for root in self.roots]
                group.create_task(self._work(listeners, stop, changed))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _listen(self, root: Path, stop: asyncio.Event, changed: asyncio.Event) -> None:
        """Record changes as they happen, also while earlier ones are being indexed."""
        async for paths in watch(root, debounce_s=self.debounce_s, stop=stop):
            self._note(root, paths or {root}, changed)
        changed.set()

    def _note(self, root: Path, paths: frozenset[Path] | set[Path], changed: asyncio.Event) -> None:
        self._waiting.setdefault(root, set()).update(paths)
        changed.set()

    async def _work(
        self, listeners: Sequence["asyncio.Task[None]"], stop: asyncio.Event, changed: asyncio.Event
    ) -> None:
        wait_s = FIRST_WAIT_S
        is_ready = False
        while True:
            try:
                async with self.open_sync() as sync:
                    while await self._wait_for_change(listeners, changed):
                        await self._take_in(sync, changed)
                        wait_s = FIRST_WAIT_S
                        if not is_ready:
                            self.on_ready()
                            is_ready = True
                    return
            except BackendError as error:
                if stop.is_set():
                    raise
                self.on_failure(error, wait_s)
                await _pause(stop, wait_s)
                wait_s = min(wait_s * 2.0, LONGEST_WAIT_S)

    async def _wait_for_change(self, listeners: Sequence["asyncio.Task[None]"], changed: asyncio.Event) -> bool:
        """Wait for a change; False when there will be no more."""
        while not self._waiting:
            if all(listener.done() for listener in listeners):
                return False
            changed.clear()
            try:
                async with asyncio.timeout(LOOK_S):
                    await changed.wait()
            except TimeoutError:
                self._waiting = {root: {root} for root in self.roots}
            await asyncio.sleep(0)  # the last listener sets the event before it is done
        return True

    async def _take_in(self, sync: FolderSync, changed: asyncio.Event) -> None:
        root, paths = next(iter(self._waiting.items()))
        del self._waiting[root]
        try:
            refused = await (sync.run([Root(root)]) if root in paths else sync.follow(root, paths))
        except BackendError:
            self._note(root, paths, changed)
            raise
        if refused:
            asyncio.get_running_loop().call_later(self.retry_s, self._note, root, refused, changed)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
