"""The structure of a Markdown text that matters to retrieval: front matter, code fences and the tree of headings.

A scanner of lines, not a parser: it must be linear on any input, and must not read a `# comment` in a shell snippet
as a heading.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag_context.ingest.chunking.blocks import Range

_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*+\r?\n")
_FRONT_MATTER_END = re.compile(r"^(?:---|\.\.\.)[ \t]*+\r?$", re.MULTILINE)
_FENCE = re.compile(
    # Also behind list markers and quote marks, where fences of README files often open.
    r"^(?:[ \t]++|>|(?:[-*+]|\d{1,9}[.)])[ \t]++)*+(?P<mark>`{3,}+|~{3,}+)(?P<info>[^\n]*+)$",
    re.MULTILINE,
)
_HEADING = re.compile(r"^[ ]{0,3}(?P<marks>#{1,6})(?:[ \t]++(?P<text>[^\n]*+))?\r?$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\[\]\n]*+)\](?:\([^()\n]*+\)|\[[^\[\]\n]*+\])")
_EMPHASIS = re.compile(r"[*`]++|(?<!\w)_+|_+(?!\w)")
_ANCHOR = re.compile(r"\s\{#[^{}]*+\}$")

MAX_HEADING_CHARS = 200
"""Longest name of one heading in a path; the rest is cut."""


@dataclass(frozen=True, slots=True)
class Section:
    """The text from one heading up to the next, of whatever level; level 0 stands before the first heading."""

    start: int
    end: int
    body: int
    """Offset of the first line under the heading that holds text; `end` without one."""
    level: int
    path: tuple[str, ...]


def front_matter(text: str) -> Range:
    """Offsets between the lines that enclose a leading YAML block; `(0, 0)` without one."""
    if (opening := _FRONT_MATTER.match(text)) and (closing := _FRONT_MATTER_END.search(text, opening.end())):
        return opening.end(), closing.start()
    return 0, 0


def body_start(text: str) -> int:
    """Where the text behind the front matter begins, blank lines passed over; its end where it is empty."""
    _, end = front_matter(text)
    line_end = text.find("\n", end) if end else -1
    start = line_end + 1 if line_end >= 0 else len(text) if end else 0
    blank = len(text) - start - len(text[start:].lstrip())
    return max(start, text.rfind("\n", start, start + blank) + 1)


def fences(text: str) -> list[Range]:
    """Where the code fences stand, marks included; one that is never closed reaches to the end (CommonMark 4.5)."""
    found: list[Range] = []
    opened: tuple[int, str] | None = None
    for match in _FENCE.finditer(text):
        mark, info = match["mark"], match["info"].strip()
        if opened is None:
            if mark[0] not in info:
                opened = match.start(), mark
        elif not info and mark.startswith(opened[1]):
            found.append((opened[0], match.end()))
            opened = None
    if opened is not None:
        found.append((opened[0], len(text)))
    return found


def sections(text: str, fenced: Sequence[Range]) -> list[Section]:
    """The sections of `text` in order, without gaps; a text without headings is one section of level 0."""
    headings = list(_headings(text, fenced))
    starts = [0, *(match.start() for match in headings), len(text)]
    found = [Section(0, starts[1], 0, 0, ())] if starts[1] else []
    trail: list[tuple[int, str]] = []
    for match, end in zip(headings, starts[2:], strict=True):
        level = len(match["marks"])
        while trail and trail[-1][0] >= level:
            trail.pop()
        trail.append((level, heading_text(match["text"] or "")))
        path = tuple(name for _, name in trail if name)
        found.append(Section(match.start(), end, _body(text, match.end(), end), level, path))
    return found


def heading_text(raw: str) -> str:
    """A heading as people read it: on one line, without closing marks, links, emphasis and anchors."""
    raw = raw[: 4 * MAX_HEADING_CHARS].rstrip()
    closed = raw.rstrip("#")
    if not closed or closed[-1].isspace():
        raw = closed
    raw = _EMPHASIS.sub("", _LINK.sub(r"\1", _ANCHOR.sub("", raw)))
    return " ".join(raw.split())[:MAX_HEADING_CHARS].rstrip()


def _headings(text: str, fenced: Sequence[Range]) -> Iterator[re.Match[str]]:
    hidden = iter([front_matter(text), *fenced])
    start, end = next(hidden)
    for match in _HEADING.finditer(text):
        while match.start() >= end and (following := next(hidden, None)):
            start, end = following
        if not start <= match.start() < end:
            yield match


def _body(text: str, start: int, end: int) -> int:
    """Start of the first line in `text[start:end]` that is more than white space; `end` without one."""
    blank = len(text[start:end]) - len(text[start:end].lstrip())
    if start + blank >= end:
        return end
    return text.rfind("\n", start, start + blank) + 1
