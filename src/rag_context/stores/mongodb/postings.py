"""The words of a document's chunks, inverted: which chunks hold a term and how often, one short text per term.

`terms` are the distinct terms of all chunks, `occurrences[i]` says of `terms[i]` where it stands, as
`"POSITION:COUNT POSITION:COUNT"`, and `lengths[p]` is how many terms the chunk at position `p` has. A search reads
the occurrences of its own terms and nothing else of a document, however large it is.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rag_context.text.analysis import terms
from rag_context.types import Chunk


@dataclass(frozen=True, slots=True)
class Postings:
    """A document's words, as they are stored."""

    terms: list[str]
    occurrences: list[str]
    lengths: list[int]


def postings_of(chunks: Sequence[Chunk]) -> Postings:
    """The words of a document's chunks, which are in order of position."""
    held: dict[str, list[str]] = {}
    lengths: list[int] = []
    for position, chunk in enumerate(chunks):
        words = terms(chunk.searchable)
        lengths.append(len(words))
        for term, count in Counter(words).items():
            held.setdefault(term, []).append(f"{position}:{count}")
    distinct = sorted(held)
    return Postings(distinct, [" ".join(held[term]) for term in distinct], lengths)


def places(occurrences: str) -> Iterator[tuple[int, float]]:
    """Position and count of each chunk that holds a term."""
    for place in occurrences.split():
        position, _, count = place.partition(":")
        yield int(position), float(count)


def occurrences_of(term: Any) -> dict[str, Any]:
    """The expression that gives a term's occurrences in a document, "" where it is not there."""
    found = {"$arrayElemAt": ["$occurrences", "$$at"]}
    return {
        "$let": {
            "vars": {"at": {"$indexOfArray": ["$terms", term]}},
            "in": {"$cond": [{"$gte": [{"$ifNull": ["$$at", -1]}, 0]}, found, ""]},
        }
    }
