"""Watches files and folders, and indexes every change, also after times when the index was unavailable.

A watch reports paths only: the caller must check each, because it may have changed again since. A folder that is
removed and created again is watched again.
"""

import asyncio
import os
import stat
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from watchfiles import Change, awatch

from rag_context.errors import BackendError, ConfigurationError, RagContextError
from rag_context.files.file_reading import SKIPPED_FOLDERS
from rag_context.files.walk import Root
from rag_context.resilience.deadline import set_within

LONGEST_S = 2.0
"""How often changes are reported in a folder that changes all the time."""

_STEPS = 5
"""The debounce is waited for in so many steps; its end is noticed at most one step late."""

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 15.0
"""How long to wait for an index that cannot be reached, the first time and at most; doubled in between."""

RETRY_S = 30.0
"""After how long a file is read again that was rejected for a temporary reason."""

CHECK_EVERY_S = 600.0
"""How often all files are checked, for changes that the system did not report."""


class Sync(Protocol):
    """Brings an index in step: with all below some folders, or with some paths below one."""

    async def run(self, roots: Sequence[Root]) -> frozenset[Path]: ...

    async def follow(self, root: Path, changed: Collection[Path]) -> frozenset[Path]: ...


OpenSync = Callable[[], AbstractAsyncContextManager[Sync]]
"""Connects to the index."""


@dataclass(frozen=True, slots=True)
class _Identity:
    device: int
    inode: int
    is_folder: bool

    def still_is(self, now: "_Identity | None") -> bool:
        """Whether the watch still applies; a file may have been replaced by another."""
        return now is not None and now.is_folder == self.is_folder and (now == self or not self.is_folder)


async def watch(root: Path, *, debounce_s: float = 0.5, stop: asyncio.Event) -> AsyncIterator[frozenset[Path]]:
    """The paths that changed below a folder (or a file, if `root` is one), each time nothing has changed for a while.

    The first set is empty: from then on no change is missed, so a caller that compares the folder with an index now is
    in step. A set with `root` itself means that anything below it may have changed. Paths in `SKIPPED_FOLDERS` are not
    reported. `root` is absolute and without links; it need not exist yet.

    Raises: ConfigurationError (the system allows no more watched folders).
    """
    has_yielded = False
    while not stop.is_set():
        identity = _identity_of(root)
        if identity is None:
            if not has_yielded:
                yield frozenset()
                has_yielded = True
            await set_within(stop, debounce_s)
            continue
        async for paths in _armed(root, identity, debounce_s, stop):
            yield paths if paths or not has_yielded else frozenset({root})
            has_yielded = True


async def _armed(
    root: Path, identity: _Identity, debounce_s: float, stop: asyncio.Event
) -> AsyncGenerator[frozenset[Path], None]:
    """The changes until the root is replaced by another file or folder; then the root itself, last."""
    waiting: set[Path] = set()
    since = last = 0.0
    clock = asyncio.get_running_loop().time
    is_armed = is_last = False
    async with aclosing(_raw(root, identity, debounce_s / _STEPS)) as changes:
        async for changed in changes:
            now = clock()
            if not is_armed:
                yield frozenset()
                is_armed = True
            if changed:
                since, last = since if waiting else now, now
                waiting |= changed
            if waiting and (now - last >= debounce_s or now - since >= LONGEST_S):
                yield frozenset(waiting)
                waiting.clear()
            if is_last or not identity.still_is(_identity_of(root)):
                break
            is_last = stop.is_set()  # earlier changes are reported by the next step at the latest
    if waiting:
        yield frozenset(waiting)
    if not stop.is_set():
        yield frozenset({root})


async def _raw(root: Path, identity: _Identity, step_s: float) -> AsyncGenerator[set[Path], None]:
    """The changes that the system reports, at least once a step, empty without changes."""
    step_ms = max(round(step_s * 1000), 1)
    try:
        async for changes in awatch(
            root if identity.is_folder else root.parent,  # editors replace a file: only its folder reports that
            watch_filter=_below(root),
            debounce=step_ms,
            step=step_ms,
            rust_timeout=step_ms,
            yield_on_timeout=True,
            stop_event=threading.Event(),  # set by the library when this task is cancelled, read by its thread
            recursive=identity.is_folder,
            ignore_permission_denied=True,
        ):
            yield {Path(path) for _, path in changes}
    except FileNotFoundError:  # the root was removed since it was checked
        return
    except OSError as error:
        raise ConfigurationError(
            f"{os.fspath(root)!r} cannot be watched: {error}. Watch fewer folders, or raise the system's limit "
            "(on Linux: sysctl fs.inotify.max_user_watches)"
        ) from error


def _below(root: Path) -> Callable[[Change, str], bool]:
    def is_relevant(_change: Change, path: str) -> bool:
        try:
            parts = Path(path).relative_to(root).parts
        except ValueError:
            return False
        return SKIPPED_FOLDERS.isdisjoint(parts)

    return is_relevant


def _identity_of(root: Path) -> _Identity | None:
    try:
        status = root.stat()
    except OSError:
        return None
    return _Identity(status.st_dev, status.st_ino, is_folder=stat.S_ISDIR(status.st_mode))


@dataclass
class Follower:
    """Keeps the index in step with files and folders until stopped, over connections that are lost."""

    roots: Sequence[Path]
    open_sync: OpenSync
    on_ready: Callable[[], None]
    on_failure: Callable[[RagContextError, float], None]
    debounce_s: float = 0.5
    retry_s: float = RETRY_S
    _waiting: dict[Path, set[Path]] = field(default_factory=dict, init=False)
    """The changed paths, by root."""

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set; changes before it are indexed. Raises: ConfigurationError, BackendError."""
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
                await set_within(stop, wait_s)
                wait_s = min(wait_s * 2.0, LONGEST_WAIT_S)

    async def _wait_for_change(self, listeners: Sequence["asyncio.Task[None]"], changed: asyncio.Event) -> bool:
        """Wait for a change; False when there will be no more."""
        while not self._waiting:
            if all(listener.done() for listener in listeners):
                return False
            changed.clear()
            if not await set_within(changed, CHECK_EVERY_S):
                # Not every change is reported, such as those of other machines on a network drive.
                self._waiting = {root: {root} for root in self.roots}
            await asyncio.sleep(0)  # the last listener sets the event before it is done
        return True

    async def _take_in(self, sync: Sync, changed: asyncio.Event) -> None:
        root, paths = next(iter(self._waiting.items()))
        del self._waiting[root]  # before the files are read: what changes meanwhile is recorded again
        try:
            rejected = await (sync.run([Root(root)]) if root in paths else sync.follow(root, paths))
        except BackendError:
            self._note(root, paths, changed)  # the next connection indexes them
            raise
        if rejected:
            asyncio.get_running_loop().call_later(self.retry_s, self._note, root, rejected, changed)
