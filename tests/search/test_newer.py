"""Of two statements with different values the later stands first, and the older is marked (H-4)."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from rag_context.domain.documents import CHAT, CODE, DECISION, DOCUMENTATION, Chunk, Metadata, Origin, Span
from rag_context.domain.ranking_rules import Rule
from rag_context.domain.search import ChunkRef, Passage
from rag_context.errors import BackendUnavailableError
from rag_context.ports.reading import IndexVectors
from rag_context.search.chain import INEXACT, SearchChain
from rag_context.search.newer import asks_for_value, contenders, newer_first, values_in
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
    "text",
    [ASKED, "How many lessons does the course have?", "which gate does my flight leave from", "What is the limit?"],
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
        "Who is my dentist?",
        "Where is my dentist?",
        "What is my dentist called?",
    ],
)
def test_a_question_for_the_past_or_for_several_does_not(text: str) -> None:
    assert not asks_for_value(text)


def test_values_are_numbers_times_dates_and_weekdays() -> None:
    text = "From 18:12 on 2026-03-01, two cups on Fridays in March for 4.200 euros."
    assert values_in(text, "When is it?") == {"18:12", "2026-03-01", "friday", "march"}
    assert {"two", "4.200"} <= values_in(text, "How much is it?")
    assert not values_in("I may march on someone's behalf", "When is it?")
    assert not values_in("It moved again.", "When is it?")


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


def stated(name: str, text: str, days: int, *, kind: str = DECISION, fraction: int = 0, fused: float = 1.0) -> Result:
    made = result(name, text, days, speaker=None, fused=fused)
    at = made.passage.occurred_at + timedelta(microseconds=fraction)
    chunk = replace(made.passage.chunk, occurred_at=at, origin=Origin.DOCUMENT)
    return replace(made, passage=replace(made.passage, content_type=kind, chunk=chunk))


LIMIT = "What is the limit of an upload?"
OLD_LIMIT = "Decision of March. The limit of an upload is 20 MB. We looked at 7 services."
NEW_LIMIT = "Decision of September. The limit of an upload is 50 MB. We looked at 7 services."


@pytest.mark.parametrize("kind", [DECISION, DOCUMENTATION])
def test_a_later_decision_with_another_value_stands_first(kind: str) -> None:
    old, new = stated("old", OLD_LIMIT, 0, kind=kind), stated("new", NEW_LIMIT, 180, kind=kind, fused=0.9)
    assert ordered(LIMIT, old, new) == ["new", "old"]


@pytest.mark.parametrize(
    "new",
    [
        stated("new", NEW_LIMIT, 180, fraction=250_000),
        stated("new", NEW_LIMIT, 180, kind=CODE),
        stated("new", "The limit of an upload stays at 20 MB. We looked at 9 services.", 180),
        stated("new", "The limit of a session is 50 minutes.", 180),
        result("new", "The limit of an upload is 50 MB.", 180, speaker=None),
    ],
    ids=["a file with the time of its last change", "code", "another value elsewhere", "another subject", "a message"],
)
def test_other_documents_leave_the_order(new: Result) -> None:
    assert ordered(LIMIT, stated("old", OLD_LIMIT, 0), new) == ["old", "new"]


def test_within_a_conversation_without_times_the_place_counts() -> None:
    def at(made: Result, position: int) -> Result:
        chunk = replace(made.passage.chunk, position=position, document_id="talk")
        return replace(made, passage=replace(made.passage, chunk=chunk, document_id="talk"))

    old, new = OLD, result("new", "The dentist appointment moved to Thursday, 9 am.", 0)
    assert ordered(ASKED, old, new) == ["old", "new"]
    assert ordered(ASKED, at(old, 3), at(new, 8)) == ["new", "old"]
    assert ordered(ASKED, at(old, 8), at(new, 3)) == ["old", "new"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("My dentist appointment is soon. (D2:5)", "My dentist appointment is soon, I hope. (D4:1)"),
        (
            "My dentist appointment was fun! [photo of 2 dogs]",
            "My dentist appointment was fun. [shared a photo: 3 dogs]",
        ),
        ("The dentist appointment costs 40 euros.", "The dentist appointment costs 45 euros."),
        ("My dentist appointment is on Tuesday.", "My dentist appointment is soon, in room 7."),
    ],
    ids=["codes", "captions", "numbers for a date", "a value of another type"],
)
def test_only_values_of_the_type_that_the_question_is_for_count(old: str, new: str) -> None:
    assert ordered(ASKED, result("old", old, 0), result("new", new, 5)) == ["old", "new"]


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
