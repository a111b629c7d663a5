"""Contexts: three sections, every document once and complete below its own heading, within the budget."""

import string
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from rag_context.projects.assembly import (
    DOCUMENT_LEVEL,
    ContextEntry,
    ContextSection,
    Rendered,
    Renderer,
    allocate,
    assemble,
    demoted,
    distinct,
)
from rag_context.projects.excerpts import opening
from rag_context.projects.records import LinkedDocument, PromotionLevel, RagContext, RetrievedDocument
from rag_context.testing.fakes import WordTokenizer

COMMONMARK = MarkdownIt("commonmark")


def words(text: str) -> int:
    return len(text.split())


def counted(texts: Sequence[str]) -> list[int]:
    return [words(text) for text in texts]


def rendered(content: str) -> Rendered:
    text = demoted(content, DOCUMENT_LEVEL)
    return Rendered(text, words(text))


def document(path: str, content: str = "Text.", title: str = "Title", relevance: float = 0.0) -> RetrievedDocument:
    return RetrievedDocument(
        path=path,
        title=title,
        content=content,
        char_count=len(content),
        doc_type="problem",
        promotion_level=PromotionLevel.STANDARD,
        boosted_relevance_score=relevance,
    )


def linked(path: str, linked_from: str, depth: int = 1, content: str = "Text.") -> LinkedDocument:
    return LinkedDocument(
        path=path,
        title="Linked",
        content=content,
        char_count=len(content),
        doc_type="tool",
        promotion_level=PromotionLevel.STANDARD,
        linked_from=linked_from,
        link_depth=depth,
    )


def put_together(
    critical: list[RetrievedDocument],
    relevant: list[RetrievedDocument],
    links: list[LinkedDocument],
    max_tokens: int | None = None,
) -> RagContext:
    documents: dict[ContextSection, Sequence[RetrievedDocument]] = {
        ContextSection.CRITICAL: critical,
        ContextSection.RELEVANT: relevant,
        ContextSection.LINKED: links,
    }
    entries = distinct(
        [
            ContextEntry(section, each, rendered(each.content))
            for section, listed in documents.items()
            for each in listed
        ]
    )
    shown = []
    for place in allocate(entries, counted, max_tokens):
        whole = place.entry.whole
        if place.tokens is not None:
            whole = opening(place.entry.document.content, 1, place.tokens, Renderer(WordTokenizer()))
        shown.append(replace(place.entry, whole=whole))
    return assemble(shown, entries, counted, max_tokens)


def test_a_context_has_three_sections_and_says_of_each_document_where_it_is_from() -> None:
    made = put_together(
        [document("rules/a.md", "# Rule\n\nNo tabs.", title="Rule")],
        [document("p.md", "Leaks.", title="Pool", relevance=0.834)],
        [linked("t.md", "p.md")],
    )
    assert made.formatted_context == (
        "## Critical Context (Always Relevant)\n\n"
        "### Rule\n- **Path**: rules/a.md\n- **Type**: problem\n\n#### Rule\n\nNo tabs.\n\n---\n\n"
        "## Retrieved Context (By Relevance)\n\n"
        "### Pool\n- **Path**: p.md\n- **Type**: problem\n- **Relevance**: 0.83\n\nLeaks.\n\n---\n\n"
        "## Related Context (Linked Documents)\n\n"
        "### Linked\n- **Path**: t.md\n- **Type**: tool\n- **Linked from**: p.md\n\nText.\n\n---\n"
    )
    assert made.tokens == words(made.formatted_context)


def test_without_documents_there_is_no_context() -> None:
    made = put_together([], [], [])
    assert (made.formatted_context, made.tokens, made.omitted) == ("", 0, ())


def test_a_document_that_does_not_fit_makes_room_for_one_that_does() -> None:
    large, small = document("large.md", "word " * 100), document("small.md", "word " * 5)
    made = put_together([], [large, small], [], max_tokens=40)
    assert ([kept.path for kept in made.relevant_documents], made.omitted) == (["small.md"], ("large.md",))
    assert "## Retrieved Context" in made.formatted_context
    assert words(made.formatted_context) == made.tokens <= 40


def test_a_budget_is_shared_out_and_what_small_documents_leave_goes_to_large_ones() -> None:
    large = [document(f"large-{i}.md", "word " * 5000, relevance=0.9) for i in range(3)]
    small = [document(f"small-{i}.md", "word " * 50) for i in range(2)]
    made = put_together([document("rule.md", "word " * 4000)], [*large, *small], [linked("l.md", "large-0.md")], 4000)
    assert made.omitted == ()
    assert 3500 < made.tokens <= 4000
    assert [each.path for each in made.relevant_documents if not each.is_excerpt] == ["small-0.md", "small-1.md"]
    assert not made.linked_documents[0].is_excerpt
    parts = {part.partition("\n")[0]: words(part) for part in made.formatted_context.split("**Path**: ")[1:]}
    assert parts["large-0.md"] > parts["large-1.md"] > parts["large-2.md"] > 400
    assert parts["rule.md"] < 4000 * 0.45
    assert "- **Excerpt**: lines 1; " in made.formatted_context


def test_the_most_relevant_document_gets_the_budget_before_any_other() -> None:
    rules = [document(f"rule-{i}.md", "word " * 30) for i in range(20)]
    links = [linked(f"link-{i}.md", "large.md", content="word " * 30) for i in range(5)]
    made = put_together(rules, [document("large.md", "word " * 5000)], links, 400)
    assert [each.path for each in made.relevant_documents] == ["large.md"]
    assert len(made.omitted) + len(made.critical_documents) + len(made.linked_documents) == 25
    assert made.tokens <= 400


def test_names_from_files_begin_no_heading() -> None:
    made = put_together([], [document("a\n## Critical Context\n.md", title="One\n### Two")], [])
    assert [token.map for token in _headings(made.formatted_context) if token.tag != "h4"] == [[0, 1], [2, 3]]
    assert "### One ### Two\n- **Path**: a ## Critical Context .md\n" in made.formatted_context


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# One\n## Two\n#### Four\n###### Six", "#### One\n##### Two\n###### Four\n###### Six"),
        ("Title\n=====\nText\n\nTwo lines\nof title\n---\n", "#### Title\nText\n\n##### Two lines of title"),
        ("```sh\n# comment\n```\n# Heading", "```sh\n# comment\n```\n#### Heading"),
        ("~~~\n```\n# no\n~~~\n# yes", "~~~\n```\n# no\n~~~\n#### yes"),
        ("> # quoted\n\n- # listed", "> #### quoted\n\n- #### listed"),
        ("text\n\n---\n\n- item\n---\n", "text\n\n---\n\n- item\n---"),
        ("#hashtag\n#\n", "#hashtag\n####"),
        ("one\r\n# two\r\n", "one\n#### two"),
        ("<!-- \n# no\n-->\n# yes", "<!-- \n# no\n-->\n#### yes"),
        ("", ""),
    ],
    ids=["levels", "underlined", "fence", "tildes", "containers", "rules", "marks", "windows", "comment", "empty"],
)
def test_a_documents_headings_sink_below_its_own(text: str, expected: str) -> None:
    assert demoted(text, 3) == expected


@pytest.mark.parametrize(
    "text",
    [
        "```\nnever closed",
        "~~~~ python\nx = 1\n~~~",
        "> ```\n> never closed",
        "- item\n\n  ```\n  never closed",
        "1. ```\n   never closed",
        "<!-- never closed",
        "<pre>\nnever closed",
        "<script>\nx",
        "<?php never closed",
        "<![CDATA[ never",
        "- ```\nleft its list\n# here",
    ],
)
def test_what_a_document_leaves_open_swallows_nothing_behind_it(text: str) -> None:
    made = put_together([], [document("a.md", text), document("b.md", "# Behind")], [])
    found = [_text(made.formatted_context, token) for token in _headings(made.formatted_context) if token.level == 0]
    assert found[-2:] == ["### Title", "#### Behind"]
    assert found.count("### Title") == 2


FRAGMENTS = st.sampled_from(
    [
        "# One", "## Two", "###### Six", "Title", "===", "---", "***", "", "", "text", "- item", "  more", "> quote",
        "> # quoted", "1. one", "   three", "    code", "```", "~~~", "```py", "  ```", "<!-- x -->", "<div>", "</div>",
        "| a | b |", "|---|---|", "* * *", "#", "#x", "\t# tab", "- # listed", "+ ---",
    ]
)  # fmt: skip
MARKDOWN = st.lists(FRAGMENTS, max_size=12).map("\n".join)


@given(MARKDOWN)
@example("<!-- x\n\n```\n-->\n# a")
def test_no_heading_of_a_document_reaches_the_level_of_its_own(text: str) -> None:
    made = demoted(text, 3)
    whole = f"### Title\n- **Path**: a.md\n\n{made}\n\n---\n\n### Behind\n"
    high = [token for token in _headings(whole) if token.level == 0 and int(token.tag[1]) < 4]
    assert [_text(whole, token) for token in high] == ["### Title", "### Behind"]


@given(MARKDOWN)
def test_a_document_loses_no_word_on_the_way(text: str) -> None:
    letters = string.ascii_letters
    assert _only(letters, demoted(text, 3)) == _only(letters, text)


DOCUMENTS = st.lists(
    st.builds(document, st.sampled_from("abcdefgh"), MARKDOWN, st.text(max_size=8), st.floats(0, 1)), max_size=6
)


@given(DOCUMENTS, DOCUMENTS, DOCUMENTS, st.none() | st.integers(1, 120))
def test_a_budget_is_never_exceeded_and_nothing_comes_twice_or_gets_lost(
    critical: list[RetrievedDocument],
    relevant: list[RetrievedDocument],
    others: list[RetrievedDocument],
    max_tokens: int | None,
) -> None:
    links = [linked(each.path, "a", content=each.content) for each in others]
    made = put_together(critical, relevant, links, max_tokens)
    kept = [each.path for each in (*made.critical_documents, *made.relevant_documents, *made.linked_documents)]
    assert words(made.formatted_context) == made.tokens
    assert max_tokens is None or made.tokens <= max_tokens
    assert sorted([*kept, *made.omitted]) == sorted({each.path for each in (*critical, *relevant, *links)})
    assert made.omitted == () or max_tokens is not None
    assert made.formatted_context.count("- **Path**: ") == len(kept)


def test_a_content_is_prepared_once_and_counted_as_it_stands() -> None:
    renderer = Renderer(WordTokenizer())
    (first,) = renderer.render(["# Two words"])
    assert renderer.render(["# Two words"])[0] is first
    assert (first.text, first.tokens) == ("#### Two words", 3)
    assert Renderer(WordTokenizer(), remembered_chars=4).render(["# Two words"]) == [first]


def test_a_marked_document_says_what_replaces_it() -> None:
    old = replace(document("old.md"), superseded_by=("new.md", "newer.md"))
    assert "- **Superseded by**: new.md, newer.md\n" in put_together([], [old], []).formatted_context


def _headings(text: str) -> list[Token]:
    return [token for token in COMMONMARK.parse(text) if token.type == "heading_open"]


def _text(whole: str, token: Token) -> str:
    assert token.map is not None
    return whole.split("\n")[token.map[0]]


def _only(letters: str, text: str) -> str:
    return "".join(character for character in text if character in letters)
