"""What surrounds chunks: titles, headings and near-duplicates."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain.documents import CHAT, CODE, DECISION, DOCUMENTATION, EPOCH, Channel, Chunk, Metadata, Span
from rag_context.ingest.chunk_context import (
    CONTEXT_TOKENS,
    HASH_BITS,
    MAX_TITLE_CHARS,
    code_file,
    context_of,
    similarity_hash,
    title_of,
)
from rag_context.testing import WordTokenizer

NEAR_BITS = 3
"""Stores find documents whose hashes differ in no more bits."""


def distance(left: int, right: int) -> int:
    return ((left ^ right) & ((1 << HASH_BITS) - 1)).bit_count()


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("title: The Guide", "The Guide"),
        ("title: The Guide # draft", "The Guide"),
        ('title: "The \\"Guide\\": C#"', 'The "Guide": C#'),
        ("title: 'It''s a guide'", "It's a guide"),
        ("title:   spaced   out  ", "spaced out"),
        ("title: >", "Heading"),
        ("title: # nothing", "Heading"),
        ("title:", "Heading"),
        ("subtitle: The Guide", "Heading"),
    ],
)
def test_front_matter_names_a_document(line: str, title: str) -> None:
    assert title_of(f"---\na: 1\n{line}\n---\n# Heading\n", "docs/a.md", DOCUMENTATION) == title


def test_the_first_h1_names_a_document() -> None:
    content = "## Before\n```\n# no\n```\n#\n# The `Guide`\n# Another\n"
    assert title_of(content, "docs/a.md", DECISION) == "The Guide"


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("docs/guide.md", "guide.md"),
        ("C:\\docs\\guide.md", "guide.md"),
        ("docs/", "docs"),
        ("h0und://chat/session-1", "session-1"),
        ("guide", "guide"),
        ("///", "///"),
        ("  ", "Untitled"),
    ],
)
def test_otherwise_the_source_does(source: str, title: str) -> None:
    assert title_of("1234", source, DOCUMENTATION) == title


@pytest.mark.parametrize(
    ("content", "title"),
    [
        ("Voles sleep by day.\nAnd hunt by night.", "Voles sleep by day."),
        ("---\ntags: [a]\n---\n\n> **Voles** sleep in `nests`.\n", "Voles sleep in nests."),
        ("## Where voles sleep\n\nIn nests.", "Where voles sleep"),
        ("2. Voles sleep.\n", "Voles sleep."),
        ("-----\n| a | b |\n<!-- c -->\n[Maren] We moved the voles.\n", "[Maren] We moved the voles."),
        ("word " * 30, ("word " * 15).strip() + " …"),
    ],
)
def test_a_document_without_a_heading_is_named_by_its_first_line(content: str, title: str) -> None:
    assert title_of(content, "log/1", DOCUMENTATION) == title
    assert title_of(content, "log/1", CHAT) == title
    assert title_of(content, "log/1.py", CODE) == "1.py"
    assert title_of(content, "log/1", DECISION, Metadata(extra={"title": " Of  voles "})) == "Of voles"


@pytest.mark.parametrize(
    ("content", "title"),
    [
        ("---\ntitle: Of voles\n---\n# Other\n", "Of voles"),
        ("Before.\n\n## Where voles sleep\n\nIn nests.\n# Voles\n", "Voles"),
        ("Before.\n\n## Where voles sleep\n\nIn nests.", "Where voles sleep"),
        ("Voles, of which there are\nmany kinds, sleep by day.", "voles.md"),
    ],
)
def test_a_file_is_named_by_its_title_its_heading_or_its_name(content: str, title: str) -> None:
    assert title_of(content, "/docs/voles.md", DOCUMENTATION, channel=Channel.FILE) == title


def test_a_hash_in_code_or_a_chat_is_no_title() -> None:
    assert title_of("# a comment\n", "src/main.py", CODE) == "main.py"
    assert title_of("Ann: hi\n# a comment\n", "talk", CHAT) == "Ann: hi"


def test_a_chat_is_named_by_its_front_matter_and_code_is_not() -> None:
    content = "---\ntitle: x\n---\n[Ann] hi\n"
    assert title_of(content, "talks/a.chat", CHAT) == "x"
    assert title_of(content, "src/main.py", CODE) == "main.py"


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("/home/ann/project/src/store/writer.py", "store/writer.py"),
        ("C:\\project\\a.cs", "project/a.cs"),
        ("main.py", "main.py"),
        ("h0und://code/a.py", "code/a.py"),
        ("///", ""),
    ],
)
def test_the_chunks_of_code_are_found_under_its_file(source: str, title: str) -> None:
    assert code_file(source, CODE) == title
    assert code_file(source, DOCUMENTATION) == ""


@given(st.text(), st.text(), st.sampled_from([CHAT, DOCUMENTATION]))
def test_a_title_is_one_short_line_and_never_empty(content: str, source: str, content_type: str) -> None:
    for text in (content, f"# {content}", f"---\ntitle: {content}\n---\n"):
        title = title_of(text, source, content_type)
        assert 0 < len(title) <= MAX_TITLE_CHARS
        assert title == " ".join(title.split())


def test_a_long_title_is_cut() -> None:
    assert title_of("# " + "word " * 100, "a", DOCUMENTATION) == ("word " * 40).strip()


TOKENIZER = WordTokenizer()


def test_title_and_headings_that_the_text_does_not_contain_are_its_context() -> None:
    context = context_of("Pump manual", "Pump manual > Care > Weekly", "Oil the bearings.", TOKENIZER)
    assert context == "Pump manual > Care > Weekly"


def test_what_the_text_says_itself_is_not_repeated() -> None:
    text = "# Pump manual\n\n## Care\n\nOil the bearings."
    assert context_of("Pump manual", "Pump manual > Care", text, TOKENIZER) == ""
    assert context_of("Other title", "Pump manual > Care", text, TOKENIZER) == "Other title"


def test_without_title_and_heading_there_is_none() -> None:
    assert context_of("", "", "Oil the bearings.", TOKENIZER) == ""


def test_it_is_cut_to_its_share_of_the_window() -> None:
    title = " ".join(f"word{i}" for i in range(100))
    context = context_of(title, "", "text", TOKENIZER)
    assert len(TOKENIZER.offsets(context)) == CONTEXT_TOKENS
    assert title.startswith(context)


def test_the_file_that_code_lies_in_is_matched_and_not_embedded() -> None:
    def chunk(heading: str) -> Chunk:
        context = context_of("", heading, "return 1", TOKENIZER, file="store/writer.py")
        return Chunk("c", "d", 0, "return 1", Span(0, 8, 1, 1), context, occurred_at=EPOCH)

    assert chunk("Writer.flush").searchable == "store/writer.py\nWriter.flush\nreturn 1"
    assert chunk("Writer.flush").embedded == "Writer.flush\nreturn 1"
    assert chunk("").searchable == "store/writer.py\n\nreturn 1"
    assert chunk("").embedded == "return 1"


TERMS = [f"term{number}" for number in range(400)]


def test_a_small_change_is_near_and_another_text_is_far() -> None:
    changed = [*TERMS[:-2], "other", "words"]
    different = [f"else{number}" for number in range(400)]
    assert distance(similarity_hash(TERMS), similarity_hash(changed)) <= NEAR_BITS
    assert distance(similarity_hash(TERMS), similarity_hash(different)) > 4 * NEAR_BITS


def test_order_does_not_matter_but_frequency_does() -> None:
    assert similarity_hash(TERMS) == similarity_hash(TERMS[::-1])
    assert similarity_hash(["a", "b", "b", "c", "c"]) != similarity_hash(["a", "a", "a", "b", "c"])


def test_one_term_outweighs_what_it_outnumbers() -> None:
    assert similarity_hash(["a"] * 9 + ["b"] * 4 + ["c"] * 4) == similarity_hash(["a"])


def test_no_terms_hash_to_zero() -> None:
    assert similarity_hash([]) == 0


def test_hashes_are_the_same_in_another_process() -> None:
    code = "from rag_context.ingest.chunk_context import similarity_hash as h; print(h(['one', 'two', 'two']))"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert int(other.stdout) == similarity_hash(["one", "two", "two"]) == -725548565580347645


@given(st.lists(st.text()))
def test_hashes_fit_a_signed_64_bit_column(terms: list[str]) -> None:
    assert -(2**63) <= similarity_hash(terms) < 2**63
