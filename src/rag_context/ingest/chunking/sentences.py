"""Where a text may be parted: ends of paragraphs, lines and sentences, each with a strength.

Small on purpose: a missed sentence end costs a somewhat longer unit, a wrong one parts a thought, so doubtful full
stops (abbreviations, initials, list numbers) are not ends. Offsets point behind the white space that follows.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from rag_context.ingest.chunking.blocks import Boundary, Range, Strength

# Runs of full stops start where no full stop precedes, and all repeats are possessive: linear on any input.
_SENTENCE_END = re.compile(
    r"(?P<stop>(?<![.!?…])[.!?…]++)[\"'”’»)\]*_`]*+(?P<space>\s++)|[。！？｡]++[」』”’）】〉》\"')]*+\s*+",
)
_LINE_END = re.compile(r"\n(?:[ \t\r]*+\n)*+")
_LIST_ITEM = re.compile(r"[ \t]*+(?:[-*+•>|#:]|\d{1,9}[.)]\s|\[)")
_LIST_NUMBER = re.compile(r"(?:^|\n)[ \t>]*+(?:\d{1,4}|[A-Za-z]|[ivxIVX]{1,5})$")
_DOTTED = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")

_NEVER_LAST = frozenset(
    """mr mrs ms dr prof sr jr st mt rev hon gen col capt lt sgt gov sen rep pres vs viz cf approx appt dept est
    al fig figs eq eqs sec ch vol pp ed eds op art ca resp incl excl max min avg i.e e.g bzw z.b u.a d.h""".split()  # noqa: SIM905
)
"""Abbreviations that a sentence hardly ever ends with."""

_LAST_BEFORE_CAPITAL = frozenset(
    "etc inc ltd co corp bros jan feb mar apr jun jul aug sep sept oct nov dec a.m p.m".split()  # noqa: SIM905
)
"""Abbreviations that end a sentence only where a capital follows."""

_BEFORE_NUMBER = frozenset("no nos nr p".split())  # noqa: SIM905
"""Abbreviations where a number follows."""

_WRAP_COLUMNS = range(40, 132)
"""Lengths in characters of a line that may have been broken by an editor rather than by its writer."""


def boundaries(text: str, fences: Sequence[Range] = ()) -> list[Boundary]:
    """Everywhere `text` may be parted, in order; inside `fences` at line breaks only."""
    found: dict[int, Strength] = {}
    starts = [start for start, _ in fences]

    def fenced(offset: int) -> bool:
        index = bisect_right(starts, offset) - 1
        return index >= 0 and starts[index] < offset < fences[index][1]

    for offset in _sentence_ends(text):
        if not fenced(offset):
            found[offset] = Strength.SENTENCE
    for offset, strength in _line_ends(text):
        if not fenced(offset):
            found[offset] = strength
        else:
            found[offset] = Strength.LINE if strength is Strength.PARAGRAPH else Strength.WRAP
    return [Boundary(offset, found[offset]) for offset in sorted(found) if 0 < offset < len(text)]


def _sentence_ends(text: str) -> Iterator[int]:
    for match in _SENTENCE_END.finditer(text):
        stop = match["stop"]
        if stop is None or ("\n" not in match["space"] and match.end() < len(text) and _ends(text, match)):
            yield match.end()


def _ends(text: str, match: re.Match[str]) -> bool:
    """Whether a run of full stops before white space ends a sentence."""
    following = text[match.end()]
    start = match.start()
    quoted = match.end("stop") < match.start("space")
    if following.islower() and (quoted or match["stop"] in ("...", "…")):
        return False
    if match["stop"] != ".":
        return True
    before = text[max(0, start - 24) : start]
    word = before.rsplit(None, 1)[-1].lstrip("\"'“‘«([*_`") if before and not before[-1].isspace() else ""
    return not (_abbreviated(word, following) or _LIST_NUMBER.search(before))


def _abbreviated(word: str, following: str) -> bool:
    folded = word.lower()
    if folded in _NEVER_LAST or (folded in _BEFORE_NUMBER and following.isdigit()):
        return True
    if folded in _LAST_BEFORE_CAPITAL:
        return not following.isupper()
    return word != "I" and len(word) < 12 and (word.isupper() or "." in word) and _DOTTED.fullmatch(word) is not None


def _line_ends(text: str) -> Iterator[Boundary]:
    line_start = 0
    for match in _LINE_END.finditer(text):
        offset = match.end()
        line = text[line_start : match.start()].rstrip()
        if line.endswith((":", "：")):
            yield Boundary(offset, Strength.WRAP)
        elif match.end() - match.start() > 1:
            yield Boundary(offset, Strength.PARAGRAPH)
        elif _wrapped(line, text[offset : offset + 12]):
            yield Boundary(offset, Strength.WRAP)
        else:
            yield Boundary(offset, Strength.LINE)
        line_start = offset


def _wrapped(line: str, following: str) -> bool:
    """Whether a line break falls inside a sentence that an editor wrapped."""
    if len(line) not in _WRAP_COLUMNS or line[-1] in ".!?;…。！？|" or _LIST_ITEM.match(following):
        return False
    first = following.lstrip()[:1]
    return first.islower() or (len(line) >= 60 and not first.isdigit())
