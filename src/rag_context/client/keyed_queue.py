"""A bounded queue with lanes: items of one lane go one after the other, those of different lanes at the same time."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Item = TypeVar("Item")


class LanesShutError(Exception):
    """Nothing is taken any more."""


class KeyedQueue(Generic[Item]):
    """Filled from any thread, emptied by tasks of one event loop.

    Args:
        capacity: most items that may wait.
        lane: what tells the lane of an item.
    """

    def __init__(self, capacity: int, lane: Callable[[Item], Hashable]) -> None:
        self._capacity = capacity
        self._lane = lane
        self._loop = asyncio.get_running_loop()
        self._lock = Lock()
        self._waiting: OrderedDict[Hashable, deque[Item]] = OrderedDict()
        self._busy: set[Hashable] = set()
        self._count = 0
        self._is_shut = False
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """How many items wait."""
        return self._count

    def put(self, item: Item) -> bool:
        """Add an item; False where there is no room. Raises: LanesShutError."""
        with self._lock:
            if self._is_shut:
                raise LanesShutError
            if self._count >= self._capacity:
                return False
            self._count += 1
            self._waiting.setdefault(self._lane(item), deque()).append(item)
        self._loop.call_soon_threadsafe(self._changed.set)
        return True

    async def take(self) -> Item:
        """The next item whose lane is free; its lane is busy until `done`."""
        while (item := self._next()) is None:
            self._changed.clear()
            await self._changed.wait()
        self._changed.set()
        return item

    def done(self, item: Item) -> None:
        """Free the lane of an item."""
        with self._lock:
            self._busy.discard(self._lane(item))
        self._changed.set()

    async def wait_for_room(self) -> None:
        """Wait until an item would be taken, or none will be any more."""
        while self._count >= self._capacity and not self._is_shut:
            self._changed.clear()
            await self._changed.wait()

    async def wait_until_done(self) -> None:
        """Wait until nothing waits and no lane is busy."""
        while self._count or self._busy:
            self._changed.clear()
            await self._changed.wait()

    def shut(self) -> None:
        """Let nothing more in."""
        with self._lock:
            self._is_shut = True
        self._changed.set()

    def empty(self) -> list[Item]:
        """Take out all that waits, and free all lanes: nobody works on them any more."""
        with self._lock:
            items = [item for lane in self._waiting.values() for item in lane]
            self._waiting.clear()
            self._busy.clear()
            self._count = 0
        self._changed.set()
        return items

    def _next(self) -> Item | None:
        with self._lock:
            for lane, items in self._waiting.items():
                if lane not in self._busy:
                    item = items.popleft()
                    if items:
                        self._waiting.move_to_end(lane)
                    else:
                        del self._waiting[lane]
                    self._busy.add(lane)
                    self._count -= 1
                    return item
        return None
