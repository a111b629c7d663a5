"""Of two statements with different values the later stands first, and the older is marked (H-4)."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from rag_context.domain.documents import CHAT, DOCUMENTATION, Chunk, Metadata, Span
from rag_context.domain.ranking_rules import Rule
from rag_context.domain.search import ChunkRef, Passage
from rag_context.errors import BackendUnavailableError
from rag_context.ports.reading import IndexVectors
from rag_context.search.chain import INEXACT, SearchChain
from rag_context.search.final_order import asks_for_value, contenders, newer_first, values_in
from rag_context.search.query import Mode, Query, Result, RetrieverStatus
from rag_context.search.ranking import Candidate, Ranked
from rag_context.testing import Fault, Faulty
from tests.search.harness import ChainHarness
from tests.stores.builders import NOON, axis


def result(name: str, text: str, days: int, *, fused: float = 1.0, speaker: str | None = "User") -> Result:
    at = NOON + timedelta(days=days)
    chunk = Chunk(name, f"document {name}", 0, text, Span(0, len(text), 1, 1), occurred_at=at, speaker=speaker)
    shown = {"title": "T", "content_type": CHAT, "session_id": "s", "source": "a"}
    passage = Passage(chunk, chunk.document_id, timestamp=at, metadata=Metadata(), **shown)
    return Result(
        passage, Ranked(Candidate(ChunkRef(name, chunk.document_id, 0, CHAT), 0.5, 1.0, 0.5), fused, 0.5), 1, 1
    )


OLD = result("old", "My dentist appointment is on Tuesday at 3 pm.", 0)
NEW = result("new", "The dentist appointment moved to Thursday, 9 am.", 5, fused=0.7)
ASKED = "When is my dentist appointment?"
ALIKE = {"old": axis(0), "new": axis(0), "newest": axis(0)}


def ordered(text: str, *results: Result, alike: dict[str, np.ndarray] = ALIKE) -> list[str]:
    anchor, found = contenders(text, results)
    after = newer_first(results, anchor, found, alike) if found else results
    return [each.passage.chunk.id for each in after]


@pytest.mark.parametrize(
    "text", [ASKED, "How many lessons does the course have?", "which gate does my flight leave from"]
)
def test_a_question_for_what_holds_now_is_a_question_for_a_value(text: str) -> None:
    assert asks_for_value(text)


@pytest.mark.parametrize(
    "text",
    [
        "When was my first appointment?",
        "How has my rent changed?",
        "What is the difference between the two plans?",
        "What have I told you about my flat so far?",
        "Book the dentist.",
        "I know how to cook",
    ],
)
def test_a_question_for_the_past_or_for_several_does_not(text: str) -> None:
    assert not asks_for_value(text)


def test_values_are_numbers_times_dates_and_weekdays() -> None:
    assert values_in("From 18:12 on 2026-03-01, two cups on Fridays in March for 4.200 euros.") == {
        "18:12", "2026-03-01", "two", "friday", "march", "4.200",
    }  # fmt: skip
    assert values_in("I may march on someone's behalf") == {"march"}
    assert not values_in("It moved again.")


def test_the_later_statement_stands_first_and_the_older_says_so() -> None:
    between = result("other", "I like the dentist.", 2, fused=0.9)
    anchor, found = contenders(ASKED, [OLD, between, NEW])
    first, second, third = newer_first([OLD, between, NEW], anchor, found, ALIKE)
    assert [each.passage.chunk.id for each in (first, second, third)] == ["new", "old", "other"]
    assert second.newer == NEW.passage
    assert (first.newer, third.newer) == (None, None)


def test_of_several_the_newest_stands_first() -> None:
    newest = result("newest", "My dentist appointment is now on 4 May.", 9, fused=0.6)
    assert ordered(ASKED, OLD, NEW, newest) == ["newest", "new", "old"]


@pytest.mark.parametrize(
    "other",
    [
        result("new", "The dentist appointment moved to Thursday, 9 am.", -5),
        result("new", "The dentist appointment moved to Thursday, 9 am.", 5, speaker="Assistant"),
        result("new", "The dentist appointment: Tuesday, 3 pm.", 5),
        result("new", "The dentist appointment moved again.", 5),
        result("new", "The plumber comes on Thursday, 9 am.", 5),
        result("new", "The dentist appointment moved to Thursday, 9 am.", 5, fused=0.45),
    ],
    ids=["earlier", "another speaker", "same value", "no value", "something else", "much worse"],
)
def test_anything_else_leaves_the_order(other: Result) -> None:
    assert ordered(ASKED, OLD, other) == ["old", "new"]


def test_a_statement_that_is_not_near_leaves_the_order() -> None:
    assert ordered(ASKED, OLD, NEW, alike={"old": axis(0), "new": axis(1)}) == ["old", "new"]
    assert ordered(ASKED, OLD, NEW, alike={"old": axis(0)}) == ["old", "new"]


def test_files_are_not_compared() -> None:
    old, new = (replace(each, passage=replace(each.passage, content_type=DOCUMENTATION)) for each in (OLD, NEW))
    assert ordered(ASKED, old, new) == ["old", "new"]


def test_with_roles_only_what_the_user_said_is_outdated() -> None:
    said = result("old", "Your dentist appointment is on Tuesday at 3 pm.", 0, speaker="Assistant")
    assert ordered(ASKED, said, NEW) == ["old", "new"]


async def test_a_search_returns_the_later_statement_first_and_needs_its_vectors() -> None:
    harness = ChainHarness()
    old, new = "840 euros a month", "900 euros a month, said the landlord on the stairs"
    for day, text in ((1, f"The rent of the flat is {old}."), (2, f"The rent of the flat is {new}.")):
        await harness.add(f"day {day}", text, kind=CHAT, speaker="User", day=day)
    query = Query("How much is the rent of the flat a month?", min_score=0.0)

    async def found(chain: SearchChain, query: Query = query) -> list[tuple[str, str | None]]:
        results = (await chain.search(query)).results
        return [(each.passage.document_id, each.newer.document_id if each.newer else None) for each in results]

    plain = [("day 1", None), ("day 2", None)]
    assert await found(harness.chain) == [("day 2", None), ("day 1", "day 2")]
    assert await found(harness.chain, replace(query, mode=Mode.TEXT)) == plain
    without = SearchChain(harness.sources, harness.breaker, deadline_s=5.0, without=(Rule.NEWER,))
    assert await found(without) == plain
    vectors: Faulty[IndexVectors] = Faulty(harness.store.vectors, "vectors")
    vectors.fault = Fault(BackendUnavailableError("vectors", "gone"))
    broken = SearchChain(replace(harness.sources, vectors=vectors.port), harness.breaker, deadline_s=5.0)
    assert await found(broken) == plain
    answer = await broken.search(query)
    assert (answer.warning, answer.legs["ranking"].status) == (INEXACT, RetrieverStatus.FAILED)
