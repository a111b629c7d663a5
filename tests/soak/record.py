"""What a run saw: what was promised, what was not as it should be, how often each thing was done, and what it took."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

CALM_S = 20.0
"""How long after a disturbance a write may still be rejected."""


@dataclass
class Promise:
    """One source: the markers of texts that it may have, one once it is acknowledged, and of those that it must not."""

    source: str
    may_have: set[str | None]
    """None: nothing is stored."""
    gone: list[str] = field(default_factory=list)
    under: str = "index"

    @property
    def is_settled(self) -> bool:
        """Whether what is stored is known; what was not answered is never written again, for it may still come."""
        return len(self.may_have) == 1

    @property
    def marker(self) -> str | None:
        """The marker of what is stored, where that is known."""
        return next(iter(self.may_have)) if self.is_settled else None

    def acknowledge(self, marker: str | None) -> None:
        """This is stored for certain, and what was there before is not."""
        self.gone += [old for old in self.may_have - {marker, None} if old]
        self.gone = [old for old in self.gone if old != marker]
        self.may_have = {marker}

    def perhaps(self, marker: str | None) -> None:
        """This was sent, and not answered."""
        self.may_have |= {marker}


@dataclass(frozen=True)
class Sample:
    """What one process of a server took at one moment."""

    at_s: float
    memory_mib: float
    descriptors: int
    threads: int


class Record:
    """Everything of one site that is counted; used by all threads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.done: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.interrupted: Counter[str] = Counter()
        self.levels: Counter[str] = Counter()
        self.disturbed: Counter[str] = Counter()
        self.complaints: list[str] = []
        self.promises: list[Promise] = []
        self.purged: list[str] = []
        self.found: dict[str, str] = {}
        self.samples: dict[int, list[Sample]] = defaultdict(list)
        self._lock = threading.Lock()
        self._disturbing = 0
        self._calm_since = 0.0

    def complain(self, what: str) -> None:
        """Something is not as it should be."""
        with self._lock:
            self.complaints.append(what)
        print(f"{self.name}: WRONG {what}", flush=True)

    @contextmanager
    def disturbance(self, name: str) -> Iterator[None]:
        """A disturbance for the block."""
        with self._lock:
            self._disturbing += 1
        print(f"{self.name}: {name}", flush=True)
        try:
            yield
        finally:
            with self._lock:
                self.disturbed[name] += 1
                self._disturbing -= 1
                self._calm_since = time.monotonic()

    @property
    def is_calm(self) -> bool:
        """Whether nothing disturbs, or has a short time ago."""
        with self._lock:
            return not self._disturbing and time.monotonic() > self._calm_since + CALM_S

    def sample(self, pid: int) -> None:
        """Look at what a process takes; nothing where it has ended."""
        folder = Path(f"/proc/{pid}")
        try:
            lines = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
            taken = Sample(
                time.monotonic(),
                int(lines["VmRSS"].split()[0]) / 1024,
                len(list((folder / "fd").iterdir())),
                int(lines["Threads"]),
            )
        except (OSError, KeyError):
            return
        self.samples[pid].append(taken)
