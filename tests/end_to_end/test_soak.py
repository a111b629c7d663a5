"""What `make soak` does for half an hour, for some seconds: everything at once, and one disturbance after another."""

from tests.soak.record import Promise
from tests.soak.week import Plan, soak


def test_nothing_is_lost_comes_back_or_grows_while_all_is_used_and_disturbed() -> None:
    # Servers of the version before load for long: the upgrade is a part of `make soak` alone.
    plan = Plan(0.25, seed=7, lasts_s=(0.5, 1.5), calm_s=(0.5, 1.5), older=lambda: None)
    assert soak(plan, ["directory"]) == 0


def test_what_was_sent_and_not_answered_may_be_there_or_not() -> None:
    promise = Promise("a.md", {None})
    promise.acknowledge("one")
    promise.perhaps("two")
    assert (promise.marker, promise.is_settled, promise.gone) == (None, False, [])
    promise.acknowledge("three")
    assert (promise.marker, sorted(promise.gone)) == ("three", ["one", "two"])
