"""Front matter, as people and hostile people write it."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.projects.front_matter import FrontMatter, read_front_matter
from rag_context.projects.records import PromotionLevel

WHOLE = """\
---
doc_type: problem
title: "Pool: exhausted"
date: 2026-03-01
summary: >
  Connections ran out
  under load.
significance: performance
promotion_level: important
tags: [db, pool]
related_docs:
  - ../tools/npgsql.md
supersedes: problems/old.md
status: fixed
---
# Body
"""


def read(block: str) -> FrontMatter:
    return read_front_matter(f"---\n{block}\n---\nbody\n")


def test_all_of_it_is_understood() -> None:
    front = read_front_matter(WHOLE)
    assert front.doc_type == "problem"
    assert front.title == "Pool: exhausted"
    assert front.date == datetime.date(2026, 3, 1)
    assert front.summary == "Connections ran out under load."
    assert front.significance == "performance"
    assert front.promotion_level is PromotionLevel.IMPORTANT
    assert front.tags == ("db", "pool")
    assert front.related_docs == ("../tools/npgsql.md",)
    assert front.supersedes == ("problems/old.md",)
    assert front.further == {"status": "fixed"}
    assert front.warnings == ()
    assert WHOLE[front.body_start :] == "# Body\n"


@pytest.mark.parametrize("text", ["", "# Title\n", "text --- text", " ---\na: b\n---\n", "--- a\nb: c\n---\n"])
def test_a_document_without_front_matter_is_standard_and_needs_no_warning(text: str) -> None:
    front = read_front_matter(text)
    assert not front.exists
    assert (front.body_start, front.promotion_level, front.warnings) == (0, PromotionLevel.STANDARD, ())


def test_front_matter_that_is_never_closed_is_text() -> None:
    front = read_front_matter("---\npromotion_level: critical\n")
    assert (front.exists, front.body_start, front.promotion_level) == (False, 0, PromotionLevel.STANDARD)
    assert "no closing line" in front.warnings[0]


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_and_byte_order_marks_do_not_matter(start: str, end: str) -> None:
    text = start + end.join(["---", "title: x", "...", "body", ""])
    front = read_front_matter(text)
    assert front.title == "x"
    assert text[front.body_start :] == f"body{end}"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("title: [x", "not valid YAML"),
        ("a: b: c", "not valid YAML"),
        ("\tx: 1", "not valid YAML"),
        ("x: \x00", "not valid YAML"),
        ("? [a]\n: b", "not valid YAML"),
        ("- a\n- b", "key: value"),
        ("just words", "key: value"),
        ("a: &x [1]\nb: *x", "anchor or alias"),
        ("a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", "anchor or alias"),
        ("a: !!python/object/apply:os.system [x]", "tag"),
        ("a: !!timestamp nonsense", "tag"),
        ("a: " + "[" * 20 + "]" * 20, "levels deep"),
        ("a: " + "[" * 30_000, "nest"),  # newer versions of PyYAML reject it themselves, in their own words
        ("a: " + "x" * 70_000, "longer than"),
    ],
)
def test_what_cannot_be_read_is_passed_over_with_a_warning(block: str, message: str) -> None:
    front = read(block)
    assert front.exists
    assert (front.values, front.promotion_level) == ({}, PromotionLevel.STANDARD)
    assert message in front.warnings[0]
    text = f"---\n{block}\n---\nbody\n"
    assert text[front.body_start :] == "body\n"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("title: [a]", "title must be a text"),
        ("summary: {a: b}", "summary must be a text"),
        ("doc_type: Two Words", "doc_type must be a name"),
        ("date: soon", "date must be a day"),
        ("date: 2026-13-45", "date must be a day"),
        ("date: 20260301", "date must be a day"),
        ("promotion_level: urgent", "promotion_level must be"),
        ("promotion_level: [critical]", "promotion_level must be"),
        ("tags: {a: b}", "tags must be a list"),
        ("tags: [[a]]", "tags must be a list"),
        ("tags: [promotion:critical]", "reserved"),
        ("tags: ['doc_type:tool', x]", "reserved"),
        ("related_docs: 3", "related_docs must be a list"),
        ("title: a\ntitle: b", "occurs twice"),
    ],
)
def test_a_wrong_type_costs_only_its_own_field(block: str, message: str) -> None:
    front = read(f"significance: correctness\n{block}")
    assert front.significance == "correctness"
    assert [warning for warning in front.warnings if message in warning]
    assert front.promotion_level is PromotionLevel.STANDARD
    assert not any(tag.startswith(("promotion:", "doc_type:")) for tag in front.tags)


def test_values_are_what_they_look_like() -> None:
    front = read("a: no\nb: 12:30:45\nc: 2026-03-01\nd: 007\ne: 7\nf: 1.5\ng: true\nh: ~\ni: .inf\nj: 1.0e999\nk: <<")
    assert front.values == {
        "a": "no", "b": "12:30:45", "c": "2026-03-01", "d": "007", "e": 7, "f": 1.5, "g": True, "h": None,
        "i": ".inf", "j": "inf", "k": "<<",
    }  # fmt: skip


@pytest.mark.parametrize(("said", "tags"), [("a, b", ("a", "b")), ("[a, 3, a]", ("a", "3")), ("''", ()), ("~", ())])
def test_tags_are_a_list_or_words_between_commas(said: str, tags: tuple[str, ...]) -> None:
    assert read(f"tags: {said}").tags == tags


def test_a_level_may_be_written_in_capitals() -> None:
    assert read("promotion_level: CRITICAL").promotion_level is PromotionLevel.CRITICAL


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300))
def test_nothing_that_stands_there_is_an_error(block: str) -> None:
    text = f"---\n{block}\n---\nbody"
    front = read_front_matter(text)
    assert 0 <= front.body_start <= len(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.text("ab:-#\"'&*!|>%@`{}[],? \n\t"),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab&*!", max_size=3), inner, max_size=3),
        max_leaves=8,
    )
)
def test_whatever_shape_it_has_is_read_or_warned_about(value: object) -> None:
    front = read(f"title: {value}\ntags: {value}\nsupersedes: {value}")
    assert all(isinstance(tag, str) for tag in (*front.tags, *front.supersedes))
