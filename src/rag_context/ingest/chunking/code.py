"""Code without a grammar: blocks end at a closing brace in the first column, units at blank lines and lines."""

import re
from itertools import pairwise

from rag_context.ingest.chunking.blocks import Block, Boundary, Strength

_BRACE_END = re.compile(r"^\}[;,)]*+[ \t]*+\r?\n(?:[ \t\r]*+\n)*+", re.MULTILINE)
_LINE_END = re.compile(r"\n(?:[ \t\r]*+\n)*+")
_CLOSERS = re.compile(r"[ \t]*+(?:[\])};,>]|end\b|fi\b|done\b|else\b|elif\b|except\b|finally\b|catch\b)")
"""A line that belongs to the lines above it."""


def braced_blocks(text: str) -> list[Block]:
    """Blocks of `text` that end at a separator (a closing brace alone on its line, at the margin)."""
    starts = [0, *(match.end() for match in _BRACE_END.finditer(text) if match.end() < len(text)), len(text)]
    return [Block(start, end) for start, end in pairwise(starts)]


def line_boundaries(text: str) -> list[Boundary]:
    """Where code may be split: at blank lines first, then at lines, and last before a closing line."""
    found = []
    for match in _LINE_END.finditer(text, 0, len(text.rstrip())):
        if _CLOSERS.match(text, match.end()):
            strength = Strength.WRAP
        else:
            strength = Strength.PARAGRAPH if match.end() - match.start() > 1 else Strength.LINE
        found.append(Boundary(match.end(), strength))
    return found
