"""Chunks: exact, bounded by the window, at the text's own joints (C-1, C-2, Q-6)."""

import json
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.domain.documents import CHAT, CODE, CONTENT_TYPES, DECISION, DOCUMENTATION, Span
from rag_context.ingest.chunking.chunker import ChunkSizes, sizes_for, split
from rag_context.ports.models import Tokenizer
from tests.ingest.tokens import Words, count, texts, word_pieces

KINDS = st.sampled_from([*CONTENT_TYPES, "recipe"])
SOURCES = st.sampled_from(["guide.md", "a.py", "a.ts", "a.rs", "a.unknown"])
WINDOWS = st.sampled_from([8, 40, 128, 254, 512, 8192])
LINES = st.sampled_from(
    [
        "# Guide", "## Install", "### Linux", "```", "---", "", "", "    indented", "- item one", "| a | b |",
        "Some words that make a sentence. And another one, e.g. this. Really? Yes!", "def f(x):", "    return x + 1",
        "class A {", "}", "[Ann] hello there, how are you?", "Bob: fine. " * 30, "漢字です。" * 20, "x" * 300,
        "e\u0301\u0301 👩\u200d👧", "\x00\x01", "\u00a0", "// comment", "@decorator", "word " * 200,
    ]
)  # fmt: skip
CONTENT = st.one_of(st.text(max_size=300), st.lists(LINES, max_size=40).map("\n".join))


def chunks(content: str, *, content_type: str = DOCUMENTATION, source: str = "a.md", window: int = 254) -> list[Span]:
    return split(content, content_type=content_type, source=source, tokenizer=word_pieces(), window=window)


def prose(sentences: int, about: str = "tea") -> str:
    return " ".join(f"This is sentence {number} about {about}." for number in range(sentences))


def without_overlap(content: str, spans: list[Span]) -> str:
    position, parts = 0, []
    for span in spans:
        parts.append(content[max(position, span.start) : span.end])
        position = span.end
    return "".join(parts)


@pytest.mark.parametrize(
    ("content_type", "window", "sizes"),
    [
        (DOCUMENTATION, 8192, ChunkSizes(512, 50, 512)),
        (DECISION, 512, ChunkSizes(512, 50, 512)),
        (CHAT, 512, ChunkSizes(512, 50, 512)),
        ("recipe", 512, ChunkSizes(512, 50, 512)),
        (CODE, 8192, ChunkSizes(256, 25, 256)),
        (DOCUMENTATION, 254, ChunkSizes(128, 0, 254)),
        (CHAT, 511, ChunkSizes(128, 0, 511)),
        (DECISION, 100, ChunkSizes(100, 0, 100)),
        (CODE, 254, ChunkSizes(254, 25, 254)),
        (CODE, 100, ChunkSizes(100, 10, 100)),
    ],
)
def test_the_specified_sizes_are_upper_bounds_and_the_window_is_another(
    content_type: str, window: int, sizes: ChunkSizes
) -> None:
    assert sizes_for(content_type, window) == sizes


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(CONTENT, KINDS, SOURCES, WINDOWS)
def test_chunks_give_back_the_text_within_the_window(content: str, kind: str, source: str, window: int) -> None:
    tokenizer = word_pieces()
    spans = split(content, content_type=kind, source=source, tokenizer=tokenizer, window=window)
    assert without_overlap(content, spans) == content
    assert spans == split(content, content_type=kind, source=source, tokenizer=tokenizer, window=window)
    limit = sizes_for(kind, window).whole_tokens
    for span, text in zip(spans, texts(content, spans), strict=True):
        assert len(text) == 1 or count(tokenizer, text) <= limit
        assert text.strip() or not content.strip()
        assert span.start_line == content.count("\n", 0, span.start) + 1
        assert span.end_line == content.count("\n", 0, span.start + len(text.rstrip())) + 1
    starts = [span.start for span in spans]
    assert starts == sorted(set(starts))


@given(st.text(alphabet="ab \n.", max_size=300), KINDS)
def test_any_tokenizer_will_do(content: str, kind: str) -> None:
    tokenizer: Tokenizer = Words()
    spans = split(content, content_type=kind, source="a.py", tokenizer=tokenizer, window=20)
    assert without_overlap(content, spans) == content
    assert all(count(tokenizer, text) <= 20 for text in texts(content, spans))


def test_an_empty_text_has_no_chunks() -> None:
    assert chunks("") == []


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
def test_white_space_alone_is_one_chunk(content_type: str) -> None:
    assert [(span.start, span.end) for span in chunks(" \n" * 900, content_type=content_type)] == [(0, 1800)]


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
def test_the_number_of_chunks_grows_with_the_text_and_no_faster(content_type: str) -> None:
    text = prose(200) + "\n\n"
    few, many = (len(chunks(text * times, content_type=content_type)) for times in (2, 20))
    assert few * 9 <= many <= few * 11


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
@pytest.mark.parametrize("unit", ["a", "(", "{", "# a\n", "```\n", "[A] b\n", "class A { ", "\n", "e\u0301", '"', "漢"])
def test_hostile_repetition_hides_nothing(unit: str, content_type: str) -> None:
    content = unit * (20_000 // len(unit))
    spans = chunks(content, content_type=content_type, source="a.js")
    assert without_overlap(content, spans) == content
    assert max(span.end - span.start for span in spans) < 1200 or not content.strip()


def test_sentences_are_not_split() -> None:
    content = prose(100)
    assert all(text.rstrip().endswith(".") for text in texts(content, chunks(content)))


def test_small_windows_have_no_overlap_and_large_ones_repeat_whole_sentences() -> None:
    content = prose(200)
    small, large = chunks(content), chunks(content, window=512)
    assert all(left.end == right.start for left, right in pairwise(small))
    for left, right in pairwise(large):
        repeated = content[right.start : left.end]
        assert repeated.startswith("This is sentence")
        assert 25 < count(word_pieces(), repeated) <= 50


def test_a_heading_begins_a_chunk_and_stays_with_its_text() -> None:
    content = f"# Guide\n\n{prose(6)}\n\n## Install\n\n{prose(30, 'pip')}\n\n## Use\n\n{prose(6, 'cups')}\n"
    found = [
        (span.heading, text[:10]) for span, text in zip(chunks(content), texts(content, chunks(content)), strict=True)
    ]
    assert found[0] == ("Guide", "# Guide\n\nT")
    assert found[1] == ("Guide > Install", "## Install")
    assert found[-1] == ("Guide > Use", "## Use\n\nTh")
    assert {heading for heading, _ in found[2:-1]} == {"Guide > Install"}


def test_no_chunk_ends_with_a_heading() -> None:
    content = "# Guide\n" + "".join(f"## Part {number}\n\n### More\n\n{prose(number)}\n\n" for number in range(1, 30))
    for text in texts(content, chunks(content)):
        assert not text.rstrip().rsplit("\n", 1)[-1].startswith("#")


def test_a_heading_is_not_parted_from_a_first_sentence_that_leaves_no_room_for_it() -> None:
    content = "## Install it now\n\nThis " + "goes on and " * 41 + "ends. " + prose(10)
    assert len(texts(content, chunks(content))[0]) > 200


def test_small_sections_share_a_chunk_under_the_heading_they_share() -> None:
    content = "# ADR 5\n\n## Status\n\nAccepted.\n\n## Context\n\nWe need a store.\n\n## Links\n\nNone.\n"
    (span,) = chunks(content, content_type=DECISION)
    assert span == Span(0, len(content), 1, 13, "ADR 5")


def test_two_documents_in_one_text_never_share_a_chunk() -> None:
    content = "# One\n\nA.\n\n# Two\n\nB.\n"
    assert [span.heading for span in chunks(content)] == ["One", "Two"]


@pytest.mark.parametrize(("lines", "shared"), [(500, True), (501, False)])
def test_past_500_lines_second_and_third_level_headings_are_hard(lines: int, shared: bool) -> None:
    head = "# Guide\n\nText.\n\n## One\n\nA.\n\n## Two\n\nB.\n\n### Three\n\nC.\n\n#### Four\n\nD."
    content = head + "\n" * (lines - head.count("\n") - 2) + "\nend"
    assert content.count("\n") + 1 == lines
    headings = [span.heading for span in chunks(content)]
    assert headings == [span.heading for span in chunks(content + "\n")]
    hard = ["Guide", "Guide > One", "Guide > Two", "Guide > Two > Three"]
    assert headings == (["Guide"] if shared else hard)


def test_a_heading_in_a_fence_of_a_long_document_bounds_nothing() -> None:
    fenced = "```sh\n## One\nls\n### Two\nls\n```\n"
    content = f"# Guide\n\n## Shell\n\n{fenced}" + "\n" * 500
    (span,) = chunks(content)
    assert span.heading == "Guide > Shell"


def test_a_hash_in_a_code_fence_is_no_heading() -> None:
    content = "# Guide\n\n```sh\n# not a heading\n" + "run it now please\n" * 60 + "```\n"
    assert {span.heading for span in chunks(content)} == {"Guide"}


def test_messages_are_not_split() -> None:
    content = "".join(f"[{name}] {prose(5, name)}\n" for name in ["Ann", "Bob"] * 10)
    spans = chunks(content, content_type=CHAT)
    assert len(spans) > 1
    assert all(text.startswith("[") for text in texts(content, spans))
    assert {span.heading for span in spans} == {""}


def test_a_chunk_that_continues_a_message_names_the_speaker() -> None:
    content = f"[Ann] {prose(40)}\n[Bob] Right.\n"
    first, *more, answer = chunks(content, content_type=CHAT)
    assert (first.heading, answer.heading) == ("", "")
    assert {span.heading for span in more} == {"Ann"}


def test_overlap_of_a_conversation_repeats_whole_messages_where_they_fit() -> None:
    content = "".join(f"Ann: {prose(2)}\n" for _ in range(80))
    spans = chunks(content, content_type=CHAT, window=512)
    repeated = [content[right.start : left.end] for left, right in pairwise(spans)]
    assert all(text.startswith("Ann: ") for text in repeated)


FUNCTION = """\
    # What {name} does.
    @traced
    def {name}(self, first, second):
        total = first + second
        for number in range(total):
            self.add(number, "{name}")
            self.log("added %d of %d", number, total)
            self.count += 1

        return [self.take(number) for number in range(total) if number % 2 == 0 and number > first]

"""


def test_code_is_cut_between_functions() -> None:
    content = "class Box:\n" + "".join(FUNCTION.format(name=name) for name in ["one", "two", "three", "four"])
    spans = chunks(content, content_type=CODE, source="box.py")
    assert [span.heading for span in spans] == ["Box.one", "Box.two", "Box.three", "Box.four"] or [
        span.heading for span in spans
    ] == ["Box", "Box.two", "Box.three", "Box.four"]
    assert all(text.startswith("    # What") for text in texts(content, spans)[1:])


def test_small_functions_share_a_chunk_under_the_class_they_share() -> None:
    content = "class Box:\n" + "".join(f"    def f{number}(self): return {number}\n\n" for number in range(4))
    (span,) = chunks(content, content_type=CODE, source="box.py", window=60)
    assert span.heading == "Box"


def test_a_large_function_is_cut_at_lines_and_repeats_lines() -> None:
    body = "".join(f"    value_{number} = compute({number}, 'some words here')\n" for number in range(60))
    content = f"def large():\n{body}"
    spans = chunks(content, content_type=CODE, source="a.py")
    assert {span.heading for span in spans} == {"large"}
    for left, right in pairwise(spans):
        repeated = content[right.start : left.end]
        assert repeated.startswith("    value_")
        assert repeated.endswith("\n")


def test_code_of_an_unknown_language_is_cut_at_closing_braces() -> None:
    unit = "sub work {\n" + "  do something with the thing;\n" * 12 + "}\n"
    content = unit * 6
    assert set(texts(content, chunks(content, content_type=CODE, source="a.pl"))) == {unit}


def test_a_document_of_json_is_covered() -> None:
    content = json.dumps([{"role": "user", "content": prose(10)}] * 20)
    spans = chunks(content)
    assert without_overlap(content, spans) == content
    assert len(spans) > 10


@pytest.mark.parametrize("before", [9, 11, 13])
def test_a_code_fence_that_fits_into_a_chunk_is_not_torn(before: int) -> None:
    fence = "```\n" + "".join(f"step {number} of the plan\n\n" for number in range(12)) + "```\n"
    content = f"# Guide\n\n{prose(before)}\n\n{fence}\n{prose(6)}\n"
    spans = chunks(content)
    assert len(spans) > 1
    assert any(fence.strip() in content[span.start : span.end] for span in spans)


def test_a_fence_that_the_model_can_read_is_not_cut() -> None:
    call = "result = client.get(url, timeout=30)\n"
    fence = f"```python\n{call * 14}```\n"
    intro = "Each call waits for a connection of the pool, and gives up after some seconds. " * 5
    text = f"# Calls\n\n{intro}\n\nFor example:\n\n{fence}\nThat is all.\n"
    pieces = [text[span.start : span.end] for span in chunks(text, window=222)]
    assert [fence in piece for piece in pieces].count(True) == 1
    assert [call in piece for piece in pieces].count(True) == 1
