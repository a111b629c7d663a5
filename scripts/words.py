"""Check that pages, docstrings, comments, messages and names use the field's terms; exit 1 where one does not.

    python scripts/words.py

It reads the pages beside this folder, those of docs/ (also the generated ones) and the examples' READMEs, without code:
fenced blocks and `inline code` are names, not prose. Of Python it reads docstrings, the strings below names, comments,
and names of classes; in src also the sentences in other strings, in tests also the names of test functions.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("*.md", "docs/**/*.md", "clients/**/*.md", "examples/*/README.md")

PYTHON = ("src/rag_context", "tests", "scripts", "benchmarks")
SENTENCES = "src/rag_context"
"""Where strings of several words are messages; elsewhere they are data."""

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
"""The same for docstrings, comments and names of tests."""

CLASSES = {
    "Card": "CollectionRecord",
    "Catalogue": "CollectionRegistry",
    "Door": "Handlers",
    "Draft": "DocumentInput",
    "Flaw": "Issue",
    "Hall": "Service",
    "Home": "CollectionStorage",
    "Judge": "Check",
    "Lanes": "KeyedQueue",
    "Place": "Cursor, CollectionRef",
    "Room": "the kind of limit",
    "Tally": "Summary",
    "Visit": "RequestContext",
}
"""Names of classes that say little, and what such a class is called."""

ALLOWED = ("refuses connections",)
"""Phrases that are the field's own."""

CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL | re.MULTILINE)


def findings(text: str, words: dict[str, str] = WORDS) -> list[tuple[int, str, str]]:
    """Line, word and better term of each word that should not be there."""
    prose = CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    for sentence in ALLOWED:
        prose = prose.replace(sentence, "")
    pattern, terms = _any_of(tuple(words)), list(words.values())
    return [
        (prose.count("\n", 0, match.start()) + 1, match[0], terms[int(str(match.lastgroup)[1:])])
        for match in pattern.finditer(prose)
    ]


@cache
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One expression for all: searching for each of them takes ten times as long."""
    alternatives = (f"(?P<_{number}>{pattern})" for number, pattern in enumerate(patterns))
    return re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)


def code_findings(source: str, message_words: dict[str, str] = WORDS) -> list[tuple[int, str, str]]:
    """As `findings`, of the docstrings, comments and messages of a module; `message_words` are those of messages."""
    return sorted(
        (first + line - 1, word, term)
        for first, text, words in _prose(source, message_words)
        for line, word, term in findings(text, words)
    )


def name_findings(source: str) -> list[tuple[int, str, str]]:
    """As `findings`, of the names of a module's classes and test functions."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name.strip("_") in CLASSES:
            found.append((node.lineno, node.name, CLASSES[node.name.strip("_")]))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            sentence = node.name.replace("_", " ")
            found += [(node.lineno, word, term) for _, word, term in findings(sentence, CODE_WORDS)]
    return sorted(found)


def _prose(source: str, message_words: dict[str, str]) -> Iterator[tuple[int, str, dict[str, str]]]:
    """First line, text and word list of each comment, string statement and other string of several words."""
    begins = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and begins):
            yield token.start[0], token.string, CODE_WORDS
        elif (
            message_words and token.type == tokenize.STRING and token.string.count(" ") > 1
        ):  # a message, or a part of one
            yield token.start[0], token.string, message_words
        if token.type in {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}:
            begins = True
        elif token.type not in {tokenize.NL, tokenize.COMMENT, tokenize.ENCODING}:
            begins = False


def main() -> int:
    """Print every finding; returns the exit status."""
    pages = sorted({page for pattern in PAGES for page in ROOT.glob(pattern)})
    modules = sorted(module for folder in PYTHON for module in (ROOT / folder).rglob("*.py"))
    found = [(page, finding) for page in pages for finding in findings(page.read_text(encoding="utf-8"))]
    for module in modules:
        source = module.read_text(encoding="utf-8")
        words = WORDS if module.is_relative_to(ROOT / SENTENCES) else {}
        found += [(module, finding) for finding in (*code_findings(source, words), *name_findings(source))]
    for path, (line, word, term) in found:
        print(f"{path.relative_to(ROOT)}:{line}: '{word}': write {term}")
    print(f"{len(pages)} pages and {len(modules)} modules were read; {len(found)} words are not the field's.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
