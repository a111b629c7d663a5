"""Full garbage collections of a process that keeps much."""

import gc
from collections.abc import Iterator

import pytest

from rag_context.cli.command_line import FreezeSurvivors


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    """No one else hears of collections, and nothing is set aside, before and after."""
    others = gc.callbacks[:]
    gc.callbacks.clear()
    gc.unfreeze()
    yield
    gc.callbacks[:] = others
    gc.unfreeze()


def test_what_outlives_a_long_collection_is_set_aside_so_often_and_no_more() -> None:
    pauses = FreezeSurvivors(long_s=0.0, most=1)
    gc.callbacks.append(pauses)
    try:
        gc.collect(0)
        assert gc.get_freeze_count() == 0
        gc.collect()
        once = gc.get_freeze_count()
        assert once > 0
        kept = [[number] for number in range(100_000)]
        gc.collect()
        assert gc.get_freeze_count() <= once
    finally:
        gc.callbacks.remove(pauses)
    assert len(kept) == 100_000


def test_a_short_collection_changes_nothing() -> None:
    pauses = FreezeSurvivors(long_s=3600.0)
    gc.callbacks.append(pauses)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(pauses)
    assert gc.get_freeze_count() == 0
