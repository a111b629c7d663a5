"""Turns of a talk (C-1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.indexing.markdown import fences
from rag_context.indexing.turns import turns


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
def test_a_turn_begins_with_its_speaker(line: str, speaker: str) -> None:
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
def test_other_lines_are_no_turns(line: str) -> None:
    assert speakers(line) == [""]


def test_what_precedes_the_first_turn_has_no_speaker() -> None:
    assert speakers("Log of today\n[Ann] hi\n[Bob] ho\n") == ["", "Ann", "Bob"]


def test_no_turn_begins_in_a_code_fence() -> None:
    assert speakers("[Ann] see\n```\nkey: value\n```\n[Bob] ok\n```\nb: c\n```\n[Cy] so") == ["Ann", "Bob", "Cy"]


@given(st.text(alphabet=st.sampled_from("aB[]<>:*# \n1`"), max_size=150))
def test_turns_cover_any_text_without_gaps(text: str) -> None:
    assert "".join(text[block.start : block.end] for block in turns(text, fences(text))) == text
