"""Which rules a question triggers: whom it is about, whether it names code or a time, and what that needs. Pure.

In a conversation with an assistant "I" and "my" are the user, unless the question is for an overview or for what the
assistant said. Between people it is the one whose first name stands in the question. What that speaker alone said
counts more.
"""

import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple, TypeVar

import numpy as np

from rag_context.domain.documents import CHAT
from rag_context.domain.provenance import USER, is_role
from rag_context.domain.ranking_rules import Rule
from rag_context.domain.search import ChunkRef, Filter, Floats, KeywordHit, VectorHit
from rag_context.domain.text import STOP_WORDS, is_spaceless
from rag_context.search import rules
from rag_context.search.query import Mode, Query
from rag_context.search.question_times import TIME_WORDS, windows
from rag_context.search.ranking import DEFAULT_WEIGHTS, VectorWeights

Hit = TypeVar("Hit", VectorHit, KeywordHit)

POOL_FLOOR = 40
POOL_PER_RESULT = 3
"""How many candidates each retriever returns; on the open collections a hundred give the same first ten."""

PER_DOCUMENT_FACTOR = 2
"""Candidates of one document for each of its passages that may be returned."""


def pool_size(query: Query) -> int:
    """How many candidates of each retriever are ranked."""
    return max(POOL_FLOOR, POOL_PER_RESULT * query.limit)


def ranks_code(query: Query) -> bool:
    return query.mode is Mode.HYBRID and Rule.CODE not in query.without


def has_symbols(query: Query) -> bool:
    """Whether the question is or has a name as code has them, which many files use and one defines."""
    return ranks_code(query) and bool(symbols_in(query.text))


def hit_limit(query: Query) -> int:
    """How many hits each retriever returns: more than are ranked, where a rule chooses among them."""
    limit = candidate_limit(query)
    return max(limit, rules.NEAR_POOL) if query.windows and query.per_document is None else limit


def candidate_limit(query: Query) -> int:
    """How many hits of each retriever are candidates, where no time is named."""
    by_speaker = prefers_speakers(query) and query.per_document is None and may_name_speaker(query.text)
    pools = (pool_size(query), has_symbols(query) * rules.SYMBOL_POOL, by_speaker * rules.SPEAKER_POOL)
    return max(pools)


def prefers_speakers(query: Query) -> bool:
    return query.mode is Mode.HYBRID and Rule.SPEAKER not in query.without


def standing_request(query: Query) -> tuple[int, Filter] | None:
    """How many standing instructions an answer lists at most, and which may be; None where it has no such list."""
    is_listed = query.mode is Mode.HYBRID and query.has_text and Rule.STANDING not in query.without
    if not is_listed or query.where.content_type not in (None, CHAT):
        return None
    return rules.STANDING_KEPT, replace(query.where, standing=True)


def pool_per_document(query: Query) -> int | None:
    return None if query.per_document is None else PER_DOCUMENT_FACTOR * query.per_document


def weights_for(query: Query) -> VectorWeights:
    if Rule.SCRIPT not in query.without and is_spaceless(query.text):
        return VectorWeights(rules.SPACELESS_VECTOR_WEIGHT, rules.SPACELESS_VECTOR_WEIGHT)
    return (
        VectorWeights(code=rules.SYMBOL_VECTOR_WEIGHT)
        if ranks_code(query) and is_symbol(query.text)
        else DEFAULT_WEIGHTS
    )


_ANY_WORD = re.compile(r"\w+")


def with_windows(query: Query, now: datetime) -> Query:
    """The query with the times that it names, counted from `now`; one retriever alone keeps its own order."""
    if query.mode is not Mode.HYBRID:
        return query
    words = frozenset(_ANY_WORD.findall(query.text.lower()))
    has_year = any(word[:2] in ("19", "20") and word[:4].isdecimal() for word in words)
    # Most questions have neither a word of times nor a year, and need not be parsed.
    if TIME_WORDS.isdisjoint(words) and not has_year:
        return query
    found = windows(query.text, now)
    return replace(query, windows=found) if found else query


_SYMBOL = re.compile(
    r"""[A-Za-z_$][\w$]*(?:(?:::|->|\.|\#)[A-Za-z_$~][\w$]*)+  # qualified
    |_[\w$]*
    |\w*[A-Z_][\w$]*
    |[a-z][a-z\d$]{2,}  # any one word may be the name of a function""",
    re.VERBOSE,
)
_NAME_IN_SENTENCE = re.compile(
    r"""(?<![\w$/.:-])(?:
        (?P<name>[A-Za-z_$][\w$]*(?:(?:::|->|\.|\#)[A-Za-z_$~][\w$]*)+  # qualified
        |\w*_\w+
        |[A-Za-z\d]*(?:[a-z\d][A-Z]|[A-Z]{2}[a-z])[\w$]*
        |[A-Za-z][\w$]*(?=\(\))
        |(?<=`)[A-Za-z][\w$]*(?=`))
    |(?:class|def|function|func|fn|method|interface|struct|enum|trait|type|impl|macro|protocol|record)
        [ ](?P<declared>[A-Za-z][\w$]{2,}))""",
    re.VERBOSE,
)
_DECORATION = re.compile(r"^[`'\"]+|(?:\(\))?[`'\"?]*$")
QUALIFIER = re.compile(r"::|->|\.|#")


class Symbol(NamedTuple):
    """A name as code has it: as it is written, its last part, and the part before that, in small letters."""

    text: str
    name: str
    qualifier: str

    @classmethod
    def of(cls, text: str) -> "Symbol":
        *qualifiers, name = QUALIFIER.split(text)
        return cls(text, name, qualifiers[-1].lower() if qualifiers else "")


def is_symbol(question: str) -> bool:
    """Whether a question is nothing but a name: one word, or one with its qualifiers."""
    return [symbol.text for symbol in symbols_in(question)] == [_bare(question)]


# Cached, because the steps of one search need it several times.
@lru_cache(maxsize=1024)
def symbols_in(question: str) -> tuple[Symbol, ...]:
    """The name that a question is; else those that it has and that cannot be words of a language."""
    bare = _bare(question)
    if len(bare) <= rules.MAX_SYMBOL_CHARS and _SYMBOL.fullmatch(bare):
        return (Symbol.of(bare),)
    found = (match["name"] or match["declared"] for match in _NAME_IN_SENTENCE.finditer(question))
    names = dict.fromkeys(name for name in found if name not in STOP_WORDS and len(name) <= rules.MAX_SYMBOL_CHARS)
    return tuple(map(Symbol.of, list(names)[: rules.MOST_SYMBOLS]))


def _bare(question: str) -> str:
    return _DECORATION.sub("", question.strip())


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
        return [USER.lower()], rules.USER_FACTOR
    return [word.lower() for word in _WORD.findall(text) if word.lower() not in STOP_WORDS], rules.NAMED_FACTOR


def boosts_for(text: str, chunks: Iterable[ChunkRef]) -> Boosts:
    """The boosts for the speaker among those of `chunks` whom the question `text` is about."""
    speakers = {chunk.speaker for chunk in chunks if chunk.speaker is not None}
    if USER in speakers and _is_of_user(text):
        return Boosts(USER, rules.USER_FACTOR)
    words = _WORD.findall(text)
    folded = {word.casefold() for word in words}
    named = [each for each in speakers if not is_role(each) and _stands_in(each.partition(" ")[0], words, folded)]
    return Boosts(named[0], rules.NAMED_FACTOR) if len(named) == 1 else NO_BOOSTS


def _is_of_user(text: str) -> bool:
    return _OF_THE_USER.search(text) is not None and _OF_ALL.search(text) is None


def _stands_in(name: str, words: Sequence[str], folded: Set[str]) -> bool:
    """Whether a first name is a word of the question; one that is a common word too (Will) has to be written as one."""
    return name in words[1:] if name.lower() in STOP_WORDS else name.casefold() in folded
