"""Whom a question is about: what that speaker alone said counts more. Pure.

In a conversation with an assistant "I" and "my" are the user, unless the question is for an overview or for what the
assistant said. Between people it is the one whose first name stands in the question.
"""

import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeVar

import numpy as np

from rag_context.domain.documents import CHAT
from rag_context.domain.search import ChunkRef, Floats, KeywordHit, VectorHit
from rag_context.search.rules import NAMED_FACTOR, USER_FACTOR
from rag_context.speakers import USER, is_role
from rag_context.text import STOP_WORDS

Hit = TypeVar("Hit", VectorHit, KeywordHit)

_OF_THE_USER = re.compile(r"\b(?:i|my|me|mine|we|our|(?-i:us|Us))\b", re.IGNORECASE)
_OF_ALL = re.compile(
    r"\b(?:summary|summari[sz]e\w*|summaries|overviews?|recap\w*)\b"
    r"|\b(?:did|have|had) you (?:\w+ )?"
    r"(?:recommend|suggest|advise|explain|propose|mention|describe|list|tell|told|say|said|give|gave|write|wrote)"
    r"|\byou (?:\w+ )?"
    r"(?:recommended|suggested|advised|explained|proposed|mentioned|described|listed|told|said|gave|wrote)\b"
    r"|\byour (?:\w+ )?(?:advice|recommendations?|suggestions?|explanations?|answers?|tips?|proposals?)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_][\w-]*")


@dataclass(frozen=True, slots=True)
class Boosts:
    """How much more the chunks of one speaker count than what others said; without a speaker nothing changes.

    What is no conversation counts as much as that speaker's chunks: "how do I" is a question to a manual too.
    """

    speaker: str | None = None
    factor: float = 1.0

    def of(self, chunks: Iterable[ChunkRef]) -> Floats:
        """`(n,)`, the factor of each chunk."""
        return np.array([self.factor if self._favours(chunk) else 1.0 for chunk in chunks])

    def best(self, hits: Sequence[Hit], score: Callable[[Hit], float], size: int | None) -> Sequence[Hit]:
        """The best `size` of a retriever's hits, which come best first; None: all."""
        if self.speaker is None:
            return hits[:size]
        # A stable sort of two ascending runs: little more than merging them.
        favoured = [hit for hit in hits if self._favours(hit.chunk)][:size]
        others = [hit for hit in hits if not self._favours(hit.chunk)][:size]
        scored = [(score(hit) * self.factor, hit) for hit in favoured] + [(score(hit), hit) for hit in others]
        return [hit for _, hit in sorted(scored, key=itemgetter(0), reverse=True)[:size]]

    def _favours(self, chunk: ChunkRef) -> bool:
        if self.speaker is None:
            return False
        return chunk.speaker == self.speaker or (chunk.speaker is None and chunk.content_type != CHAT)


NO_BOOSTS = Boosts()


def may_name_speaker(text: str) -> bool:
    """Whether a question may be about a speaker; nothing is known of the speakers yet."""
    return _is_of_user(text) or any(
        word[0].isupper() and word.lower() not in STOP_WORDS for word in _WORD.findall(text)
    )


def presumed(text: str) -> tuple[Sequence[str], float]:
    """First names, in lower case, of whom a question may be about before any speaker is known, and their factor."""
    if _is_of_user(text):
        return [USER.lower()], USER_FACTOR
    return [word.lower() for word in _WORD.findall(text) if word.lower() not in STOP_WORDS], NAMED_FACTOR


def boosts_for(text: str, chunks: Iterable[ChunkRef]) -> Boosts:
    """Who of those who said `chunks` the question `text` is about."""
    speakers = {chunk.speaker for chunk in chunks if chunk.speaker is not None}
    if USER in speakers and _is_of_user(text):
        return Boosts(USER, USER_FACTOR)
    words = _WORD.findall(text)
    folded = {word.casefold() for word in words}
    named = [each for each in speakers if not is_role(each) and _stands_in(each.partition(" ")[0], words, folded)]
    return Boosts(named[0], NAMED_FACTOR) if len(named) == 1 else NO_BOOSTS


def _is_of_user(text: str) -> bool:
    return _OF_THE_USER.search(text) is not None and _OF_ALL.search(text) is None


def _stands_in(name: str, words: Sequence[str], folded: Set[str]) -> bool:
    """Whether a first name is a word of the question; one that is a common word too (Will) has to be written as one."""
    return name in words[1:] if name.lower() in STOP_WORDS else name.casefold() in folded
