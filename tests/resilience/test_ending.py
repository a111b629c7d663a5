"""Work that runs until it is ended, and loses what ends it."""

import asyncio
from contextlib import suppress

import pytest

from rag_context.resilience.deadline import ended, together


async def losing(cancellations: int) -> None:
    """Go on after so many cancellations, as `asyncio.wait_for` of Python 3.11 makes a driver do."""
    for _ in range(cancellations):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60.0)
    await asyncio.sleep(60.0)


async def test_work_together_that_loses_a_cancellation_is_ended_all_the_same() -> None:
    together_ = asyncio.create_task(together(losing(0), losing(1), losing(3)))
    await asyncio.sleep(0)
    before = asyncio.all_tasks()
    async with asyncio.timeout(30.0):
        await ended(together_)
    assert together_.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert len(before) == 5


async def test_work_together_ends_with_the_first_that_fails() -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await together(losing(1), fail())
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_work_together_is_done_when_all_of_it_is() -> None:
    done: list[int] = []

    async def note(number: int) -> None:
        await asyncio.sleep(0.01 * number)
        done.append(number)

    await together(note(2), note(1))
    assert done == [1, 2]
