"""Deep health: each part is made to do its work, and a success is believed for half a minute at most."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rag_context.errors import BackendError, BackendStartingError
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency
from rag_context.types import Status

BELIEVED_S = 30.0
PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Finding:
    """How one part was when it was last made to work."""

    name: str
    role: str
    status: Status
    latency_ms: float
    detail: str


@dataclass(frozen=True, slots=True)
class _Belief:
    finding: Finding
    until: float
    troubles: int
    openings: int


class HealthMonitor:
    """Examines the dependencies.

    Args:
        dependencies: what is examined, each with its role in words.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        dependencies: Sequence[tuple[str, Dependency]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dependencies = tuple(dependencies)
        self._clock = clock
        self._beliefs: dict[str, _Belief] = {}

    async def examine(self) -> tuple[Finding, ...]:
        """One finding per dependency, in their order; all are asked at once."""
        return tuple(await asyncio.gather(*(self._examine(role, part) for role, part in self._dependencies)))

    async def _examine(self, role: str, part: Dependency) -> Finding:
        belief = self._beliefs.get(part.name)
        if belief is not None and self._still_holds(belief, part):
            return belief.finding
        started = self._clock()
        status, detail = await _probed(part, Deadline.after(PATIENCE_S, self._clock))
        finding = Finding(part.name, role, status, (self._clock() - started) * 1000.0, detail)
        if status is Status.HEALTHY:
            until = self._clock() + BELIEVED_S
            self._beliefs[part.name] = _Belief(finding, until, part.troubles, part.breaker.openings)
        return finding

    def _still_holds(self, belief: _Belief, part: Dependency) -> bool:
        return (
            self._clock() < belief.until
            and belief.troubles == part.troubles
            and belief.openings == part.breaker.openings
        )


async def _probed(part: Dependency, deadline: Deadline) -> tuple[Status, str]:
    try:
        return Status.HEALTHY, await part.probe(deadline)
    except BackendStartingError as error:
        return Status.DEGRADED, str(error)
    except BackendError as error:
        return Status.UNAVAILABLE, str(error)
