"""The collections that are loaded in memory."""

import threading
from collections.abc import Callable, Collection

from rag_context.stores.sqlite.collections.loaded import LoadedCollection

IDLE_S = 600.0
"""A collection that was not used for so long is dropped from memory."""


class Memory:
    """Loaded collections, by key. Safe to use from several threads.

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
        """The collection with this key, empty if it is new; those of another generation of the file are dropped."""
        with self._lock:
            if generation != self._generation:
                self._forget_all()
                self._generation = generation
            self._used[key] = self._clock()
            if key not in self._loaded:
                self._loaded[key] = LoadedCollection(key)
            return self._loaded[key]

    def keep_only(self, keys: Collection[int]) -> None:
        """Drop collections other than these, and those that were not used for a long time."""
        with self._lock:
            oldest = self._clock() - IDLE_S
            for key in [key for key, used in self._used.items() if key not in keys or used < oldest]:
                del self._loaded[key], self._used[key]

    def clear(self) -> None:
        """Drop all collections."""
        with self._lock:
            self._forget_all()

    def _forget_all(self) -> None:
        self._loaded.clear()
        self._used.clear()
