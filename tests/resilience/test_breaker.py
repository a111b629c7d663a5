"""All states of the breaker, on a clock that stands still."""

from contextlib import ExitStack

import pytest

from rag_context.resilience.dependency import (
    Breaker,
    BreakerOpenError,
    BreakerState,
    constant_cooldown,
    doubling_cooldown,
)
from rag_context.testing import FrozenClock


def make(clock: FrozenClock, threshold: int = 3) -> Breaker:
    return Breaker("thing", threshold=threshold, cooldown=constant_cooldown(60.0), clock=clock)


def fail(breaker: Breaker) -> None:
    with breaker.permit() as permit:
        permit.fail()


def open_it(breaker: Breaker, threshold: int = 3) -> None:
    for _ in range(threshold):
        fail(breaker)


def test_failures_in_a_row_open_it() -> None:
    breaker = make(FrozenClock())
    fail(breaker)
    fail(breaker)
    assert breaker.closed
    fail(breaker)
    assert breaker.state is BreakerState.OPEN


def test_a_success_restarts_the_count() -> None:
    breaker = make(FrozenClock())
    for _ in range(3):
        fail(breaker)
        fail(breaker)
        with breaker.permit() as permit:
            permit.succeed()
    assert breaker.closed


def test_an_open_breaker_rejects_calls_and_says_how_long() -> None:
    clock = FrozenClock()
    breaker = make(clock)
    open_it(breaker)
    clock.advance(20.0)
    with pytest.raises(BreakerOpenError) as rejected, breaker.permit():
        pass
    assert rejected.value.retry_after_s == 40.0
    assert breaker.retry_after_s == 40.0


def test_no_probe_before_the_cooldown_is_over() -> None:
    clock = FrozenClock()
    breaker = make(clock)
    open_it(breaker)
    clock.advance(59.9)
    with pytest.raises(BreakerOpenError), breaker.probe():
        pass
    clock.advance(0.1)
    assert breaker.state is BreakerState.HALF_OPEN
    with breaker.probe() as permit:
        permit.succeed()
    assert breaker.closed
    assert breaker.retry_after_s == 0.0


def test_one_probe_at_a_time() -> None:
    clock = FrozenClock()
    breaker = make(clock)
    open_it(breaker)
    clock.advance(60.0)
    with breaker.probe():
        with pytest.raises(BreakerOpenError), breaker.probe():
            pass
        with pytest.raises(BreakerOpenError), breaker.permit():
            pass


def test_a_failed_probe_opens_it_again() -> None:
    clock = FrozenClock()
    breaker = make(clock)
    open_it(breaker)
    clock.advance(60.0)
    with breaker.probe() as permit:
        permit.fail()
    assert breaker.state is BreakerState.OPEN
    assert breaker.retry_after_s == 60.0


def test_a_probe_that_crashes_frees_its_place() -> None:
    clock = FrozenClock()
    breaker = make(clock)
    open_it(breaker)
    clock.advance(60.0)
    with pytest.raises(RuntimeError), breaker.probe():
        raise RuntimeError("cancelled")
    with breaker.probe() as permit:
        permit.succeed()
    assert breaker.closed


def test_a_result_counts_even_when_the_call_raised() -> None:
    breaker = make(FrozenClock(), threshold=1)
    with pytest.raises(OSError, match="reset"), breaker.permit() as permit:
        permit.fail()
        raise OSError("reset")
    assert not breaker.closed


def test_a_call_let_in_before_it_opened_changes_nothing_after() -> None:
    clock = FrozenClock()
    breaker = make(clock)
    with breaker.permit() as slow:
        open_it(breaker)
        slow.succeed()
    assert breaker.state is BreakerState.OPEN


def test_every_failure_counts_however_many_calls_were_under_way() -> None:
    """F-2, F-3."""
    breaker = make(FrozenClock(), threshold=3)
    with ExitStack() as together:
        for permit in [together.enter_context(breaker.permit()) for _ in range(3)]:
            permit.fail()
    assert breaker.state is BreakerState.OPEN


def test_cooldowns_double_up_to_a_cap() -> None:
    cooldown = doubling_cooldown(1.0, 15.0)
    assert [cooldown(openings) for openings in (1, 2, 3, 4, 5, 500)] == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0]


def test_the_first_cooldowns_may_all_be_short() -> None:
    cooldown = doubling_cooldown(1.0, 15.0, first_probes=3)
    assert [cooldown(openings) for openings in (1, 2, 3, 4, 5, 500)] == [1.0, 1.0, 1.0, 2.0, 4.0, 15.0]


def test_it_is_closed_at_once_where_the_cause_has_ended() -> None:
    breaker = make(FrozenClock())
    open_it(breaker)
    breaker.reset()
    assert breaker.state is BreakerState.CLOSED
    fail(breaker)
    assert breaker.closed


def test_failures_from_before_the_cause_ended_are_not_counted() -> None:
    breaker = make(FrozenClock())
    fail(breaker)
    with breaker.permit() as slow:
        fail(breaker)
        breaker.reset()
        slow.fail()
    fail(breaker)
    fail(breaker)
    assert breaker.closed


def test_closing_forgets_earlier_openings() -> None:
    clock = FrozenClock()
    breaker = Breaker("thing", threshold=1, cooldown=doubling_cooldown(1.0, 15.0), clock=clock)
    fail(breaker)
    for _ in range(3):
        clock.advance(15.0)
        with breaker.probe() as permit:
            permit.fail()
    assert breaker.retry_after_s == 8.0
    clock.advance(8.0)
    with breaker.probe() as permit:
        permit.succeed()
    fail(breaker)
    assert breaker.retry_after_s == 1.0


def test_a_trial_runs_whatever_the_state_and_its_success_closes() -> None:
    clock = FrozenClock()
    breaker = make(clock)
    open_it(breaker)
    until = breaker.retry_after_s
    with breaker.trial() as permit:
        permit.fail()
    with breaker.trial():
        pass
    assert (breaker.state, breaker.retry_after_s) == (BreakerState.OPEN, until)
    with breaker.trial() as permit:
        permit.succeed()
    assert breaker.closed


def test_a_failed_trial_counts_while_it_is_closed() -> None:
    breaker = make(FrozenClock(), threshold=1)
    with breaker.trial() as permit:
        permit.fail()
    assert not breaker.closed


def test_it_counts_how_often_it_opened_until_it_closes() -> None:
    breaker = make(FrozenClock())
    before = breaker.openings
    open_it(breaker)
    assert breaker.openings != before
