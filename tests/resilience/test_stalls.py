"""Time in which nothing could run is no one's fault: how it is noticed, and how deadlines are put off by it."""

import asyncio
import time
from collections.abc import Callable

import pytest

from rag_context.errors import BackendTimeoutError
from rag_context.resilience.deadline import BEAT_S, TOLERATED_S, Deadline, Stalls, stalls
from rag_context.resilience.dependency import Breaker, BreakerState, constant_cooldown
from rag_context.testing import FrozenClock


class Loop:
    """Runs what is due when it is reported that time has passed."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.stalls = Stalls(self._later, self.clock)
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def _later(self, seconds: float, run: Callable[[], None]) -> None:
        self._timers.append((self.clock() + seconds, run))

    @property
    def timers(self) -> int:
        return len(self._timers)

    def run(self, seconds: float) -> None:
        """Time passes and the loop runs all the while."""
        end = self.clock() + seconds
        while self._timers and self._timers[0][0] <= end:
            at, run = self._timers.pop(0)
            self.clock.advance(max(at - self.clock(), 0.0))
            run()
        self.clock.advance(max(end - self.clock(), 0.0))


def test_a_loop_that_runs_loses_nothing() -> None:
    loop = Loop()
    with loop.stalls.watched():
        loop.run(10.0)
    assert loop.stalls.lost_s == 0.0


def test_what_a_stopped_process_lost_is_known_before_the_late_heartbeat_has_run() -> None:
    loop = Loop()
    with loop.stalls.watched():
        loop.run(1.0)
        loop.clock.advance(2.0)
        assert loop.stalls.lost_s == pytest.approx(2.0, abs=BEAT_S)
        loop.run(1.0)
        assert loop.stalls.lost_s == pytest.approx(2.0, abs=BEAT_S)
        loop.clock.advance(0.5)
    assert loop.stalls.lost_s == pytest.approx(2.5, abs=2 * BEAT_S)


def test_half_of_the_time_is_lost_where_the_process_runs_every_other_50_ms() -> None:
    loop = Loop()
    with loop.stalls.watched():
        for _ in range(20):
            loop.run(0.05)
            loop.clock.advance(0.05)
    assert 0.5 <= loop.stalls.lost_s <= 1.0


def test_small_lateness_is_tolerated() -> None:
    loop = Loop()
    with loop.stalls.watched():
        for _ in range(20):
            loop.clock.advance(BEAT_S + TOLERATED_S / 2)
            loop.run(0.0)
    assert loop.stalls.lost_s == 0.0


def test_without_watchers_there_is_no_heartbeat_and_no_loss() -> None:
    loop = Loop()
    with loop.stalls.watched(), loop.stalls.watched():
        loop.run(1.0)
    loop.run(1.0)
    assert loop.timers == 0
    loop.clock.advance(60.0)
    assert loop.stalls.lost_s == 0.0
    with loop.stalls.watched():
        loop.run(1.0)
    assert loop.stalls.lost_s == 0.0


async def test_a_call_goes_on_where_the_process_was_stopped() -> None:
    """The loop is held up for longer than the deadline; the call needs a little of the time that was left to it."""

    async def work() -> str:
        await asyncio.sleep(0.05)
        time.sleep(0.5)  # noqa: ASYNC251  (what is tried: nothing else can run meanwhile)
        await asyncio.sleep(0.05)
        return "done"

    assert await Deadline.after(0.3, time.monotonic).bound("vectors", work()) == "done"


async def test_a_call_that_hangs_ends_however_long_the_process_was_stopped() -> None:
    async def work() -> None:
        await asyncio.sleep(0.02)
        time.sleep(0.3)  # noqa: ASYNC251
        await asyncio.Event().wait()

    deadline = Deadline.after(0.1, time.monotonic)
    with pytest.raises(BackendTimeoutError):
        await deadline.bound("vectors", work())
    assert deadline.remaining_s <= 0.03


async def test_each_loop_has_its_own() -> None:
    assert stalls() is stalls()
    other = asyncio.new_event_loop()
    try:
        assert await asyncio.to_thread(other.run_until_complete, _own()) is not stalls()
    finally:
        other.close()


async def _own() -> Stalls:
    return stalls()


EVENT_S = 0.45


def _breaker(clock: FrozenClock) -> Breaker:
    return Breaker("search", threshold=5, cooldown=constant_cooldown(60.0), event_s=EVENT_S, clock=clock)


def test_failures_of_calls_that_ran_beside_one_another_are_one_event() -> None:
    breaker = _breaker(FrozenClock())
    entries = [breaker.permit() for _ in range(12)]
    permits = [entry.__enter__() for entry in entries]
    for entry, permit in zip(entries, permits, strict=True):
        permit.fail()
        entry.__exit__(None, None, None)
    assert breaker.closed


def test_many_calls_that_fail_interval_after_interval_open_it() -> None:
    clock = FrozenClock()
    breaker = _breaker(clock)
    for round_ in range(5):
        assert breaker.closed, round_
        with breaker.permit() as one, breaker.permit() as other:
            clock.advance(EVENT_S)
            one.fail()
            other.fail()
    assert breaker.state is BreakerState.OPEN


def test_failures_of_one_caller_within_an_interval_are_one_event() -> None:
    clock = FrozenClock()
    breaker = _breaker(clock)
    for _ in range(4 * 4):
        with breaker.permit() as permit:
            permit.fail()
        clock.advance(EVENT_S / 4)
    assert breaker.closed
    with breaker.permit() as fifth:
        fifth.fail()
    assert breaker.state is BreakerState.OPEN


def test_a_success_beside_failures_restarts_the_count() -> None:
    clock = FrozenClock()
    breaker = _breaker(clock)
    for _ in range(20):
        with breaker.permit() as one, breaker.permit() as other:
            clock.advance(EVENT_S)
            one.fail()
            other.succeed()
    assert breaker.closed
