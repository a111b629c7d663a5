"""A Markdown text made fit to stand below another heading: its own headings sink, and nothing of it reaches out.

It is read in the place where it will stand, behind a list and before a heading, by the rules of CommonMark. What it
leaves open (a code fence, an HTML comment) is closed, or it would swallow whatever is put behind it.
"""

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

DEEPEST = 6
_BEFORE = "- x\n\n"
_BEFORE_LINES = 2
_BEHIND = "\n\n---\n\n### x\n"
_BEHIND_LINES = 4
_HTML_ENDS = ("-->", "?>", "]]>", ">", "</pre>", "</script>", "</style>", "</textarea>")

_LINE_END = re.compile(r"\r\n?")
_CONTAINERS = re.compile(r"(?:\s|>|(?:[-*+]|\d{1,9}[.)])(?=\s))*+")
_MARKS = re.compile(r"#{1,6}+")
_PARSER = MarkdownIt("commonmark").disable("inline")


def demoted(text: str, below: int) -> str:
    """`text` with its headings below level `below`, ready to stand in a larger text.

    Args:
        text: Markdown without front matter.
        below: level of the heading it is put under; H1 becomes the next one, none becomes deeper than H6.
    """
    text = _LINE_END.sub("\n", text).strip("\n").rstrip()
    if not text:
        return ""
    headings = _headings(text)
    if not _is_closed(text, headings):
        text = _closed(text)
        headings = _headings(text)
    lines = text.split("\n")
    for heading in reversed(headings):
        _sink(heading, lines, below)
    return "\n".join(lines)


def _headings(text: str) -> list[Token]:
    """The headings of a text in its place, the one behind it included."""
    tokens = _PARSER.parse(f"{_BEFORE}{text}{_BEHIND}")
    return [token for token in tokens if token.type == "heading_open"]


def _is_closed(text: str, headings: list[Token]) -> bool:
    """Whether the heading behind a text is one, and no part of what the text left open."""
    behind = _BEFORE_LINES + text.count("\n") + _BEHIND_LINES
    return bool(headings) and headings[-1].level == 0 and headings[-1].map == [behind, behind + 1]


def _closed(text: str) -> str:
    fences = [token.markup for token in _PARSER.parse(_BEFORE + text) if token.type == "fence"]
    for end in (*fences[-1:], *_HTML_ENDS):
        closed = f"{text}\n{end}"
        if _is_closed(closed, _headings(closed)):
            return closed
    return text


def _sink(heading: Token, lines: list[str], below: int) -> None:
    """Write a heading of `lines` below another level, on one line."""
    assert heading.map is not None  # noqa: S101  (blocks have one)
    start, end = (line - _BEFORE_LINES for line in heading.map)
    if start >= len(lines):
        return
    marks = "#" * min(int(heading.tag[1]) + below, DEEPEST)
    first = _CONTAINERS.match(lines[start])
    lead = first[0] if first is not None else ""
    rest = lines[start][len(lead) :]
    if heading.markup.startswith("#"):
        lines[start] = f"{lead}{_MARKS.sub(marks, rest, count=1)}"
        return
    further = [_CONTAINERS.sub("", line, count=1) for line in lines[start + 1 : end - 1]]
    lines[start:end] = [f"{lead}{marks} {' '.join([rest.rstrip(), *further]).rstrip()}"]
