"""Checks of components: every dependency runs a small piece of its real work; a success is cached for half a minute."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from rag_context.domain.documents import Status
from rag_context.domain.vectors import EmbeddingModel
from rag_context.errors import BackendError, BackendStartingError
from rag_context.resilience.dependency import BreakerOpenError, BreakerState, Dependency, retrying

SUCCESS_TTL_S = 30.0
"""How long a successful check of a dependency is cached."""

WRITE_TTL_S = 1.0
"""How long a successful write is cached. It is shorter, because a disk can fill up without a failed call."""

TIMEOUT_S = 2.0
STORES = frozenset({"vectors", "documents"})
"""Components whose detail depends on the counts of the index; it is read again when the counts change."""

EMBEDDER = "embedder"
"""The component that is examined again when it has another model."""


@dataclass(frozen=True, slots=True)
class ComponentFinding:
    """The last check of one dependency; `write_error` says why writes fail, None if they succeed or are not tried."""

    name: str
    role: str
    status: Status
    latency_ms: float
    detail: str
    write_error: str | None = None


@dataclass(frozen=True, slots=True)
class _CachedFinding:
    finding: ComponentFinding
    until: float
    failures: int
    openings: int
    state: Hashable


class HealthMonitor:
    """Checks dependencies, each of a role, and caches the results.

    `writes`: by name of a dependency, a function that makes a write without effect there, or raises BackendError;
    `notes`: by name, what its detail says besides.
    """

    def __init__(
        self,
        dependencies: Sequence[tuple[str, Dependency]],
        clock: Callable[[], float] = time.monotonic,
        writes: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
        notes: Mapping[str, str] | None = None,
    ) -> None:
        self._notes = notes or {}
        self._dependencies = tuple(dependencies)
        self._clock = clock
        self._cached: dict[str, _CachedFinding] = {}
        self._writes = {name: _WriteCheck(write, clock) for name, write in (writes or {}).items()}

    async def examine(
        self, state: Hashable = None, model: EmbeddingModel | None = None
    ) -> tuple[ComponentFinding, ...]:
        """Check all dependencies at once; returns one finding each, in their order.

        Cached findings of the stores for other counts (`state`), and of the embedder for another model, are not used.
        """
        states = {**dict.fromkeys(STORES, state), EMBEDDER: ("model", model)}
        return tuple(
            await asyncio.gather(
                *(self._examine(role, part, states.get(part.name)) for role, part in self._dependencies)
            )
        )

    def breaker_states(self) -> Mapping[str, BreakerState]:
        return {part.name: part.breaker.state for _, part in self._dependencies}

    def invalidate_writes(self) -> None:
        """Try writes again in the next report, because one has failed."""
        for check in self._writes.values():
            check.invalidate()

    async def _examine(self, role: str, part: Dependency, state: Hashable) -> ComponentFinding:
        finding = await self._probe(role, part, state)
        check = self._writes.get(part.name)
        if check is None or finding.status is not Status.HEALTHY:
            return finding
        return replace(finding, write_error=await check.error(part))

    async def _probe(self, role: str, part: Dependency, state: Hashable) -> ComponentFinding:
        # Only successes are cached: a failure, an opened breaker or another count makes the next report look again.
        cached = self._cached.get(part.name)
        if cached is not None and (
            self._clock() < cached.until
            and cached.failures == part.failures
            and cached.openings == part.breaker.openings
            and (state is None or cached.state == state)
        ):
            return cached.finding
        started = self._clock()
        status, detail = await _probed(part)
        detail = "; ".join(filter(None, (detail, self._notes.get(part.name))))
        finding = ComponentFinding(part.name, role, status, (self._clock() - started) * 1000.0, detail)
        if status is Status.HEALTHY:
            until = self._clock() + SUCCESS_TTL_S
            self._cached[part.name] = _CachedFinding(finding, until, part.failures, part.breaker.openings, state)
        return finding


class _WriteCheck:
    """Whether writes to a store succeed. One attempt at a time; while one is slow, the previous result is returned."""

    def __init__(self, write: Callable[[], Awaitable[None]], clock: Callable[[], float]) -> None:
        self._write = write
        self._clock = clock
        self._attempt: asyncio.Task[None] | None = None
        self._error: str | None = None
        self._until = 0.0
        self._failures = 0
        self._has_failed = False

    async def error(self, part: Dependency) -> str | None:
        """One sentence that says why writes fail; None if they succeed."""
        if self._error is None and self._clock() < self._until and self._failures == part.failures:
            return None
        if self._attempt is None or self._attempt.done():
            self._failures = part.failures
            self._attempt = asyncio.create_task(self._try(), name=f"try to write to {part.name}")
        # Not cancelled at the timeout: a write that hangs is one attempt, however many reports ask for its result.
        await asyncio.wait({self._attempt}, timeout=TIMEOUT_S)
        if self._error is None and self._has_failed and not self._attempt.done():
            return f"Writes fail: one has failed, and another takes longer than {TIMEOUT_S:.0f} s"
        return self._error

    def invalidate(self) -> None:
        """Drop the cached success: a write has failed."""
        self._until = 0.0
        self._has_failed = True

    async def _try(self) -> None:
        try:
            # As documents are written: after a server restarted, a pool holds connections that are closed.
            await retrying(self._write)
        except BackendError as error:
            self._error = f"Writes fail: {error}"
        else:
            self._error = None
            self._has_failed = False
            self._until = self._clock() + WRITE_TTL_S


async def _probed(part: Dependency) -> tuple[Status, str]:
    try:
        return Status.HEALTHY, await part.probe(TIMEOUT_S)
    except BreakerOpenError as error:
        return Status.UNAVAILABLE, ": ".join(filter(None, (str(error), part.last_failure)))
    except BackendStartingError as error:
        return Status.DEGRADED, str(error)
    except BackendError as error:
        return Status.UNAVAILABLE, str(error)
