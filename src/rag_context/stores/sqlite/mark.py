"""The size of an index in a small file beside it, so that a deleted index is not mistaken for a new one."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rag_context.whole_files import write_whole

RETRY_S = 5.0
"""After a failed write the file is written again after this long."""


@dataclass(frozen=True, slots=True)
class IndexSize:
    """The size of an index when it was last counted."""

    documents: int = 0
    collections: int = 0

    def __bool__(self) -> bool:
        return bool(self.documents or self.collections)

    def __str__(self) -> str:
        counts = {"document": self.documents, "collection": self.collections}
        return " and ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count)

    def is_close(self, other: "IndexSize") -> bool:
        """Whether two sizes are close: the same kinds of data, within a factor of two."""
        low, high = sorted((self.documents, other.documents))
        return high <= 2 * low and bool(self.collections) == bool(other.collections)


class IndexMark:
    """The file at `path`. Used by several threads; several processes may write it, each the whole of it.

    It is written seldom (for the first document, and for every doubling), so its count is a rough one.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._known: IndexSize | None = None
        self._written: IndexSize | None = None
        self._retry_at = 0.0

    def last_size(self) -> IndexSize:
        with self._lock:
            return self._known or self._read()

    def note(self, now: IndexSize) -> None:
        """Record the size of the index; written to disk at once if it has changed much."""
        with self._lock:
            self._known = now
            if self._written is None:
                self._written = self._read()
            if now.is_close(self._written) or self._clock() < self._retry_at:
                return
            try:
                write_whole(self.path, json.dumps(asdict(now)).encode())
            except OSError:  # a full disk, a read-only directory: the health report shows it
                self._retry_at = self._clock() + RETRY_S
            else:
                self._written = now

    def forget(self) -> None:
        """Reset the size to that of a new index. Raises: OSError."""
        with self._lock:
            self._known = self._written = None
            self.path.unlink(missing_ok=True)

    def _read(self) -> IndexSize:
        try:
            fields = json.loads(self.path.read_text(encoding="utf-8"))
            return IndexSize(int(fields["documents"]), int(fields["collections"]))
        except (OSError, ValueError, TypeError, KeyError):
            return IndexSize()
