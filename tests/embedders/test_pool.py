"""The worker pool: who goes first, who shares, and who is dropped."""

import asyncio
import threading
from collections.abc import AsyncIterator

import numpy as np
import pytest

from rag_context.domain.vectors import Vector
from rag_context.embedders.onnx import Urgency, WorkerPool
from rag_context.errors import BackendRejectedError, BackendUnavailableError

TIMEOUT_S = 30.0
"""How long a broken test may hang."""


class Lengths:
    """A function to run: a text's length, written down in the order it was requested, behind a gate."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.gate = threading.Event()
        self.begun = threading.Event()

    def __call__(self, text: str) -> Vector:
        self.seen.append(text)
        self.begun.set()
        assert self.gate.wait(TIMEOUT_S)
        if text == "refused":
            raise BackendRejectedError("embedder", "refused")
        if text == "bug":
            raise ZeroDivisionError
        return np.array([len(text)], np.float32)


@pytest.fixture
def function() -> Lengths:
    return Lengths()


@pytest.fixture
async def pool(function: Lengths) -> AsyncIterator[WorkerPool]:
    """One worker, which already holds the text `first` at the gate."""
    pool = WorkerPool(function, dimension=1, workers=1)
    first = asyncio.create_task(pool.run(["first"], Urgency.DOCUMENT))
    await asyncio.to_thread(function.begun.wait, TIMEOUT_S)
    yield pool
    function.gate.set()
    await asyncio.gather(first, return_exceptions=True)
    await pool.close()


async def begin(pool: WorkerPool, texts: list[str], urgency: Urgency) -> asyncio.Task[list[float]]:
    """Hand texts in without waiting for them."""

    async def run() -> list[float]:
        return [float(row[0]) for row in await pool.run(texts, urgency)]

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    return task


async def test_rows_stand_in_the_order_of_the_texts(pool: WorkerPool, function: Lengths) -> None:
    task = await begin(pool, ["aaa", "a", "aa", "aaa"], Urgency.DOCUMENT)
    function.gate.set()
    assert await task == [3, 1, 2, 3]


async def test_queries_go_ahead_of_documents_that_wait(pool: WorkerPool, function: Lengths) -> None:
    documents = await begin(pool, ["d1", "d2"], Urgency.DOCUMENT)
    query = await begin(pool, ["q"], Urgency.QUERY)
    function.gate.set()
    await asyncio.gather(documents, query)
    assert function.seen == ["first", "q", "d1", "d2"]


async def test_a_query_pulls_forward_a_document_of_the_same_text(pool: WorkerPool, function: Lengths) -> None:
    documents = await begin(pool, ["d1", "same", "d2"], Urgency.DOCUMENT)
    query = await begin(pool, ["same"], Urgency.QUERY)
    function.gate.set()
    assert await documents == [2, 4, 2]
    assert await query == [4]
    assert function.seen == ["first", "same", "d1", "d2"]


async def test_equal_texts_in_flight_run_once(pool: WorkerPool, function: Lengths) -> None:
    tasks = [await begin(pool, ["first", "same"], Urgency.QUERY) for _ in range(5)]
    function.gate.set()
    assert await asyncio.gather(*tasks) == [[5, 4]] * 5
    assert function.seen == ["first", "same"]


async def test_a_text_that_is_done_runs_again(pool: WorkerPool, function: Lengths) -> None:
    function.gate.set()
    for _ in range(2):
        await pool.run(["again"], Urgency.QUERY)
    assert function.seen == ["first", "again", "again"]


async def test_cancelling_drops_what_has_not_started(pool: WorkerPool, function: Lengths) -> None:
    dropped = await begin(pool, ["d1", "shared", "d2"], Urgency.DOCUMENT)
    kept = await begin(pool, ["shared", "kept"], Urgency.DOCUMENT)
    dropped.cancel()
    await asyncio.gather(dropped, return_exceptions=True)
    function.gate.set()
    assert await kept == [6, 4]
    assert function.seen == ["first", "shared", "kept"]


async def test_a_text_given_up_while_it_waited_can_be_requested_again(pool: WorkerPool, function: Lengths) -> None:
    dropped = await begin(pool, ["text"], Urgency.DOCUMENT)
    dropped.cancel()
    await asyncio.gather(dropped, return_exceptions=True)
    again = await begin(pool, ["text"], Urgency.DOCUMENT)
    function.gate.set()
    assert await again == [4]
    assert function.seen == ["first", "text"]


async def test_a_text_given_up_and_passed_over_can_be_requested_again(pool: WorkerPool, function: Lengths) -> None:
    dropped = await begin(pool, ["text"], Urgency.DOCUMENT)
    dropped.cancel()
    await asyncio.gather(dropped, return_exceptions=True)
    function.gate.set()
    await pool.run(["last in the queue"], Urgency.DOCUMENT)
    again = await begin(pool, ["text"], Urgency.DOCUMENT)
    assert await asyncio.wait_for(again, TIMEOUT_S) == [4]


async def test_a_failing_text_fails_its_caller_and_drops_the_rest_of_that_call(
    pool: WorkerPool, function: Lengths
) -> None:
    failing = await begin(pool, ["refused", "left over"], Urgency.QUERY)
    function.gate.set()
    with pytest.raises(BackendRejectedError):
        await failing
    assert [float(row[0]) for row in await pool.run(["good"], Urgency.DOCUMENT)] == [4]


async def test_a_bug_in_the_function_reaches_the_caller_and_the_worker_survives(
    pool: WorkerPool, function: Lengths
) -> None:
    function.gate.set()
    with pytest.raises(ZeroDivisionError):
        await pool.run(["bug"], Urgency.QUERY)
    assert len(await pool.run(["good"], Urgency.QUERY)) == 1


async def test_closing_rejects_what_waits_and_finishes_what_runs(pool: WorkerPool, function: Lengths) -> None:
    running = await begin(pool, ["first"], Urgency.QUERY)
    waiting = await begin(pool, ["waits"], Urgency.QUERY)
    closing = asyncio.create_task(pool.close())
    await asyncio.sleep(0)
    function.gate.set()
    await closing
    assert await running == [5]
    with pytest.raises(BackendUnavailableError, match="closed"):
        await waiting
    with pytest.raises(BackendUnavailableError, match="closed"):
        await pool.run(["later"], Urgency.QUERY)
    assert function.seen == ["first"]


async def test_no_texts_need_no_worker(pool: WorkerPool) -> None:
    assert (await pool.run([], Urgency.DOCUMENT)).shape == (0, 1)


def test_a_caller_whose_loop_is_gone_does_not_stop_the_worker() -> None:
    function = Lengths()

    async def start() -> tuple[WorkerPool, asyncio.Task[list[float]]]:
        pool = WorkerPool(function, dimension=1, workers=1)
        task = await begin(pool, ["first"], Urgency.QUERY)
        await asyncio.to_thread(function.begun.wait, TIMEOUT_S)
        return pool, task

    async def finish(pool: WorkerPool) -> list[float]:
        function.gate.set()
        rows = await asyncio.wait_for(pool.run(["second"], Urgency.QUERY), TIMEOUT_S)
        await pool.close()
        return [float(row[0]) for row in rows]

    loop = asyncio.new_event_loop()
    pool, orphan = loop.run_until_complete(start())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    assert asyncio.run(finish(pool)) == [6]
    assert not orphan.done()
    orphan._log_destroy_pending = False  # type: ignore[attr-defined]
