"""How much runs at once, what waits, what is rejected, and how the number follows what is measured."""

import asyncio
import time

import pytest

from rag_context.errors import OverloadedError
from rag_context.resilience.admission import AdaptiveLimit, Admission, Bounds, FixedLimit
from rag_context.testing import FrozenClock


def make(at_once: int, max_wait_s: float = 5.0, max_waiting: int = 100) -> Admission:
    return Admission("searches", FixedLimit(at_once), Bounds(max_wait_s, max_waiting))


class Work:
    """Holds places until it is released."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.begun: list[int] = []
        self.most = 0
        self._release = asyncio.Event()

    async def run(self, number: int) -> None:
        async with self.admission.admitted():
            self.begun.append(number)
            self.most = max(self.most, self.admission.running)
            await self._release.wait()

    def release(self) -> None:
        self._release.set()


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_only_so_many_run_at_once_and_the_rest_comes_in_order() -> None:
    work = Work(make(2))
    tasks = [asyncio.create_task(work.run(number)) for number in range(6)]
    await turn()
    assert (work.admission.running, work.admission.waiting) == (2, 4)
    work.release()
    await asyncio.gather(*tasks)
    assert work.begun == list(range(6))
    assert work.most == 2
    assert (work.admission.running, work.admission.waiting) == (0, 0)


async def test_what_waits_too_long_is_rejected_and_never_begun() -> None:
    work = Work(make(1, max_wait_s=0.05))
    first = asyncio.create_task(work.run(0))
    await turn()
    rejections = 0

    def count() -> None:
        nonlocal rejections
        rejections += 1

    work.admission.on_rejected = count
    with pytest.raises(OverloadedError) as rejected:
        await work.run(1)
    assert rejected.value.retry_after_s is not None
    assert rejected.value.retry_after_s >= 1.0
    assert (work.begun, work.admission.waiting, rejections) == ([0], 0, 1)
    work.release()
    await first


async def test_a_queue_that_is_too_long_rejects_at_once() -> None:
    work = Work(make(1, max_waiting=2))
    tasks = [asyncio.create_task(work.run(number)) for number in range(3)]
    await turn()
    with pytest.raises(OverloadedError):
        await asyncio.wait_for(work.run(3), 1.0)
    work.release()
    await asyncio.gather(*tasks)
    assert work.begun == [0, 1, 2]


async def test_the_wait_is_reported_and_begins_no_work() -> None:
    work = Work(make(1))
    waits: list[float] = []
    work.admission.on_wait = waits.append
    tasks = [asyncio.create_task(work.run(number)) for number in range(2)]
    await asyncio.sleep(0.05)
    work.release()
    await asyncio.gather(*tasks)
    assert waits[0] < 0.04 < waits[1]


async def test_a_caller_that_disconnects_while_it_waits_leaves_the_queue() -> None:
    work = Work(make(1))
    tasks = [asyncio.create_task(work.run(number)) for number in range(3)]
    await turn()
    tasks[1].cancel()
    await turn()
    assert work.admission.waiting == 1
    work.release()
    await asyncio.gather(tasks[0], tasks[2])
    assert work.begun == [0, 2]


async def test_a_waiter_cancelled_with_its_slot_passes_the_slot_on() -> None:
    work = Work(make(1))
    tasks = [asyncio.create_task(work.run(number)) for number in range(3)]
    await turn()
    work.release()
    await asyncio.wait({tasks[0]})
    tasks[1].cancel()  # its turn has come, and it has not run since
    await asyncio.gather(*tasks, return_exceptions=True)
    assert 2 in work.begun
    assert work.admission.running == 0


async def test_one_that_crashes_or_is_cancelled_frees_its_place() -> None:
    admission = make(1)
    with pytest.raises(RuntimeError):
        async with admission.admitted():
            raise RuntimeError("bug")
    held = asyncio.create_task(Work(admission).run(0))
    await turn()
    held.cancel()
    await asyncio.wait({held})
    async with asyncio.timeout(1.0), admission.admitted():
        assert admission.running == 1


async def test_background_work_is_not_rejected() -> None:
    work = Work(make(1, max_wait_s=0.01, max_waiting=0))
    first = asyncio.create_task(work.run(0))
    await turn()

    async def patient() -> None:
        async with work.admission.admitted_in_turn():
            work.begun.append(1)

    second = asyncio.create_task(patient())
    await asyncio.sleep(0.05)
    assert work.begun == [0]
    work.release()
    await asyncio.gather(first, second)
    assert work.begun == [0, 1]


async def test_a_stopped_process_has_not_kept_any_caller_waiting() -> None:
    """The loop is held up for longer than anyone may wait; the slot comes free right after it."""
    work = Work(make(1, max_wait_s=0.2))
    tasks = [asyncio.create_task(work.run(number)) for number in range(2)]
    await asyncio.sleep(0.05)
    time.sleep(0.5)  # noqa: ASYNC251
    await asyncio.sleep(0.01)
    work.release()
    await asyncio.gather(*tasks)
    assert work.begun == [0, 1]


async def _in_and_out(admission: Admission) -> None:
    async with admission.admitted():
        await asyncio.sleep(0)


def adaptive(clock: FrozenClock) -> AdaptiveLimit:
    return AdaptiveLimit(8, least=2, most=16, target_s=0.1, clock=clock)


def test_late_calls_make_the_limit_smaller_but_never_below_the_minimum() -> None:
    clock = FrozenClock()
    limit = adaptive(clock)
    for _ in range(50):
        clock.advance(0.5)
        limit.observe(0.3, was_full=True)
    assert limit.at_once == 2


def test_many_that_are_late_together_are_one_sign() -> None:
    limit = adaptive(FrozenClock())
    for _ in range(8):
        limit.observe(0.3, was_full=True)
    assert limit.at_once == 5


def test_timely_calls_at_the_limit_raise_it_up_to_the_maximum() -> None:
    limit = adaptive(FrozenClock())
    for _ in range(1000):
        limit.observe(0.01, was_full=True)
    assert limit.at_once == 16


def test_what_was_never_full_does_not_grow() -> None:
    limit = adaptive(FrozenClock())
    for _ in range(1000):
        limit.observe(0.01, was_full=False)
    assert limit.at_once == 8


async def test_answers_that_were_cut_short_do_not_raise_it() -> None:
    limit = AdaptiveLimit(1, least=1, most=4, target_s=0.1, clock=FrozenClock())
    admission = Admission("searches", limit, Bounds(5.0, 100))

    async def cut_short() -> None:
        async with admission.admitted() as slot:
            await asyncio.sleep(0)
            slot.is_typical = False

    await asyncio.gather(*(cut_short() for _ in range(100)))
    assert limit.at_once == 1


async def test_a_limit_that_has_grown_lets_more_in() -> None:
    limit = AdaptiveLimit(1, least=1, most=4, target_s=0.1, clock=FrozenClock())
    admission = Admission("searches", limit, Bounds(5.0, 100))
    await asyncio.gather(*(_in_and_out(admission) for _ in range(100)))
    work = Work(admission)
    tasks = [asyncio.create_task(work.run(number)) for number in range(6)]
    await turn()
    assert (admission.running, admission.waiting) == (4, 2)
    work.release()
    await asyncio.gather(*tasks)
