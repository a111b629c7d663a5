"""What changes below a folder, as it happens.

Only paths are told: whoever looks at them finds out what became of each, because between a change and its telling
everything may have changed again. A folder that goes away and comes back is watched again.
"""

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from watchfiles import Change, awatch

from rag_context.errors import ConfigurationError
from rag_context.files.reading import SKIPPED_FOLDERS

LONGEST_S = 2.0
"""A folder in which something changes all the time is told of its changes this often."""

_STEPS = 5
"""In how many steps the debounce is waited out; a step is how late the end of the quiet may be noticed."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What stands at a path."""

    device: int
    inode: int
    is_folder: bool

    def still_is(self, now: "_Place | None") -> bool:
        """Whether it can be watched on; a file may have been put in place of another."""
        return now is not None and now.is_folder == self.is_folder and (now == self or not self.is_folder)


class _Cancelled:
    """Ends the library's thread when the task that waits for it is cancelled."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True


async def watch(root: Path, *, debounce_s: float = 0.5, stop: asyncio.Event) -> AsyncIterator[frozenset[Path]]:
    """The paths that changed below a folder (or a file, if `root` is one), each time it has been quiet for a while.

    The first set is empty: from then on no change is missed, so that whoever compares the folder with an index at
    that moment has both. A set that holds `root` itself says that anything below it may have changed. Paths in
    folders of machinery (`SKIPPED_FOLDERS`) are not told.

    Args:
        root: absolute, without links; it need not be there yet.
        debounce_s: how long nothing must change before the changes are told.
        stop: ends the iteration; what changed last is told before.

    Raises:
        ConfigurationError: the system allows no more watched folders.
    """
    is_told = False
    while not stop.is_set():
        place = _place(root)
        if place is None:
            if not is_told:
                yield frozenset()
                is_told = True
            await _wait(stop, debounce_s)
            continue
        async for paths in _armed(root, place, debounce_s, stop):
            yield paths if paths or not is_told else frozenset({root})
            is_told = True


async def _armed(
    root: Path, place: _Place, debounce_s: float, stop: asyncio.Event
) -> AsyncGenerator[frozenset[Path], None]:
    """The changes while the root is the one it was at first; ends with the root itself where it is not."""
    waiting: set[Path] = set()
    since = last = 0.0
    clock = asyncio.get_running_loop().time
    is_armed = is_last = False
    async with aclosing(_raw(root, place, debounce_s / _STEPS)) as changes:
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
            if is_last or not place.still_is(_place(root)):
                break
            is_last = stop.is_set()  # what happened before that is told by the next step at the latest
    if waiting:
        yield frozenset(waiting)
    if not stop.is_set():
        yield frozenset({root})


async def _raw(root: Path, place: _Place, step_s: float) -> AsyncGenerator[set[Path], None]:
    """What the system tells, at least once a step, empty where there is nothing to tell."""
    step_ms = max(round(step_s * 1000), 1)
    try:
        async for changes in awatch(
            root if place.is_folder else root.parent,  # editors replace a file: it is its folder that tells
            watch_filter=_below(root),
            debounce=step_ms,
            step=step_ms,
            rust_timeout=step_ms,
            yield_on_timeout=True,
            stop_event=_Cancelled(),
            recursive=place.is_folder,
            ignore_permission_denied=True,
        ):
            yield {Path(path) for _, path in changes}
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(
            f"{os.fspath(root)!r} cannot be watched: {error}. Watch fewer folders, or raise the system's limit "
            "(on Linux: sysctl fs.inotify.max_user_watches)"
        ) from error


def _below(root: Path) -> Callable[[Change, str], bool]:
    def is_meant(_change: Change, path: str) -> bool:
        try:
            parts = Path(path).relative_to(root).parts
        except ValueError:
            return False
        return SKIPPED_FOLDERS.isdisjoint(parts)

    return is_meant


def _place(root: Path) -> _Place | None:
    try:
        status = root.stat()
    except OSError:
        return None
    return _Place(status.st_dev, status.st_ino, is_folder=stat.S_ISDIR(status.st_mode))


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
