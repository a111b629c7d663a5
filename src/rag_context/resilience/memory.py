"""Returns memory that is no longer used to the system, which the C library otherwise keeps for this process."""

import asyncio
import ctypes
import sys
import time
from pathlib import Path

TRIM_EVERY_S = 3.0
TRIM_BYTES = 32 << 20
"""Growth over the least that was in use which is worth a walk over the heap; that takes some milliseconds."""

ACTIVE_S = 0.1
"""Computing time since the last walk; an idle process has nothing new to return."""

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = 4096


async def keep_trimmed() -> None:
    """Trim the heap whenever this process has grown, until cancelled; does nothing without glibc.

    Hundreds of megabytes stay in free lists after one text of two megabytes, between objects that are still in use.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is None:
        return
    least_bytes, computed_s = resident_bytes(), time.process_time()
    while True:
        await asyncio.sleep(TRIM_EVERY_S)
        least_bytes = min(least_bytes, resident_bytes())
        if resident_bytes() > least_bytes + TRIM_BYTES and time.process_time() > computed_s + ACTIVE_S:
            # In a thread, without the interpreter's lock: searches go on meanwhile.
            await asyncio.to_thread(trim, 0)
            computed_s = time.process_time()


def resident_bytes() -> int:
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
