"""What promotion adds to relevance, and the order that comes of it. Pure.

A boost decides between documents that are about as relevant: it comes after the threshold, so that it
lets nothing in, and before ranking, so that it moves what is in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_context.projects.records import Boosts, ProjectDocument, PromotionLevel
from rag_context.search.ranking import RARE_TERMS_SHARE


@dataclass(frozen=True, slots=True)
class Match:
    """A document that was found.

    `raw` is its best chunk's relevance, `place` the place of its first chunk in the search (from 0), `share` the
    largest share of the query's idf mass that one of its chunks holds (0..1).
    """

    document: ProjectDocument
    raw: float
    place: int
    boosted: float
    share: float = 0.0
    passages: tuple[str, ...] = ()
    """Its texts that were found, in the order in which they stand in it."""


def boosted(score: float, level: PromotionLevel, boosts: Boosts | None) -> float:
    """A relevance with what its document's promotion adds, 0..1."""
    if boosts is None:
        return score
    match level:
        case PromotionLevel.CRITICAL:
            return min(1.0, score + boosts.critical)
        case PromotionLevel.IMPORTANT:
            return min(1.0, score + boosts.important)
    return score


def by_relevance(matches: Sequence[Match]) -> list[Match]:
    """The most relevant first, boosts included; of equals the one whose best chunk the search put in front."""
    return sorted(matches, key=lambda match: (-match.boosted, match.place, match.document.path))


def chosen(matches: Sequence[Match], count: int) -> list[Match]:
    """The `count` most relevant, the most relevant first.

    What the search itself put first has a place among several if it holds the query's rare terms: an error code or a
    name says little to a cosine, and the document that holds it must not be lost to those that only sound alike.
    """
    best = by_relevance(matches)[:count]
    first = min(matches, key=lambda match: match.place, default=None)
    if first is None or first in best or first.share < RARE_TERMS_SHARE or count < 2:
        return best
    return [*best[:-1], first]
