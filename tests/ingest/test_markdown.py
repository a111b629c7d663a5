"""Front matter, fences and headings (C-1, C-2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.ingest.chunking.prose import MAX_HEADING_CHARS, fences, front_matter, heading_text, sections


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
    assert sections("", []) == []


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
    found = sections(text, fences(text))
    assert "".join(text[section.start : section.end] for section in found) == text
    assert all(section.start <= section.body <= section.end for section in found)


@pytest.mark.parametrize("unit", ["```\n", "# ", "#\n", "[a](", "_", "> ", "- ", "{#", "---\n", "~"])
def test_hostile_repetition_is_survived(unit: str) -> None:
    text = "# " + unit * (100_000 // len(unit))
    assert sections(text, fences(text))[-1].end == len(text)
