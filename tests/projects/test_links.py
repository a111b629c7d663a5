"""Which links a text holds."""

import pytest

from rag_context.projects.links import links


def test_the_links_of_the_specifications_example_are_found() -> None:
    text = """\
See [related problem](./csharp-compounding-docs/problems/db-issue.md) for context.
Also check [tooling](../csharp-compounding-docs/tools/npgsql.md).
"""
    assert links(text) == (
        "./csharp-compounding-docs/problems/db-issue.md",
        "../csharp-compounding-docs/tools/npgsql.md",
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[a](b.md)", "b.md"),
        ("[a](<b c.md> 'title')", "b%20c.md"),
        ('[a](b.md#part "title")', "b.md#part"),
        ("[a][ref]\n\n[ref]: b.md", "b.md"),
        ("[ref][]\n\n[REF]: <b.md> 'x'", "b.md"),
        ("[ref]\n\n[ref]: b.md", "b.md"),
        ("<https://example.com/b.md>", "https://example.com/b.md"),
        ("# [a](b.md)", "b.md"),
        ("| x |\n> - [a](b.md)", "b.md"),
        ("**[a](b.md)**", "b.md"),
        ("[![image](i.png)](b.md)", "b.md"),
        ("[a](ü.md)", "%C3%BC.md"),
        ("[a](b%20c.md)", "b%20c.md"),
    ],
)
def test_a_link_in_any_form_is_found(text: str, found: str) -> None:
    assert links(text) == (found,)


@pytest.mark.parametrize(
    "text",
    [
        "`[a](b.md)`",
        "    [a](b.md)",
        "```\n[a](b.md)\n```",
        "~~~md\n[a](b.md)\n",
        "<!-- [a](b.md) -->",
        "![a](b.png)",
        "![a][r]\n\n[r]: b.png",
        r"\[a](b.md)",
        "[a] (b.md)",
        "[a]: b.md",
        "[a](data:text/html;base64,eA==)",
        "[a](javascript:alert(1))",
        "b.md https://example.com",
        "",
    ],
)
def test_what_only_looks_like_a_link_is_not_followed(text: str) -> None:
    assert links(text) == ()


def test_links_are_listed_once_in_reading_order() -> None:
    assert links("[1](b.md) [2](a.md) [3](b.md)\n\n- [4](c.md)\n") == ("b.md", "a.md", "c.md")


def test_ten_thousand_links_are_all_found_and_no_more() -> None:
    text = "".join(f"[{i}](d/{i}.md) and " for i in range(10_500))
    found = links(text)
    assert len(found) == 10_000
    assert found[-1] == "d/9999.md"


@pytest.mark.parametrize("piece", ["[", "![[](", "[a][", "[a](", "<", "*a ", "`a ", "> ", "[[a]"])
def test_brackets_that_would_keep_the_parser_busy_for_long_hide_nothing_else(piece: str) -> None:
    assert "b.md" in links(f"{piece * 8_000}\n\n[a](b.md)\n")


def test_a_paragraph_of_endless_brackets_is_left_out() -> None:
    assert links(f"{'[' * 10_000} [a](a.md)\n\n[b](b.md)\n") == ("b.md",)
    assert links(f"{'[' * 1_000} [a](a.md)\n\n[b](b.md)\n") == ("a.md", "b.md")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See [[Pool Set-up]] and [[a/b#part|the other]].", ("[[Pool Set-up]]", "[[a/b#part]]")),
        ("In code `[[no]]`, ![[no.png]] and\n\n```\n[[no]]\n```\n", ()),
        ("A <a href=\"a.md\">link</a> and <A class=x HREF='b.md?x&amp;y'>another</A>.", ("a.md", "b.md?x&y")),
        ('<div>\n<a href="a.md">x</a>\n<!-- <a href="no.md"> -->\n</div>', ("a.md",)),
        ("<!-- [[no]] <a href='no.md'> -->\n\n`<a href='no.md'>`", ()),
    ],
)
def test_wiki_links_and_anchors_are_links(text: str, expected: tuple[str, ...]) -> None:
    assert links(text) == expected


def test_of_a_long_text_the_same_links_are_found() -> None:
    filler = "\n\n".join(["Nothing of it, over and over again."] * 5000)
    text = f"[a](a.md)\n\n{filler}\n\n```\n[no](no.md)\n```\n\nSee [b][ref] and [[c]].\n\n{filler}\n\n[ref]: b.md\n"
    assert links(text) == ("a.md", "b.md", "[[c]]")
