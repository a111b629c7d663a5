"""Documents sent one by one at the same time are indexed together, each for its own caller."""

import asyncio
from collections.abc import Sequence

import pytest

from rag_context.domain.documents import DOCUMENTATION, DocumentInput
from rag_context.domain.journal import Cause, acting
from rag_context.errors import BackendUnavailableError, OverloadedError
from rag_context.files.sending import SLICE_CHARS
from rag_context.ingest.submissions import Outcome, Receipt, Submission
from rag_context.memory.single_writes import SingleWrites
from rag_context.resilience.admission import Admission, Bounds, FixedLimit

BOUNDS = Bounds(60.0, 100)


class Index:
    """Notes what is indexed together, and by whom; each batch waits for `released`."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.actors: list[str] = []
        self.released = asyncio.Event()

    async def __call__(
        self, submissions: Sequence[Submission], request_ids: Sequence[str]
    ) -> list[Receipt | Exception]:
        self.batches.append([each.document.source for each in submissions])
        self.actors.append(Cause.now().by)
        await self.released.wait()
        if "bug" in request_ids:
            raise ZeroDivisionError
        return [
            BackendUnavailableError("store", "no")
            if each.document.content == "bad"
            else Receipt(each.document.source, Outcome.INDEXED, (), pending=False)
            for each in submissions
        ]


def submission(source: str, content: str = "text") -> Submission:
    return Submission(DocumentInput(content, DOCUMENTATION, "s", source))


def writes(index: Index, bounds: Bounds = BOUNDS) -> SingleWrites:
    return SingleWrites(Admission("writes", FixedLimit(1), bounds), index)


async def begun(single: SingleWrites, *sources: str, content: str = "text") -> list[asyncio.Task[Receipt | Exception]]:
    tasks = [asyncio.create_task(single.index(submission(source, content), source)) for source in sources]
    await asyncio.sleep(0)
    return tasks


def ids(results: Sequence[Receipt | Exception]) -> list[object]:
    return [each.document_id if isinstance(each, Receipt) else type(each) for each in results]


async def test_what_waits_is_indexed_together() -> None:
    index = Index()
    single = writes(index)
    tasks = await begun(single, "a", "b", "c", "d")
    index.released.set()
    assert ids(await asyncio.gather(*tasks)) == ["a", "b", "c", "d"]
    assert index.batches == [["a"], ["b", "c", "d"]]


async def test_each_caller_gets_its_own_result() -> None:
    index = Index()
    single = writes(index)
    tasks = [*await begun(single, "a", "b"), *await begun(single, "c", content="bad"), *await begun(single, "d")]
    index.released.set()
    assert ids(await asyncio.gather(*tasks)) == ["a", "b", BackendUnavailableError, "d"]


async def test_a_bug_reaches_all_callers_of_the_batch() -> None:
    index = Index()
    single = writes(index)
    tasks = await begun(single, "a", "b", "bug")
    index.released.set()
    assert ids(await asyncio.gather(*tasks)) == ["a", ZeroDivisionError, ZeroDivisionError]


async def test_what_two_clients_change_stands_in_two_batches() -> None:
    index = Index()
    single = writes(index)
    tasks = []
    for source, actor in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "x")):
        with acting(actor):
            tasks += await begun(single, source)
    index.released.set()
    await asyncio.gather(*tasks)
    assert list(zip(index.actors, index.batches, strict=True)) == [("x", ["a"]), ("x", ["b", "d"]), ("y", ["c"])]


async def test_a_large_document_ends_a_batch() -> None:
    index = Index()
    single = writes(index)
    tasks = [*await begun(single, "a", "b"), *await begun(single, "c", content="x" * (SLICE_CHARS + 1))]
    tasks += await begun(single, "d")
    index.released.set()
    await asyncio.gather(*tasks)
    assert index.batches == [["a"], ["b", "c"], ["d"]]


async def test_who_goes_away_takes_no_document_of_others_with_it() -> None:
    index = Index()
    single = writes(index)
    first, second, third = await begun(single, "a", "b", "c")
    second.cancel()
    index.released.set()
    assert ids(await asyncio.gather(first, third)) == ["a", "c"]
    assert index.batches == [["a"], ["c"]]

    index.released.clear()
    first, leader, follower = await begun(single, "d", "e", "f")
    index.released.set()
    await first
    index.released.clear()
    while len(index.batches) < 4:
        await asyncio.sleep(0)
    leader.cancel()
    index.released.set()
    assert ids([await follower]) == ["f"]
    assert index.batches[-1] == ["e", "f"]


async def test_who_is_rejected_has_begun_nothing() -> None:
    index = Index()
    single = writes(index, Bounds(60.0, 1))
    first, second, third = await begun(single, "a", "b", "c")
    with pytest.raises(OverloadedError):
        await third
    index.released.set()
    await asyncio.gather(first, second)
    assert index.batches == [["a"], ["b"]]
