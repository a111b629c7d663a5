"""What an answer says of vectors that are missing, and how that is counted."""

from dataclasses import replace

import pytest

from rag_context.domain.callers import Bounds
from rag_context.domain.documents import CODE, Missing
from rag_context.domain.search import Filter
from rag_context.errors import BackendUnavailableError
from rag_context.memory.bounded import bounded_backends
from rag_context.ports.reading import DocumentStore
from rag_context.search.query import Level, Mode, Query, RetrieverStatus
from rag_context.search.reads import COUNTING_SHARE, VECTORS_LOST, Coverage, described, lowers_level, matters
from rag_context.testing import Fault, Faulty, FrozenClock
from tests.memory_stores import MemoryStore
from tests.search.harness import ChainHarness

QUOTE = "the grey heron waits at the lower weir until the sluice is opened"


async def filled(harness: ChainHarness, whole: int, pending: int) -> None:
    for i in range(whole):
        await harness.add(f"w{i}", f"Number {i} speaks of the heron, the weir and the sluice.")
    for i in range(pending):
        await harness.add(f"p{i}", f"Number {i}: {QUOTE} for the {i}th time.", pending=True)


@pytest.mark.parametrize("mode", [Mode.HYBRID, Mode.VECTOR])
async def test_an_answer_says_how_many_vectors_are_missing(harness: ChainHarness, mode: Mode) -> None:
    await filled(harness, 6, 1)
    answer = await harness.chain.search(Query(QUOTE, mode=mode))
    assert answer.level is Level.TEXT
    assert answer.warning == "1 of 10 passages have no vectors yet and are ranked by keyword search alone"
    assert answer.results[0].passage.document_id == "p0"
    assert not answer.unanswerable


@pytest.mark.parametrize("mode", [Mode.HYBRID, Mode.VECTOR])
async def test_without_vectors_keyword_search_answers_at_level_2(mode: Mode) -> None:
    harness = ChainHarness()
    await filled(harness, 0, 3)
    by_keywords = await harness.chain.search(Query(f"{QUOTE} 2th", mode=Mode.TEXT))
    answer = await harness.chain.search(Query(f"{QUOTE} 2th", mode=mode))
    assert answer.level is Level.TEXT
    assert (answer.warning or "").startswith("3 of 3 passages have no vectors yet")
    assert [r.passage.chunk.id for r in answer.results] == [r.passage.chunk.id for r in by_keywords.results]
    assert [r.ranked.score for r in answer.results] == [r.ranked.score for r in by_keywords.results]


async def test_one_in_a_hundred_is_no_matter(harness: ChainHarness) -> None:
    await filled(harness, 97, 1)
    answer = await harness.chain.search(Query(QUOTE))
    assert (answer.level, answer.warning) == (Level.PRIMARY, None)
    assert answer.results[0].passage.document_id == "p0"


async def test_a_few_in_a_hundred_are_a_warning_at_level_1(harness: ChainHarness) -> None:
    await filled(harness, 93, 4)
    answer = await harness.chain.search(Query(QUOTE))
    assert answer.level is Level.PRIMARY
    assert answer.warning == "4 of 100 passages have no vectors yet and are ranked by keyword search alone"
    assert not answer.unanswerable


async def test_an_answer_without_any_vectors_reports_no_vector_search() -> None:
    harness = ChainHarness()
    harness.chain._coverage.clock = harness.clock  # on a busy machine counting takes long, and then holds for long
    await filled(harness, 0, 3)
    assert (await harness.chain.search(Query(QUOTE))).legs["vector"].status is RetrieverStatus.SKIPPED
    await filled(harness, 3, 0)
    assert (await harness.chain.search(Query(QUOTE))).legs["vector"].status is RetrieverStatus.OK


async def test_only_what_the_filter_lets_through_counts(harness: ChainHarness) -> None:
    await filled(harness, 3, 3)
    await harness.add("code", "def weir(): ...", kind=CODE)
    assert (await harness.chain.search(Query(QUOTE, where=Filter(content_type=CODE)))).level is Level.PRIMARY
    assert (await harness.chain.search(Query(QUOTE))).level is Level.TEXT


async def test_requested_keyword_search_is_level_1_whatever_is_missing(harness: ChainHarness) -> None:
    await filled(harness, 0, 3)
    answer = await harness.chain.search(Query(QUOTE, mode=Mode.TEXT))
    assert (answer.level, answer.warning) == (Level.PRIMARY, None)


async def test_a_threshold_of_cosines_hides_no_passage_without_one(harness: ChainHarness) -> None:
    await filled(harness, 3, 3)
    asked = Query("heron elephants bicycles parliaments umbrellas", limit=20)  # a small share of its words
    found = {result.passage.document_id for result in (await harness.chain.search(asked)).results}
    assert {"p0", "p1", "p2"} <= found


class Counting(MemoryStore):
    """Counts how often it counts, and says how long that took."""

    def __init__(self, clock: FrozenClock, takes_s: float) -> None:
        super().__init__()
        self.clock, self.takes_s, self.counted, self.waiting = clock, takes_s, 0, 1

    async def has_all_vectors(self) -> bool:
        return self.waiting == 0

    async def missing_vectors(self, where: Filter) -> Missing:
        self.counted += 1
        self.clock.advance(self.takes_s)
        return Missing(self.counted, 100)


async def test_a_count_stands_while_the_index_does_not_change() -> None:
    clock = FrozenClock()
    store = Counting(clock, 0.0)
    coverage = Coverage(store, clock)
    for _ in range(3):
        assert await coverage.missing(Filter()) == Missing(1, 100)
    store.version += 1
    assert await coverage.missing(Filter()) == Missing(2, 100)
    assert await coverage.missing(Filter(content_type=CODE)) == Missing(3, 100), "another filter"


async def test_counting_takes_a_bounded_share_of_the_time() -> None:
    clock = FrozenClock()
    store = Counting(clock, 0.1)
    coverage = Coverage(store, clock)
    for _ in range(1000):
        store.version += 1
        await coverage.missing(Filter())
        clock.advance(0.01)
    assert 5 <= store.counted <= 1 + COUNTING_SHARE * clock() / store.takes_s


async def test_that_all_vectors_have_come_is_seen_without_counting() -> None:
    clock = FrozenClock()
    store = Counting(clock, 0.1)
    coverage = Coverage(store, clock)
    assert await coverage.missing(Filter()) == Missing(1, 100)
    store.version += 1
    assert await coverage.missing(Filter()) == Missing(1, 100)
    store.waiting = 0
    assert coverage.known(Filter()) is None
    assert await coverage.missing(Filter()) == Missing()
    assert await coverage.missing(Filter()) == Missing()
    assert store.counted == 1


async def test_lost_vectors_are_counted_in_the_whole_index() -> None:
    """Q-2, X-6: so a caller who may see a part of it gets no number of them."""
    lost = Missing(4, 10, of_all=True)
    assert await Coverage(MemoryStore(), FrozenClock(), lambda: lost).missing(Filter(content_type=CODE)) == lost
    assert not any(sign.isdigit() for sign in described(lost))


async def test_an_answer_to_a_key_with_bounds_says_that_vectors_were_lost() -> None:
    """X-6: it knows nothing of the others', but that it may miss something."""
    harness = ChainHarness()
    await filled(harness, 10, 0)
    sources = replace(harness.sources, lost_vectors=lambda: Missing(4, 10, of_all=True))
    answer = await harness.chain.over(bounded_backends(sources, Bounds(agents=("alicia",)))).search(Query(QUOTE))
    assert (answer.level, answer.warning) == (Level.TEXT, VECTORS_LOST)


async def test_that_all_vectors_have_come_is_seen_for_a_key_with_bounds_too() -> None:
    harness, clock = ChainHarness(), FrozenClock()
    store = Counting(clock, 0.1)
    seen = bounded_backends(replace(harness.sources, documents=store), Bounds(agents=("alicia",)))
    coverage = Coverage(seen.documents, clock)
    assert await coverage.missing(Filter()) == Missing(1, 100)
    store.version, store.waiting = store.version + 1, 0
    assert await coverage.missing(Filter()) == Missing()


async def test_what_cannot_be_counted_is_as_it_was() -> None:
    clock = FrozenClock()
    store = Counting(clock, 0.0)
    faulty: Faulty[DocumentStore] = Faulty(store, "missing_vectors")
    coverage = Coverage(faulty.port, clock)
    await coverage.missing(Filter())
    store.version += 1
    faulty.fault = Fault(BackendUnavailableError("documents", "gone"))
    assert await coverage.missing(Filter()) == Missing(1, 100)
    faulty.fault = None
    assert await coverage.missing(Filter()) == Missing(2, 100)


@pytest.mark.parametrize(
    ("vectors", "warns", "lowers"),
    [(0, False, False), (10, False, False), (11, True, False), (50, True, False), (51, True, True), (1000, True, True)],
)
def test_more_than_one_in_a_hundred_matters_and_more_than_five_lower_the_level(
    vectors: int, warns: bool, lowers: bool
) -> None:
    missing = Missing(vectors, 1000)
    assert (matters(missing), lowers_level(missing)) == (warns, lowers)
    assert not matters(Missing())
