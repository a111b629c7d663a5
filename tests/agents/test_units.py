"""What kind of statement a message is, which messages belong together, and where they are cut."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from rag_context.agents.units import Kind, Unit, kind_of, rendered, units_of
from rag_context.domain.documents import Chunk, Metadata, Span
from rag_context.domain.search import Passage
from rag_context.testing.fakes import WordTokenizer

AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Around:
    """A passage with its neighbours."""

    passage: Passage
    before: Passage | None = None
    after: Passage | None = None


def messages(*texts: str, first: str = "User") -> list[Passage]:
    """A conversation of two, who speak in turn."""
    speakers = ("User", "Assistant") if first == "User" else ("Assistant", "User")
    return [message(text, speakers[at % 2], at) for at, text in enumerate(texts)]


def message(text: str, speaker: str | None, at: int = 0, content_type: str = "chat") -> Passage:
    shown = text if speaker is None else f"[{speaker}] {text}"
    chunk = Chunk(f"c{at}", "d", at, shown, Span(0, len(shown), 1, 1), occurred_at=AT, speaker=speaker)
    return Passage(
        title="talk",
        content_type=content_type,
        session_id="s",
        source="talk",
        timestamp=AT,
        metadata=Metadata(),
        chunk=chunk,
        document_id="d",
    )


def unit(talk: Sequence[Passage], at: int) -> Unit:
    """The unit of the message at `at`, where a search found that one and knows those beside it."""
    beside = Around(talk[at], talk[at - 1] if at else None, talk[at + 1] if at + 1 < len(talk) else None)
    others = [Around(each) for each in talk]
    return units_of([beside, *others])[0]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Let's keep the unique index, a lost lock charges a customer again.", Kind.DECISION),
        ("We decided against soft deletion.", Kind.DECISION),
        ("Why is the watchdog at 8 seconds?", Kind.QUESTION),
        ("Please add logging to src/a.py.", Kind.REQUEST),
        ("The root cause was a missing timezone.", Kind.FIX),
        (
            "Photos are shrunk to 2048 pixels on the phone before they are uploaded, and the originals stay there.",
            "statement",
        ),
    ],
)
def test_a_users_message_follows_from_its_wording(text: str, kind: str) -> None:
    assert kind_of(message(text, "User"), None) == kind


@pytest.mark.parametrize(
    ("before", "text", "kind"),
    [
        ("Add a test for the parser.", "I added two tests, both pass.", Kind.REPORT),
        ("Why do old saves break?", "Because a field of Unit was renamed.", Kind.ANSWER),
        ("What does src/parser.py do?", "It reads lines and returns records.", Kind.REPORT),
        ("Does the parser have tests?", "Three, for the usual case.", Kind.REPORT),
        ("Uploads end with 413", "The cause was the limit of the ingress; it is 40 MB now.", Kind.FIX),
    ],
)
def test_a_reply_is_an_answer_only_if_the_question_is_not_everyday_work(before: str, text: str, kind: str) -> None:
    question, reply = messages(before, text)
    assert kind_of(reply, question) == kind


def test_a_question_leads_to_what_was_decided_in_the_end() -> None:
    talk = messages(
        "How do we handle webhooks that come twice?",
        "Either a unique index or a lock in Redis.",
        "Let's go with the unique index, Redis was down twice.",
        "Done.",
    )
    for found_by in (0, 1, 2, 3):
        assert (unit(talk, found_by).conclusion, unit(talk, found_by).question) == (talk[2], talk[0])


def test_what_a_user_says_after_a_report_answers_nothing() -> None:
    talk = messages(
        "Update the dependencies.", "Seven packages were raised.", "We decided to pin them all from March on."
    )
    assert unit(talk, 2).question is None
    assert unit(talk, 0).kind is Kind.REQUEST


def test_a_problem_leads_to_what_the_user_says_of_it_after_an_explanation() -> None:
    talk = messages(
        "Management sees negative revenue on Mondays",
        "Returns of unsold bread are booked on Monday for the whole weekend before it.",
        "Keep returns out of the tile with the revenue and show them in a tile of their own, as they asked for.",
    )
    for found_by in (0, 2):
        assert (unit(talk, found_by).conclusion, unit(talk, found_by).question) == (talk[2], talk[0])


def test_a_solution_belongs_to_its_problem_in_whatever_words_it_is_reported() -> None:
    talk = messages(
        "Exports of large tables take ten minutes since Monday",
        "Each worker has a buffer of its own now, and the lock is taken once for each batch of records.",
    )
    found = unit(talk, 0)
    assert (found.kind, found.conclusion, found.question) == (Kind.STATEMENT, talk[1], talk[0])


def test_a_unit_is_cut_at_the_end_of_a_sentence() -> None:
    talk = messages("Why is it so? I really wonder.", "Because of one. Because of two. Because of three.")
    whole = "Why is it so? I really wonder.\nBecause of one. Because of two. Because of three."
    assert rendered(unit(talk, 1), WordTokenizer(), 100) == (whole, 16)
    text, tokens = rendered(unit(talk, 1), WordTokenizer(), 10)
    assert text == "I really wonder.\nBecause of one. Because of two."
    assert tokens <= 10
    assert rendered(unit(talk, 1), WordTokenizer(), 3) == ("", 0)
