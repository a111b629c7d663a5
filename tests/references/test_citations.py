"""What a text cites: names that can be checked, and no others."""

import pytest

from rag_context.references.checking import citations


@pytest.mark.parametrize(
    ("text", "kind", "cited"),
    [
        ("The limit is in src/net/client.py.", "path", "src/net/client.py"),
        ("See lib/x.go#L12-L20 for that", "path", "lib/x.go"),
        ("at /home/ann/shop/src/cart.ts:17: it fails", "path", "/home/ann/shop/src/cart.ts"),
        ("everything below `src/net/` is old", "path", "src/net/"),
        ("(`.github/workflows/ci.yml`)", "path", ".github/workflows/ci.yml"),
        ("reverted by commit 1a2b3c4d5", "commit", "1a2b3c4d5"),
        ("`verify_token()` raises", "symbol", "verify_token"),
        ("it calls read_all(path) twice", "symbol", "read_all"),
        ("`Service.search` waits", "symbol", "Service.search"),
        ("`max_items=3` is too few", "symbol", "max_items"),
        ("start it with `--dry-run`", "flag", "--dry-run"),
        ("`SHOP_TOKEN` is needed", "setting", "SHOP_TOKEN"),
        ("set `search.min_score` to 0", "setting", "search.min_score"),
    ],
)
def test_a_name_is_found_with_its_kind(text: str, kind: str, cited: str) -> None:
    assert [(each.kind, each.text, each.is_certain) for each in citations(text)] == [(kind, cited, True)]


@pytest.mark.parametrize("text", ["and/or", "with Node.js", "in setup.py", "GitHub", "call max_items", "use --force"])
def test_what_only_looks_like_a_name_is_not_certain(text: str) -> None:
    assert [each.is_certain for each in citations(text)] == [False]


@pytest.mark.parametrize(
    "text",
    ["https://example.org/src/a.py is a page", "no names here, e.g. none.", "1234567 and deadbeef", "~/notes/a.md", ""],
)
def test_nothing_else_is_cited(text: str) -> None:
    assert [each for each in citations(text) if each.is_certain] == []


def test_a_name_counts_once_and_long_texts_are_bounded() -> None:
    assert len(citations("`src/a.py` and src/a.py and `src/a.py`")) == 1
    assert len(citations(" ".join(f"src/a{number}.py" for number in range(100)))) == 20
