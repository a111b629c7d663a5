"""Short pauses: what outlives a full garbage collection that took long is not looked at by the next ones.

A process of ours keeps half a million objects from its start to its end: modules, schemas, the tokeniser. Going
through all of them takes a tenth of a second and more, in which nobody is answered.
"""

import gc
import time
from collections.abc import Mapping
from typing import Any

LONG_S = 0.01
MOST = 16
"""So often at most: of what is set aside, cycles that are dropped later stay in memory."""

_OLDEST = 2


class Pauses:
    """Hears of every collection, as `gc.callbacks` do.

    Args:
        long_s: a full collection that took longer than these seconds is long.
        most: how often its survivors are set aside.
    """

    def __init__(self, long_s: float = LONG_S, most: int = MOST) -> None:
        self._long_s = long_s
        self._left = most
        self._started = 0.0

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        """`phase` is `start` or `stop`; `info` holds the generation."""
        if info["generation"] != _OLDEST or not self._left:
            return
        if phase == "start":
            self._started = time.perf_counter()
        elif time.perf_counter() - self._started > self._long_s:
            gc.freeze()
            self._left -= 1


def keep_pauses_short() -> None:
    """From now on, until the process ends."""
    gc.callbacks.append(Pauses())
