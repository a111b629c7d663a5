"""Which collections are in memory."""

import threading
from collections.abc import Callable, Collection

from rag_context.stores.sqlite.collections.loaded import LoadedCollection

IDLE_S = 600.0
"""A collection that nobody asked for so long leaves the memory."""


class Memory:
    """Collections that were asked for, by key. Safe to use from several threads.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._generation = -1
        self._loaded: dict[int, LoadedCollection] = {}
        self._used: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._loaded)

    def of(self, key: int, generation: int) -> LoadedCollection:
        """The collection with this key, empty where it is new; of another generation of the file nothing is kept."""
        with self._lock:
            if generation != self._generation:
                self._forget_all()
                self._generation = generation
            self._used[key] = self._clock()
            if key not in self._loaded:
                self._loaded[key] = LoadedCollection(key)
            return self._loaded[key]

    def keep_only(self, keys: Collection[int]) -> None:
        """Forget collections other than these, and those that nobody asked for in a long time."""
        with self._lock:
            oldest = self._clock() - IDLE_S
            for key in [key for key, used in self._used.items() if key not in keys or used < oldest]:
                del self._loaded[key], self._used[key]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._forget_all()

    def _forget_all(self) -> None:
        self._loaded.clear()
        self._used.clear()
