"""Compare statistics of an answer by which the label `noAnswer` could be given, on the open sets.

    .venv/bin/python -m scripts.compare_no_answer

For each set with questions of another memory: the share of them below the limit that labels at most 5 % of the set's
answerable questions, for each statistic by itself. docs/design/quality.md says what came out.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from benchmarks.open_sets import write_open_sets
from benchmarks.open_sets.document_sets import OTHER_MEMORY

from rag_context.domain.documents import Tenant
from rag_context.domain.search import Filter, Floats
from rag_context.domain.vectors import MINILM
from rag_context.evaluation.datasets import EvidenceQuestion, EvidenceSet, load_set
from rag_context.evaluation.evidence_quality import index_items
from rag_context.evaluation.quality import open_measured
from rag_context.memory.service import Service
from rag_context.search.query import Query
from rag_context.search.rules import SHARE_LOG_ODDS
from rag_context.settings import Settings

FALSE = 0.05
DEEP = 40

Statistic = Callable[[Floats, Floats, Floats], float]
"""Of the cosines (descending), and of the BM25 scores and shares of the same passages."""

STATISTICS: Mapping[str, Statistic] = {
    "as it is": lambda cosines, _, shares: float((MINILM.slope * cosines + SHARE_LOG_ODDS * shares).max()),
    "cosine": lambda cosines, *_: float(cosines[0]),
    "share": lambda *scores: float(scores[2].max()),
    "BM25": lambda *scores: float(scores[1].max()),
    "to second": lambda cosines, *_: float(cosines[0] - cosines[1]),
    "to fifth": lambda cosines, *_: float(cosines[0] - cosines[4]),
    "to median": lambda cosines, *_: float(cosines[0] - np.median(cosines)),
    "deviations": lambda cosines, *_: float((cosines[0] - cosines.mean()) / cosines.std()),
    "cosine x share": lambda cosines, _, shares: float((cosines * shares).max()),
    "both agree": lambda cosines, bm25, _: float(cosines[int(bm25.argmax())]),
}


async def scores_of(service: Service, question: EvidenceQuestion) -> tuple[Floats, Floats, Floats]:
    """Cosines, BM25 scores and shares of the best passages, by descending cosine."""
    where = Filter(Tenant(question.project or ""))
    answer = await service.rank(Query(question.text, limit=DEEP, min_score=0.0, where=where))
    found = sorted((result.ranked.candidate for result in answer.results), key=lambda each: -(each.cosine or 0.0))
    columns = [(each.cosine or 0.0, each.bm25, each.share) for each in found]
    cosines, bm25, shares = np.array(columns).T
    return cosines, bm25, shares


async def labelled(dataset: EvidenceSet, folder: Path) -> Sequence[float]:
    """The share of the questions of another memory that each statistic tells."""
    async with open_measured(Settings(), folder) as service:
        await index_items(service, dataset.items, lambda *_: None)
        answerable = [await scores_of(service, each) for each in dataset.questions if each.evidence]
        others = [each for each in dataset.questions if each.category == OTHER_MEMORY]
        foreign = [await scores_of(service, each) for each in others]
    shares = []
    for statistic in STATISTICS.values():
        own = sorted(statistic(*scores) for scores in answerable)
        limit = own[int(FALSE * len(own))]
        shares.append(sum(statistic(*scores) < limit for scores in foreign) / len(foreign))
    return shares


def main() -> None:
    """Print a row for each set."""
    sys.stdout.write(f"| set | {' | '.join(STATISTICS)} |\n|{'---|' * (len(STATISTICS) + 1)}\n")
    with tempfile.TemporaryDirectory() as name:
        for path in write_open_sets(Path(name) / "sets"):
            dataset = load_set(path)
            if isinstance(dataset, EvidenceSet) and any(each.category == OTHER_MEMORY for each in dataset.questions):
                shares = asyncio.run(labelled(dataset, Path(name) / dataset.name))
                sys.stdout.write(f"| {dataset.name} | " + " | ".join(f"{share:.2f}" for share in shares) + " |\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
