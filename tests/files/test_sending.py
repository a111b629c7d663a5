"""Documents in batches: bounded, side by side, in order where order counts (C-3)."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence

import pytest

from rag_context.api.index import BulkLine, BulkReceipt
from rag_context.errors import BackendUnavailableError
from rag_context.files.sending import BATCH, BATCH_CHARS, CONCURRENCY, Job, batched, in_thread, send
from rag_context.files.target import OnReceipt


class BlockedTarget:
    """A target that keeps batches until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.batches: list[list[str]] = []
        self.running = 0
        self.most = 0

    async def bulk(self, lines: Sequence[BulkLine], on_receipt: OnReceipt) -> None:
        self.batches.append([line.content for line in lines])
        self.running += 1
        self.most = max(self.most, self.running)
        await self.open.wait()
        self.running -= 1
        for place, _ in enumerate(lines):
            on_receipt(place, BulkReceipt(status="indexed"))

    async def missing(self, versions: Mapping[str, str]) -> Collection[str]:
        raise NotImplementedError

    async def remove(self, document_id: str) -> None:
        raise NotImplementedError

    def sources(self, prefix: str) -> AsyncIterator[tuple[str, str]]:
        raise NotImplementedError


def job(content: str, source: str | None = None, kind: str = "code", received: list[str] | None = None) -> Job:
    line = BulkLine(content=content, content_type=kind, session_id="s", source=source or content)
    return Job(line, lambda receipt: received.append(f"{content} {receipt.status}") if received is not None else None)


def sizes(jobs: Iterator[Job]) -> list[int]:
    return [len(batch) for batch in batched(jobs)]


def test_batches_are_bounded_in_number_and_size() -> None:
    large = "x" * (BATCH_CHARS // 2 + 1)

    assert sizes(job(str(number)) for number in range(BATCH * 2 + 1)) == [BATCH, BATCH, 1]
    assert sizes(job(large, str(number)) for number in range(5)) == [2, 2, 1]
    assert sizes(iter(())) == []


async def test_nothing_is_produced_before_a_client_can_receive_it() -> None:
    gate = BlockedTarget()
    made = 0

    def jobs() -> Iterator[Job]:
        nonlocal made
        for number in range(BATCH * 20):
            made += 1
            yield job(str(number))

    sending = asyncio.create_task(send(in_thread(batched(jobs())), gate))
    while gate.running < CONCURRENCY:
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)

    assert made <= BATCH * (CONCURRENCY + 1)
    gate.open.set()
    await sending
    assert made == BATCH * 20
    assert gate.most == CONCURRENCY


async def test_every_caller_gets_the_result_of_its_document() -> None:
    gate, received = BlockedTarget(), list[str]()
    gate.open.set()
    await send(in_thread(batched(job(str(number), received=received) for number in range(250))), gate)

    assert sorted(received) == sorted(f"{number} indexed" for number in range(250))


async def test_versions_of_one_document_are_not_side_by_side() -> None:
    gate = BlockedTarget()
    gate.open.set()

    async def batches() -> AsyncIterator[list[Job]]:
        for number in range(6):
            yield [job(f"version {number}", "a.md")]

    await send(batches(), gate)

    assert gate.most == 1
    assert gate.batches == [[f"version {number}"] for number in range(6)]


async def test_messages_of_one_conversation_are_no_versions() -> None:
    gate = BlockedTarget()

    async def batches() -> AsyncIterator[list[Job]]:
        for number in range(3):
            yield [job(f"turn {number}", "talk", "chat")]

    sending = asyncio.create_task(send(batches(), gate))
    while gate.running < 3:
        await asyncio.sleep(0)
    gate.open.set()
    await sending


async def test_a_failure_ends_the_rest_and_is_reported_as_it_is() -> None:
    class Broken(BlockedTarget):
        async def bulk(self, lines: Sequence[BulkLine], on_receipt: OnReceipt) -> None:
            raise BackendUnavailableError("server", "It went away.")

    with pytest.raises(BackendUnavailableError, match="went away"):
        await send(in_thread(batched(job(str(number)) for number in range(1000))), Broken())
