"""What documents are called (C-2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain.documents import CHAT, CODE, DECISION, DOCUMENTATION
from rag_context.ingest.chunk_context import MAX_TITLE_CHARS, code_file, title_of


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
    assert title_of("no heading", source, DOCUMENTATION) == title


@pytest.mark.parametrize("content_type", [CHAT, CODE])
def test_a_hash_in_code_or_a_chat_is_no_title(content_type: str) -> None:
    assert title_of("# a comment\n", "src/main.py", content_type) == "main.py"


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
