"""The documentation, the help texts, docstrings and comments use the field's terms: fails where a metaphor comes back.

    python scripts/words.py

It reads the pages beside this folder, those of docs/ (also those written from help texts and tool descriptions) and
the examples' READMEs, without code: fenced blocks and `inline code` are names, not prose. Of the packages in
`PACKAGES` it reads the docstrings, the strings below names, the comments, and the sentences in other strings.
"""

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("*.md", "docs/*.md", "clients/**/*.md", "examples/*/README.md")

PACKAGES = (
    "api",
    "cli",
    "client",
    "collections",
    "domain",
    "embedders",
    "evaluation",
    "files",
    "ingest",
    "integrations",
    "openai_server",
    "ports",
    "projects",
    "resilience",
    "search",
    "server",
    "service",
    "settings",
    "stores",
    "testing",
    "text",
    "transfer",
    "where",
    "wiring",
)
"""Packages of src/rag_context whose docstrings and comments are read."""

WORDS = {
    r"by (its |their )?words": "by keyword search",
    r"words (alone|only)|only words|words answer": "keyword search",
    r"by meaning": "by vector search",
    r"text leg|vector leg|legs": "retriever",
    r"talks?": "conversation",
    r"doors?|halls?": "handler, interface",
    r"fuse box": "composition root",
    r"floors?|house": "layer, module",
    r"anew": "again, recreate, re-embed",
    r"refus(e|es|ed)": "reject",
    r"nonsense": "an invalid response",
    r"nobody|somebody": "no caller, another program",
    r"in a hurry|hurried": "time budget",
    r"patience": "timeout",
    r"mend(s|ed|ing)?": "repair",
    r"not to be had|cannot be had": "unavailable",
    r"if not said": "default",
    r"handed in": "submitted",
}
"""A pattern of whole words, and what to write instead."""

CODE_WORDS = {
    **WORDS,
    r"(im)?patien(ce|t)": "timeout, time budget",
    r"whoever|everybody|anybody": "the caller, another process",
    r"handed (in|out|over)": "submitted, returned, passed",
    r"looked (at|for|up)": "read, checked, searched",
    r"unsettled?|unsettles|settled?|settles": "mark as indexed, mark as pending",
    r"recut|recuts": "rechunk",
    r"flaws?": "issue",
    r"debris": "inactive generation, leftovers",
    r"none of (ours|theirs)|to be had": "not ours, available",
    r"cannot be asked|could not be asked": "unavailable",
    r"broke off|went away": "interrupted, deleted",
    r"asked|asks|told|hears?|heard": "request, called with, given",
    r"wanted|meant": "requested, resolved",
    r"lacks?|lacking": "is missing, without",
}
"""The same for docstrings and comments."""

ALLOWED = ("refuses connections",)
"""Phrases that are the field's own."""

CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL | re.MULTILINE)


def findings(text: str, words: dict[str, str] = WORDS) -> list[tuple[int, str, str]]:
    """Line, word and better term of each word that should not be there."""
    prose = CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    for sentence in ALLOWED:
        prose = prose.replace(sentence, "")
    return sorted(
        (prose.count("\n", 0, match.start()) + 1, match[0], term)
        for pattern, term in words.items()
        for match in re.finditer(rf"\b(?:{pattern})\b", prose, re.IGNORECASE)
    )


def code_findings(source: str) -> list[tuple[int, str, str]]:
    """As `findings`, of the docstrings and comments of a module."""
    return sorted(
        (first + line - 1, word, term)
        for first, text, words in _prose(source)
        for line, word, term in findings(text, words)
    )


def _prose(source: str) -> Iterator[tuple[int, str, dict[str, str]]]:
    """First line, text and word list of each comment, string statement and other string of several words."""
    begins = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and begins):
            yield token.start[0], token.string, CODE_WORDS
        elif token.type == tokenize.STRING and token.string.count(" ") > 1:  # a message, or a part of one
            yield token.start[0], token.string, WORDS
        if token.type in {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}:
            begins = True
        elif token.type not in {tokenize.NL, tokenize.COMMENT, tokenize.ENCODING}:
            begins = False


def main() -> int:
    """Print every finding; returns the exit status."""
    pages = sorted({page for pattern in PAGES for page in ROOT.glob(pattern)})
    found = [
        f"{page.relative_to(ROOT)}:{line}: '{word}': write {term}"
        for page in pages
        for line, word, term in findings(page.read_text(encoding="utf-8"))
    ]
    modules = sorted(
        module for package in PACKAGES for module in (ROOT / "src" / "rag_context" / package).rglob("*.py")
    )
    found += [
        f"{module.relative_to(ROOT)}:{line}: '{word}': write {term}"
        for module in modules
        for line, word, term in code_findings(module.read_text(encoding="utf-8"))
    ]
    print("\n".join(found) or f"{len(pages)} pages and {len(modules)} modules use the field's terms.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
