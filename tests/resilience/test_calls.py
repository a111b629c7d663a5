"""Deadlines, retries, and dependencies behind their breakers."""

import asyncio
import gc
import time
import weakref

import pytest

from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendRejectedError,
    BackendStartingError,
    BackendTimeoutError,
    BackendUnavailableError,
)
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import BreakerOpenError, Dependency, retrying
from rag_context.search.reads import hedged
from rag_context.testing import FrozenClock


class Calls:
    """Fails with each of `errors` in turn, then succeeds."""

    def __init__(self, *errors: BackendError) -> None:
        self.errors = list(errors)
        self.count = 0

    async def __call__(self) -> str:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def alive() -> str:
    return "alive"


TIMEOUT_S = 5.0


def soon(seconds: float = 5.0) -> Deadline:
    return Deadline.after(seconds, time.monotonic)


def unavailable() -> BackendError:
    return BackendUnavailableError("x", "reset", retry_after_s=0.0)


async def test_a_deadline_cuts_off_and_names_the_part() -> None:
    with pytest.raises(BackendTimeoutError) as late:
        await soon(0.01).bound("vectors", asyncio.sleep(10))
    assert late.value.component == "vectors"


async def test_what_a_deadline_bounds_is_kept_alive_by_nothing_afterwards() -> None:
    class Passages:
        pass

    async def search() -> Passages:
        await asyncio.sleep(0)
        return Passages()

    gc.disable()  # a cycle of references would wait for the garbage collector
    try:
        found = weakref.ref(await asyncio.create_task(soon().bound("vectors", search())))
        await asyncio.sleep(0)
        assert found() is None
    finally:
        gc.enable()


async def test_a_deadline_that_passed_has_nothing_left() -> None:
    clock = FrozenClock()
    deadline = Deadline.after(1.0, clock)
    assert deadline.sooner(0.25).remaining_s == 0.75
    clock.advance(2.0)
    assert deadline.remaining_s == 0.0


async def test_background_work_is_tried_three_times() -> None:
    twice = Calls(unavailable(), unavailable())
    assert await retrying(twice) == "done"
    thrice = Calls(unavailable(), unavailable(), unavailable())
    with pytest.raises(BackendUnavailableError):
        await retrying(thrice)
    assert (twice.count, thrice.count) == (3, 3)


async def test_without_a_retry_delay_the_wait_is_random_and_short() -> None:
    assert await retrying(Calls(BackendUnavailableError("x", "reset"))) == "done"


async def test_what_failed_only_after_a_long_wait_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_context.resilience.dependency.RETRY_BUDGET_S", 0.0)
    late = Calls(BackendTimeoutError("x", "locked by another process"))
    with pytest.raises(BackendTimeoutError):
        await retrying(late)
    assert late.count == 1


@pytest.mark.parametrize(
    "error",
    [
        BackendRejectedError("x", "no"),
        BackendDataError("x", "?"),
        BackendStartingError("x", "wait"),
        BreakerOpenError("x", "open"),
    ],
)
async def test_what_would_fail_again_is_not_retried(error: BackendError) -> None:
    work = Calls(error)
    with pytest.raises(type(error)):
        await retrying(work)
    assert work.count == 1


async def test_a_search_retries_once_and_no_more() -> None:
    part = Dependency("x", alive)
    work = Calls(unavailable(), unavailable())
    with pytest.raises(BackendUnavailableError):
        await part.call(work, TIMEOUT_S)
    assert work.count == 2
    assert part.failures == 2


async def test_without_time_there_is_no_second_try() -> None:
    work = Calls(unavailable())
    with pytest.raises(BackendUnavailableError):
        await Dependency("x", alive).call(work, 0.02)
    assert work.count == 1


async def test_a_call_that_timed_out_is_not_tried_again() -> None:
    part = Dependency("x", alive)
    started = 0

    async def hang() -> None:
        nonlocal started
        started += 1
        await asyncio.Event().wait()

    with pytest.raises(BackendTimeoutError):
        await part.call(hang, 0.05)
    assert started == 1


async def test_three_failures_cut_it_off_and_a_probe_brings_it_back() -> None:
    clock = FrozenClock()
    part = Dependency("x", alive, clock)
    for _ in range(3):
        with pytest.raises(BackendDataError):
            await part.call(Calls(BackendDataError("x", "?")), TIMEOUT_S)
    work = Calls()
    with pytest.raises(BreakerOpenError):
        await part.call(work, TIMEOUT_S)
    assert work.count == 0
    with pytest.raises(BreakerOpenError):
        await part.probe(TIMEOUT_S)
    clock.advance(1.0)
    assert await part.probe(TIMEOUT_S) == "alive"
    assert await part.call(work, TIMEOUT_S) == "done"


@pytest.mark.parametrize("error", [BackendStartingError("x", "loading"), BackendRejectedError("x", "too long")])
async def test_what_is_no_fault_of_it_opens_no_breaker(error: BackendError) -> None:
    part = Dependency("x", alive)
    for _ in range(5):
        with pytest.raises(type(error)):
            await part.call(Calls(error), TIMEOUT_S)
    assert part.breaker.closed


async def test_after_a_rejected_write_it_is_no_longer_known_to_be_healthy() -> None:
    part = Dependency("x", alive)
    with pytest.raises(BackendRejectedError):
        await part.call(Calls(BackendRejectedError("x", "another dimension")), TIMEOUT_S)
    assert part.failures == 1


async def test_loading_is_no_trouble() -> None:
    part = Dependency("x", alive)
    with pytest.raises(BackendStartingError):
        await part.call(Calls(BackendStartingError("x", "loading")), TIMEOUT_S)
    assert part.failures == 0


async def test_a_call_that_bypasses_an_open_breaker_runs_where_searches_timed_out() -> None:
    """F-3: a write waits longer than a search, and is not rejected for what searches could not wait for."""
    calls = Calls(*(BackendTimeoutError("documents", "late") for _ in range(3)))
    dependency = Dependency("documents", alive)
    for _ in range(3):
        with pytest.raises(BackendTimeoutError):
            await dependency.call(calls, TIMEOUT_S)
    with pytest.raises(BreakerOpenError):
        await dependency.call(calls, TIMEOUT_S)
    assert await dependency.bypass_open_breaker(calls, TIMEOUT_S) == "done"
    assert await dependency.call(calls, TIMEOUT_S) == "done"


async def test_a_call_that_bypasses_the_breaker_of_a_dead_backend_fails_at_once() -> None:
    clock = FrozenClock()
    dependency = Dependency("documents", alive, clock)
    for _ in range(3):
        with pytest.raises(BackendUnavailableError):
            await dependency.bypass_open_breaker(Calls(unavailable(), unavailable()), TIMEOUT_S)
    until = dependency.breaker.retry_after_s
    assert until > 0.0
    with pytest.raises(BackendUnavailableError, match="reset"):
        await dependency.bypass_open_breaker(Calls(unavailable()), TIMEOUT_S)
    assert dependency.breaker.retry_after_s == until


async def test_a_call_with_a_short_time_budget_does_not_count_against_the_backend() -> None:
    async def ping() -> str:
        return "there"

    dependency = Dependency("documents", ping, min_budget_s=0.02)
    for _ in range(5):
        with pytest.raises(BackendTimeoutError):
            await dependency.call(lambda: asyncio.sleep(10), 0.01)
    assert dependency.breaker.closed
    assert dependency.failures == 5, "a report of health that was made before is stale all the same"
    for _ in range(3):
        with pytest.raises(BackendTimeoutError):
            await dependency.call(lambda: asyncio.sleep(10), 0.04)
    assert not dependency.breaker.closed


async def after(seconds: float, outcome: str | BackendError) -> str:
    await asyncio.sleep(seconds)
    if isinstance(outcome, BackendError):
        raise outcome
    return outcome


@pytest.mark.parametrize(
    ("first", "second", "given"),
    [
        ((0.0, "first"), (0.0, "second"), "first"),
        ((0.0, unavailable()), (0.0, "second"), "second"),
        ((5.0, "first"), (0.0, "second"), "second"),
        ((0.05, "first"), (5.0, "second"), "first"),
        ((0.05, "first"), (0.0, unavailable()), "first"),
        ((0.05, unavailable()), (0.1, "second"), "second"),
    ],
)
async def test_of_two_ways_the_sooner_good_one_counts(
    first: tuple[float, str | BackendError], second: tuple[float, str | BackendError], given: str
) -> None:
    assert await hedged(lambda: after(*first), lambda: after(*second), 0.02) == given
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_where_both_ways_fail_so_does_the_call() -> None:
    with pytest.raises(BackendRejectedError, match="second"):
        await hedged(lambda: after(0.0, unavailable()), lambda: after(0.0, BackendRejectedError("x", "second")), 0.02)


async def test_a_bug_on_the_first_way_is_no_reason_for_the_second() -> None:
    async def bug() -> str:
        raise TypeError("bug")

    with pytest.raises(TypeError, match="bug"):
        await hedged(bug, lambda: after(0.0, "second"), 0.02)


class Store:
    """A port: an asynchronous call, a property, and a function without I/O."""

    version = 1

    def __init__(self, *errors: BackendError) -> None:
        self.calls = Calls(*errors)

    def title(self) -> str:
        return "store"

    async def get(self, name: str, *, limit: int = 1) -> str:
        return f"{await self.calls()}: {name} {limit}"

    async def hang(self) -> None:
        await asyncio.Event().wait()


async def test_a_guarded_port_is_called_as_the_port_itself() -> None:
    store = Store(unavailable())
    guarded = Dependency("x", alive).guard(store, 5.0)
    assert await guarded.get("a", limit=2) == "done: a 2"
    assert store.calls.count == 2  # once more, after the failure
    store.version = 2
    assert (guarded.version, guarded.title()) == (2, "store")


async def test_a_guarded_port_fails_at_once_while_its_breaker_is_open_unless_that_is_bypassed() -> None:
    clock = FrozenClock()
    part = Dependency("x", alive, clock)
    store = Store(*(BackendDataError("x", "?") for _ in range(3)))
    guarded = part.guard(store, 5.0)
    for _ in range(3):
        with pytest.raises(BackendDataError):
            await guarded.get("a")
    with pytest.raises(BreakerOpenError):
        await guarded.get("a")
    assert store.calls.count == 3
    assert await part.guard_bypassing_breaker(store, 5.0).get("a") == "done: a 1"


async def test_a_guarded_call_ends_after_its_timeout_or_by_a_sooner_deadline() -> None:
    part = Dependency("x", alive)
    with pytest.raises(BackendTimeoutError):
        await part.guard(Store(), 0.01).hang()
    with soon(0.01).applied(), pytest.raises(BackendTimeoutError):
        await part.guard(Store(), 60.0).hang()


async def test_a_later_deadline_gives_a_guarded_call_no_more_time() -> None:
    part = Dependency("x", alive)
    with soon(60.0).applied(), pytest.raises(BackendTimeoutError):
        await part.guard(Store(), 0.01).hang()
    with soon(0.01).applied(), soon(60.0).applied(), pytest.raises(BackendTimeoutError):
        await part.guard(Store(), 60.0).hang()


async def test_after_the_block_its_deadline_is_not_applied_any_more() -> None:
    guarded = Dependency("x", alive).guard(Store(), 5.0)
    with soon(0.0).applied(), pytest.raises(BackendTimeoutError):
        await guarded.hang()
    assert await guarded.get("a") == "done: a 1"
