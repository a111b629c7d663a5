"""What `make soak` does for half an hour, for some seconds: everything at once, and one disturbance after another."""

from collections.abc import Iterator

import pytest

from tests.soak import week
from tests.soak.record import Promise
from tests.soak.week import Plan, soak


@pytest.fixture(autouse=True)
def this_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Servers of the version before load for long: the upgrade is a part of `make soak` alone."""
    monkeypatch.setattr(week, "older_source", lambda: None)
    yield


def test_nothing_is_lost_comes_back_or_grows_while_all_is_used_and_disturbed() -> None:
    assert soak(Plan(0.25, seed=7, lasts_s=(0.5, 1.5), calm_s=(0.5, 1.5)), ["directory"]) == 0


def test_what_was_sent_and_not_answered_may_be_there_or_not() -> None:
    promise = Promise("a.md", {None})
    promise.acknowledge("one")
    promise.perhaps("two")
    assert (promise.marker, promise.is_settled, promise.gone) == (None, False, [])
    promise.acknowledge("three")
    assert (promise.marker, sorted(promise.gone)) == ("three", ["one", "two"])
