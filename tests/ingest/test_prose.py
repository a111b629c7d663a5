"""The structure of prose: Markdown, turns of a chat, ends of sentences."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain.documents import CHAT
from rag_context.domain.provenance import front_matter
from rag_context.domain.text import PIECE_CHARS
from rag_context.ingest.chunking.chunker import split
from rag_context.ingest.chunking.prose import (
    MAX_HEADING_CHARS,
    boundaries,
    conversation,
    fences,
    heading_text,
    sections,
)
from rag_context.ingest.chunking.text_blocks import Strength
from tests.ingest.tokens import word_pieces


def fenced(text: str) -> list[str]:
    return [text[start:end] for start, end in fences(text)]


def paths(text: str) -> list[tuple[str, ...]]:
    return [section.path for section in sections(text, fences(text))]


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("---\ntitle: x\n---\nbody", "title: x\n"),
        ("\ufeff---\r\ntitle: x\r\n---\r\nbody", "title: x\r\n"),
        ("---\na: 1\n...\nbody", "a: 1\n"),
        ("---\nnever closed", ""),
        ("text\n---\na: 1\n---\n", ""),
    ],
)
def test_front_matter_is_what_the_first_lines_enclose(text: str, inner: str) -> None:
    start, end = front_matter(text)
    assert text[start:end] == inner


def test_a_fence_closes_with_its_own_mark() -> None:
    text = "a\n````py\n```\n~~~\n`````  \nb\n~~~\nc\n~~~"
    assert fenced(text) == ["````py\n```\n~~~\n`````  ", "~~~\nc\n~~~"]


def test_a_long_text_has_the_fences_sections_and_turns_of_its_parts() -> None:
    """X-11: it is scanned some lines at a time, since a pattern holds the interpreter for a whole call."""
    part = "# One\n\nAnn: hello\n```py\n# no\nBob: no\n```\n## Two\n\nwords\n~~~\nx\n~~~\nBob: bye\n"
    repeats = PIECE_CHARS // len(part) + 1
    for before in range(0, len(part), 3):  # so that a piece would end in each of its lines
        text = "w" * before + "\n" + part * repeats
        edges = range(before + 1, len(text), len(part))
        assert fences(text) == [(edge + start, edge + end) for edge in edges for start, end in fences(part)]
        assert paths(text)[1:] == paths(part) * repeats
        turns = conversation(text, fences(text)).turns
        assert [turn.path for turn in turns[1:]] == [("Ann",), ("Bob",)] * repeats


def test_a_fence_may_open_in_a_list_or_a_quote() -> None:
    text = "1. ```sh\n   # no\n   ```\n> ```\n> # no\n> ```\n"
    assert fenced(text) == ["1. ```sh\n   # no\n   ```", "> ```\n> # no\n> ```"]


def test_code_in_a_line_is_no_fence() -> None:
    assert fences("``` not ``` a fence\n# yes") == []


def test_a_fence_that_never_closes_reaches_to_the_end() -> None:
    assert fenced("a\n```\nb\n") == ["```\nb\n"]


def test_sections_stand_under_the_headings_above_them() -> None:
    text = "before\n# Guide\n## Install\n### Linux\n## Use\n# Other\n"
    assert paths(text) == [
        (),
        ("Guide",),
        ("Guide", "Install"),
        ("Guide", "Install", "Linux"),
        ("Guide", "Use"),
        ("Other",),
    ]


def test_a_heading_without_words_adds_nothing_to_the_path() -> None:
    assert paths("# Guide\n##\ntext") == [("Guide",), ("Guide",)]


def test_marks_that_are_no_headings_are_left_alone() -> None:
    text = "#hashtag\n    # indented\n####### seven\n---\n"
    assert paths(text) == [()]


def test_no_heading_is_seen_in_code_or_front_matter() -> None:
    text = "---\n# no\n---\n```\n# no\n```\n# Yes\n```\n# no\n```\n# Also\n"
    assert paths(text) == [(), ("Yes",), ("Also",)]


def test_a_section_knows_where_its_text_begins() -> None:
    text = "# A\n\n  text\n# B\n\n# C\nx"
    first, second, third = sections(text, [])
    assert text[first.body : first.end] == "  text\n"
    assert second.body == second.end
    assert text[third.body :] == "x"


def test_an_empty_text_has_no_sections() -> None:
    assert list(sections("", [])) == []


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        ("Install ##", "Install"),
        ("C#", "C#"),
        ("##", ""),
        ("**Bold** and `code` and _em_", "Bold and code and em"),
        ("snake_case_name", "snake_case_name"),
        ("The [docs](https://example.com) ![x](y.png)", "The docs x"),
        ("Install {#install}", "Install"),
        ("x" * 999, "x" * MAX_HEADING_CHARS),
    ],
)
def test_a_heading_reads_as_people_read_it(raw: str, read: str) -> None:
    assert heading_text(raw) == read


@given(st.text(alphabet=st.sampled_from("#`~ ab\n-_>1."), max_size=200))
def test_sections_cover_any_text_without_gaps(text: str) -> None:
    found = list(sections(text, fences(text)))
    assert "".join(text[section.start : section.end] for section in found) == text
    assert all(section.start <= section.body <= section.end for section in found)


@pytest.mark.parametrize("unit", ["```\n", "# ", "#\n", "[a](", "_", "> ", "- ", "{#", "---\n", "~"])
def test_hostile_repetition_is_survived(unit: str) -> None:
    text = "# " + unit * (100_000 // len(unit))
    assert list(sections(text, fences(text)))[-1].end == len(text)


def speakers(text: str) -> list[str]:
    return ["".join(block.path) for block in conversation(text, fences(text)).turns]


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
    assert "".join(text[block.start : block.end] for block in conversation(text, fences(text)).turns) == text


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
def test_hostile_repetition_of_sentence_ends_is_survived(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    assert all(0 < boundary.offset < len(text) for boundary in boundaries(text))
