"""Work that several callers wait for is done once, and not when no caller waits."""

import asyncio

import pytest

from rag_context.embedders.openai_embedder import SingleFlight


class Work:
    """Something that takes until it is let go."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.begun = 0
        self.given_up = 0

    async def __call__(self) -> int:
        self.begun += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return self.begun


async def joined(flights: SingleFlight[int], work: Work, count: int) -> list["asyncio.Task[int]"]:
    """So many callers that wait for one piece of work."""
    tasks = [asyncio.create_task(flights.join("key", work)) for _ in range(count)]
    while not work.begun:
        await asyncio.sleep(0)
    return tasks


async def test_equal_keys_share_and_other_keys_do_not() -> None:
    flights, work, other = SingleFlight[int](), Work(), Work()
    tasks = [*await joined(flights, work, 3), asyncio.create_task(flights.join("other", other))]
    work.gate.set()
    other.gate.set()
    assert await asyncio.gather(*tasks) == [1, 1, 1, 1]
    assert (work.begun, other.begun) == (1, 1)
    await flights.join("key", work)
    assert work.begun == 2


async def test_it_goes_on_for_those_who_still_wait() -> None:
    flights, work = SingleFlight[int](), Work()
    first, second = await joined(flights, work, 2)
    first.cancel()
    await asyncio.wait({first})
    work.gate.set()
    assert await second == 1
    assert work.given_up == 0


async def test_it_is_given_up_with_the_last_who_waited() -> None:
    flights, work = SingleFlight[int](), Work()
    tasks = await joined(flights, work, 2)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await asyncio.sleep(0)
    assert work.given_up == 1
    again = asyncio.create_task(flights.join("key", work))
    while work.begun < 2:
        await asyncio.sleep(0)
    work.gate.set()
    assert await again == 2


async def test_all_who_wait_learn_of_a_failure() -> None:
    async def fail() -> int:
        await asyncio.sleep(0)
        raise ValueError("no")

    flights = SingleFlight[int]()
    results = await asyncio.gather(*(flights.join("key", fail) for _ in range(3)), return_exceptions=True)
    assert [str(result) for result in results] == ["no"] * 3
    with pytest.raises(ValueError, match="no"):
        await flights.join("key", fail)
