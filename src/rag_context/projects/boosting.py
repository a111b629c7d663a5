"""What promotion adds to relevance, and the order that comes of it. Pure.

A boost decides between documents that are about as relevant: it comes after the threshold, so that it
lets nothing in, and before ranking, so that it moves what is in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_context.domain.search import Passage
from rag_context.projects.records import Boosts, ProjectDocument, PromotionLevel


@dataclass(frozen=True, slots=True)
class Match:
    """A document that was found.

    `rank` orders: the fused score of its best chunk as a share of the best one's in the search, with the boost and
    without a bound. `raw` is the calibrated relevance of its most relevant chunk, `boosted` that with the boost, 0..1.
    `place` is the place of its first chunk in the search (from 0); `passages` are its chunks that were found, the
    best first.
    """

    document: ProjectDocument
    rank: float
    raw: float
    boosted: float
    place: int
    passages: tuple[Passage, ...] = ()


def boost_of(level: PromotionLevel, boosts: Boosts | None) -> float:
    """What a promotion level adds."""
    if boosts is None:
        return 0.0
    match level:
        case PromotionLevel.CRITICAL:
            return boosts.critical
        case PromotionLevel.IMPORTANT:
            return boosts.important
    return 0.0


def best_first(matches: Sequence[Match]) -> list[Match]:
    """In the order of the search, boosts included; of equals the one whose best chunk the search put in front.

    The fused score orders, as in every search. A cosine alone knows nothing of an error code or a name, and would put
    the document that holds it behind those that only sound alike.
    """
    return sorted(matches, key=lambda match: (-match.rank, match.place, match.document.path))
