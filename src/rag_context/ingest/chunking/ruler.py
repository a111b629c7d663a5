"""Measures a text in the embedder's tokens: one tokenisation, then bisection.

WordPiece reads any word of more than 100 characters as one unknown token, and drops control characters without a
token; measured naively, 100 kB of base64 would hide behind a single token. So a long run counts as a token for
every `CHARS_PER_TOKEN` of its characters, and may be cut between them.
"""

import unicodedata
from bisect import bisect_left
from collections.abc import Iterator

from rag_context.ports.models import Tokenizer

CHARS_PER_TOKEN = 4
"""Characters of a long run that count as one token: the usual estimate for English."""

LONG_RUN_CHARS = 32
"""Longest run of characters that may pass as one token; the longest piece in BERT's vocabulary has 18."""

ZERO_WIDTH_JOINER = "\u200d"


class Ruler:
    """Knows how many tokens lie between two offsets of one text, and how far a number of tokens reaches."""

    def __init__(self, text: str, tokenizer: Tokenizer) -> None:
        self.text = text
        self._tokenizer = tokenizer
        self._starts = list(_token_starts(text, tokenizer))

    def count(self, start: int, end: int) -> int:
        """Tokens that begin in `text[start:end]`."""
        return bisect_left(self._starts, end) - bisect_left(self._starts, start)

    def reach(self, start: int, tokens: int) -> int:
        """Largest end with `count(start, end) <= tokens`, and at least one character on."""
        index = bisect_left(self._starts, start) + tokens
        if index >= len(self._starts):
            return len(self.text)
        return self.whole(start, max(self._starts[index], start + 1))

    def back(self, end: int, tokens: int) -> int:
        """Smallest start with `count(start, end) <= tokens`."""
        if tokens <= 0:
            return end
        index = bisect_left(self._starts, end) - tokens
        return self._starts[index] if index > 0 else 0

    def fitting(self, start: int, end: int, tokens: int) -> int:
        """Largest offset up to `end` at which `text[start:offset]`, tokenised by itself, has at most `tokens` tokens.

        White space at the ends is not measured: nothing is lost where a model does not read it. A cut inside a word
        can make more tokens of its halves than the whole word had. One character is never cut.
        """
        while end - start > 1:
            piece = self.text[start:end]
            spans = self._tokenizer.offsets(piece.strip())
            if len(spans) <= tokens:
                break
            read = len(piece) - len(piece.lstrip()) + spans[tokens][0]
            end = self.whole(start, max(start + 1, min(start + read, end - 1)))
        return end

    def whole(self, start: int, offset: int) -> int:
        """The last cut after `start`, up to `offset`, that parts no character from its marks or joiners."""
        for cut in range(offset, max(start, offset - LONG_RUN_CHARS), -1):
            if cut == len(self.text) or not _joined(self.text[cut - 1], self.text[cut]):
                return cut
        return offset


def _joined(left: str, right: str) -> bool:
    """Whether two neighbouring code points are one character to the reader."""
    return unicodedata.category(right).startswith("M") or ZERO_WIDTH_JOINER in (left, right)


def _token_starts(text: str, tokenizer: Tokenizer) -> Iterator[int]:
    """Where each counted token of `text` begins; long tokens and long gaps between tokens count by their length."""
    position = 0
    for start, end in tokenizer.offsets(text):
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
