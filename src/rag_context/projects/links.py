"""Reads the links of a Markdown text from its syntax tree, and follows them from document to document.

Text in code or comments is not a link. `[[wiki]]` links and `<a href>` count; the former keep their brackets, because
they are resolved differently. Links are followed breadth first, and each document is visited once.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import unescape

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.utils import EnvType

from rag_context.ingest.chunking.prose import fences
from rag_context.projects.records import ProjectDocument

MAX_LINKS = 10_000
"""The most links of one document."""

MAX_EFFORT = 30_000_000
"""Characters that the parser may have to read for the brackets of one paragraph (some 0.2 s)."""

_MAX_NESTING = 100
MAX_PARSED_CHARS = 100_000
"""In a longer text, only paragraphs that may have a link are parsed: parsing all of it would take seconds."""

_MARKS = ("](", "]:", "[[", "<")
_WIKI = re.compile(r"(?<!!)\[\[([^\[\]|\n]{1,500})(?:\|[^\[\]\n]{0,500})?\]\]")
_HTML_COMMENT = re.compile(r"<!--(?:(?!-->).)*+(?:-->)?", re.DOTALL)
_ANCHOR = re.compile(r"<a\s[^<>]{0,2000}?\bhref\s*=\s*(?:\"([^\"<>]{1,2000})\"|'([^'<>]{1,2000})')", re.IGNORECASE)
_BRACKET = re.compile(r"[\[\]]")


def links(body: str) -> tuple[str, ...]:
    """The targets of the inline, reference and autolinks of a text without front matter, each once, in reading order.

    They are percent-encoded, and otherwise as written. Images, `data:` and `javascript:` are left out, and so are
    paragraphs whose brackets would take the parser too long.
    """
    if not any(mark in body for mark in _MARKS):
        return ()
    if len(body) > MAX_PARSED_CHARS:
        body = _promising(body)
    parser = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).disable("inline")
    references: EnvType = {}
    blocks = parser.parse(body, references)
    found = dict.fromkeys(_targets(blocks, parser, references))
    return tuple(found)[:MAX_LINKS]


def _targets(blocks: Iterable[Token], parser: MarkdownIt, references: EnvType) -> Iterator[str]:
    for block in blocks:
        if block.type == "html_block":
            yield from _anchors(_HTML_COMMENT.sub("", block.content))
        if block.type == "inline" and _effort(block.content) <= MAX_EFFORT:
            pieces: list[Token] = []
            parser.inline.parse(block.content, parser, references, pieces)
            yield from _of_pieces(pieces)


def _of_pieces(pieces: Iterable[Token]) -> Iterator[str]:
    """The links of a paragraph; the text of a wiki link may be split into several tokens."""
    plain = ""
    for token in pieces:
        if token.type == "text":
            plain += token.content
            continue
        yield from _wiki(plain)
        plain = ""
        if token.type == "link_open":
            yield str(token.attrs["href"])
        elif token.type == "html_inline":
            yield from _anchors(token.content)
    yield from _wiki(plain)


def _wiki(text: str) -> Iterator[str]:
    return (f"[[{match[1].strip()}]]" for match in _WIKI.finditer(text))


def _anchors(html: str) -> Iterator[str]:
    return (unescape(match[1] or match[2]) for match in _ANCHOR.finditer(html))


def _promising(body: str) -> str:
    """The paragraphs outside code fences that may have a link or the definition of one."""
    kept: list[str] = []
    end = 0
    for start, after in (*fences(body), (len(body), len(body))):
        kept += [part for part in body[end:start].split("\n\n") if any(mark in part for mark in _MARKS)]
        end = after
    return "\n\n".join(kept)


def _effort(text: str) -> int:
    """The sum of characters between each opening bracket and its closing one, or the end; the parser reads them all."""
    opened: list[int] = []
    effort = 0
    for match in _BRACKET.finditer(text):
        if match[0] == "[":
            opened.append(match.start())
        elif opened:
            effort += match.start() - opened.pop()
    return effort + sum(len(text) - start for start in opened)


@dataclass(frozen=True, slots=True)
class Link:
    """A document that a link leads to, the document with the link, and the number of steps (from 1)."""

    document: ProjectDocument
    linked_from: str
    depth: int


async def follow(
    sources: Sequence[ProjectDocument],
    targets: Callable[[ProjectDocument], Awaitable[Sequence[ProjectDocument]]],
    *,
    passed: Collection[str] = (),
    max_depth: int,
    max_count: int,
) -> list[Link]:
    """Follow links: the documents that they lead to, nearest first, in reading order, each once.

    Args:
        sources: the documents to begin with; they are not in the result.
        targets: the documents that a document links to.
        passed: paths of documents whose links are followed but which are not in the result.
        max_depth: most steps from a source.
        max_count: most documents listed.
    """
    found: list[Link] = []
    visited = {document.path for document in sources}
    level = list(sources)
    for depth in range(1, max_depth + 1):
        following: list[ProjectDocument] = []
        for document in level:
            if len(found) >= max_count:
                return found
            for target in await targets(document):
                if target.path in visited:
                    continue
                visited.add(target.path)
                following.append(target)
                if target.path not in passed:
                    found.append(Link(target, document.path, depth))
                    if len(found) >= max_count:
                        return found
        level = following
    return found
