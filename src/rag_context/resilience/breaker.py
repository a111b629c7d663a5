"""A circuit breaker: after enough failures in a row it rejects calls at once, until a probe succeeds.

Closed lets everything in. Open lets nothing in. When the cooldown is over, one probe at a time may try
(half-open): its success closes the breaker, its failure opens it again. An admission that ends without a
verdict (cancelled, crashed) only frees its place. Calls that ran beside one another and failed together are one
event, not as many failures in a row. Nygard, "Release It!" (2007), is the pattern's source.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from rag_context.errors import BackendUnavailableError


class BreakerState(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerOpenError(BackendUnavailableError):
    """The breaker rejected the call; `retry_after_s` is what is left of its cooldown."""


def constant_cooldown(seconds: float) -> Callable[[int], float]:
    """The same cooldown after every opening."""
    return lambda _openings: seconds


def doubling_cooldown(first_s: float, cap_s: float) -> Callable[[int], float]:
    """A cooldown that doubles with every failed probe, up to a cap."""
    return lambda openings: min(first_s * 2.0 ** min(openings - 1, 30), cap_s)


class Admission:
    """Permission for one call. Report its result by `succeed` or `fail`, at most once."""

    def __init__(self, began: float) -> None:
        self.verdict: bool | None = None
        self.began = began
        """When it was let in, by the breaker's clock."""
        self.alone = True
        """Whether no other was under way at any time of it."""

    def succeed(self) -> None:
        self.verdict = True

    def fail(self) -> None:
        self.verdict = False


class Breaker:
    """Counts failures in a row of one thing; for one event loop, not for threads.

    Args:
        name: what it guards, for messages.
        threshold: failures in a row that open it.
        cooldown: seconds to stay open, given how often it opened since it was last closed.
        event_s: failures that began within so many seconds of each other, some of them beside others, count once;
            0 counts each of them.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        *,
        threshold: int,
        cooldown: Callable[[int], float],
        event_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._threshold = threshold
        self._cooldown = cooldown
        self._event_s = event_s
        self._clock = clock
        self._under_way: list[Admission] = []
        self._event_began = float("-inf")
        self._failures = 0
        self._openings = 0
        self._open_until: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        if self._open_until is None:
            return BreakerState.CLOSED
        if self._clock() < self._open_until:
            return BreakerState.OPEN
        return BreakerState.HALF_OPEN

    @property
    def closed(self) -> bool:
        return self._open_until is None

    @property
    def retry_after_s(self) -> float:
        """Seconds until a probe may try; 0 when closed or due."""
        return 0.0 if self._open_until is None else max(self._open_until - self._clock(), 0.0)

    @property
    def openings(self) -> int:
        """How often it opened since it was last closed; changes whenever the state does."""
        return self._openings

    @contextmanager
    def admission(self) -> Iterator[Admission]:
        """Let one call in. Raises: BreakerOpenError unless closed."""
        if not self.closed:
            raise self._rejection()
        # A result of a call that began before the breaker opened or closed says nothing about what came after.
        era = self._openings
        admission = Admission(self._clock())
        self._under_way.append(admission)
        if len(self._under_way) > 1:
            for beside in (self._under_way[0], admission):  # those between were notified
                beside.alone = False
        try:
            yield admission
        finally:
            self._under_way.remove(admission)
            if admission.verdict is not None and era == self._openings and not self._is_counted(admission):
                self._record(admission.verdict)

    @contextmanager
    def probe(self) -> Iterator[Admission]:
        """Let one probe in. Raises: BreakerOpenError before its time, or while another probe is under way."""
        # One at a time: a backend that has just come back must not meet all callers at once.
        if self.state is not BreakerState.HALF_OPEN or self._probing:
            raise self._rejection()
        self._probing = True
        admission = Admission(self._clock())
        try:
            yield admission
        finally:
            self._probing = False
            if admission.verdict is not None:
                self._record(admission.verdict)

    @contextmanager
    def trial(self) -> Iterator[Admission]:
        """Let one call in whatever the state: its success closes; open, its failure changes nothing."""
        admission = Admission(self._clock())
        try:
            yield admission
        finally:
            # A failed trial while open would extend the cooldown, and so delay the probe that ends it.
            if admission.verdict is not None and (admission.verdict or self.closed):
                self._record(admission.verdict)

    def _is_counted(self, admission: Admission) -> bool:
        """Whether a failure belongs to an event that was counted. Each failure of a caller that retries is counted:
        only calls that ran beside others and began shortly after the event may have failed for the same reason."""
        if admission.verdict:
            return False
        if not admission.alone and admission.began < self._event_began + self._event_s:
            return True
        self._event_began = admission.began
        return False

    def _record(self, succeeded: bool) -> None:
        if succeeded:
            self._failures = self._openings = 0
            self._open_until = None
            return
        self._failures += 1
        if self._failures >= self._threshold:
            # Not reset before a success: with each failed probe in a row the cooldown may grow.
            self._openings += 1
            self._open_until = self._clock() + self._cooldown(self._openings)

    def _rejection(self) -> BreakerOpenError:
        return BreakerOpenError(
            self.name, f"{self.name} is skipped after repeated failures", retry_after_s=self.retry_after_s
        )
