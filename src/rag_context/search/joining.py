"""Passages of an answer as a reader wants them: a section in one piece, and nothing twice. Pure.

Pieces of one section that stand next to each other become one passage, in the place of the better one, up to a size. A
passage that only repeats another document (a README and the first page of its documentation) is left out. Statements
that differ in a value are no repetition: names and numbers must be the same. Messages stay as they are.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from rag_context.domain.documents import CHAT, CODE, DECISION
from rag_context.domain.search import Passage
from rag_context.search import rules
from rag_context.search.query import Result

_WORD = re.compile(r"\w+")
_NAMED = re.compile(r"\b[^\W_a-z]\w*")
_ADDRESS = re.compile(r"(?<=\])\([^()\s]*\)|\bhttps?://\S+")


class Joining:
    """The passages of one answer, as they come, best first; what is left out has no place."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []

    @property
    def results(self) -> list[Result]:
        return [piece.result for piece in self._pieces]

    def add(self, results: Iterable[Result]) -> None:
        for result in results:
            self._put(_Piece(result), len(self._pieces))

    def close(self, between: Iterable[Passage]) -> None:
        """Show what stands between two pieces of a section, if the three together are short enough to be one."""
        for passage in between:
            near = [piece for piece in self._pieces if _adjoin(piece.passage, passage)]
            if len(near) == 2 and _adjoin(_both(near[0].passage, passage), near[1].passage):
                self._put(_Piece(replace(near[0].result, passage=passage)), len(self._pieces))

    def _put(self, piece: "_Piece", place: int) -> None:
        """Put it at its place, or, as one with a piece that it adjoins, at the better place of the two."""
        passage = piece.passage
        near = next((at for at, other in enumerate(self._pieces) if _adjoin(other.passage, passage)), None)
        if near is not None:
            other = self._pieces.pop(near)
            best, further = (other, piece) if near < place else (piece, other)
            whole = replace(best.result, passage=_both(best.passage, further.passage))
            self._put(_Piece(whole), min(near, place))  # It may close a gap to another piece.
        elif not any(piece.repeats(other) for other in self._pieces[:place]):
            later = [other for other in self._pieces[place:] if not other.repeats(piece)]
            self._pieces[place:] = [piece, *later]


def in_order_of_text(results: Iterable[Result]) -> list[Result]:
    """As they are, but below the first, pieces of a section that stand behind each other in the order of the text."""
    ordered: list[Result] = []
    for result in results:
        passage, place = result.passage, len(ordered)
        while place > 1 and _are_near(passage, above := ordered[place - 1].passage, 2 * rules.JOINED_CHARS):
            if above.chunk.span.start < passage.chunk.span.start:
                break
            place -= 1
        ordered.insert(place, result)
    return ordered


class _Piece:
    """A result, and what it says, which is read once."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.passage = result.passage
        self.length = len(result.passage.chunk.text)

    @cached_property
    def text(self) -> str:
        """Without addresses."""
        text = self.passage.chunk.text
        return _ADDRESS.sub("", text) if "](" in text or "://" in text else text

    @cached_property
    def words(self) -> Counter[str]:
        return Counter(_WORD.findall(self.text))

    def repeats(self, earlier: "_Piece") -> bool:
        """Whether it says nothing that an earlier one does not."""
        passage = self.passage
        if passage.content_type in (CHAT, DECISION) or passage.document_id == earlier.passage.document_id:
            return False
        shorter, longer = sorted((self.length, earlier.length))
        if shorter < rules.REPEATED_CHARS or shorter < rules.REPEATED_LENGTHS * longer:
            return False
        # A name or a number that the other does not have is another statement. Of most the first is nowhere in it.
        text = earlier.text
        if any(match[0] not in text and _is_value(match[0]) for match in _NAMED.finditer(self.text)):
            return False
        # Sets first: most passages differ in so many words that none need be counted.
        least_own = rules.REPEATED_OWN * self.words.total()
        if len(self.words.keys() - earlier.words.keys()) >= least_own > 0:
            return False
        own = self.words - earlier.words
        if any(map(_is_value, own)) or own.total() >= least_own > 0:
            return False
        least = 1.0 if passage.content_type == CODE else rules.REPEATED_SHARE
        return (self.words & earlier.words).total() >= least * (self.words | earlier.words).total()


def _is_value(word: str) -> bool:
    """Whether it is a name or a number."""
    return word[0].isupper() or not word.isalpha()


def _adjoin(one: Passage, other: Passage) -> bool:
    """Whether two passages are pieces of one section, without a gap between them, and short enough to be one."""
    if not _are_near(one, other, rules.JOINED_CHARS):
        return False
    return max(one.chunk.span.start, other.chunk.span.start) <= min(one.chunk.span.end, other.chunk.span.end)


def _are_near(one: Passage, other: Passage, most: int) -> bool:
    """Whether two passages are of one section, and in no more than so many characters of it."""
    if one.document_id != other.document_id or one.content_type == CHAT:
        return False
    first, second = sorted((one.chunk.span, other.chunk.span), key=lambda span: span.start)
    return first.heading == second.heading and first.start < second.start and second.end - first.start <= most


def _both(best: Passage, other: Passage) -> Passage:
    """Two passages that adjoin as one, with the id of the best."""
    first, second = sorted((best.chunk, other.chunk), key=lambda chunk: chunk.span.start)
    text = first.text + second.text[first.span.end - second.span.start :]
    last = max(first.span, second.span, key=lambda span: span.end)
    span = replace(first.span, end=last.end, end_line=last.end_line)
    return replace(best, chunk=replace(best.chunk, text=text, span=span))
