"""Turns of a talk, each from the start of a line: `[Name] message`, `Name: message`, `**Name:** ...`, `<name> ...`."""

import re
from collections.abc import Sequence

from rag_context.indexing.blocks import Block, Range

_CLOCK = r"(?:\[?\(?\d{1,4}[-:./T]\d{1,2}[\d:./TZ ,+APMapm-]{0,24}\)?\]?[ \t]{1,4})?"
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


def turns(text: str, fences: Sequence[Range] = ()) -> list[Block]:
    """The turns of `text` in order, without gaps, each under its speaker; what precedes the first has none."""
    hidden = iter(fences)
    fence = next(hidden, None)
    found: list[tuple[int, tuple[str, ...]]] = []
    for match in _TURN.finditer(text):
        while fence and fence[1] <= match.start():
            fence = next(hidden, None)
        if not fence or match.start() < fence[0]:
            found.append((match.start(), (next(filter(None, match.groups())),)))
    if not found or found[0][0] > 0:
        found.insert(0, (0, ()))
    ends = [*(start for start, _ in found[1:]), len(text)]
    return [Block(start, end, path) for (start, path), end in zip(found, ends, strict=True)]
