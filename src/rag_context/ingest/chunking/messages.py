"""Turns of a talk, each from the start of a line: `[Name] message`, `Name: message`, `**Name:** ...`, `<name> ...`.

A talk writes all of its turns in one way. Where its first turn is `[Name]`, a `Note:` in what somebody says begins
no other. A stamp of time may stand before the speaker; turns without one go on from the last.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag_context.ingest.chunking.blocks import Block, Range
from rag_context.ingest.chunking.markdown import front_matter

_CLOCK = r"(?:[\[(]{0,2}(?P<clock>\d{1,4}[-:./T]\d{1,2}[\d:./TZ ,+APMapm-]{0,24})[\])]{0,2}[ \t]{1,4})?"
_TURN = re.compile(
    rf"^[ \t]{{0,3}}{_CLOCK}(?:"
    r"\[(?P<bracketed>[^\W\d][^\]\[\n]{0,63})\]:?[ \t]"
    r"|<(?P<angled>[^\W\d][\w .'@-]{0,38})>[ \t]"
    r"|(?:\*\*|__)(?P<strong>[^\W\d][\w.'@-]{0,38}(?: [\w.'@-]{1,38}){0,2})(?::(?:\*\*|__)|(?:\*\*|__):)(?=\s)"
    r"|#{1,6} (?P<headed>[Uu]ser|[Aa]ssistant|[Ss]ystem|[Hh]uman|[Aa]gent):?[ \t]*$"
    r"|(?P<plain>@?[^\W\d][\w.'@-]{0,38}(?: [\w.'@-]{1,38}){0,2}(?: \([^()\n]{1,24}\))?):(?=\s)"
    r")",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A talk taken apart: its turns without gaps, each under its speaker, and the time each was last stamped with."""

    turns: Sequence[Block]
    clocks: Sequence[str]


def turns(text: str, fences: Sequence[Range] = ()) -> list[Block]:
    """The turns of `text` in order, without gaps, each under its speaker; what precedes the first has none."""
    return list(talk(text, fences).turns)


def talk(text: str, fences: Sequence[Range] = ()) -> Conversation:
    """The turns of `text`, and when they were, as far as the text says so."""
    found: list[tuple[int, tuple[str, ...], str]] = []
    clock, manner = "", ""
    for match in _outside(text, fences):
        style = match.lastgroup or ""
        manner = manner or style
        if manner == "bracketed" != style:
            continue
        clock = (match["clock"] or clock).strip()
        found.append((match.start(), (match[style],), clock))
    if not found or found[0][0] > 0:
        found.insert(0, (0, (), ""))
    ends = [*(start for start, _, _ in found[1:]), len(text)]
    blocks = [Block(start, end, path) for (start, path, _), end in zip(found, ends, strict=True)]
    return Conversation(blocks, [clock for _, _, clock in found])


def _outside(text: str, fences: Sequence[Range]) -> Iterator[re.Match[str]]:
    """What looks like the start of a turn and stands in no front matter and no fence."""
    hidden = iter([front_matter(text), *fences])
    start, end = next(hidden)
    for match in _TURN.finditer(text):
        while match.start() >= end and (following := next(hidden, None)):
            start, end = following
        if not start <= match.start() < end:
            yield match
