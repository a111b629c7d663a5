"""The documentation and the help texts use the field's terms: fails where a metaphor comes back.

    python scripts/words.py

It reads README.md, CONTRIBUTING.md, the pages of docs/ (those written from help texts and tool descriptions too) and
the examples' READMEs, without code: fenced blocks and `inline code` are names, not prose.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "clients/**/*.md", "examples/*/README.md")

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
    r"mend(s|ed|ing)?": "repair",
    r"not to be had|cannot be had": "unavailable",
    r"if not said": "default",
    r"handed in": "submitted",
}
"""A pattern of whole words, and what to write instead."""

ALLOWED = ("refuses connections",)
"""Phrases that are the field's own."""

CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL | re.MULTILINE)
PATTERNS = {re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE): term for pattern, term in WORDS.items()}


def findings(text: str) -> list[tuple[int, str, str]]:
    """Line, word and better term of each word that should not be there."""
    prose = CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    for sentence in ALLOWED:
        prose = prose.replace(sentence, "")
    return sorted(
        (prose.count("\n", 0, match.start()) + 1, match[0], term)
        for pattern, term in PATTERNS.items()
        for match in pattern.finditer(prose)
    )


def main() -> int:
    """Print every finding; returns the exit status."""
    pages = sorted({page for pattern in PAGES for page in ROOT.glob(pattern)})
    found = [
        f"{page.relative_to(ROOT)}:{line}: '{word}': write {term}"
        for page in pages
        for line, word, term in findings(page.read_text(encoding="utf-8"))
    ]
    print("\n".join(found) or f"{len(pages)} pages use the field's terms.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
