"""Turns of a chat, each at the start of a line: `[Name] message`, `Name: message`, `**Name:** ...`, `<name> ...`.

All turns of a conversation have the same form. Where its first turn is `[Name]`, a `Note:` inside a message does not
begin a turn. A time stamp may stand before the speaker; turns without one have the last one's.
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
    """The turns of a conversation without gaps, each under its speaker, and the last time stamp before each."""

    turns: Sequence[Block]
    clocks: Sequence[str]


def turns(text: str, fences: Sequence[Range] = ()) -> list[Block]:
    """The turns of `text` in order, without gaps, each under its speaker; text before the first has no speaker."""
    return list(conversation(text, fences).turns)


def conversation(text: str, fences: Sequence[Range] = ()) -> Conversation:
    """The turns of `text`, and their times where the text states them."""
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
    """The matches of the start of a turn that are outside front matter and fences."""
    hidden = iter([front_matter(text), *fences])
    start, end = next(hidden)
    for match in _TURN.finditer(text):
        while match.start() >= end and (following := next(hidden, None)):
            start, end = following
        if not start <= match.start() < end:
            yield match
