"""The structure of a text before sizes count, and its size in the embedder's tokens.

Blocks are sections, turns and definitions; `grouped` says which of them stay together. `Ruler` measures stretches of a
text by one tokenisation, then bisection. WordPiece reads any word of more than 100 characters as one unknown token, and
drops control characters without a token; measured naively, 100 kB of base64 would hide behind a single token. So a
long run counts as a token for every `CHARS_PER_TOKEN` of its characters, and may be cut between them.
"""

import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from rag_context.domain.text import pieces
from rag_context.ports.models import Tokenizer

CHARS_PER_TOKEN = 4
"""Characters of a long run that count as one token: the usual estimate for English."""

LONG_RUN_CHARS = 32
"""Longest run of characters that may pass as one token; the longest piece in BERT's vocabulary has 18."""

ZERO_WIDTH_JOINER = "\u200d"
_SPACES = frozenset(" \t\n\r")
"""White space to every tokenizer; of other characters that Python calls so, some are dropped, and join words."""

Range = tuple[int, int]

SUBSTANTIAL_TOKENS = 64
"""A group of this many tokens (or a quarter of the chunk size, if that is less) is large enough to stand alone."""


class Ruler:
    """Knows how many tokens lie between two offsets of one text, and how far a number of tokens reaches."""

    def __init__(self, text: str, tokenizer: Tokenizer) -> None:
        self.text = text
        self._tokenizer = tokenizer
        self._tokens = 0
        # Of plain text no token is shorter than a character.
        self._is_plain = tokenizer.splits_at_spaces and text.isascii()

    @cached_property
    def token_starts(self) -> "array[int]":
        """Where each counted token begins, ascending, in characters."""
        # Piece by piece: the spans of two megabytes take 250 MB.
        return array("I", _token_starts(self.text, self._spans()))

    def fits(self, start: int, end: int, tokens: int) -> bool:
        """Whether so many tokens begin in `text[start:end]`, or fewer; a short text is not tokenised for it."""
        return (self._is_plain and end - start <= tokens) or self.count(start, end) <= tokens

    def _spans(self) -> Iterator[tuple[int, int]]:
        for piece, end in pieces(self.text):
            for first, last in self._tokenizer.offsets(self.text[piece:end]):
                self._tokens += 1
                yield piece + first, piece + last

    def count(self, start: int, end: int) -> int:
        """Tokens that begin in `text[start:end]`."""
        return bisect_left(self.token_starts, end) - bisect_left(self.token_starts, start)

    def reach(self, start: int, tokens: int) -> int:
        """Largest end with `count(start, end) <= tokens`, and at least one character on."""
        index = bisect_left(self.token_starts, start) + tokens
        if index >= len(self.token_starts):
            return len(self.text)
        return self.between_characters(start, max(self.token_starts[index], start + 1))

    def back(self, end: int, tokens: int) -> int:
        """Smallest start with `count(start, end) <= tokens`."""
        if tokens <= 0:
            return end
        index = bisect_left(self.token_starts, end) - tokens
        return self.token_starts[index] if index > 0 else 0

    def fitting(self, start: int, end: int, tokens: int) -> int:
        """Largest offset up to `end` at which `text[start:offset]`, tokenised by itself, has at most `tokens` tokens.

        White space at the ends is not measured: nothing is lost where a model does not read it. A cut inside a word
        can make more tokens of its halves than the whole word had. One character is never cut.
        """
        while end - start > 1:
            if self._tokenizer.splits_at_spaces and self._is_apart(start, end) and self.fits(start, end, tokens):
                break
            piece = self.text[start:end]
            # Measured already, with the white space.
            if len(piece) == len(self.text) and self.token_starts and self._tokens <= tokens:
                break
            # Nearly every piece fits at once, and counting is cheaper than making spans.
            (count,) = self._tokenizer.count([piece.strip()])
            if count <= tokens:
                break
            spans = self._tokenizer.offsets(piece.strip())
            # Up to where the first token too many begins; and shorter by one character at least, or this would not end.
            read = len(piece) - len(piece.lstrip()) + spans[tokens][0]
            end = self.between_characters(start, max(start + 1, min(start + read, end - 1)))
        return end

    def _is_apart(self, start: int, end: int) -> bool:
        """Whether white space parts a stretch from the rest of the text: what was measured in the text holds."""
        edges = ((start, start == 0), (end, end == len(self.text)))
        return all(is_end or not _SPACES.isdisjoint(self.text[edge - 1 : edge + 1]) for edge, is_end in edges)

    def between_characters(self, start: int, offset: int) -> int:
        """The last cut after `start`, up to `offset`, that parts no character from its marks or joiners."""
        # A hostile text can be one character of a thousand marks: beyond this many it is cut all the same.
        for cut in range(offset, max(start, offset - LONG_RUN_CHARS), -1):
            if cut == len(self.text) or not _joined(self.text[cut - 1], self.text[cut]):
                return cut
        return offset


def _joined(left: str, right: str) -> bool:
    """Whether two neighbouring code points are one character to the reader."""
    return unicodedata.category(right).startswith("M") or ZERO_WIDTH_JOINER in (left, right)


def _token_starts(text: str, spans: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Where each counted token of `text` begins, by the spans of all; long ones and long gaps count by their length."""
    position = 0
    for start, end in spans:
        if start - position > LONG_RUN_CHARS:
            yield from _hidden_starts(text, position, start)
        while start < end and text[start].isspace():
            start += 1
        if start < end:
            yield from range(start, end, CHARS_PER_TOKEN) if end - start > LONG_RUN_CHARS else (start,)
        position = max(position, end)
    yield from _hidden_starts(text, position, len(text))


def _hidden_starts(text: str, start: int, end: int) -> Iterator[int]:
    """Starts for a stretch that the tokenizer passed over, where it is long and more than white space."""
    if end - start > LONG_RUN_CHARS and not text[start:end].isspace():
        yield from range(start, end, CHARS_PER_TOKEN)


class Strength(IntEnum):
    """How well a text can be split at a boundary."""

    WRAP = 0
    """A line break inside a wrapped sentence, a code fence, or between a lead-in and its list."""
    SENTENCE = 1
    LINE = 2
    """A line break with a meaning: list item, table row, verse, line of code."""
    PARAGRAPH = 3
    BLOCK = 4
    """The start of a section or a definition."""
    TURN = 5
    """The start of a turn in a conversation; preferred however full the chunk is."""


class Boundary(NamedTuple):
    """An offset at which a new unit begins."""

    offset: int
    strength: Strength


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A section, turn or definition under one heading path."""

    start: int
    end: int
    path: tuple[str, ...] = ()
    hard: bool = False
    """Nothing before it may share a chunk with it."""
    bare: bool = False
    """Holds a heading only, no text under it."""
    preamble: bool = False
    """Stands before the first heading, so that it claims no path of its own."""


def substantial(max_tokens: int) -> int:
    """Tokens from which a group stands alone under chunks of `max_tokens`."""
    return min(SUBSTANTIAL_TOKENS, max_tokens // 4)


def headed(blocks: Sequence[TextBlock]) -> list[TextBlock]:
    """Each bare heading together with the block right below it, so that no size can part them."""
    found: list[TextBlock] = []
    for block in blocks:
        above = found[-1] if found else None
        if above and above.bare and block.path[: len(above.path)] == above.path:
            # Not `replace`, which takes twice as long: two megabytes can be half a million headings.
            found[-1] = TextBlock(above.start, block.end, block.path, above.hard, block.bare, block.preamble)
        else:
            found.append(block)
    return found


def grouped(blocks: Sequence[TextBlock], ruler: Ruler, max_tokens: int) -> list[Range]:
    """Pack neighbouring blocks that are too small to stand alone; a group may be larger than a chunk.

    A chunk of five words ("Status: accepted") has an embedding that resembles half of all questions, and takes
    one of the few places of an answer; a chunk of two topics resembles neither. So a group that is large
    enough is closed at the next block. A smaller one is joined with the following or the preceding group, as far as
    they fit as a whole; the side with the longer common path is nearer, and of equals the following one.
    """
    groups: list[TextBlock] = []
    for block in blocks:
        forward = _forward(groups[-1], block, ruler, max_tokens) if groups else None
        backward = _backward(groups, ruler, max_tokens)
        if backward and not (forward and len(forward.path) >= len(backward.path)):
            groups[-2:] = [backward, block]
        elif forward:
            groups[-1] = forward
        else:
            groups.append(block)
    if last := _backward(groups, ruler, max_tokens):
        groups[-2:] = [last]
    return [(group.start, group.end) for group in groups]


def _forward(running: TextBlock, block: TextBlock, ruler: Ruler, max_tokens: int) -> TextBlock | None:
    """Both as one, if `running` is too small to stand alone and what follows fits, or is introduced by it."""
    if ruler.count(running.start, running.end) >= substantial(max_tokens):
        return None
    # What stands before the first heading introduces what follows.
    if running.preamble:
        return replace(block, start=running.start, hard=running.hard)
    if block.hard:
        return None
    joined = replace(running, end=block.end, path=common(running.path, block.path))
    introduced = bool(running.path) and joined.path == running.path
    too_large = ruler.count(block.start, block.end) > max_tokens
    fits = ruler.count(joined.start, joined.end) <= max_tokens
    return joined if fits or (introduced and too_large) else None


def _backward(groups: Sequence[TextBlock], ruler: Ruler, max_tokens: int) -> TextBlock | None:
    """The last two groups as one, if the last is too small to stand alone and has something above it in common."""
    if len(groups) < 2 or groups[-1].hard:
        return None
    previous, running = groups[-2:]
    shared = common(previous.path, running.path)
    small = ruler.count(running.start, running.end) < substantial(max_tokens)
    fits = ruler.count(previous.start, running.end) <= max_tokens
    related = bool(shared) or previous.path == running.path
    return replace(previous, end=running.end, path=shared) if small and fits and related else None


def common(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
    """The longest path above both."""
    same = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        same += 1
    return left[:same]


def path_over(blocks: Sequence[TextBlock], starts: Sequence[int], start: int, end: int) -> tuple[str, ...]:
    """The deepest path that all text of `start..end` stands under; `starts` are those of the blocks."""
    covering = blocks[max(0, bisect_right(starts, start) - 1) : bisect_left(starts, end)]
    claiming = [block for block in covering if not (block.bare or block.preamble)] or covering
    path = claiming[0].path
    for block in claiming[1:]:
        path = common(path, block.path)
    return path
