"""Which words in a user's messages are the user's own, and which of them are standing instructions.

People quote, paste and forward: pages, mails, tickets, code, what others wrote. What stands in quotation marks, fences,
tags or behind a mark of a paste is another person's, and never an instruction of the user, however it is worded. In
doubt it is not the user's either: a user repeats an instruction that is missed, and agents obey one that a
stranger placed. What is another's is replaced by as many `OTHERS` characters, so that offsets stay.
The patterns are in `own_words.toml`.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias

from rag_context.domain.patterns import Patterns, folded

Range: TypeAlias = tuple[int, int]

OTHERS = "\ufffc"
"""Stands for a character that is not the user's own."""

MOST_TYPED = 6_000
"""Characters of a message above which only its first paragraph counts, among as many: people do not type so much."""

PIECE_CHARS = 1 << 16
MOST_INSTRUCTION = 1_000
"""Characters that may belong to an instruction, the question mark included that would make a question of it."""

SHORT_QUOTATION = 80
"""Characters of a quotation up to which a passage with it still counts as the user's own words."""

QUOTED_WORD = 24
"""Characters of a quotation that says nothing by itself, as in `never write "simply"`."""

_PATTERNS = Patterns(__file__)


def instructions(text: str) -> list[int]:
    """Where standing instructions stand in `text`, each by its last character, of any speaker; ascending."""
    return [
        match.end() - 1
        for begin in range(0, len(text), PIECE_CHARS)  # while one piece is searched, no other thread runs
        for match in _PATTERNS.instruction.finditer(text, begin, begin + PIECE_CHARS + MOST_INSTRUCTION)
        if match.start() < begin + PIECE_CHARS
    ]


def own_words(said: str) -> str:
    """What a user said in one or several messages, with `OTHERS` in place of all that is not their own."""
    kept: list[str] = []
    for start, end in _messages(said):
        kept.append(_own(said[start:end]))
    return "".join(kept)


def shown(passage: str) -> str:
    """A passage of a user with only their own words: what is another's is left out, but for single quoted words."""

    def kept(others: re.Match[str]) -> str:
        return passage[others.start() : others.end()] if len(others[0]) <= QUOTED_WORD else "…"

    words = own_words(passage)
    return passage if OTHERS not in words else re.sub(f"{OTHERS}++", kept, words).strip()


def quotes(words: str) -> bool:
    """Whether `own_words` left more than short quotations out of a text."""
    return OTHERS * (SHORT_QUOTATION + 1) in words


def _messages(said: str) -> Iterator[Range]:
    """The messages, without gaps: all turns have the form of the first."""
    turns = list(_PATTERNS.turn.finditer(said))
    form = turns[0].lastgroup if turns and not said[: turns[0].start()].strip() else None
    starts = [turn.start() for turn in turns if turn.lastgroup == form] if form is not None else []
    bounds = [0, *starts[1:], len(said)]
    return pairwise(bounds)


def _own(message: str) -> str:
    turn = _PATTERNS.turn.match(message, len(message) - len(message.lstrip("\r\n")))
    start = turn.end() if turn is not None else 0
    typed, rest = message[start : start + MOST_TYPED], message[start + MOST_TYPED :]
    words = _PATTERNS.enclosed.sub(lambda match: OTHERS * len(match[0]), typed) + rest
    words = _blanked(words, _tagged(words))[: len(typed)]  # what closes a tag may stand far behind
    words = _blanked(words, _announced(words))
    end = _paste_start(words)
    if len(message) > MOST_TYPED:
        paragraph = _PATTERNS.paragraph_end.search(words, len(words) - len(words.lstrip()))
        end = min(end, paragraph.start() if paragraph is not None else 0)
    return message[:start] + words[:end] + OTHERS * (len(typed) - end + len(rest))


def _paste_start(words: str) -> int:
    """Where something pasted begins in `words`, or their end."""
    starts = [len(words)]
    if (line := _PATTERNS.paste.search(words)) is not None:
        starts.append(line.start())
    if (phrase := _PATTERNS.paste_phrase.search(folded(words))) is not None:
        before = _PATTERNS.words_before.search(words, max(phrase.start() - 20, 0), phrase.start())
        starts.append(phrase.start() if before is None else before.start())
    return min(starts)


def _blanked(text: str, ranges: Iterable[Range]) -> str:
    """`text` with these ranges, which ascend, in other hands."""
    kept, at = [], 0
    for start, end in ranges:
        kept += [text[at:start], OTHERS * (end - max(start, at))]
        at = max(end, at)
    return "".join([*kept, text[at:]])


def _tagged(text: str) -> Iterator[Range]:
    """From each tag to where its name is closed for the last time."""
    last = {match["name"]: match.end() for match in _PATTERNS.closed.finditer(text)}
    for match in _PATTERNS.opened.finditer(text):
        end = last.get(match["name"], 0)
        if end > match.start():
            yield match.start(), end


def _announced(text: str) -> Iterator[Range]:
    """What stands behind sentences that announce another's words."""
    for match in _PATTERNS.sentence.finditer(text):
        end = match.end()
        sentence = folded(match[0])
        if _PATTERNS.own.search(sentence) or _PATTERNS.instruction.match(match[0].lstrip()):
            continue
        colon = _PATTERNS.colon.search(sentence)
        lead = sentence if colon is None else sentence[: colon.start()]
        is_reported = _PATTERNS.reported.search(lead) is not None
        if not is_reported and (_PATTERNS.handled if colon is None else _PATTERNS.before_colon).search(lead) is None:
            continue
        line = text.find("\n", end)
        line = line if line >= 0 else len(text)
        if colon is not None:
            yield match.start() + colon.end(), len(text)
        elif not text[end:line].strip():  # it ends its line: what follows is what it announces
            yield line, len(text)
        elif is_reported:
            paragraph = _PATTERNS.paragraph_end.search(text, end)
            yield end, paragraph.start() if paragraph is not None else len(text)
