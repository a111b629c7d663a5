"""Identifiers in a question: what holds one that is rare comes first, whatever the cosines of others. Pure.

"Which service has the key QZX0059?" has one answer, and a hundred texts of the same shape with other keys are as near
to the question. What is no word of a language is compared as it is written.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from rag_context.domain.search import ChunkRef, Floats, Passage
from rag_context.search import rules

_IDENTIFIER = re.compile(
    r"(?<![\w./:@-])(?:"
    # Parts joined by what joins names: `a::b`, `a->b`, `json.loads`, `ERR-4107`, `v1.2.3`.
    r"[A-Za-z_$][\w$]*+(?:(?:::|->|\.|\#)[A-Za-z_$][\w$]*+)++|\w++(?:[-./:]\w++)++"
    r"|\w++)(?![\w@])"
)
_QUOTED = re.compile(
    # In quotation marks only what prose does not have: people quote words and titles.
    r"`([^`\n]{2,80})`|[\"“](?=[^\"”\n]*[\d_=<>{}()$#\\/@|]|[^\"”\n]*\w[:.]\w)([^\"”\n]{2,80})[\"”]"
)
_MEASURE = re.compile(
    r"\d[\d.,:/-]*(?:st|nd|rd|th|s|am|pm|[A-Za-z°%µ]{1,3}|min|hour|day|week|month|year|fold|bit|time)s?\b",
    re.IGNORECASE,
)
_NAMES = re.compile(r"[A-Za-z_$][\w$]*(?:(?:::|->|\#)[A-Za-z_$][\w$]*)+|[A-Za-z_$][\w$]+(?:\.[A-Za-z_$][\w$]+)+")


@lru_cache(maxsize=1024)
def identifiers_in(question: str) -> tuple[str, ...]:
    """What a question names that is no word: letters with digits, names with `_` or joined ones, quoted literals."""
    quoted = [literal or code for code, literal in _QUOTED.findall(question)]
    found = [match[0] for match in _IDENTIFIER.finditer(question) if _is_identifier(match[0])]
    return tuple(dict.fromkeys(text.lower() for text in [*quoted, *found]))[: rules.MOST_IDENTIFIERS]


def _is_identifier(text: str) -> bool:
    has_digit, has_letter = any(map(str.isdigit, text)), any(map(str.isalpha, text))
    if len(text) < rules.MIN_IDENTIFIER_CHARS or not has_letter:
        return False
    if "_" in text.strip("_") or _NAMES.fullmatch(text):
        return True
    return has_digit and _MEASURE.fullmatch(text) is None


def holders(question: str, chunks: Sequence[ChunkRef], passages: Mapping[str, Passage]) -> Floats:
    """How many of the question's rare identifiers each chunk holds, `(n,)`; `passages` are their texts by id."""
    held = np.zeros(len(chunks))
    for identifier in identifiers_in(question):
        # Between other characters of names it is a part of another identifier.
        exact = re.compile(rf"(?<![\w$]){re.escape(identifier)}(?![\w$])", re.IGNORECASE)
        rows = [
            row
            for row, chunk in enumerate(chunks)
            if chunk.id in passages and exact.search(passages[chunk.id].chunk.searchable) is not None
        ]
        if len({chunks[row].document_id for row in rows}) <= rules.FEW_HOLDERS:
            held[rows] += 1.0
    return held
