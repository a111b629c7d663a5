"""Ends of sentences, lines and paragraphs (C-1)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.ingest.chunking.prose import boundaries
from rag_context.ingest.chunking.text_blocks import Strength


def parts(text: str) -> list[str]:
    """The text cut at every boundary that is more than a wrapped line."""
    offsets = [0, *(unit.offset for unit in boundaries(text) if unit.strength > Strength.WRAP), len(text)]
    return [text[start:end] for start, end in pairwise(offsets)]


@pytest.mark.parametrize(
    "expected",
    [
        ["It rains. ", "We stay. ", "Why? ", "Because!"],
        ["i said so. ", "you heard it."],
        ['He said "no." ', "Then he left."],
        ["(It was late.) ", "We slept."],
        ["Wait... ", "What?"],
        ["彼は来た。", "私は行った！", "なぜ？", "「はい。」", "終わり"],
        ["We sell tea, milk etc. ", "Then we close."],
        ["I did it and so did I. ", "You too."],
        ["An odd place . ", "Then more."],
        ["- one\n", "- two\n", "  - three"],
        ["| a | b |\n", "|---|---|\n", "| 1 | 2 |"],
        ["roses are red\n", "violets are blue"],
        ["One paragraph\n\n", "another"],
        ["One.\r\n\r\n", "Two."],
    ],
)
def test_a_text_is_parted_at_its_ends(expected: list[str]) -> None:
    assert parts("".join(expected)) == expected


@pytest.mark.parametrize(
    "sentence",
    [
        "Dr. Smith and Mrs. Jones met at St. Mary's.",
        "Use a tool, e.g. grep, i.e. a search.",
        "See Fig. 3 and no. 7 on p. 12 for more.",
        "It costs 3.50 and version 1.2.3 is out.",
        "J. R. R. Tolkien wrote it.",
        "The U.S. Senate met at 5 p.m. on Monday.",
        "Open https://example.com/a.b?c=d. or not",
        "tea, milk etc. are sold",
        "So... we went on.",
        '"Why?" he asked.',
        "(Dr. Who) left.",
        "1. Put it down there",
        "a. Put it down there",
    ],
)
def test_an_ambiguous_full_stop_ends_no_sentence(sentence: str) -> None:
    if sentence.startswith("Open"):
        assert parts(sentence) == ["Open https://example.com/a.b?c=d. ", "or not"]
    else:
        assert parts(sentence) == [sentence]


def test_a_line_that_an_editor_wrapped_is_one_sentence() -> None:
    text = "The quick brown fox jumps over the lazy dog and\nthen goes on its way. It sleeps."
    assert parts(text) == [text[: text.index("It")], "It sleeps."]
    assert [unit.strength for unit in boundaries(text)] == [Strength.WRAP, Strength.SENTENCE]


@pytest.mark.parametrize(
    ("line", "following"),
    [
        ("The quick brown fox jumps over the lazy dog.", "then it sleeps"),
        ("The quick brown fox jumps over the lazy dog", "- then it sleeps"),
        ("The quick brown fox jumps over the lazy dog", "2024 was the year"),
        ("The quick brown fox jumps over the lazy dog", "Then it sleeps"),
        ("The quick brown fox jumps over the lazy dog and never came back", "2024 was the year"),
        ("short line", "then it sleeps"),
        ("x" * 200, "then it sleeps"),
    ],
)
def test_a_line_break_that_means_something_parts(line: str, following: str) -> None:
    assert parts(f"{line}\n{following}") == [f"{line}\n", following]


def test_a_long_wrapped_line_goes_on_with_a_name() -> None:
    line = "In January of the year 1941 the president of the United States"
    assert parts(f"{line}\nFranklin Roosevelt spoke") == [f"{line}\nFranklin Roosevelt spoke"]


def test_a_lead_in_stays_with_its_list() -> None:
    assert boundaries("You need:\n\n- tea")[0].strength is Strength.WRAP


def test_a_fence_itself_begins_where_its_first_line_does() -> None:
    text = "Look\n```\na\n```"
    assert boundaries(text, [(5, len(text))])[0] == (5, Strength.LINE)


def test_fences_are_parted_at_lines_only() -> None:
    text = "Look. Here:\n```\na. B = 1. C\n\nd\n```\nDone. Bye"
    fence = (text.index("```"), text.index("Done"))
    found = {unit.offset: unit.strength for unit in boundaries(text, [fence])}
    assert text.index("B = 1") not in found
    assert text.index("C") not in found
    assert found[text.index("a. B")] is Strength.WRAP
    assert found[text.index("d\n")] is Strength.LINE
    assert found[text.index("Here")] is Strength.SENTENCE
    assert found[text.index("Bye")] is Strength.SENTENCE


@given(st.text(alphabet=st.sampled_from("aB1 .!?\n\r-|:。」\"'(é"), max_size=200))
def test_boundaries_ascend_inside_the_text(text: str) -> None:
    offsets = [unit.offset for unit in boundaries(text)]
    assert offsets == sorted(set(offsets))
    assert all(0 < offset < len(text) for offset in offsets)


@pytest.mark.parametrize("unit", [".", "\n", " ", '."', "e.g. ", "A. ", "。", "...", " .\n"])
def test_hostile_repetition_is_survived(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    assert all(0 < boundary.offset < len(text) for boundary in boundaries(text))
