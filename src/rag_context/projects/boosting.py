"""Adds the boosts of promoted documents to relevance, and ranks documents. Pure.

A boost decides between documents of similar relevance. It is added after the threshold, so that it does not admit
irrelevant documents, and before ranking, so that it changes the order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_context.domain.search import Passage
from rag_context.projects.records import Boosts, ProjectDocument, PromotionLevel


@dataclass(frozen=True, slots=True)
class Match:
    """A document that a search found.

    Documents are sorted by `rank`: the fused score of the best chunk as a share of the best of the search, plus the
    boost, unbounded. `raw` is the calibrated relevance of its most relevant chunk, `boosted` that plus the boost, 0..1.
    `position` is that of its first chunk in the results (from 0); `passages` are its chunks in the results, the best
    first.
    """

    document: ProjectDocument
    rank: float
    raw: float
    boosted: float
    position: int
    passages: tuple[Passage, ...] = ()


def boost_of(level: PromotionLevel, boosts: Boosts | None) -> float:
    """The boost of a promotion level."""
    if boosts is None:
        return 0.0
    match level:
        case PromotionLevel.CRITICAL:
            return boosts.critical
        case PromotionLevel.IMPORTANT:
            return boosts.important
    return 0.0


def best_first(matches: Sequence[Match]) -> list[Match]:
    """Sort by fused score plus boost; of equals the one whose best chunk came first in the search.

    A cosine alone does not see an error code or a name: it would rank a document that contains it below those with
    similar sentences.
    """
    return sorted(matches, key=lambda match: (-match.rank, match.position, match.document.path))
