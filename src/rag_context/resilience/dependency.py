"""Calls to a dependency: while it is known to be down, they fail at once instead of waiting.

`Breaker` is a circuit breaker (Nygard, "Release It!", 2007): after enough failures in a row it rejects calls at once,
until a probe succeeds. Closed lets everything in. Open lets nothing in. When the cooldown is over, one probe at a time
may try (half-open): its success closes the breaker, its failure opens it again. A permit that ends without a verdict
(cancelled, crashed) only frees its place. Failures that began within a short time are one event, not several in a row:
those of one caller as those of many.

`Dependency.guard` puts breaker, timeout and retry around a port once, so that its users just call it. `retrying` is for
work that may take longer: attempts with backoff.
"""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from functools import partial
from inspect import getmembers_static, iscoroutinefunction
from operator import attrgetter
from typing import Any, TypeVar, cast

import tenacity

from rag_context import errors, tracing
from rag_context.errors import BackendError, BackendStartingError, BackendTimeoutError, BackendUnavailableError
from rag_context.resilience.deadline import call_deadline

T = TypeVar("T")
P = TypeVar("P")

FAILURES_TO_OPEN = 3
FIRST_PROBE_S = 1.0
LAST_PROBE_S = 15.0
PROBES_AT_FIRST = 6
"""So many probes come after `FIRST_PROBE_S` each, as most faults are short; then the time between them doubles."""

BYPASS_TIMEOUT_S = 2.0
"""Longest wait of a call that bypasses the open breaker."""

RETRY_NEEDS_S = 0.05
"""A failed call is tried once more only where this much of its time is left."""

TRIES = 3
BASE_S = 0.1
CAP_S = 5.0
RETRY_BUDGET_S = 4.0
"""An attempt that took longer is not retried: a backend that was slow once is probably slow again."""

_backoff = tenacity.wait_random_exponential(multiplier=BASE_S, max=CAP_S)


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerOpenError(BackendUnavailableError):
    """The breaker rejected the call; `retry_after_s` is what is left of its cooldown."""


def constant_cooldown(seconds: float) -> Callable[[int], float]:
    return lambda _openings: seconds


def doubling_cooldown(first_s: float, cap_s: float, first_probes: int = 1) -> Callable[[int], float]:
    """A cooldown that is the same before each of the first probes, then doubles with each failed one, up to a cap."""
    return lambda openings: min(first_s * 2.0 ** min(max(openings - first_probes, 0), 30), cap_s)


@dataclass(slots=True)
class Permit:
    """Permission for one call. Report its result by `succeed` or `fail`."""

    began: float
    """When it was let in, by the breaker's clock."""
    verdict: bool | None = None

    def succeed(self) -> None:
        self.verdict = True

    def fail(self) -> None:
        self.verdict = False


@dataclass(eq=False)
class Breaker:
    """Counts failures in a row of one thing; for one event loop, not for threads.

    `threshold` of them open it, for `cooldown` seconds, given how often it opened since it was last closed. Failures
    that began within `event_s` seconds of a counted one are one with it; 0 counts each of them.
    """

    name: str
    _: KW_ONLY
    threshold: int
    cooldown: Callable[[int], float]
    event_s: float = 0.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._event_began = float("-inf")
        self._failures = 0
        self.openings = 0
        """How often it opened since it was last closed; changes whenever the state does."""
        self._era = 0  # changes where results of calls that are under way say nothing about what comes
        self._open_until: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        if self._open_until is None:
            return BreakerState.CLOSED
        if self.clock() < self._open_until:
            return BreakerState.OPEN
        return BreakerState.HALF_OPEN

    @property
    def closed(self) -> bool:
        return self._open_until is None

    @property
    def retry_after_s(self) -> float:
        """Seconds until a probe may try; 0 when closed or due."""
        return 0.0 if self._open_until is None else max(self._open_until - self.clock(), 0.0)

    @contextmanager
    def permit(self) -> Iterator[Permit]:
        """Let one call in. Raises: BreakerOpenError unless closed."""
        if self._open_until is not None:
            raise self._rejection()
        # A result of a call that began before the breaker opened or closed says nothing about what came after.
        era = self._era
        permit = Permit(self.clock())
        try:
            yield permit
        finally:
            if permit.verdict is not None and era == self._era and (permit.verdict or not self._is_counted(permit)):
                self._record(permit.verdict)

    @contextmanager
    def probe(self) -> Iterator[Permit]:
        """Let one probe in. Raises: BreakerOpenError before its time, or while another probe is under way."""
        # One at a time: a backend that has just come back must not meet all callers at once.
        if self.state is not BreakerState.HALF_OPEN or self._probing:
            raise self._rejection()
        self._probing = True
        permit = Permit(self.clock())
        try:
            yield permit
        finally:
            self._probing = False
            if permit.verdict is not None:
                self._record(permit.verdict)

    def permit_or_probe(self) -> AbstractContextManager[Permit]:
        """As `permit`; where it has been open for long enough, as `probe`. Raises: BreakerOpenError."""
        return self.permit() if self._open_until is None else self.probe()

    @contextmanager
    def trial(self) -> Iterator[Permit]:
        """Let one call in whatever the state: its success closes; open, its failure changes nothing."""
        permit = Permit(self.clock())
        try:
            yield permit
        finally:
            # A failed trial while open would extend the cooldown, and so delay the probe that ends it.
            if permit.verdict is not None and (permit.verdict or self.closed):
                self._record(permit.verdict)

    def reset(self) -> None:
        """Close it and count failures from 0: the cause has ended.

        A single probe would decide too much: where many callers are answered at once that it is open, the process is
        so busy that the probe is late.
        """
        self._era += 1
        self._failures = self.openings = 0
        self._open_until = None

    def _is_counted(self, permit: Permit) -> bool:
        """Whether a failure belongs to an event that was counted: it may have failed for the same reason."""
        if self._failures and permit.began < self._event_began + self.event_s:
            return True
        self._event_began = permit.began
        return False

    def _record(self, succeeded: bool) -> None:
        if succeeded:
            if self._open_until is not None:
                self._era += 1
            self._failures = self.openings = 0
            self._open_until = None
            return
        self._failures += 1
        if self._failures >= self.threshold:
            # Not reset before a success: with each failed probe in a row the cooldown may grow.
            self.openings += 1
            self._era += 1
            self._open_until = self.clock() + self.cooldown(self.openings)

    def _rejection(self) -> BreakerOpenError:
        return BreakerOpenError(
            self.name, f"{self.name} is skipped after repeated failures", retry_after_s=self.retry_after_s
        )


@dataclass(eq=False)
class Dependency:
    """Calls to one backend, counted, bounded and cut off by a breaker of its own.

    `ping` is a real call without any cache, for the background probe and the health report; `clock` gives monotonic
    seconds. A timeout of a call with less than `min_budget_s` does not count as a failure of the backend. `probe_s` is
    for a ping by a call that finds the cooldown over; None where the background pings.
    """

    name: str
    ping: Callable[[], Awaitable[str]]
    clock: Callable[[], float] = time.monotonic
    _: KW_ONLY
    min_budget_s: float = 0.0
    probe_s: float | None = None

    def __post_init__(self) -> None:
        self.breaker = Breaker(
            self.name,
            threshold=FAILURES_TO_OPEN,
            cooldown=doubling_cooldown(FIRST_PROBE_S, LAST_PROBE_S, PROBES_AT_FIRST),
            clock=self.clock,
        )
        self.failures = 0
        """Failures so far; a health report from before the newest of them is stale."""
        self.last_failure: str | None = None
        """The message of the newest failure; None after a success."""

    def guard(self, port: P, timeout_s: float) -> P:
        """The port of this backend with the breaker, a timeout and a retry around each of its asynchronous calls.

        A call may take `timeout_s` seconds, or less where its caller applies a deadline (`Deadline.applied`). It raises
        what `call` raises. Everything else that the port has, such as properties, is returned as it is.
        """
        return cast("P", _kind_of(port)(port, self.name, timeout_s, self.call))

    def guard_bypassing_breaker(self, port: P, timeout_s: float) -> P:
        """As `guard`, but its calls are tried while the breaker is open too (see `bypass_open_breaker`)."""
        return cast("P", _kind_of(port)(port, self.name, timeout_s, self.bypass_open_breaker))

    def call(self, work: Callable[[], Awaitable[T]], timeout_s: float) -> Awaitable[T]:
        """Do `work` in time; retry once if there is time. Raises: BreakerOpenError (known to be down), BackendError."""
        if self.probe_s is not None and self.breaker.state is BreakerState.HALF_OPEN:
            return self._probed(work, timeout_s)
        return self._judged(work, timeout_s, self.breaker.permit, tries=2)

    def bypass_open_breaker(self, work: Callable[[], Awaitable[T]], timeout_s: float) -> Awaitable[T]:
        """As `call`, but for two seconds while the breaker is open: searches may have opened it too soon."""
        if self.breaker.closed:
            return self.call(work, timeout_s)
        return self._judged(work, min(timeout_s, BYPASS_TIMEOUT_S), self.breaker.trial)

    def probe(self, timeout_s: float) -> Awaitable[str]:
        """Ping the dependency now: as the breaker's probe while that is open. Raises: BackendError."""
        return self._judged(self.ping, timeout_s, self.breaker.permit_or_probe)

    async def _probed(self, work: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        await self.probe(min(timeout_s, self.probe_s or timeout_s))
        return await self.call(work, timeout_s)

    async def _judged(
        self,
        work: Callable[[], Awaitable[T]],
        timeout_s: float,
        admission: Callable[[], AbstractContextManager[Permit]],
        tries: int = 1,
    ) -> T:
        deadline = call_deadline(timeout_s, self.clock)
        # All tries are one permit: a call that succeeds in the end was no failure.
        with admission() as permit:
            while True:
                tries -= 1
                # Before the call: a timeout of a call that had hardly any time says nothing about the backend.
                had_time = not self.min_budget_s or deadline.remaining_s >= self.min_budget_s
                try:
                    result = await deadline.bound(self.name, work())
                except BackendError as error:
                    self._note(error, permit, had_time=had_time)
                    # A connection that the server had closed fails once; the next try opens another.
                    is_lasting = isinstance(error, BackendTimeoutError | BackendStartingError)
                    may_pass = isinstance(error, BackendUnavailableError) and not is_lasting
                    if not tries or not may_pass or deadline.remaining_s < RETRY_NEEDS_S:
                        raise
                else:
                    permit.succeed()
                    self.last_failure = None
                    return result

    def _note(self, error: BackendError, permit: Permit, *, had_time: bool) -> None:
        # No verdict: a model that loads is not down, and another breaker has counted its own failures.
        if isinstance(error, BackendStartingError | BreakerOpenError):
            return
        self.failures += 1
        self.last_failure = str(error)
        # One that rejected the call answered, so it is not down.
        if not isinstance(error, errors.BackendRejectedError) and (
            had_time or not isinstance(error, BackendTimeoutError)
        ):
            permit.fail()


@dataclass(eq=False)
class _Guarded:
    """Makes the asynchronous calls of a port through a function.

    It looks methods up by name, because a class for each port would repeat every signature; `guard` gives it the type
    of the port, so that calls of it are checked as those of the port itself.
    """

    _port: object
    _component: str
    _timeout_s: float
    _call: Callable[[Callable[[], Awaitable[Any]], float], Awaitable[Any]]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found) or not iscoroutinefunction(found):
            return found
        span_name = f"{self._component}.{name}"

        async def guarded(*args: Any, **kwargs: Any) -> Any:
            work = partial(getattr(self._port, name), *args, **kwargs)
            if tracing.tracer is None:
                return await self._call(work, self._timeout_s)
            with tracing.child_span(span_name):
                return await self._call(work, self._timeout_s)

        setattr(self, name, guarded)  # made once: this method is only called for what is not there
        return guarded


def _kind_of(port: object) -> type[_Guarded]:
    """A class whose properties are those of the port, read from it without a look-up by name."""
    found = getmembers_static(type(port), lambda member: isinstance(member, property))
    return type(_Guarded.__name__, (_Guarded,), {name: property(attrgetter(f"_port.{name}")) for name, _ in found})


async def retrying(work: Callable[[], Awaitable[T]]) -> T:
    """Do `work`, and retry it where the backend did not answer. Raises: the last BackendError."""
    async for attempt in tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(TRIES) | tenacity.stop_after_delay(RETRY_BUDGET_S),
        wait=_wait,
        retry=tenacity.retry_if_exception(_worth_retrying),
        reraise=True,
    ):
        with attempt:
            return await work()
    raise AssertionError("tenacity either returns or raises")


def _worth_retrying(error: BaseException) -> bool:
    return isinstance(error, BackendUnavailableError) and not isinstance(error, BackendStartingError | BreakerOpenError)


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, BackendUnavailableError) and error.retry_after_s is not None:
        return min(error.retry_after_s, CAP_S)
    return _backoff(state)
