"""A dependency with its circuit breaker: while it is known to be down, calls fail at once instead of waiting.

`guard` puts breaker, timeout and retry around a port once, so that its users just call it. Second attempts that are
not part of every call are `retrying`, with backoff, and `hedged`, which starts a second way to the same result.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from rag_context.errors import (
    BackendError,
    BackendRejectedError,
    BackendStartingError,
    BackendTimeoutError,
    BackendUnavailableError,
)
from rag_context.resilience.breaker import Admission, Breaker, BreakerOpenError, doubling_cooldown
from rag_context.resilience.deadline import Deadline, call_deadline
from rag_context.tracing import child_span

T = TypeVar("T")
P = TypeVar("P")

FAILURES_TO_OPEN = 3
FIRST_PROBE_S = 1.0
LAST_PROBE_S = 15.0
BYPASS_TIMEOUT_S = 2.0
"""Longest wait of a call that bypasses the open breaker."""

RETRY_NEEDS_S = 0.05
"""A failed call is tried once more only where this much of its time is left."""

TRIES = 3
BASE_S = 0.1
CAP_S = 5.0
RETRY_BUDGET_S = 4.0
"""An attempt that took longer is not retried: a backend that was slow once is probably slow again."""

_backoff = wait_random_exponential(multiplier=BASE_S, max=CAP_S)


class Dependency:
    """Calls to one backend, counted, bounded and cut off by a breaker of its own.

    Args:
        name: `embedder`, `vectors`, `documents`.
        ping: a real call without any cache; the background probe and the health report use it.
        clock: monotonic seconds.
        min_budget_s: a timeout of a call with a shorter time budget does not count as a failure of the backend.
    """

    def __init__(
        self,
        name: str,
        ping: Callable[[], Awaitable[str]],
        clock: Callable[[], float] = time.monotonic,
        *,
        min_budget_s: float = 0.0,
    ) -> None:
        self.name = name
        self.breaker = Breaker(
            name,
            threshold=FAILURES_TO_OPEN,
            cooldown=doubling_cooldown(FIRST_PROBE_S, LAST_PROBE_S),
            clock=clock,
        )
        self.failures = 0
        """Failures so far; a health report from before the newest of them is stale."""
        self.last_failure: str | None = None
        """The message of the newest failure; None after a success."""

        self._ping = ping
        self._clock = clock
        self._min_budget_s = min_budget_s

    def guard(self, port: P, timeout_s: float) -> P:
        """The port of this backend with the breaker, a timeout and a retry around each of its asynchronous calls.

        A call may take `timeout_s` seconds, or less where its caller applies a deadline (`Deadline.applied`). It raises
        what `call` raises. Everything else that the port has, such as properties, is returned as it is.
        """
        return cast("P", _Guarded(port, self.name, lambda work: self.call(work, call_deadline(timeout_s, self._clock))))

    def guard_bypassing_breaker(self, port: P, timeout_s: float) -> P:
        """As `guard`, but its calls are tried while the breaker is open too (see `bypass_open_breaker`)."""
        return cast(
            "P",
            _Guarded(
                port, self.name, lambda work: self.bypass_open_breaker(work, call_deadline(timeout_s, self._clock))
            ),
        )

    async def call(self, work: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        """Do `work` before the deadline; retry once if the backend did not answer and enough time is left.

        Raises:
            BreakerOpenError: the dependency is known to be down.
            BackendError: it failed.
        """
        with self.breaker.admission() as admission:
            try:
                # Both attempts are one admission: a call that succeeds in the end was no failure.
                return await self._recorded(work, deadline, admission)
            except (BackendTimeoutError, BackendStartingError):
                raise
            except BackendUnavailableError:
                # A connection that the server had closed fails once; the second attempt opens another.
                if deadline.remaining_s < RETRY_NEEDS_S:
                    raise
            return await self._recorded(work, deadline, admission)

    async def bypass_open_breaker(self, work: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        """As `call`, but also while the breaker is open, which searches with little time may have opened too soon.

        Raises:
            BackendError: it failed; while the breaker is open, after two seconds at most.
        """
        if self.breaker.closed:
            return await self.call(work, deadline)
        with self.breaker.trial() as admission:
            return await self._recorded(
                work, deadline.sooner(max(deadline.remaining_s - BYPASS_TIMEOUT_S, 0.0)), admission
            )

    async def probe(self, deadline: Deadline) -> str:
        """Ping the dependency now: as the breaker's probe while that is open. Raises: BackendError."""
        entry = self.breaker.admission() if self.breaker.closed else self.breaker.probe()
        with entry as admission:
            return await self._recorded(self._ping, deadline, admission)

    async def _recorded(self, work: Callable[[], Awaitable[T]], deadline: Deadline, admission: Admission) -> T:
        # Before the call: a timeout of a call that had hardly any time says nothing about the backend.
        had_time = deadline.remaining_s >= self._min_budget_s
        try:
            result = await deadline.bound(self.name, work())
        # No verdict: a model that loads is not down, and another breaker has counted its own failures.
        except (BackendStartingError, BreakerOpenError):
            raise
        except BackendTimeoutError as error:
            self._note(error)
            if had_time:
                admission.fail()
            raise
        except BackendRejectedError as error:  # it answered, so it is not down; but its last known state was a failure
            self._note(error)
            raise
        except BackendError as error:
            self._note(error)
            admission.fail()
            raise
        admission.succeed()
        self.last_failure = None
        return result

    def _note(self, error: BackendError) -> None:
        self.failures += 1
        self.last_failure = str(error)


class _Guarded:
    """Makes the asynchronous calls of a port through a function.

    It looks methods up by name, because a class for each port would repeat every signature; `guard` gives it the type
    of the port, so that calls of it are checked as those of the port itself.
    """

    def __init__(
        self, port: object, component: str, call: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
    ) -> None:
        self._port = port
        self._component = component
        self._call = call

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found) or not iscoroutinefunction(found):
            return found

        async def guarded(*args: Any, **kwargs: Any) -> Any:
            with child_span(f"{self._component}.{name}"):
                return await self._call(lambda: getattr(self._port, name)(*args, **kwargs))

        setattr(self, name, guarded)  # made once: this method is only called for what is not there
        return guarded


async def retrying(work: Callable[[], Awaitable[T]]) -> T:
    """Do `work`, and retry it where the backend did not answer. Raises: the last BackendError.

    Rejected requests, a backend that is still starting, and an open breaker are not retried.
    """
    async for attempt in AsyncRetrying(
        stop=stop_after_attempt(TRIES) | stop_after_delay(RETRY_BUDGET_S),
        wait=_wait,
        retry=retry_if_exception(_worth_retrying),
        reraise=True,
    ):
        with attempt:
            return await work()
    raise AssertionError("tenacity either returns or raises")


def _worth_retrying(error: BaseException) -> bool:
    return isinstance(error, BackendUnavailableError) and not isinstance(error, BackendStartingError | BreakerOpenError)


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, BackendUnavailableError) and error.retry_after_s is not None:
        return min(error.retry_after_s, CAP_S)
    return _backoff(state)


async def hedged(first: Callable[[], Awaitable[T]], second: Callable[[], Awaitable[T]], after_s: float) -> T:
    """The result of `first`; after so many seconds without one, the result of the faster of both.

    Raises:
        BackendError: of the second, where both failed.
    """
    tasks = [asyncio.ensure_future(first())]
    try:
        await asyncio.wait(tasks, timeout=after_s)
        if _good(tasks):
            return tasks[0].result()
        # Also at once, without waiting for `after_s`, where the first has failed.
        tasks.append(asyncio.ensure_future(second()))
        running = {task for task in tasks if not task.done()}
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if good := _good(done):
                return good[0].result()
        return tasks[-1].result()
    finally:
        for task in tasks:
            task.cancel()
            if task.done() and not task.cancelled():
                task.exception()  # read, so that asyncio does not log it as never retrieved


def _good(tasks: "Iterable[asyncio.Future[T]]") -> "list[asyncio.Future[T]]":
    """The tasks that ended without a `BackendError`; any other exception is a bug and counts as the result."""
    return [task for task in tasks if task.done() and not isinstance(task.exception(), BackendError)]
