"""Messages are ranked by what they hold, by how much of them is questions, and by their conversation."""

from dataclasses import replace

import numpy as np
import pytest

from rag_context.domain.documents import CHAT, DOCUMENTATION
from rag_context.domain.ranking_rules import Rule
from rag_context.domain.search import ChunkRef, RawScores
from rag_context.search.chain import SearchChain
from rag_context.search.message_rules import (
    MessageFeatures,
    by_answer,
    by_questions,
    kinds_of_answer,
    question_share,
    said_by_other,
    with_session_prior,
)
from rag_context.search.query import Answer, Query
from rag_context.search.ranking import Candidates
from rag_context.search.rules import ANSWER_WEIGHT, QUESTION_WEIGHT, SESSION_WEIGHT
from tests.search.harness import ChainHarness

TIME, NUMBER, REPEATED, PLACE = range(4)


def said_by(*speakers: str | None, kind: str = CHAT, thread: str = "t") -> list[ChunkRef]:
    return [ChunkRef(str(number), "d", number, kind, thread, speaker) for number, speaker in enumerate(speakers)]


@pytest.mark.parametrize(
    ("question", "kinds"),
    [
        ("When did Mara move?", (TIME,)),
        ("what day was the concert", (TIME,)),
        ("How many cats does he have?", (NUMBER,)),
        ("How often does it rain?", (REPEATED,)),
        ("How long did it take?", (NUMBER,)),
        ("Where did they meet, and when?", (TIME, PLACE)),
        ("How do I move?", ()),
        ("I know when to stop", ()),
    ],
)
def test_a_question_is_for_a_kind_of_answer(question: str, kinds: tuple[int, ...]) -> None:
    assert kinds_of_answer(question) == kinds


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("[Mara] I moved last week.", {TIME}),
        ("We met in Lisbon.", {PLACE}),
        ("[2025-03-08 18:02] [Mara] I like the garden.", set()),
        ("Two of them, since 2019.", {TIME, NUMBER, REPEATED}),
        ("We paint it every other year.", {REPEATED}),
        ("I may go to bed.", set()),
    ],
)
async def test_a_message_holds_kinds_of_answers(text: str, kinds: set[int]) -> None:
    harness = ChainHarness()
    await harness.add("a", text, kind=CHAT)
    passages = await harness.store.passages(["a-0"])
    holds = MessageFeatures.of(passages["a-0"]).holds
    assert {kind for kind, holding in enumerate(holds) if holding} == kinds


def test_what_holds_the_answer_gains_a_share_of_the_best() -> None:
    features = {0: MessageFeatures((False,) * 4, 0.0), 1: MessageFeatures((True, False, False, False), 0.0)}
    assert by_answer("When was it?", np.array([0.8, 0.5]), features) == pytest.approx([0.8, 0.5 + 0.8 * ANSWER_WEIGHT])
    assert by_answer("Who was it?", np.array([0.8, 0.5]), features) == pytest.approx([0.8, 0.5])


def test_the_share_of_questions_is_counted_in_words() -> None:
    assert question_share("Did you go there? I did.") == pytest.approx(4 / 6)
    assert question_share("I did.") == question_share("") == 0.0


def test_only_between_people_a_question_stands_back() -> None:
    features = dict.fromkeys(range(3), MessageFeatures((), 1.0))
    scores = by_questions(np.ones(3), said_by("Mara", "User", None), features)
    assert scores == pytest.approx([1.0 - QUESTION_WEIGHT, 1.0, 1.0])


def test_a_message_between_people_gains_by_all_of_its_conversation() -> None:
    chunks = [*said_by("Mara", thread="a"), *said_by("Jonas", thread="b"), *said_by("User", thread="c")]
    scores = with_session_prior(np.array([0.5, 0.5, 0.5]), chunks, {"a": 8.0, "b": 2.0})
    assert scores == pytest.approx(0.5 + SESSION_WEIGHT * np.array([1.0, 0.25, 0.5]))


def test_a_document_gains_by_no_conversation() -> None:
    chunks = [ChunkRef("a", "d", 0, DOCUMENTATION)]
    assert with_session_prior(np.array([0.5]), chunks, {}) == pytest.approx([0.5])


async def asked(harness: ChainHarness, text: str, *without: Rule) -> list[str]:
    answer = await SearchChain(harness.sources, harness.breaker, deadline_s=5.0, without=without).search(Query(text))
    return [result.passage.document_id for result in answer.results]


async def test_a_time_comes_before_what_repeats_the_question() -> None:
    harness = ChainHarness()
    for name, text, speaker in (
        ("asks", "[Jonas] Did the pottery course start?", "Jonas"),
        ("tells", "[Mara] It did start last April, the pottery course.", "Mara"),
    ):
        await harness.add(name, text, kind=CHAT, thread="t", speaker=speaker)
    question = "When did the pottery course start?"
    assert (await asked(harness, question))[0] == "tells"
    assert (await asked(harness, question, *Rule))[0] == "asks"


async def test_the_conversation_on_a_subject_comes_before_a_message_that_names_it() -> None:
    harness = ChainHarness()
    for number, text in enumerate(("The boat needs paint.", "Blue paint for the boat?", "It went well.")):
        await harness.add(f"on-{number}", text, kind=CHAT, thread="on", speaker="Mara")
    for number, text in enumerate(("It went well.", "The garden is dry.", "The cat sleeps.")):
        await harness.add(f"off-{number}", text, kind=CHAT, thread="off", speaker="Mara", day=2)
    found = await asked(harness, "boat paint went well")
    assert found.index("on-2") < found.index("off-0")


@pytest.mark.parametrize(
    ("asked", "cosines", "shares", "other"),
    [
        ("Ana", (0.3, 0.41), (0.0, 0.0), "Ben"),
        ("Ana", (0.3, 0.39), (0.0, 0.0), None),
        ("Ana", (0.3, 0.36), (0.1, 0.2), "Ben"),
        ("Ana", (0.3, 0.41), (0.1, 0.0), None),
        ("Ben", (0.3, 0.41), (0.0, 0.0), None),
        (None, (0.1, 0.9), (0.0, 0.0), None),
    ],
)
def test_what_another_person_said_is_labelled(
    asked: str | None, cosines: tuple[float, float], shares: tuple[float, float], other: str | None
) -> None:
    scores = RawScores(np.array(cosines), np.zeros(2), np.array(shares))
    assert said_by_other(asked, Candidates(said_by("Ana", "Ben"), scores)) == other


async def test_an_answer_says_who_else_said_it() -> None:
    harness = ChainHarness()
    await harness.add("a", "[Ana] I like the garden.", kind=CHAT, speaker="Ana", thread="t")
    await harness.add("b", "[Ben] I bought a red bicycle.", kind=CHAT, speaker="Ben", thread="t")
    answer = await harness.chain.search(Query("Which bicycle did Ana buy, the red bicycle?", min_score=0.0))
    assert answer.other_speaker == "Ben"
    assert (await harness.chain.search(Query("Which bicycle did Ben buy?", min_score=0.0))).other_speaker is None


@pytest.mark.parametrize(
    ("dated", "name"),
    [
        ("Release 2.1 (2024-03-08): proxies.", "b"),
        ("Proxies came on 8 March 2024.", "b"),
        ("Proxies.", "docs/changelog"),
    ],
)
async def test_when_something_happened_is_in_dated_passages_and_lists_of_changes(dated: str, name: str) -> None:
    harness = ChainHarness()
    await harness.add("a", "Proxies were added to the client, and a proxy is used with the client.")
    await harness.add(name, f"{dated} A proxy is used with the client where one was added to the client.")
    query = Query("When were proxies added to the client?", min_score=0.0)
    plain = await replace(harness.chain, without=(Rule.ANSWER,)).search(query)
    by_day = await harness.chain.search(query)

    def gap(answer: Answer) -> float:
        fused = {result.passage.document_id: result.ranked.fused for result in answer.results}
        return fused[name] - fused["a"]

    assert gap(by_day) == pytest.approx(gap(plain) + ANSWER_WEIGHT * max(r.ranked.fused for r in plain.results))
