"""Deep health: each part is made to do its work, and a success is believed for half a minute at most."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from rag_context.domain.documents import Counts, Status
from rag_context.errors import BackendError, BackendStartingError
from rag_context.resilience.breaker import BreakerOpenError
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency

BELIEVED_S = 30.0
BELIEVED_WRITE_S = 5.0
"""A write that succeeded is believed for less: a disk fills up without any call that fails."""

PATIENCE_S = 2.0
STALLED_S = 120.0
"""Documents wait for their vectors without any progress for this long: then that is a fault."""

ROLES = ("vectors", "embedder", "documents")
"""What a search at level 1 needs; anything else that fails only makes it slower."""

STORES = frozenset({"vectors", "documents"})
"""What these say of themselves holds for one state of the index."""


@dataclass(frozen=True, slots=True)
class Finding:
    """How one part was when it was last made to work.

    Attributes:
        status: whether it answers.
        refusal: why it takes no writes now; None where it does, or where nobody writes to it.
    """

    name: str
    role: str
    status: Status
    latency_ms: float
    detail: str
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class _Belief:
    finding: Finding
    until: float
    troubles: int
    openings: int
    state: Hashable


class HealthMonitor:
    """Examines the dependencies.

    Args:
        dependencies: what is examined, each with its role in words.
        clock: monotonic seconds.
        writes: by a dependency's name, what writes something there that changes nothing; it raises BackendError.
    """

    def __init__(
        self,
        dependencies: Sequence[tuple[str, Dependency]],
        clock: Callable[[], float] = time.monotonic,
        writes: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
    ) -> None:
        self._dependencies = tuple(dependencies)
        self._clock = clock
        self._beliefs: dict[str, _Belief] = {}
        self._writes = {name: _WriteCheck(write, clock) for name, write in (writes or {}).items()}

    async def examine(self, state: Hashable = None) -> tuple[Finding, ...]:
        """One finding per dependency, in their order; all are asked at once.

        Args:
            state: what the index is known to hold; what a store said of itself at another state is not repeated.
        """
        return tuple(await asyncio.gather(*(self._examine(role, part, state) for role, part in self._dependencies)))

    def doubt_writes(self) -> None:
        """A write failed: whether stores take any is tried again by the next report."""
        for check in self._writes.values():
            check.doubt()

    async def _examine(self, role: str, part: Dependency, state: Hashable) -> Finding:
        finding = await self._answering(role, part, state if part.name in STORES else None)
        check = self._writes.get(part.name)
        if check is None or finding.status is not Status.HEALTHY:
            return finding
        return replace(finding, refusal=await check.refusal(part))

    async def _answering(self, role: str, part: Dependency, state: Hashable) -> Finding:
        belief = self._beliefs.get(part.name)
        if belief is not None and self._still_holds(belief, part, state):
            return belief.finding
        started = self._clock()
        status, detail = await _probed(part, Deadline.after(PATIENCE_S, self._clock))
        finding = Finding(part.name, role, status, (self._clock() - started) * 1000.0, detail)
        if status is Status.HEALTHY:
            until = self._clock() + BELIEVED_S
            self._beliefs[part.name] = _Belief(finding, until, part.failures, part.breaker.openings, state)
        return finding

    def _still_holds(self, belief: _Belief, part: Dependency, state: Hashable) -> bool:
        return (
            self._clock() < belief.until
            and belief.troubles == part.failures
            and belief.openings == part.breaker.openings
            and (state is None or belief.state == state)
        )


class _WriteCheck:
    """Whether a store takes writes. One attempt at a time; while that is under way for long, the last verdict holds.

    Args:
        write: the attempt.
        clock: monotonic seconds.
    """

    def __init__(self, write: Callable[[], Awaitable[None]], clock: Callable[[], float]) -> None:
        self._write = write
        self._clock = clock
        self._attempt: asyncio.Task[None] | None = None
        self._refusal: str | None = None
        self._until = 0.0
        self._troubles = 0

    async def refusal(self, part: Dependency) -> str | None:
        """One sentence that says why a write is refused; None where it is not."""
        if self._refusal is None and self._clock() < self._until and self._troubles == part.failures:
            return None
        if self._attempt is None or self._attempt.done():
            self._troubles = part.failures
            self._attempt = asyncio.create_task(self._try(), name=f"try to write to {part.name}")
        await asyncio.wait({self._attempt}, timeout=PATIENCE_S)
        return self._refusal

    def doubt(self) -> None:
        """Believe no earlier success any more."""
        self._until = 0.0

    async def _try(self) -> None:
        try:
            await self._write()
        except BackendError as error:
            self._refusal = f"Writes are refused: {error}"
        else:
            self._refusal = None
            self._until = self._clock() + BELIEVED_WRITE_S


class IndexingProgress:
    """Whether documents that wait for their vectors get them.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: Counts | None = None
        self._moved_at = 0.0

    def lack(self, counts: Counts | None, trouble: str | None) -> str | None:
        """Why vectors stay missing; None where none are, or they are being made.

        Args:
            counts: what the index holds now; None where it is not known.
            trouble: which documents could not be embedded when that was last tried.
        """
        if counts is None:
            return None
        last, self._last = self._last, counts
        if last is None or not last.pending or counts.pending < last.pending or counts.vectors > last.vectors:
            self._moved_at = self._clock()
        if not counts.pending:
            return "no document is waiting for them: run `rag-context check`" if missing_vectors(counts) else None
        if self._clock() - self._moved_at >= STALLED_S:
            return f"none of {counts.pending} pending documents was completed within {STALLED_S:.0f} s"
        return trouble


def judged(finding: Finding, lack: str | None) -> Status:
    """What takes no writes, or lacks vectors, works, and is not healthy; without a cache everything works."""
    if finding.name not in ROLES and finding.status is Status.UNAVAILABLE:
        return Status.DEGRADED
    if finding.status is Status.HEALTHY and (finding.refusal or (finding.name == "vectors" and lack)):
        return Status.DEGRADED
    return finding.status


def detail_of(finding: Finding, counts: Counts | None, lack: str | None) -> str:
    """What is said of a part for people: what is wrong first."""
    if finding.status is not Status.HEALTHY:
        return finding.detail
    said = [finding.refusal, finding.detail]
    if finding.name == "vectors" and counts is not None:
        missing = missing_vectors(counts)
        said += [f"{missing} chunks still lack their vector" if missing else None, lack]
    return "; ".join(each.rstrip(".") for each in said if each)


def missing_vectors(counts: Counts) -> int:
    """How many chunks have no vector."""
    return max(counts.chunks - counts.vectors, 0)


async def _probed(part: Dependency, deadline: Deadline) -> tuple[Status, str]:
    try:
        return Status.HEALTHY, await part.probe(deadline)
    except BreakerOpenError as error:
        return Status.UNAVAILABLE, ": ".join(filter(None, (str(error), part.last_failure)))
    except BackendStartingError as error:
        return Status.DEGRADED, str(error)
    except BackendError as error:
        return Status.UNAVAILABLE, str(error)
