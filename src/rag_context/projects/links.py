"""Links of a Markdown text, from its syntax tree: what only looks like one (in code, in a comment) is none."""

import re
from collections.abc import Iterable, Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.utils import EnvType

MAX_LINKS = 10_000
"""Links read of one document; nobody follows more."""

MAX_EFFORT = 30_000_000
"""Characters that the parser may have to look at for the brackets of one paragraph (some 0.2 s)."""

_MAX_NESTING = 100
_BRACKET = re.compile(r"[\[\]]")


def links(body: str) -> tuple[str, ...]:
    """Targets of the inline, reference and autolinks of a text without front matter, each once, in reading order.

    Percent-encoded, and otherwise as they are written; images, `data:` and `javascript:` are left out, and so is a
    paragraph whose brackets would keep the parser busy for long.
    """
    if "](" not in body and "]:" not in body and "<" not in body:
        return ()
    parser = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).disable("inline")
    references: EnvType = {}
    blocks = parser.parse(body, references)
    found = dict.fromkeys(_targets(blocks, parser, references))
    return tuple(found)[:MAX_LINKS]


def _targets(blocks: Iterable[Token], parser: MarkdownIt, references: EnvType) -> Iterator[str]:
    for block in blocks:
        if block.type == "inline" and _effort(block.content) <= MAX_EFFORT:
            pieces: list[Token] = []
            parser.inline.parse(block.content, parser, references, pieces)
            yield from (str(token.attrs["href"]) for token in pieces if token.type == "link_open")


def _effort(text: str) -> int:
    """Characters between each opening bracket and the one that closes it, or the end; the parser reads all of them."""
    opened: list[int] = []
    effort = 0
    for match in _BRACKET.finditer(text):
        if match[0] == "[":
            opened.append(match.start())
        elif opened:
            effort += match.start() - opened.pop()
    return effort + sum(len(text) - start for start in opened)
