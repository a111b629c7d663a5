"""Ranking of code: by what a passage defines, by its path, and by how much of its file was found. Pure.

A name occurs in many files and is defined in one; the words of a question in its path say more than those in its text.
Penalties and boosts after semble (MIT); values in `rules`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rag_context.domain.documents import CODE
from rag_context.domain.search import Floats, Passage
from rag_context.search import rules
from rag_context.search.ranking import Candidates
from rag_context.text import STOP_WORDS

_SYMBOL = re.compile(
    r"""[A-Za-z_$][\w$]*(?:(?:::|->|\.|\#)[A-Za-z_$~][\w$]*)+  # qualified
    |_[\w$]*
    |\w*[A-Z_][\w$]*""",
    re.VERBOSE,
)
_DECORATION = re.compile(r"^[`'\"]+|(?:\(\))?[`'\"?]*$")
_QUALIFIER = re.compile(r"::|->|\.|#")
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\dA-Za-z_]+")

_MINOR = "tests? specs? testing __tests__ examples? samples? demos? compat _compat legacy deprecated benchmarks? bench"
_MINOR_FOLDER = re.compile(rf"(?:^|/)(?:{_MINOR.replace(' ', '|')})/", re.IGNORECASE)
_MINOR_FILE = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*(?:_test|_spec|\.test|\.spec|Tests?|Spec))\.\w+$")
_MINOR_WORD = re.compile(rf"\b(?:{_MINOR.replace(' ', '|')})\b", re.IGNORECASE)
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
class CodeFacts:
    """What ranking needs to know of a passage of code: its file, the words of its path, and the names it defines."""

    path: str
    words: "PathWords"
    factor: float
    """What its score is multiplied by, for its path."""
    named_factor: float
    """The same where the question names tests, examples or the like."""
    names: frozenset[str]

    @classmethod
    def of(cls, passage: Passage) -> "CodeFacts":
        """Those of a passage."""
        path = passage.source.replace("\\", "/")
        factors = path_factor(path), path_factor(path, named=True)
        return cls(path, PathWords.of(path), *factors, defined(passage.chunk.text))


class KnownCode:
    """Facts of passages, by chunk id: a chunk that keeps its id keeps its text and its file. Any thread may use it."""

    def __init__(self) -> None:
        self._facts: dict[str, CodeFacts] = {}

    def lacking(self, chunk_ids: Iterable[str]) -> list[str]:
        """Those of which nothing is known."""
        return [id_ for id_ in chunk_ids if id_ not in self._facts]

    def add(self, passages: Mapping[str, Passage]) -> None:
        """Remember what there is to know of passages of code."""
        if len(self._facts) + len(passages) > rules.KNOWN_CODE:
            self._facts = {}
        self._facts.update((id_, CodeFacts.of(passage)) for id_, passage in passages.items())

    def facts(self, candidates: Candidates) -> dict[int, CodeFacts]:
        """What is known of the candidates that are code, by row."""
        known = self._facts
        return {
            row: known[chunk.id]
            for row, chunk in enumerate(candidates.chunks)
            if chunk.content_type == CODE and chunk.id in known
        }

    def defining(self, question: str, candidates: Candidates) -> list[int]:
        """Rows of the candidates that define the name that a question consists of."""
        name = name_in(question)
        return [row for row, facts in self.facts(candidates).items() if name in facts.names]


@lru_cache(maxsize=1024)
def symbol_of(question: str) -> str | None:
    """The name that a question consists of: qualified, with a capital, or with an underscore; else None."""
    name = _DECORATION.sub("", question.strip())
    return name if len(name) <= rules.MAX_SYMBOL_CHARS and _SYMBOL.fullmatch(name) else None


def name_in(question: str) -> str:
    """The last part of the name that a question consists of; "" where it is none."""
    symbol = symbol_of(question)
    return _QUALIFIER.split(symbol)[-1] if symbol is not None else ""


def ranked_code(question: str, fused: Floats, facts: Mapping[int, CodeFacts]) -> Floats:
    """Fused scores, `(n,)`, those of code by definition, path and file.

    Code keeps its best score, so that it stands to other kinds of content as before.

    Args:
        question: the text of the query.
        fused: scores of all candidates, `(n,)`.
        facts: what is known of those that are code, by row.
    """
    rows = list(facts)
    best = float(fused[rows].max()) if rows else 0.0
    if best <= 0.0:
        return fused
    name, words = name_in(question), question_words(question)
    named = _MINOR_WORD.search(question) is not None
    scores = [
        (score + best * _gain(name, words, each)) * (each.named_factor if named else each.factor)
        for score, each in zip(fused[rows].tolist(), facts.values(), strict=True)
    ]
    scores = by_file(scores, [each.path for each in facts.values()], best)
    ranked = fused.copy()
    ranked[rows] = np.array(scores) * (best / max(scores))
    return ranked


def _gain(name: str, words: Mapping[str, frozenset[str]], facts: CodeFacts) -> float:
    if name in facts.names:
        own = _stem(facts.path).lower() == name.lower()
        return rules.OWN_FILE_DEFINITION_WEIGHT if own else rules.DEFINITION_WEIGHT
    return rules.PATH_WEIGHT * facts.words.share(words)


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
    def of(cls, path: str) -> "PathWords":
        """Those of a path."""
        folder = path.rpartition("/")[0].rpartition("/")[2]
        words = frozenset(_words(f"{folder} {_stem(path)}"))
        return cls(words, frozenset().union(*map(_beginnings, words)))

    def share(self, question: Mapping[str, frozenset[str]]) -> float:
        """Share of a question's words, 0..1, that begin a word of the path, or are begun by one."""
        if not question:
            return 0.0
        met = sum(
            word in self.beginnings or not beginnings.isdisjoint(self.words) for word, beginnings in question.items()
        )
        return met / len(question)


def _words(text: str) -> Iterator[str]:
    return (word.lower() for word in _WORD.findall(text) if len(word) >= rules.MIN_PATH_WORD_CHARS)


def _beginnings(word: str) -> frozenset[str]:
    return frozenset(word[:end] for end in range(rules.MIN_PATH_WORD_CHARS, len(word) + 1))


def path_factor(path: str, *, named: bool = False) -> float:
    """What the score of a file of this path is multiplied by; `named`: tests, examples and the like count."""
    factor = 1.0
    if not named and (_MINOR_FOLDER.search(path) or _MINOR_FILE.search(path)):
        factor *= rules.MINOR_FILE_FACTOR
    if _GATHERING_FILE.search(path):
        factor *= rules.MINOR_FILE_FACTOR
    return factor


def by_file(scores: Sequence[float], files: Sequence[str], best: float) -> list[float]:
    """Scores where the best passage of a file gains by all of the file, and its others lose by rank.

    Args:
        scores: of passages.
        files: the file of each.
        best: what the weight of the sum is a share of.
    """
    rows: dict[str, list[int]] = {}
    for row in sorted(range(len(scores)), key=lambda row: (-scores[row], row)):
        rows.setdefault(files[row], []).append(row)
    sums = {file: sum(scores[row] for row in found) for file, found in rows.items()}
    largest = max(sums.values())
    spread = list(scores)
    for file, found in rows.items():
        spread[found[0]] += rules.COHERENCE_WEIGHT * best * sums[file] / largest
        for rank, row in enumerate(found):
            spread[row] *= rules.REPEAT_FACTOR**rank
    return spread


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]
