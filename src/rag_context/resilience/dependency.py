"""A dependency with its breaker: known to be dead, it fails at once instead of making every search wait."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rag_context.errors import (
    BackendError,
    BackendRejectedError,
    BackendStartingError,
    BackendTimeoutError,
    BackendUnavailableError,
)
from rag_context.resilience.breaker import Admission, Breaker, BreakerOpenError, doubling_cooldown
from rag_context.resilience.deadline import Deadline

T = TypeVar("T")


FAILURES_TO_OPEN = 3
FIRST_PROBE_S = 1.0
LAST_PROBE_S = 15.0
INSISTING_S = 2.0
"""Longest wait of a call that insists on a dependency which is skipped."""

RETRY_NEEDS_S = 0.05
"""A failed call is tried once more only where this much of its time is left."""


class Dependency:
    """Calls to one backend, counted, bounded and cut off by a breaker of its own.

    Args:
        name: `embedder`, `vectors`, `documents`.
        ping: a real call past every cache; what the background probe and the health report use.
        clock: monotonic seconds.
        fair_s: a call that was given less time and did not make it was in a hurry, and says nothing of the backend.
    """

    def __init__(
        self,
        name: str,
        ping: Callable[[], Awaitable[str]],
        clock: Callable[[], float] = time.monotonic,
        *,
        fair_s: float = 0.0,
    ) -> None:
        self.name = name
        self.breaker = Breaker(
            name,
            threshold=FAILURES_TO_OPEN,
            cooldown=doubling_cooldown(FIRST_PROBE_S, LAST_PROBE_S),
            clock=clock,
        )
        self.troubles = 0
        """Failures so far; a health report made before the newest of them is stale."""
        self.last_trouble: str | None = None
        """What the newest of them said; None after a success."""

        self._ping = ping
        self._clock = clock
        self._fair_s = fair_s

    async def call(self, work: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        """Do `work` before the deadline; once more where it did not answer and time allows.

        Raises:
            BreakerOpenError: known to be dead.
            BackendError: it failed.
        """
        with self.breaker.admission() as admission:
            try:
                return await self._settled(work, deadline, admission)
            except (BackendTimeoutError, BackendStartingError):
                raise
            except BackendUnavailableError:
                if deadline.remaining_s < RETRY_NEEDS_S:
                    raise
            return await self._settled(work, deadline, admission)

    async def insist(self, work: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        """As `call`, and also where it is skipped: searches that were in a hurry may have given it up too soon.

        Raises:
            BackendError: it failed; where it was skipped, after two seconds at most.
        """
        if self.breaker.closed:
            return await self.call(work, deadline)
        with self.breaker.trial() as admission:
            return await self._settled(work, deadline.sooner(max(deadline.remaining_s - INSISTING_S, 0.0)), admission)

    async def probe(self, deadline: Deadline) -> str:
        """Ping it now: through the breaker's probe when open. Raises: BackendError."""
        entry = self.breaker.admission() if self.breaker.closed else self.breaker.probe()
        with entry as admission:
            return await self._settled(self._ping, deadline, admission)

    async def _settled(self, work: Callable[[], Awaitable[T]], deadline: Deadline, admission: Admission) -> T:
        fair = deadline.remaining_s >= self._fair_s
        try:
            result = await deadline.bound(self.name, work())
        except (BackendStartingError, BreakerOpenError):
            raise
        except BackendTimeoutError as error:
            self._note(error)
            if fair:
                admission.fail()
            raise
        except BackendRejectedError as error:  # no sign that it is dead, but that it was well is no longer known
            self._note(error)
            raise
        except BackendError as error:
            self._note(error)
            admission.fail()
            raise
        admission.succeed()
        self.last_trouble = None
        return result

    def _note(self, error: BackendError) -> None:
        self.troubles += 1
        self.last_trouble = str(error)
