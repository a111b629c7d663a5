"""Passages of an answer as a reader wants them: a section in one piece, and nothing twice. Pure.

Pieces of one section that stand next to each other become one passage, in the place of the better one, up to a size. A
passage that only repeats another document (a README and the first page of its documentation) is left out. Statements
that differ in a value are no repetition: names and numbers must be the same. Messages stay as they are.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from rag_context.domain.documents import CHAT, CODE, DECISION
from rag_context.domain.search import Passage
from rag_context.search import rules
from rag_context.search.query import Result

_WORD = re.compile(r"\w+")
_ADDRESS = re.compile(r"(?<=\])\([^()\s]*\)|\bhttps?://\S+")


def joined(results: Iterable[Result]) -> list[Result]:
    """Results, best first, with the neighbouring pieces of a section as one; what is left out has no place.

    What it returned may stand before further results.
    """
    shown: list[Result] = []
    for result in results:
        near = next((other for other in shown if _adjoin(other.passage, result.passage)), None)
        if near is not None:
            whole = replace(near, passage=_both(near.passage, result.passage))
            # It may close a gap to another piece.
            shown = joined([whole if other is near else other for other in shown])
        elif not any(_repeats(result.passage, other.passage) for other in shown):
            shown.append(result)
    return shown


def _is_section(one: Passage, other: Passage) -> bool:
    is_same = one.document_id == other.document_id and one.chunk.span.heading == other.chunk.span.heading
    return is_same and one.content_type != CHAT


def _adjoin(one: Passage, other: Passage) -> bool:
    """Whether two passages are pieces of one section, without a gap between them, and short enough to be one."""
    if not _is_section(one, other):
        return False
    first, second = sorted((one.chunk.span, other.chunk.span), key=lambda span: span.start)
    return first.start < second.start <= first.end and second.end - first.start <= rules.JOINED_CHARS


def _both(best: Passage, other: Passage) -> Passage:
    """Two passages that adjoin as one, with the id of the best."""
    first, second = sorted((best.chunk, other.chunk), key=lambda chunk: chunk.span.start)
    text = first.text + second.text[first.span.end - second.span.start :]
    last = max(first.span, second.span, key=lambda span: span.end)
    span = replace(first.span, end=last.end, end_line=last.end_line)
    return replace(best, chunk=replace(best.chunk, text=text, span=span))


def _repeats(passage: Passage, earlier: Passage) -> bool:
    """Whether a passage says nothing that an earlier one does not."""
    if passage.document_id == earlier.document_id or passage.content_type in (CHAT, DECISION):
        return False
    text, other = passage.chunk.text, earlier.chunk.text
    least = 1.0 if passage.content_type == CODE else rules.REPEATED_SHARE
    if min(len(text), len(other)) < max(rules.REPEATED_CHARS, rules.REPEATED_LENGTHS * max(len(text), len(other))):
        return False
    words, others = (Counter(_WORD.findall(_ADDRESS.sub("", each))) for each in (text, other))
    own = words - others
    # A name or a number that the other does not have is another statement.
    is_new = any(word[0].isupper() or not word.isalpha() for word in own)
    is_new = is_new or own.total() >= rules.REPEATED_OWN * words.total() > 0
    return not is_new and (words & others).total() >= least * (words | others).total()
