"""What promotion adds to relevance, and the order that comes of it. Pure.

A boost decides between documents that are about as relevant (seed 002): it comes after the threshold, so that it
lets nothing in, and before ranking, so that it moves what is in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_context.projects.records import Boosts, ProjectDocument, PromotionLevel


@dataclass(frozen=True, slots=True)
class Match:
    """A document that was found. `raw` is its best chunk's relevance, `place` that chunk's place among all (from 0)."""

    document: ProjectDocument
    raw: float
    place: int
    boosted: float
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
