"""The structure of prose: fences and headings of Markdown, turns of a chat and who speaks, sentences.

Markdown is read by a scanner of lines, not a parser: it must be linear on any input, and must not read a `# comment` in
a shell snippet as a heading.

A turn of a chat stands at the start of a line: `[Name] message`, `Name: message`, `**Name:** ...`, `<name> ...`. All
turns of a conversation have the same form. Where its first turn is `[Name]`, a `Note:` inside a message does not begin
a turn. A time stamp may stand before the speaker; turns without one have the last one's.

Where a text may be parted has a strength: ends of paragraphs, lines and sentences. Small on purpose: a missed sentence
end costs a somewhat longer unit, a wrong one parts a thought, so doubtful full stops (abbreviations, initials, list
numbers) are not ends. Offsets point behind the white space that follows.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from rag_context.domain.provenance import front_matter, is_role, role_name, text_start
from rag_context.domain.text import PIECE_CHARS
from rag_context.ingest.chunking.text_blocks import Boundary, Range, Strength, TextBlock

_FENCE = re.compile(
    # Also behind list markers and quote marks, where fences of README files often open, and behind a speaker.
    r"^(?P<said>(?:[\[(]?\d[^\]\[\n]{0,24}[\])]?[ \t])?\[[^\W\d][^\]\[\n]{0,63}\]:?[ \t])?"
    r"(?:[ \t]++|>|(?:[-*+]|\d{1,9}[.)])[ \t]++)*+(?P<mark>`{3,}+|~{3,}+)(?P<info>[^\n]*+)$",
    re.MULTILINE,
)
_HEADING = re.compile(r"^[ ]{0,3}(?P<marks>#{1,6})(?:[ \t]++(?P<text>[^\n]*+))?\r?$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\[\]\n]*+)\](?:\([^()\n]*+\)|\[[^\[\]\n]*+\])")
_EMPHASIS = re.compile(r"[*`]++|(?<!\w)_+|_+(?!\w)")
_ANCHOR = re.compile(r"\s\{#[^{}]*+\}$")
_MARKED = re.compile(r"[\[*`_{]")

MAX_HEADING_CHARS = 200
"""Longest name of one heading in a path; the rest is cut."""

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

# Runs of full stops start where no full stop precedes, and all repeats are possessive: linear on any input.
_SENTENCE_END = re.compile(
    r"(?P<stop>(?<![.!?…])[.!?…]++)[\"'”’»)\]*_`]*+(?P<space>\s++)|[。！？｡]++[」』”’）】〉》\"')]*+\s*+"
)
_TEXT = re.compile(r"\S")
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

SHORT_MESSAGES_CHARS = 120
"""Messages of one person, one after the other, share a chunk up to so many characters."""

_WRAP_COLUMNS = range(40, 132)
"""Lengths in characters of a line that may have been broken by an editor rather than by its writer."""


class ProseSection(NamedTuple):
    """The text from one heading up to the next, of whatever level; level 0 stands before the first heading."""

    start: int
    end: int
    body: int
    """Offset of the first line under the heading that holds text; `end` without one."""
    level: int
    path: tuple[str, ...]


def body_start(text: str) -> int:
    """Where the text behind the front matter begins, blank lines passed over; its end where it is empty."""
    start = text_start(text)
    blank = len(text) - start - len(text[start:].lstrip())
    return max(start, text.rfind("\n", start, start + blank) + 1)


def fences(text: str) -> list[Range]:
    """Where the code fences stand, marks included; one that is never closed reaches to the end (CommonMark 4.5)."""
    found: list[Range] = []
    opened: tuple[int, str] | None = None
    # Most texts have none, and then the pattern need not be tried at each of their lines.
    for match in _line_matches(_FENCE, text) if "```" in text or "~~~" in text else ():
        mark, info = match["mark"], match["info"].strip()
        if opened is None:
            if mark[0] not in info:
                opened = match.start("mark") if match["said"] else match.start(), mark
        elif not info and mark.startswith(opened[1]):
            found.append((opened[0], match.end()))
            opened = None
    if opened is not None:
        found.append((opened[0], len(text)))
    return found


def sections(text: str, fenced: Sequence[Range]) -> Iterator[ProseSection]:
    """The sections of `text` in order, without gaps; a text without headings is one section of level 0."""
    start, level, body = 0, 0, 0
    trail: list[tuple[int, str]] = []
    path: tuple[str, ...] = ()
    for match in _outside(_HEADING, text, fenced):
        if match.start():
            yield ProseSection(start, match.start(), _body(text, body, match.start()) if level else 0, level, path)
        start, body, level = match.start(), match.end(), len(match["marks"])
        while trail and trail[-1][0] >= level:
            trail.pop()
        trail.append((level, heading_text(match["text"] or "")))
        path = tuple([name for _, name in trail if name])
    if text:
        yield ProseSection(start, len(text), _body(text, body, len(text)) if level else 0, level, path)


def heading_text(raw: str) -> str:
    """A heading as people read it: on one line, without closing marks, links, emphasis and anchors."""
    # Cut before the patterns run: one line may be a megabyte.
    raw = raw[: 4 * MAX_HEADING_CHARS].rstrip()
    closed = raw.rstrip("#")
    if not closed or closed[-1].isspace():
        raw = closed
    # Most have no marks, and two megabytes can be half a million headings.
    if _MARKED.search(raw):
        raw = _EMPHASIS.sub("", _LINK.sub(r"\1", _ANCHOR.sub("", raw)))
    return " ".join(raw.split())[:MAX_HEADING_CHARS].rstrip()


def _outside(pattern: re.Pattern[str], text: str, fenced: Sequence[Range]) -> Iterator[re.Match[str]]:
    """The matches that begin outside of front matter and fences."""
    # Matches and hidden stretches both ascend, so one pass over each is enough.
    hidden = iter([front_matter(text), *fenced])
    start, end = next(hidden)
    for match in _line_matches(pattern, text):
        while match.start() >= end and (following := next(hidden, None)):
            start, end = following
        if not start <= match.start() < end:
            yield match


def _line_matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The matches of a pattern that stays in one line, some lines at a time: a call holds the interpreter's lock."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + PIECE_CHARS) + 1 or len(text)
        yield from pattern.finditer(text, start, end)
        start = end


def _body(text: str, start: int, end: int) -> int:
    """Start of the first line in `text[start:end]` that is more than white space; `end` without one."""
    first = _TEXT.search(text, start, end)
    return end if first is None else text.rfind("\n", start, first.start()) + 1


@dataclass(frozen=True, slots=True)
class ConversationText:
    """The turns of a conversation without gaps, each under its speaker, and the last time stamp before each."""

    turns: Sequence[TextBlock]
    clocks: Sequence[str]


def conversation(text: str, fences: Sequence[Range] = ()) -> ConversationText:
    """The turns of `text`, and their times where the text states them."""
    found: list[tuple[int, tuple[str, ...], str]] = []
    paths: dict[str, tuple[str, ...]] = {}  # one for each speaker: two megabytes can be half a million turns
    clock, manner = "", ""
    for match in _outside(_TURN, text, fences):
        style = match.lastgroup or ""
        manner = manner or style
        if manner == "bracketed" != style:
            continue
        clock = (match["clock"] or clock).strip()
        found.append((match.start(), paths.setdefault(match[style], (match[style],)), clock))
    # What stands before the first message has no speaker.
    if not found or found[0][0] > 0:
        found.insert(0, (0, (), ""))
    ends = [*(start for start, _, _ in found[1:]), len(text)]
    blocks = [TextBlock(start, end, path) for (start, path, _), end in zip(found, ends, strict=True)]
    return ConversationText(blocks, [clock for _, _, clock in found])


READ_ONCE_CHARS = 4_096
"""Messages are mostly shorter: what was read of the last ones, which each step needs, is kept."""


def speech_of(text: str) -> "Speech":
    return _short_speech(text) if len(text) <= READ_ONCE_CHARS else _speech(text)


def _speech(text: str) -> "Speech":
    return Speech(text, conversation(text, fences(text)))


class Speech:
    """Who says which part of a conversation, and where it is cut.

    Between a user and an assistant every change of role is the edge of a chunk, since a question is about what one of
    them said. Between people every message is a chunk; only short ones of one speaker, one after the other, share one.
    """

    def __init__(self, text: str, said: ConversationText) -> None:
        self.said = said
        # Not `replace`, which takes several times as long: two megabytes can be half a million turns.
        blocks = [TextBlock(turn.start, turn.end, _speakers(turn.path)) for turn in said.turns]
        if len(blocks) > 1 and not blocks[0].path and not text[body_start(text) : blocks[0].end].strip():
            blocks = [replace(blocks[1], start=0), *blocks[2:]]  # front matter has no speaker
        names = {name for block in blocks for name in block.path}
        roles = {name for name in names if is_role(name)}
        if len(roles) > 1:  # `Note:` in an answer is no third speaker
            for number, block in enumerate(blocks):
                if number and not roles.issuperset(block.path):
                    blocks[number] = replace(block, path=blocks[number - 1].path)
        self._blocks = blocks
        self._starts = [block.start for block in blocks]
        self.names = {name for block in blocks for name in block.path}
        """All who speak."""
        self._has_roles = len(roles) > 1 or (len(roles) == 1 and len(names) == 2)

    def stretches(self) -> list[Range]:
        """What may share a chunk: what one says in a row, between people a message; of one speaker all of it."""
        if not self._has_roles and len(self.names) < 2:
            return [(0, self._blocks[-1].end)]
        found: list[Range] = []
        for _, turns in groupby(self._blocks, key=lambda block: block.path):
            start, end = None, 0
            for turn in turns:
                if start is not None and not self._has_roles and turn.end - start > SHORT_MESSAGES_CHARS:
                    found.append((start, end))
                    start = None
                start, end = turn.start if start is None else start, turn.end
            found.append((start or 0, end))
        return found

    def speaker(self, start: int, end: int) -> str | None:
        """Who alone says `start..end`; None if several do, or it is not known."""
        first = max(0, bisect_right(self._starts, start) - 1)
        speakers = {block.path for block in self._blocks[first : bisect_left(self._starts, end)]}
        if len(speakers) != 1:
            return None
        return next(iter(speakers.pop()), None)


_short_speech = lru_cache(256)(_speech)


@lru_cache(4096)
def _speakers(path: tuple[str, ...]) -> tuple[str, ...]:
    """The speakers in the path of a turn, by the names that all sources share."""
    return tuple(role_name(name.partition(" (")[0].lstrip("@").strip()) for name in path)


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
    # Abbreviations are short; a fixed distance keeps the scan linear.
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
