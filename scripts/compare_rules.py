"""Compare a rule of ranking that is not built in with the order of a search, on the open sets of conversations.

    .venv/bin/python -m scripts.compare_rules

- `session`: a message gains by BM25 of its whole conversation, in place of the conversation's three best messages.

docs/design/quality.md says what came out.
"""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from benchmarks.open_sets import write_open_sets

from rag_context.domain.search import ChunkRef, Floats
from rag_context.domain.text import PROSE, bm25, inverse_document_frequency, terms
from rag_context.evaluation.datasets import EvidenceSet, load_set
from rag_context.evaluation.evidence_quality import evaluate_evidence, index_items
from rag_context.evaluation.quality import open_measured
from rag_context.memory.service import Service
from rag_context.search import selection
from rag_context.search.query import Mode
from rag_context.settings import Settings

SETS = ("roles", "names", "updates", "dated", "standing")
SESSION_WEIGHT = 0.2


class Sessions:
    """BM25 of whole conversations, of the project that is searched."""

    def __init__(self, dataset: EvidenceSet, names: Mapping[str, str]) -> None:
        items = {item.id: item for item in dataset.items}
        self._session = {document: items[name].session for document, name in names.items()}
        self._project = {item.session: item.project for item in dataset.items}
        self._words: dict[str, Counter[str]] = {}
        self._frequency: Counter[str] = Counter()
        for item in dataset.items:
            words = terms(item.content)
            self._words.setdefault(item.session, Counter()).update(words)
            self._frequency.update(set(words))
        self._messages = len(items)
        self.asked = ""
        self.project = ""

    def prior(self, scores: Floats, chunks: Sequence[ChunkRef], _: Mapping[str, float]) -> Floats:
        """The scores with what each candidate gains by its conversation."""
        among = [session for session in self._words if (self._project[session] or "") == self.project]
        asked = Counter(terms(self.asked))
        counts = np.array([[self._words[session][term] for term in asked] for session in among], dtype=np.float64)
        lengths = np.array([self._words[session].total() for session in among], dtype=np.float64)
        weights = [inverse_document_frequency(self._messages, self._frequency[term]) * n for term, n in asked.items()]
        size = (len(among),)
        found = bm25(
            counts, lengths, np.array(weights), np.full(size, PROSE.k1), np.full(size, PROSE.b), lengths.mean()
        )
        if not asked or found.max() <= 0.0:
            return scores
        by_session = dict(zip(among, (found / found.max()).tolist(), strict=True))
        return scores + SESSION_WEIGHT * np.array([by_session[self._session[c.document_id]] for c in chunks])


@contextmanager
def replaced(module: Any, name: str, value: object) -> Iterator[None]:
    """The attribute of a module, replaced inside the block."""
    known = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, known)


async def measured(service: Service, dataset: EvidenceSet) -> tuple[float, float]:
    """Mean recall@10 and nDCG@10 of hybrid searches."""
    outcome = await evaluate_evidence(service, dataset, lambda *_: None)
    answered = [each.by_mode for each in outcome.measured if each.by_mode]
    return mean(each["recall"][Mode.HYBRID] for each in answered), mean(each["ndcg"][Mode.HYBRID] for each in answered)


async def by_session(service: Service, dataset: EvidenceSet) -> tuple[float, float]:
    """The same with the prior of whole conversations."""
    sessions = Sessions(dataset, await index_items(service, dataset.items, lambda *_: None))
    plain = selection._passing  # noqa: SLF001

    def kept(query: Any, *rest: Any, **named: Any) -> Any:
        sessions.asked, sessions.project = query.text, query.where.tenant.project
        return plain(query, *rest, **named)

    with replaced(selection, "_passing", kept), replaced(selection, "with_session_prior", sessions.prior):
        return await measured(service, dataset)


async def row(dataset: EvidenceSet, folder: Path) -> str:
    """The row of a set."""
    async with open_measured(Settings(), folder) as service:
        cells = [*await measured(service, dataset), *await by_session(service, dataset)]
    return f"| {dataset.name} | {' | '.join(f'{cell:.3f}' for cell in cells)} |\n"


def main() -> None:
    """Print a row for each set."""
    heads = [f"{measure} {rule}".strip() for rule in ("", "with session") for measure in ("recall@10", "nDCG@10")]
    sys.stdout.write(f"| set | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}\n")
    with tempfile.TemporaryDirectory() as name:
        for path in write_open_sets(Path(name) / "sets"):
            dataset = load_set(path)
            if isinstance(dataset, EvidenceSet) and dataset.name in SETS:
                sys.stdout.write(asyncio.run(row(dataset, Path(name) / dataset.name)))
                sys.stdout.flush()


if __name__ == "__main__":
    main()
