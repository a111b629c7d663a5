"""Messages of a conversation (C-1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain.documents import CHAT
from rag_context.ingest.chunking.chunker import split
from rag_context.ingest.chunking.prose import conversation, fences, turns
from tests.ingest.tokens import word_pieces


def speakers(text: str) -> list[str]:
    return ["".join(block.path) for block in turns(text, fences(text))]


@pytest.mark.parametrize(
    ("line", "speaker"),
    [
        ("[Ann] hello", "Ann"),
        ("[Ann]: hello", "Ann"),
        ("Ann: hello", "Ann"),
        ("Ann Lee (PM): hello", "Ann Lee (PM)"),
        ("user: hello", "user"),
        ("**Ann:** hello", "Ann"),
        ("**Ann**: hello", "Ann"),
        ("<ann> hello", "ann"),
        ("[10:32] Ann: hello", "Ann"),
        ("2024-01-02 10:32 <ann> hello", "ann"),
        ("### Assistant\nhello", "Assistant"),
        ("Ann:\nhello", "Ann"),
    ],
)
def test_a_message_begins_with_its_speaker(line: str, speaker: str) -> None:
    assert speakers(f"{line}\nmore of it") == [speaker]


@pytest.mark.parametrize(
    "line",
    [
        "[docs](https://example.com) help",
        "[ ] to do",
        "[1] a reference",
        "https://example.com",
        "the reason for all of this: none",
        "a:b",
        "plain words",
    ],
)
def test_other_lines_are_no_messages(line: str) -> None:
    assert speakers(line) == [""]


def test_what_precedes_the_first_message_has_no_speaker() -> None:
    assert speakers("Log of today\n[Ann] hi\n[Bob] ho\n") == ["", "Ann", "Bob"]


def test_no_message_begins_in_a_code_fence() -> None:
    assert speakers("[Ann] see\n```\nkey: value\n```\n[Bob] ok\n```\nb: c\n```\n[Cy] so") == ["Ann", "Bob", "Cy"]


@given(st.text(alphabet=st.sampled_from("aB[]<>:*# \n1`"), max_size=150))
def test_messages_cover_any_text_without_gaps(text: str) -> None:
    assert "".join(text[block.start : block.end] for block in turns(text, fences(text))) == text


def test_where_messages_begin_with_a_name_in_brackets_no_other_line_begins_one() -> None:
    assert speakers("[Ann] so:\nNote: mine\n**Bold:** word\n[Bob] ok") == ["Ann", "Bob"]
    assert speakers("Ann: so\nNote: mine\n[Bob] ok") == ["Ann", "Note", "Bob"]


def test_no_message_begins_in_front_matter() -> None:
    assert speakers("---\ntitle: A talk\n---\n\n[Ann] hi\n") == ["", "Ann"]


def test_a_message_has_the_time_that_was_stamped_last() -> None:
    found = conversation("Log\n[2024-01-02 10:32] [Ann] hi\n[Bob] ho\n[2024-01-03 09:00] [Ann] so\n")
    assert list(found.clocks) == ["", "2024-01-02 10:32", "2024-01-02 10:32", "2024-01-03 09:00"]
    assert list(conversation("[10:32] Ann: hi\nBob: ho\n").clocks) == ["10:32", "10:32"]


def test_a_chunk_without_a_stamp_is_headed_by_the_last_one() -> None:
    turns_of = "".join(f"[Bob] Sentence number {number} of the talk about tea.\n" for number in range(30))
    content = f"[2024-01-02 10:32] [Ann] Tell me.\n{turns_of}"
    first, *rest = split(content, content_type=CHAT, source="a", tokenizer=word_pieces(), window=254)
    assert first.heading == ""
    assert {span.heading for span in rest} == {"2024-01-02 10:32"}
