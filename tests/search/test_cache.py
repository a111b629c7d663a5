"""The memory of answers, and the level behind it that processes share."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_context.domain.documents import Chunk, Metadata, Span, Tenant
from rag_context.domain.search import ChunkRef, Filter, Passage
from rag_context.errors import BackendRejectedError, BackendUnavailableError
from rag_context.ports.reading import Cache
from rag_context.resilience.dependency import Dependency
from rag_context.resilience.shared_cache import SecondLevel
from rag_context.search.query import (
    Answer,
    Level,
    Mode,
    Query,
    Result,
    ResultCache,
    RetrieverReport,
    RetrieverStatus,
    decoded,
    encoded,
)
from rag_context.search.question_times import Window
from rag_context.search.ranking import Candidate, Ranked
from rag_context.stores.redis import open_redis
from rag_context.testing import Fault, Faulty, FrozenClock, MemoryCache
from tests.search.harness import ChainHarness
from tests.servers.redis import redis_server

OK = RetrieverReport(RetrieverStatus.OK, 1.5)
NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, UTC)


def result(number: int = 0, score: float = 0.5) -> Result:
    chunk = Chunk(f"c{number}", "d", number, "Some text.", Span(0, 10, 1, 1, "A > B"), "Title", occurred_at=NOON)
    metadata = Metadata("agent", ("a", "b"), "x", {"deep": [1, 1.0, True, None, {"k": "v"}]}, category="c", game="g")
    shown = {"title": "Title", "content_type": "chat", "session_id": "s", "source": "source"}
    passage = Passage(chunk, "d", timestamp=NOON, metadata=metadata, **shown)
    candidate = Candidate(ChunkRef(f"c{number}", "d", number, "chat", "talk"), 0.1 + 0.2, 3.0, 1 / 3)
    return Result(passage, Ranked(candidate, 1e-17, score), 1, None)


def answer(*results: Result, level: Level = Level.PRIMARY, **legs: RetrieverReport) -> Answer:
    return Answer(results, level, {"vector": OK, "text": OK, **legs}, 7)


@dataclass
class Processes:
    """Two processes' memories before one cache that they share."""

    clock: FrozenClock = field(default_factory=FrozenClock)

    def __post_init__(self) -> None:
        self.values = MemoryCache(self.clock)
        self.cache: Faulty[Cache] = Faulty(self.values)
        self.levels = [self.level(), self.level()]
        self.one, self.other = (ResultCache(10, 300.0, self.clock, level) for level in self.levels)

    def level(self, **options: float) -> SecondLevel:
        guard = Dependency("cache", self.values.ping, self.clock)
        return SecondLevel(self.cache.port, guard, timeout_s=options.get("timeout_s", 5.0))

    async def flush(self) -> None:
        """Wait until both have written."""
        for level in self.levels:
            await level.flush()


@pytest.fixture
def processes() -> Processes:
    return Processes()


async def test_an_answer_that_one_process_found_is_cached_for_the_other(processes: Processes) -> None:
    processes.one.put(Query("q"), 1, answer(result()), "index:5")
    await processes.flush()
    assert processes.other.get(Query("q"), 9) is None
    found = await processes.other.fetch(Query("q"), 9, "index:5")
    assert found == replace(answer(result()), cached=True)
    assert (processes.other.hits, processes.other.misses) == (1, 0)


async def test_what_was_fetched_once_is_remembered_in_memory(processes: Processes) -> None:
    processes.one.put(Query("q"), 1, answer(result()), "index:5")
    await processes.flush()
    await processes.other.fetch(Query("q"), 9, "index:5")
    calls = processes.cache.calls
    assert processes.other.get(Query("q"), 9) == replace(answer(result()), cached=True)
    assert (processes.cache.calls, processes.other.hits) == (calls, 2)


@pytest.mark.parametrize(
    "query",
    [
        Query("Q"),
        Query("q", limit=6),
        Query("q", mode=Mode.TEXT),
        Query("q", min_score=0.1),
        Query("q", where=Filter(Tenant("p", "main", "aa"))),
        Query("q", where=Filter(tags=("a",))),
        Query("q", where=Filter(since=NOON)),
        Query("q", windows=(Window("yesterday", NOON),)),
    ],
    ids=repr,
)
async def test_another_question_is_another_answer(processes: Processes, query: Query) -> None:
    processes.one.put(Query("q"), 1, answer(), "index:5")
    await processes.flush()
    assert await processes.other.fetch(query, 1, "index:5") is None
    assert await processes.other.fetch(Query("q"), 1, "index:5") is not None


async def test_vectors_that_differ_in_one_number_are_queried_separately() -> None:
    cache = ResultCache(10, 60.0, FrozenClock())
    vector = np.zeros(5_000, dtype=np.float32)
    other = vector.copy()
    other[2_500] = 1e-6
    cache.put(Query("", vector=vector), 1, answer())
    assert cache.get(Query("", vector=vector.copy()), 1) is not None
    assert cache.get(Query("", vector=other), 1) is None


async def test_another_state_of_the_index_or_another_index_is_another_answer(processes: Processes) -> None:
    processes.one.put(Query("q"), 1, answer(), "index:5")
    await processes.flush()
    for stamp in ("index:6", "other:5", "index:"):
        assert await processes.other.fetch(Query("q"), 1, stamp) is None


async def test_nothing_is_shared_while_the_state_of_the_index_is_unknown(processes: Processes) -> None:
    processes.one.put(Query("q"), 1, answer(), None)
    await processes.flush()
    assert await processes.one.fetch(Query("q"), 1, None) is None
    assert (processes.cache.calls, processes.values.values) == (0, {})
    assert processes.one.get(Query("q"), 1) is not None


@pytest.mark.parametrize(
    "lesser",
    [
        answer(level=Level.TEXT),
        answer(level=Level.EMPTY),
        answer(text=RetrieverReport(RetrieverStatus.TIMEOUT, 1.0)),
        replace(answer(), breaker_open=True),
    ],
    ids=["level 2", "level 3", "a leg missing", "breaker open"],
)
async def test_only_complete_answers_are_shared(processes: Processes, lesser: Answer) -> None:
    processes.one.put(Query("q"), 1, lesser, "index:5")
    await processes.flush()
    assert processes.values.values == {}
    assert processes.one.get(Query("q"), 1) is None


async def test_a_shared_answer_lives_a_minute(processes: Processes) -> None:
    """What was deleted is gone from the shared cache by then, too."""
    processes.one.put(Query("q"), 1, answer(), "index:5")
    await processes.flush()
    processes.clock.advance(59.9)
    assert await processes.other.fetch(Query("q"), 1, "index:5") is not None
    processes.clock.advance(0.2)
    assert await processes.level().get(next(iter(processes.values.values))) is None


async def test_a_time_to_live_of_nothing_keeps_nothing() -> None:
    processes = Processes()
    cache = ResultCache(10, 0.0, processes.clock, processes.levels[0])
    cache.put(Query("q"), 1, answer(), "index:5")
    await processes.flush()
    assert processes.values.values == {}


async def test_without_a_second_level_a_miss_is_counted_at_once() -> None:
    cache = ResultCache(10, 300.0, FrozenClock())
    assert cache.get(Query("q"), 1) is None
    assert cache.misses == 1


async def test_a_miss_of_both_levels_is_one_miss(processes: Processes) -> None:
    assert processes.one.get(Query("q"), 1) is None
    assert await processes.one.fetch(Query("q"), 1, "index:5") is None
    assert (processes.one.hits, processes.one.misses) == (0, 1)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda value: b"",
        lambda value: value[:-1],
        lambda value: value + b" ",
        lambda value: value[:40] + bytes([value[40] ^ 1]) + value[41:],
        lambda value: b"\x80\x04K\x01.",
        lambda value: value[8:],
    ],
    ids=["empty", "short", "long", "a bit", "a pickle", "no seal"],
)
async def test_a_value_that_is_not_as_it_was_written_is_a_miss(processes: Processes, spoil: object) -> None:
    processes.one.put(Query("q"), 1, answer(result()), "index:5")
    await processes.flush()
    (key, (value, until)), *_ = processes.values.values.items()
    processes.values.values[key] = (spoil(value), until)  # type: ignore[operator]
    assert await processes.other.fetch(Query("q"), 1, "index:5") is None


@pytest.mark.parametrize(
    "value", [b"", b"null", b"[]", b"{}", b"7", b"\xff", b'{"results": [{}], "level": 1, "legs": {}}', b"[" * 100_000]
)
def test_what_is_no_answer_is_not_decoded(value: bytes) -> None:
    assert decoded(value) is None


numbers = st.floats(allow_nan=False)
words = st.text(st.characters(exclude_categories=()), max_size=20)
json_values = st.recursive(st.none() | st.booleans() | st.integers() | numbers | words, st.lists, max_leaves=5)
zones = st.just(UTC) | st.just(timezone(timedelta(hours=5, minutes=45)))
moments = st.datetimes(timezones=zones).map(lambda moment: moment.replace(fold=0))


@settings(max_examples=100, deadline=None)
@given(score=numbers, cosine=st.none() | numbers, text=words, extra=st.dictionaries(words, json_values), at=moments)
def test_every_answer_comes_back_exactly(
    score: float, cosine: float | None, text: str, extra: dict[str, object], at: datetime
) -> None:
    plain = result(score=score)
    candidate = replace(plain.ranked.candidate, cosine=cosine)
    passage = replace(plain.passage, title=text, timestamp=at, metadata=Metadata(None, (text,), extra=extra))  # type: ignore[arg-type]
    said = answer(replace(plain, passage=passage, ranked=replace(plain.ranked, candidate=candidate)), result(1))
    said = replace(said, unanswerable=True, warning=text)
    back = decoded(encoded(said))
    assert back == said
    assert repr(back) == repr(said)


def test_metadata_as_deep_as_requests_may_be_comes_back() -> None:
    deep: dict[str, object] = {}
    for _ in range(190):
        deep = {"in": deep}
    plain = result()
    said = answer(replace(plain, passage=replace(plain.passage, metadata=Metadata(extra=deep))))  # type: ignore[arg-type]
    assert decoded(encoded(said)) == said


async def test_a_real_answer_comes_back_exactly(harness: ChainHarness) -> None:
    said = await harness.chain.search(Query("retry logic"))
    assert said.results
    assert decoded(encoded(said)) == said


async def test_a_dead_cache_is_a_miss_and_soon_not_even_queried(processes: Processes) -> None:
    processes.cache.fault = Fault(BackendUnavailableError("cache", "gone"))
    for _ in range(10):
        assert await processes.one.fetch(Query("q"), 1, "index:5") is None
    assert processes.cache.calls == 6
    assert processes.one.misses == 10


async def test_a_cache_that_hangs_costs_its_timeout_three_times_and_then_nothing(processes: Processes) -> None:
    level = processes.level(timeout_s=0.01)
    processes.cache.fault = Fault(hang=True)
    for _ in range(10):
        assert await level.get("key") is None
    assert processes.cache.calls == 3


async def test_a_cache_that_is_back_is_queried_again_once_a_probe_found_it(processes: Processes) -> None:
    level = processes.levels[0]
    processes.cache.fault = Fault(BackendUnavailableError("cache", "gone"))
    for _ in range(3):
        await level.get("key")
    processes.cache.fault = None
    processes.clock.advance(1.0)
    assert not level.guard.breaker.closed
    await level.guard.probe(5.0)
    level.put("key", lambda: b"value", 300.0)
    await level.flush()
    assert await level.get("key") == b"value"


async def test_writing_is_done_beside_the_requests(processes: Processes) -> None:
    level = processes.levels[0]
    task = asyncio.create_task(level.run())
    for number in range(20):
        level.put(str(number), lambda: b"value", 300.0)
    assert processes.values.values == {}
    while len(processes.values.values) < 20:
        await asyncio.sleep(0)
    task.cancel()
    assert level.dropped == 0


async def test_what_is_too_much_or_rejected_is_dropped_and_counted(processes: Processes) -> None:
    guard = Dependency("cache", processes.values.ping, processes.clock)
    level = SecondLevel(processes.cache.port, guard, capacity=2)
    for key in ("a", "b", "c"):
        level.put(key, lambda: b"value", 300.0)
    assert level.dropped == 1
    processes.cache.fault = Fault(BackendRejectedError("cache", "full"))
    await level.flush()
    assert (level.dropped, processes.values.values) == (3, {})


async def test_nothing_waits_for_a_cache_that_is_known_to_be_dead(processes: Processes) -> None:
    level = processes.levels[0]
    processes.cache.fault = Fault(BackendUnavailableError("cache", "gone"))
    for _ in range(3):
        await level.get("key")
    level.put("key", lambda: b"value", 300.0)
    calls = processes.cache.calls
    await level.flush()
    assert (level.dropped, processes.cache.calls) == (1, calls)


@pytest.fixture
async def over_redis() -> AsyncIterator[tuple[ResultCache, ResultCache, SecondLevel]]:
    """Two processes' memories over a real Redis."""
    clock = FrozenClock()
    with redis_server() as server:
        url = f"redis://{server.host}:{server.port}/0"
        async with open_redis(url, "ours") as one, open_redis(url, "ours") as other:
            first = SecondLevel(one, Dependency("cache", one.ping, clock), timeout_s=20.0)
            second = SecondLevel(other, Dependency("cache", other.ping, clock), timeout_s=20.0)
            yield ResultCache(10, 300.0, clock, first), ResultCache(10, 300.0, clock, second), first


async def test_two_processes_share_their_answers_through_redis(
    over_redis: tuple[ResultCache, ResultCache, SecondLevel],
) -> None:
    one, other, level = over_redis
    one.put(Query("q"), 1, answer(result(), result(1)), "index:5")
    await level.flush()
    assert await other.fetch(Query("q"), 3, "index:5") == replace(answer(result(), result(1)), cached=True)
    assert await other.fetch(Query("q"), 4, "index:6") is None


@pytest.mark.parametrize(("own", "theirs", "believed"), [("s", "s", True), ("s", "", False), ("s", "t", False)])
async def test_only_values_that_were_signed_with_the_secret_are_accepted(own: str, theirs: str, believed: bool) -> None:
    clock = FrozenClock()
    cache = MemoryCache(clock)
    guard = Dependency("cache", cache.ping, clock)
    writer = SecondLevel(cache, guard, timeout_s=5.0, secret=theirs)
    reader = SecondLevel(cache, guard, timeout_s=5.0, secret=own)
    writer.put("name", lambda: b"value", 60.0)
    await writer.flush()
    assert await reader.get("name") == (b"value" if believed else None)
    sealed = await cache.get("name")
    assert sealed is not None
    await cache.set("other", sealed, 60.0)
    assert await reader.get("other") is None
