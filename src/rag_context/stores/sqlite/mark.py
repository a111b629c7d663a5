"""How much an index held, in a small file beside it: one that is gone must not look like one that is new."""

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

RETRY_S = 5.0
"""Where the file cannot be written, it is tried again after this long."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """What an index held when it was last counted."""

    documents: int = 0
    collections: int = 0

    def __bool__(self) -> bool:
        return bool(self.documents or self.collections)

    def __str__(self) -> str:
        counts = {"document": self.documents, "collection": self.collections}
        return " and ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count)

    def is_near(self, other: "Holdings") -> bool:
        """Whether it says as much as `other` would: the same kinds of things, within a factor of two."""
        low, high = sorted((self.documents, other.documents))
        return high <= 2 * low and bool(self.collections) == bool(other.collections)


class IndexMark:
    """The file at `path`. Used by several threads; several processes may write it, each the whole of it.

    It is written seldom (for the first document, and for every doubling), so its count is a rough one.

    Args:
        path: where it is.
        clock: monotonic seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._known: Holdings | None = None
        self._written: Holdings | None = None
        self._retry_at = 0.0

    def known(self) -> Holdings:
        """What the index held as far as this process or the file knows."""
        with self._lock:
            return self._known or self._read()

    def note(self, now: Holdings) -> None:
        """Remember what the index holds; on disk, when this returns, where that is news and can be written."""
        with self._lock:
            self._known = now
            if self._written is None:
                self._written = self._read()
            if now.is_near(self._written) or self._clock() < self._retry_at:
                return
            try:
                _write(self.path, json.dumps(asdict(now)))
            except OSError:  # a full disk, a read-only directory: health says so by itself
                self._retry_at = self._clock() + RETRY_S
            else:
                self._written = now

    def forget(self) -> None:
        """Take the index for a new one. Raises: OSError."""
        with self._lock:
            self._known = self._written = None
            self.path.unlink(missing_ok=True)

    def _read(self) -> Holdings:
        try:
            fields = json.loads(self.path.read_text(encoding="utf-8"))
            return Holdings(int(fields["documents"]), int(fields["collections"]))
        except (OSError, ValueError, TypeError, KeyError):
            return Holdings()


def _write(path: Path, text: str) -> None:
    """Put `text` at `path`, whole or not at all, for its owner only; it survives a loss of power."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if os.name == "posix":  # elsewhere a directory cannot be opened
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
