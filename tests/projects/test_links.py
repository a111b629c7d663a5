"""Paths and links of project documents."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rag_context.errors import InvalidInputError
from rag_context.projects.links import inside, link_candidates, links, located, reference_candidates
from rag_context.projects.records import DocumentNotFoundError

STEPS = st.lists(
    st.sampled_from(
        ["..", ".", "", "docs", "a.md", "problems", "%2e%2e", "%2E.", "..%2f", "%5c..", "..\\", "\\", "%00",
         "%252e%252e", "．．", "‥", "…", "c:", "C:\\", "file:", "~", "a%", "%ff", "#x", "?y",
         " ", "%0a", "\u202e", "é", "e\u0301"]
    ),
    max_size=8,
)  # fmt: skip


def is_plain(path: str) -> bool:
    """Whether a path is relative, without steps up, and printable by every system."""
    return (
        bool(path)
        and not path.startswith(("/", "\\", "~/"))
        and "\0" not in path
        and "\\" not in path
        and not {"", ".", ".."} & set(path.split("/"))
    )


@pytest.mark.parametrize(
    ("href", "document", "resolved"),
    [
        ("b.md", "a.md", "b.md"),
        ("b.md", "problems/a.md", "problems/b.md"),
        ("./b.md", "problems/a.md", "problems/b.md"),
        ("../tools/b.md", "problems/a.md", "tools/b.md"),
        ("../../b.md", "problems/db/a.md", "b.md"),
        ("/tools/b.md", "problems/a.md", "tools/b.md"),
        ("b.md#part", "a.md", "b.md"),
        ("b.md?plain=1#part", "a.md", "b.md"),
        ("b%20c.md", "a.md", "b c.md"),
        ("sub\\b.md", "a.md", "sub/b.md"),
        ("../docs/b.md", "a.md", "b.md"),
        ("../../docs/problems/b.md", "problems/a.md", "problems/b.md"),
        ("%25.md", "a.md", "%.md"),
    ],
)
def test_a_link_means_what_its_letters_say(href: str, document: str, resolved: str) -> None:
    assert link_candidates(href, document, "docs")[0] == resolved


@pytest.mark.parametrize("lead", ["./", "../", "/"])
@pytest.mark.parametrize("document", ["a.md", "problems/a.md", "problems/db/a.md"])
def test_the_docs_folders_own_name_leads_to_its_top(lead: str, document: str) -> None:
    candidates = link_candidates(f"{lead}csharp-compounding-docs/tools/b.md", document, "csharp-compounding-docs")
    assert candidates[-1] == "tools/b.md"


def test_the_literal_path_comes_first() -> None:
    assert link_candidates("./docs/b.md", "sub/a.md", "docs") == ("sub/docs/b.md", "b.md")


@pytest.mark.parametrize(
    "href",
    [
        "",
        "#part",
        "?query",
        "https://example.com/b.md",
        "HTTPS://example.com/b.md",
        "//example.com/b.md",
        "\\\\server\\share\\b.md",
        "mailto:a@b.c",
        "file:///etc/passwd",
        "C:\\b.md",
        "c:/b.md",
        "../b.md",
        "../../../etc/passwd",
        "%2e%2e/b.md",
        "%2E%2E%2Fb.md",
        "..%5cb.md",
        "..\\b.md",
        "/../b.md",
        "x/../../b.md",
        "../other/b.md",
        "../docsx/b.md",
        "b%00.md",
        "b\0.md",
        "b%0A.md",
        "b%ff.md",
        "%2F%2Fexample.com",
        "/",
        ".",
        "..",
        "a" * 5000,
    ],
)
def test_what_leaves_the_docs_folder_or_is_no_path_means_nothing(href: str) -> None:
    assert link_candidates(href, "a.md", "docs") == ()


def test_what_is_encoded_twice_is_a_strange_name_and_no_step_up() -> None:
    assert link_candidates("%252e%252e/b.md", "a.md", "docs") == ("%2e%2e/b.md",)


def test_letters_that_only_look_like_dots_are_no_steps() -> None:
    assert "．．/b.md" in link_candidates("．．/b.md", "a.md", "docs")


def test_composed_and_decomposed_names_are_both_resolved() -> None:
    assert link_candidates("re%CC%81sume%CC%81.md", "a.md", "docs") == ("re\u0301sume\u0301.md", "résumé.md")


@example(["..", "..", "etc", "passwd"])
@example(["%2e%2e", "docs", "..", "x"])
@given(STEPS)
def test_no_link_leads_out(steps: list[str]) -> None:
    for glue in ("/", "\\", ""):
        for lead in ("", "/", "./", "../"):
            href = lead + glue.join(steps)
            for document in ("a.md", "x/y/a.md", "docs/a.md"):
                assert all(map(is_plain, link_candidates(href, document, "docs")))
                assert all(map(is_plain, reference_candidates(href, document, "docs")))


@pytest.mark.parametrize(
    ("reference", "document", "resolved"),
    [
        ("problems/old.md", "problems/new.md", "problems/old.md"),
        ("old.md", "problems/new.md", "old.md"),
        ("./old.md", "problems/new.md", "problems/old.md"),
        ("../old.md", "problems/new.md", "old.md"),
        ("problems\\old.md", "a.md", "problems/old.md"),
        ("old 100%.md", "a.md", "old 100%.md"),
        ("/problems/old.md", "tools/a.md", "problems/old.md"),
    ],
)
def test_front_matter_names_paths_from_the_docs_folder_or_from_the_document(
    reference: str, document: str, resolved: str
) -> None:
    assert reference_candidates(reference, document, "docs")[0] == resolved


def test_front_matter_may_name_a_neighbour_by_its_bare_name() -> None:
    assert reference_candidates("old.md", "problems/new.md", "docs") == ("old.md", "problems/old.md")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "problems").mkdir(parents=True)
    (tmp_path / "docs" / "problems" / "a.md").write_text("a")
    (tmp_path / "outside.md").write_text("secret")
    (tmp_path / "docs" / "link.md").symlink_to(tmp_path / "outside.md")
    (tmp_path / "docs" / "within.md").symlink_to(tmp_path / "docs" / "problems" / "a.md")
    (tmp_path / "docs" / "up").symlink_to(tmp_path)
    (tmp_path / "docs" / "loop.md").symlink_to(tmp_path / "docs" / "loop.md")
    return (tmp_path / "docs").resolve()


@pytest.mark.parametrize(
    "reference", ["problems/a.md", "./problems/a.md", "problems//a.md", "problems\\a.md", "x/../problems/a.md"]
)
def test_a_file_of_the_docs_folder_is_located(docs: Path, reference: str) -> None:
    assert located(docs, reference) == "problems/a.md"
    assert located(docs, str(docs / "problems" / "a.md")) == "problems/a.md"


@pytest.mark.parametrize(
    "reference",
    [
        "", ".", "..", "/", "../outside.md", "problems/../../outside.md", "..\\outside.md", "/etc/passwd", "a\0.md",
        "a\n.md", "link.md", "within.md", "up/outside.md", "up/docs/problems/a.md", "a" * 5000,
    ],
)  # fmt: skip
def test_a_path_that_leads_out_or_over_a_link_is_rejected(docs: Path, reference: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        located(docs, reference)
    assert caught.value.details[0].field == "path"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "reference",
    ["b.md", "problems", "problems/b.md", "%2e%2e/outside.md", "．．/outside.md", "a.md/b.md", "loop.md", "n" * 300],
)
def test_a_file_that_is_not_there_is_not_found(docs: Path, reference: str) -> None:
    with pytest.raises(DocumentNotFoundError):
        located(docs, reference)


@given(STEPS)
def test_nothing_outside_is_ever_located(steps: list[str]) -> None:
    root = Path(os.path.dirname(__file__)).resolve()  # noqa: PTH120
    for reference in ("/".join(steps), "\\".join(steps)):
        try:
            found = located(root, reference)
        except (InvalidInputError, DocumentNotFoundError):
            continue
        assert (root / found).resolve().is_relative_to(root)


def test_a_configured_path_stays_in_the_repository(docs: Path) -> None:
    root = docs.parent
    assert inside(root, "docs/problems", root) == docs / "problems"
    assert inside(docs, "../docs/./problems", root) == docs / "problems"
    for reference in ("..", "docs/../..", "/etc", "docs/../../x", "..\\x", "a\0b", ""):
        assert inside(root, reference, root) is None
    assert inside(root, "docs/up/..", root) is None


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
