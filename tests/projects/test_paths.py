"""Where paths lead: never out of the docs folder, in whatever disguise."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rag_context.errors import InvalidInputError
from rag_context.projects.links import inside, link_candidates, located, reference_candidates
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


def test_composed_and_decomposed_names_are_both_looked_for() -> None:
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
