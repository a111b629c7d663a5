"""The analyser: text to terms, the same for passages and for queries.

Words are runs of letters, digits and underscores. An identifier (`camelCase`, `snake_case`) yields its parts
and itself, and so does a code (`ERR-4107`, `v1.2`: letters and digits joined by hyphens or points), or a passage
with half of it would do as well as one with all. Stop words, question words included, are removed, the rest is
stemmed (Snowball: Cyrillic words as Russian, all others as English, which changes other languages hardly). Scripts
written without spaces become character bigrams.

BM25 is the one keyword score, pure, over the counts of any store: Robertson and Zaragoza, "The Probabilistic Relevance
Framework: BM25 and Beyond" (2009), with the idf that cannot be negative (Lucene's).
"""

import math
import re
import struct
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import Stemmer
from numpy.typing import NDArray

from rag_context.domain.documents import CHAT

ANALYSER_VERSION = 2
"""Increased whenever `terms` changes its result for any text, so that old stored terms are recognised."""

MAX_TERM_CHARS = 128

PIECE_CHARS = 1 << 16
"""Most characters of a piece. Spans of a million tokens, or stems of as many words, take half a second."""

_STEMMED_AT_ONCE = 1 << 13

STOP_WORDS = frozenset(
    """a about above after again against all also am an and any are aren as at be because been before being below
    between both but by can cannot could couldn did didn do does doesn doing don down during each few for from
    further get had hadn has hasn have haven having he her here hers herself him himself his how i if in into is
    isn it its itself just ll me more most mustn my myself no nor not now of off on once only or other ought our
    ours ourselves out over own re same shan she should shouldn so some such t than that the their theirs them
    themselves then there these they this those through to too under until up us ve very was wasn we were weren
    what when where which while who whom whose why will with won would wouldn you your yours yourself yourselves
    s d m""".split()  # noqa: SIM905
)
"""Words that carry no topic, question words and the tails of contractions included."""

_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
_SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"  # CJK
)
_WORD = re.compile(rf"[\w{_MARKS}]+")
_SPACELESS_RUN = re.compile(rf"([{_SPACELESS}]+)")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+|[^\W_A-Za-z0-9]+")
_JOINED = re.compile(r"(?<![\w.-])[A-Za-z0-9]+(?:[-.][A-Za-z0-9]+)+(?![\w-])")
_DIACRITICS = re.compile("(?:(?<![\u0418\u0438])\u0306|[\u0300-\u0305\u0307-\u036f])+")
"""Not the breve of the Cyrillic short i: it is a letter of its own, in most endings of adjectives."""
_CYRILLIC = re.compile("[\u0400-\u04ff]")

_local = threading.local()


def terms(text: str) -> list[str]:
    """The terms of `text`, repeats kept: in order, joined codes after all others."""
    words: list[str] = []
    codes: list[str] = []
    for piece in (text,) if len(text) <= PIECE_CHARS else _pieces_of_words(text):
        for word in _WORD.findall(piece if piece.isascii() else _fold(piece)):
            lower = word.lower()
            # Nearly all words: `word`, `Word` and `WORD` have no parts.
            if word.isascii() and "_" not in word and (word[1:] == lower[1:] or word.isupper()):
                words.append(lower)
            elif word.isascii():
                _add_identifier(word, words)
            else:
                _add_foreign(word, words)
        codes += [code.lower().replace("-", "_").replace(".", "_") for code in _JOINED.findall(piece) if _is_code(code)]
    words += codes
    kept = [word[:MAX_TERM_CHARS] for word in words if word not in STOP_WORDS]
    stems = _stems("english", kept)
    if _CYRILLIC.search(text):
        russian = _stems("russian", kept)
        stems = [russian[at] if _CYRILLIC.match(word) else stems[at] for at, word in enumerate(kept)]
    return stems


@lru_cache(maxsize=256)
def query_terms(text: str) -> tuple[str, ...]:
    """As `terms`; those of the last queries are kept, since a search needs them several times."""
    return tuple(terms(text))


def _stems(language: str, words: list[str]) -> list[str]:
    # Some thousand words at a time: the C code holds the interpreter's lock for a whole call.
    stemmer = _stemmer(language)
    if len(words) <= _STEMMED_AT_ONCE:
        stems: list[str] = stemmer.stemWords(words)
        return stems
    return [
        stem
        for start in range(0, len(words), _STEMMED_AT_ONCE)
        for stem in stemmer.stemWords(words[start : start + _STEMMED_AT_ONCE])
    ]


def _pieces_of_words(text: str) -> Iterator[str]:
    """Pieces that end behind white space, however long they are."""
    start = 0
    for _, end in pieces(text):
        if end == len(text) or text[end - 1].isspace():
            yield text[start:end]
            start = end


def pieces(text: str) -> Iterator[tuple[int, int]]:
    """A text in pieces that end behind white space, where no word or token goes on; without white space, anywhere.

    What the C code of a library does with a piece holds the interpreter's lock, and everything else waits meanwhile.
    """
    start = 0
    while start < len(text):
        end = min(start + PIECE_CHARS, len(text))
        if end < len(text):
            spaced = max(text.rfind(space, start, end) for space in " \n\t")
            end = spaced + 1 if spaced >= start else end
        yield start, end
        start = end


def is_spaceless(text: str) -> bool:
    """Whether most letters are of scripts written without spaces between words."""
    if text.isascii():
        return False
    spaceless = sum(map(len, _SPACELESS_RUN.findall(text)))
    return spaceless > sum(map(str.isalpha, text)) / 2


def _is_code(joined: str) -> bool:
    """Whether letters and digits both occur: a date or a hyphenated word is not a code."""
    return any(map(str.isdigit, joined)) and any(map(str.isalpha, joined))


def _add_identifier(word: str, words: list[str]) -> None:
    lower = word.lower()
    if "_" not in word and (word[1:] == lower[1:] or word.isupper()):
        words.append(lower)
        return
    parts = [part.lower() for part in _PART.findall(word)]
    name = lower.strip("_")
    if len(parts) != 1 or parts[0] != name:
        words.extend(parts)
    if name:
        words.append(name)


def _add_foreign(word: str, words: list[str]) -> None:
    for run in _SPACELESS_RUN.split(word):
        if not run:
            continue
        if run.isascii():
            _add_identifier(run, words)
        elif _SPACELESS_RUN.match(run):
            words.extend([run[i : i + 2] for i in range(len(run) - 1)] or [run])
        else:
            parts = [part for part in run.casefold().split("_") if part]
            words.extend(parts if len(parts) < 2 else [*parts, "_".join(parts)])


def _fold(text: str) -> str:
    """Compatibility forms and Latin, Greek and Cyrillic accents removed, so that `café` is `cafe`."""
    return unicodedata.normalize("NFC", _DIACRITICS.sub("", unicodedata.normalize("NFKD", text)))


def _stemmer(language: str) -> Stemmer.Stemmer:
    """One per thread: a Snowball stemmer keeps state while it works."""
    stemmer = getattr(_local, language, None)
    if stemmer is None:
        stemmer = Stemmer.Stemmer(language)
        setattr(_local, language, stemmer)
    return stemmer


@lru_cache(maxsize=16_384)
def term_key(term: str) -> int:
    """The number of 64 bits that stands for a term in an index: its hash.

    Two of a million differing terms share one with a probability of one in thirty million, and no dictionary has to be
    kept, loaded or agreed on between processes.
    """
    return int.from_bytes(blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


STORED_TERMS = np.dtype([("term", "<u8"), ("count", "<u2")])
"""The layout of packed terms, ascending."""

MOST_COUNTED = 65_535


def packed_terms(words: Sequence[str]) -> tuple[int, bytes]:
    """How many terms a chunk has, and each distinct one with its count, as `STORED_TERMS`."""
    counts = Counter(words)
    pairs = sorted(zip(map(term_key, counts), counts.values(), strict=True))
    numbers = [number for key, count in pairs for number in (key, min(count, MOST_COUNTED))]
    return len(words), struct.pack("<" + "QH" * len(pairs), *numbers)


MOST_DIFFERENT_BITS = 3
"""Similarity hashes of near-duplicates differ in no more bits; the hash 0 says nothing."""

_ALL_BITS = (1 << 64) - 1


def signed(bits: int) -> int:
    """64 bits as databases keep them: as an integer with a sign."""
    bits &= _ALL_BITS
    return bits - (1 << 64) if bits >> 63 else bits


def unsigned(number: int) -> int:
    """The 64 bits of what `signed` made."""
    return number & _ALL_BITS


def are_similar(one: int, other: int) -> bool:
    """Whether two similarity hashes, signed or not, are those of near-duplicates."""
    return one != 0 and unsigned(one ^ other).bit_count() <= MOST_DIFFERENT_BITS


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bm25Profile:
    """Saturation of repeats (`k1`) and strength of the length normalisation (`b`, 0..1)."""

    k1: float
    b: float


PROSE = Bm25Profile(k1=1.2, b=0.75)

CONVERSATION_K1 = 0.4
"""Messages of a conversation: whether a term occurs counts, its frequency hardly (docs/design/ranking.md)."""

SHORT_MESSAGE = 15.0
LONG_MESSAGE = 40.0
"""Mean number of terms of a passage up to which the length of a message says nothing, and from which it counts as in
prose: among long messages the longest hold a term of everything. Measured on conversations of both kinds."""


def profile_for(content_type: str, average_length: float) -> Bm25Profile:
    """The profile of a kind of content in an index whose passages have so many terms in the mean."""
    if content_type != CHAT:
        return PROSE
    share = (average_length - SHORT_MESSAGE) / (LONG_MESSAGE - SHORT_MESSAGE)
    return Bm25Profile(CONVERSATION_K1, PROSE.b * min(max(share, 0.0), 1.0))


def inverse_document_frequency(documents: int, frequency: int) -> float:
    """`ln(1 + (N - n + 0.5) / (n + 0.5))`; `frequency` of `documents` hold the term."""
    return math.log1p((documents - frequency + 0.5) / (frequency + 0.5))


def bm25(counts: Floats, lengths: Floats, weights: Floats, k1: Floats, b: Floats, average_length: float) -> Floats:
    """Score `n` passages for `t` query terms: `(n,)`, 0 and up.

    `counts`: `(n, t)` occurrences of each term in each passage, `lengths`: `(n,)` terms, `weights`: `(t,)` idf times
    the count in the query, `k1` and `b`: `(n,)` saturation (above 0) and length normalisation by the passage's kind,
    `average_length`: the index's mean number of terms, at least 1.
    """
    norm = length_norm(lengths, k1, b, average_length)
    scores = np.zeros(len(counts))
    for term, weight in enumerate(weights):  # one after the other: every store adds in the same order, to the last bit
        scores += saturated(counts[:, term], k1, norm) * weight
    return scores


def conversation_bm25(counts: Floats, lengths: Floats, weights: Floats) -> Floats:
    """Score `m` conversations as if each was one text, by the weights that terms have among messages.

    `counts`: `(m, t)` occurrences, `lengths`: `(m,)` terms in each, whose mean is theirs, `weights`: as those of
    `bm25`.
    """
    mean, same = float(lengths.mean()) if len(lengths) else 0.0, np.ones(len(lengths))
    return bm25(counts, lengths, weights, PROSE.k1 * same, PROSE.b * same, mean)


def length_norm(lengths: Floats, k1: Floats, b: Floats, average_length: float) -> Floats:
    """`(n,)`, what a count is compared with before it saturates; arguments as `bm25` explains them."""
    norm: Floats = k1 * (1.0 - b + b * lengths / max(average_length, 1.0))
    return norm


def saturated(counts: Floats, k1: Floats, norm: Floats) -> Floats:
    """`(n,)`, what the occurrences of one term count for: 0 and up, at most `k1 + 1`."""
    counted: Floats = counts * (k1 + 1.0) / (counts + norm)
    return counted


def idf_share(counts: Floats, idf: Floats) -> Floats:
    """Share of the idf mass of the query's distinct terms that each passage holds: `(n,)`, 0..1; 0 without terms.

    `counts`: `(n, t)` occurrences, `idf`: `(t,)` inverse document frequencies, terms unknown to the index included.
    """
    # In the order of the terms, as in `bm25`: every store comes to the same sum, to the last bit.
    total, shares = 0.0, np.zeros(len(counts))
    for term, each in enumerate(idf.tolist()):
        total += each
        shares += (counts[:, term] > 0) * each
    return np.minimum(shares / total, 1.0) if total > 0.0 else shares
