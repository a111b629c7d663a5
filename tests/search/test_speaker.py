"""What the one said whom a question is about counts more."""

import pytest

from rag_context.domain.documents import CHAT
from rag_context.domain.search import ChunkRef, VectorHit
from rag_context.search.query import Mode, Query
from rag_context.search.question_rules import NO_BOOSTS, Boosts, boosts_for, may_name_speaker
from rag_context.search.rules import NAMED_FACTOR, USER_FACTOR
from tests.search.harness import ChainHarness


def said_by(*speakers: str | None) -> list[ChunkRef]:
    return [ChunkRef(str(number), "d", number, CHAT, None, speaker) for number, speaker in enumerate(speakers)]


ROLES = said_by("User", "Assistant", None)
PEOPLE = said_by("Mara Berg", "Jonas", "Will", "User", None)


@pytest.mark.parametrize(
    "text",
    [
        "What is my cat called?",
        "where did I park",
        "Which flight are we on?",
        "Can you tell me what I paid?",
        "What would you recommend, given my taste?",
        "Who drove us home?",
        "I’m allergic to what?",
    ],
)
def test_a_question_about_oneself_is_about_what_the_user_said(text: str) -> None:
    assert boosts_for(text, ROLES) == Boosts("User", USER_FACTOR)
    assert may_name_speaker(text)


@pytest.mark.parametrize(
    "text",
    [
        "Summarize what I did this year",
        "Give me an overview of my projects",
        "What did you recommend for my knee?",
        "Which book have you ever suggested to me?",
        "Remind me of the restaurant you suggested for us",
        "What was your first advice on my garden?",
        "When does the museum open?",
        "How large is the US market?",
    ],
)
def test_an_overview_or_what_the_assistant_said_prefers_no_speaker(text: str) -> None:
    assert boosts_for(text, ROLES) == NO_BOOSTS


@pytest.mark.parametrize(
    ("text", "speaker"),
    [
        ("What did mara buy?", "Mara Berg"),
        ("Is JONAS's boat red?", "Jonas"),
        ("When will it rain?", None),
        ("Will the shop open?", None),
        ("Where does Will live?", "Will"),
        ("What did Mara tell Jonas?", None),
        ("Which of the users marathons?", None),
        ("What does the user drink?", None),
    ],
)
def test_one_first_name_in_a_question_names_a_speaker(text: str, speaker: str | None) -> None:
    assert boosts_for(text, PEOPLE) == (NO_BOOSTS if speaker is None else Boosts(speaker, NAMED_FACTOR))


def test_two_speakers_of_one_first_name_are_not_distinguished() -> None:
    assert boosts_for("Where is Mara?", said_by("Mara Berg", "Mara Stein")) == NO_BOOSTS


def test_a_question_about_no_speaker_needs_no_more_candidates() -> None:
    assert not may_name_speaker("how does the cache expire?")
    assert not may_name_speaker("What is a vector?")
    assert may_name_speaker("What does Mara eat?")


def test_a_retriever_s_best_are_chosen_with_the_factor() -> None:
    hits = [VectorHit(ref, cosine) for ref, cosine in zip(ROLES, (0.5, 0.7, 0.8), strict=True)]
    assert [hit.chunk.id for hit in Boosts("User", 1.5).best(hits, lambda hit: hit.cosine, 2)] == ["2", "0"]
    assert NO_BOOSTS.best(hits, lambda hit: hit.cosine, 2) == hits[:2]


async def answered(harness: ChainHarness, text: str, mode: Mode = Mode.HYBRID) -> dict[str, tuple[float, float]]:
    """Fused score and factor by document, in order; the same vector and terms, whatever else the text says."""
    vector = await harness.fake.embed_query("valve pressure")
    answer = await harness.chain.search(Query(text, vector=vector, min_score=0.0, mode=mode))
    return {each.passage.document_id: (each.ranked.fused, each.ranked.boost) for each in answer.results}


async def test_the_order_is_that_of_the_smoothed_scores_with_the_factor() -> None:
    harness = ChainHarness()
    for name, text, speaker in (
        ("a", "The valve holds pressure, valve by valve.", "Assistant"),
        ("b", "Our valve lost pressure on the way to the old harbour.", "User"),
        ("c", "The pump and its pressure.", None),
    ):
        await harness.add(name, text, kind=CHAT, thread="talk", speaker=speaker)
    plain, mine = await answered(harness, "valve pressure"), await answered(harness, "my valve pressure")
    assert next(iter(plain)) == "a"
    assert next(iter(mine)) == "b"
    assert {name: boost for name, (_, boost) in mine.items()} == {"a": 1.0, "b": USER_FACTOR, "c": 1.0}
    for name, (fused, boost) in mine.items():
        assert fused == pytest.approx(plain[name][0] * boost)
    for mode in (Mode.VECTOR, Mode.TEXT):
        assert await answered(harness, "my valve pressure", mode) == await answered(harness, "valve pressure", mode)


async def test_documents_keep_their_order_beside_what_the_user_said() -> None:
    harness = ChainHarness()
    await harness.add("manual", "The valve holds pressure, valve by valve.")
    await harness.add("mine", "Our valve lost pressure on the way to the old harbour.", kind=CHAT, speaker="User")
    await harness.add("advice", "The valve holds pressure if the valve is shut.", kind=CHAT, speaker="Assistant")
    plain, asked = await answered(harness, "valve pressure"), await answered(harness, "my valve pressure")
    assert [name for name in asked if name != "advice"] == [name for name in plain if name != "advice"]
    assert list(asked)[-1] == "advice" != list(plain)[-1]


async def test_what_the_user_said_is_found_behind_many_repetitions() -> None:
    harness = ChainHarness()
    for number in range(60):
        await harness.add(f"a{number}", "valve pressure", kind=CHAT, thread=f"talk {number}", speaker="Assistant")
    await harness.add("b", "valve pressure lost", kind=CHAT, thread="mine", speaker="User")
    assert "b" not in await answered(harness, "valve pressure")
    assert next(iter(await answered(harness, "my valve pressure"))) == "b"
