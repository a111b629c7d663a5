"""Ranking of code: by what a passage defines, by its path, and by how much of its file was found. Pure.

A name occurs in many files and is defined in one; the words of a question in its path say more than those in its text.
Penalties and boosts after semble (MIT); values in `rules`.
"""

import os.path
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rag_context.domain.documents import CODE
from rag_context.domain.search import ChunkRef, Floats, Passage
from rag_context.domain.text import STOP_WORDS
from rag_context.search import rules
from rag_context.search.question_rules import QUALIFIER, Symbol, is_symbol, symbols_in
from rag_context.search.ranking import Candidates

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\dA-Za-z_]+")

_MINOR = "tests? specs? testing __tests__ examples? samples? demos? compat _compat legacy deprecated benchmarks? bench"
_MINOR_FOLDER = re.compile(rf"(?:^|/)(?:{_MINOR.replace(' ', '|')})/", re.IGNORECASE)
_MINOR_FILE = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*(?:_test|_spec|\.test|\.spec|Tests?|Spec))\.\w+$")
_PARTS = "cases?|files?|suites?|folders?|director(?:y|ies)|fixtures?|cover\\w*|scripts?|projects?|apps?|code"
_MINOR_ASKED = re.compile(
    # Older versions are spoken of by these words; one test counts as a thing: "test whether" is a verb.
    r"\b(?:compat|legacy|deprecated|tests|specs|examples|samples|demos|benchmarks)\b|\btest_\w"
    rf"|\b(?:test|spec|example|sample|demo|benchmark|bench) (?:for|of|that|which|{_PARTS})\b"
    r"|\b(?:unit|integration|regression|e2e|end-to-end|which|what|where is the|show(?: me)?(?: the| an?)?"
    r"|find(?: the| an?)?|any) (?:test|spec|example|sample|demo|benchmark)\b"
    r"|\b(?:is|are) [^?]{0,60}\b(?:tested|benchmarked)\b",
    re.IGNORECASE,
)
_GATHERING_FILE = re.compile(r"(?:^|/)(?:__init__\.py|package-info\.java|doc\.go)$")

_KINDS = (
    "class def interface struct enum union trait impl type func function fn fun module mod namespace package object "
    "protocol record typedef macro_rules! const let var val static define extension"
)
_DECLARED = re.compile(
    rf"(?:^|(?<=[\s(]))\#?(?:{'|'.join(_KINDS.split())})[ \t]+"
    r"(?:\([^()\n]*\)[ \t]*)?(?:[\w$]+(?:::|\.))*(?P<name>[A-Za-z_$][\w$]*)",
    re.MULTILINE,
)
_CALLED = re.compile(r"(?<![\w$])(?P<name>[A-Za-z_$][\w$]*)\(")
_MODIFIERS = re.compile(r"[\w\s<>\[\],.*&:~@?#-]*")
_NOT_A_TYPE = frozenset(
    "return new await throw else case yield assert go defer not and or in if while for switch raise print".split()  # noqa: SIM905
)
_HEAD_SEARCHED = 200
_BODY_SEARCHED = 400
"""Characters before a name on its line, and behind it, in which a function begins."""


@dataclass(frozen=True, slots=True)
class CodeFeatures:
    """What ranking needs to know of a passage of code: its file, the words of its path, and the names it defines."""

    path: str
    words: "PathWords"
    is_gathering: bool
    """Whether such a file mostly names what others define."""
    names: frozenset[str]
    heading: str
    """The definition that it is part of, as `Class.method`; "" where it is part of none, or of several."""
    qualifiers: frozenset[str]
    """What may stand before a name in its qualified form: file, folders and scopes, in small letters."""

    @classmethod
    def of(cls, passage: Passage) -> "CodeFeatures":
        path = passage.source.replace("\\", "/")
        names, heading = defined(passage.chunk.text), passage.chunk.span.heading
        qualifiers = {_stem(path), *path.split("/")[:-1], *names, *QUALIFIER.split(heading)[:-1]}
        return cls(
            path,
            PathWords.of(path),
            _GATHERING_FILE.search(path) is not None,
            names,
            heading,
            frozenset(each.lower() for each in qualifiers),
        )

    def factor(self, root: int, *, names_minor: bool, defines: bool) -> float:
        """What its score is multiplied by: for its kind of file, unless the question names just that kind.

        `root` is how many characters of its path lead to what is searched, and say nothing.
        """
        stands_back = (not names_minor and is_minor(self.path[root:]), self.is_gathering and not defines)
        return float(rules.MINOR_FILE_FACTOR ** sum(stands_back))

    def is_own(self, symbol: Symbol) -> bool:
        """Whether the definition is that of this name, and not of another one with the same last part."""
        if self.heading == symbol.text:
            return True
        return (
            symbol.qualifier in self.qualifiers if symbol.qualifier else _stem(self.path).lower() == symbol.name.lower()
        )


class _Known(NamedTuple):
    """Features of passages by chunk id and by document id, and the chunks that define a name."""

    by_chunk: dict[str, CodeFeatures]
    by_file: dict[str, CodeFeatures]
    defining: dict[str, set[str]]


class KnownCode:
    """Features of passages: a chunk that keeps its id keeps its text and its file. Any thread may use it.

    A question without a name needs nothing but paths, and those are the same for all passages of a file.
    """

    def __init__(self) -> None:
        self._known = _Known({}, {}, {})

    def unknown(self, question: str, chunks: Iterable[ChunkRef]) -> list[str]:
        """Ids of the chunks of code whose features this question needs and that are not known yet."""
        by_chunk, by_file, _ = self._known
        code = (chunk for chunk in chunks if chunk.content_type == CODE)
        if symbols_in(question):
            return list(dict.fromkeys(chunk.id for chunk in code if chunk.id not in by_chunk))
        return list({chunk.document_id: chunk.id for chunk in code if chunk.document_id not in by_file}.values())

    def add(self, passages: Mapping[str, Passage]) -> None:
        known = self._known
        # All of it at once, by new tables: searches in other threads go on with those that they have read.
        if len(known.by_chunk) + len(passages) > rules.KNOWN_CODE:
            self._known = known = _Known({}, {}, {})
        for id_, passage in passages.items():
            features = CodeFeatures.of(passage)
            for name in features.names:
                known.defining.setdefault(name, set()).add(id_)
            known.by_chunk[id_] = known.by_file[passage.document_id] = features

    def features(self, question: str, candidates: Candidates) -> dict[int, CodeFeatures]:
        """The known features of the candidates that are code, by row."""
        by_chunk, by_file, _ = self._known
        code = [(row, chunk) for row, chunk in enumerate(candidates.chunks) if chunk.content_type == CODE]
        if symbols_in(question):
            found = ((row, by_chunk.get(chunk.id)) for row, chunk in code)
        else:
            found = ((row, by_file.get(chunk.document_id)) for row, chunk in code)
        return {row: features for row, features in found if features is not None}

    def defining(self, question: str, chunks: Iterable[ChunkRef]) -> list[str]:
        """Chunks that define a name that the question is, or has, each once."""
        by_name = self._known.defining
        found = [by_name[symbol.name] for symbol in symbols_in(question) if symbol.name in by_name]
        # Tests of membership only: another thread may add to the sets meanwhile.
        defining = (chunk.id for chunk in chunks if any(chunk.id in ids for ids in found)) if found else ()
        return list(dict.fromkeys(defining))


def ranked_code(question: str, fused: Floats, features: Mapping[int, CodeFeatures]) -> Floats:
    """Fused scores, `(n,)`, those of code (`features`, by row) by definition, path and file; its best one stays."""
    rows = list(features)
    best = float(fused[rows].max()) if rows else 0.0
    if best <= 0.0:
        return fused
    names_minor = _MINOR_ASKED.search(question) is not None
    root = _root(features.values())
    terms = _CodeQuestion(symbols_in(question), is_symbol(question), question_words(question), {})
    scores = []
    for score, each in zip(fused[rows].tolist(), features.values(), strict=True):
        defines, gain = terms.gain(each)
        scores.append((score + best * gain) * each.factor(root, names_minor=names_minor, defines=defines))
    scores = by_file(scores, [each.path for each in features.values()], best)
    ranked = fused.copy()
    ranked[rows] = np.array(scores) * (best / max(scores))
    return ranked


class _CodeQuestion(NamedTuple):
    """What a question says of code: the names in it, whether it is nothing but one, and its words."""

    symbols: tuple[Symbol, ...]
    is_symbol: bool
    words: Mapping[str, frozenset[str]]
    shares: dict[str, float]
    """Share of the words that each path holds, as far as it is known: passages of one file have one."""

    def gain(self, features: CodeFeatures) -> tuple[bool, float]:
        """Whether a passage defines a name, and what it gains, in best fused scores."""
        defined_here = [symbol for symbol in self.symbols if symbol.name in features.names]
        inside = (
            []
            if self.is_symbol
            else [symbol for symbol in self.symbols if symbol.name in QUALIFIER.split(features.heading)]
        )
        if not defined_here and not inside:
            if features.path not in self.shares:
                self.shares[features.path] = features.words.share(self.words)
            return False, rules.PATH_WEIGHT * self.shares[features.path]
        is_own = any(features.is_own(symbol) for symbol in defined_here or inside)
        weight = rules.OWN_DEFINITION_WEIGHT if is_own else rules.DEFINITION_WEIGHT
        share = 1.0 if self.is_symbol else rules.NAMED_SHARE if defined_here else rules.NAMED_PART_SHARE
        return bool(defined_here), share * weight


def definitions_first(question: str, fused: Floats, features: Mapping[int, CodeFeatures]) -> Floats:
    """Scores, `(n,)`, the best definition of each name (no plain word) in a question above all that mentions it."""
    raised, best, root = fused.copy(), float(fused.max(initial=0.0)), _root(features.values())
    for symbol in symbols_in(question):
        is_word = symbol.text.islower() and symbol.text.isalpha() and is_symbol(question)
        defining = [
            row for row, each in features.items() if symbol.name in each.names and not is_minor(each.path[root:])
        ]
        if defining and not is_word:
            own = [row for row in defining if features[row].is_own(symbol)] or defining
            first = max(own, key=lambda row: float(fused[row]))
            raised[first] = max(raised[first], best + fused[first])
    return raised


def defined(text: str) -> frozenset[str]:
    """The names that a text in any of the usual programming languages defines; by its lines, without a parser."""
    names = {match["name"] for match in _DECLARED.finditer(text)}
    for match in _CALLED.finditer(text):
        if match["name"] not in names and _has_body(text, match):
            names.add(match["name"])
    return frozenset(names)


def _has_body(text: str, called: re.Match[str]) -> bool:
    """Whether what looks like a call is a method: only modifiers and types stand before it, and a body follows."""
    before = text[text.rfind("\n", 0, called.start()) + 1 : called.start()]
    words = before.split(maxsplit=1)
    if (
        len(before) > _HEAD_SEARCHED
        or before.rstrip().endswith(".")
        or not _MODIFIERS.fullmatch(before)
        or (words and words[0] in _NOT_A_TYPE)
    ):
        return False
    # A body opens before any statement ends, behind balanced brackets; with an arrow it is that of a lambda.
    after = text[called.end() - 1 : called.end() + _BODY_SEARCHED]
    body, statement = after.find("{"), after.find(";")
    head = after[: max(body, 0)]
    return (
        body >= 0
        and not 0 <= statement < body
        and head.count("(") == head.count(")")
        and "=>" not in head
        and called["name"] not in _NOT_A_TYPE
    )


@lru_cache(maxsize=1024)
def question_words(question: str) -> Mapping[str, frozenset[str]]:
    """The words of a question that carry a topic, those in names apart, each with what it begins with."""
    return {word: _beginnings(word) for word in _words(question) if word not in STOP_WORDS}


@dataclass(frozen=True, slots=True)
class PathWords:
    """The words of a file's name and of its folder, and what they begin with."""

    words: frozenset[str]
    beginnings: frozenset[str]

    @classmethod
    @lru_cache(maxsize=rules.KNOWN_CODE)
    def of(cls, path: str) -> "PathWords":
        words = frozenset(_words(f"{_folders(path).rpartition('/')[2]} {_stem(path)}"))
        return cls(words, frozenset().union(*map(_beginnings, words)))

    def share(self, question: Mapping[str, frozenset[str]]) -> float:
        """Share of a question's words, 0..1, that begin a word of the path, or are begun by one."""
        if not question:
            return 0.0
        met = [word for word, begun in question.items() if word in self.beginnings or not begun.isdisjoint(self.words)]
        return len(met) / len(question)


def _words(text: str) -> Iterator[str]:
    return (word.lower() for word in _WORD.findall(text) if len(word) >= rules.MIN_PATH_WORD_CHARS)


def _beginnings(word: str) -> frozenset[str]:
    return frozenset(word[:end] for end in range(rules.MIN_PATH_WORD_CHARS, len(word) + 1))


def _root(features: Iterable[CodeFeatures]) -> int:
    """How many characters of the paths lead to what is searched: a folder `demo` above all files says nothing."""
    folders = {_folders(each.path) for each in features}
    # As all paths begin with a name or all with a slash, there is a common one.
    common = os.path.commonpath(folders) if len({path[:1] == "/" for path in folders}) == 1 else ""
    return len(common) + 1 if common.strip("/") and len(folders) > 1 else 0


@lru_cache(maxsize=rules.KNOWN_CODE)
def is_minor(path: str) -> bool:
    """Whether a file of this path is a test, an example, an older version or the like."""
    return _MINOR_FOLDER.search(path) is not None or _MINOR_FILE.search(path) is not None


def by_file(scores: Sequence[float], files: Sequence[str], best: float) -> list[float]:
    """Scores where the best passage of a file gains by all of the file, as a share of `best`; others lose by rank."""
    rows: dict[str, list[int]] = {}
    for row in sorted(range(len(scores)), key=lambda row: (-scores[row], row)):
        rows.setdefault(files[row], []).append(row)
    sums = {file: sum(scores[row] for row in found) for file, found in rows.items()}
    largest = max(sums.values())
    spread = list(scores)
    for file, found in rows.items():
        spread[found[0]] += rules.COHERENCE_WEIGHT * best * sums[file] / largest
        # Otherwise a file with many good passages would fill the answer alone.
        for rank, row in enumerate(found):
            spread[row] *= rules.REPEAT_FACTOR**rank
    return spread


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


def _folders(path: str) -> str:
    return path.rpartition("/")[0]
