"""Keyword search in collections of providers without a keyword index: their documents are read, and scored here.

The terms and the score are those of all other searches (`text/`), and so are those of a provider with an index: the
same collection gives the same scores everywhere. How much is read is bounded, and what is beyond is rejected, because
the best of a part of the documents would look like the best of all.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence

import numpy as np

from rag_context.collections.paging import bulk
from rag_context.domain.clauses import Clause
from rag_context.errors import FieldError, InvalidInputError
from rag_context.ports.provider import KeywordProvider, KeywordScore, Provider
from rag_context.text.analysis import terms
from rag_context.text.bm25 import PROSE, bm25, idf_share, inverse_document_frequency

MOST_READ = 10_000
"""Documents that one query reads at most."""

_BATCH = 250


async def keyword_scores(
    provider: Provider, name: str, text: str, where: Clause, *, limit: int, also: Sequence[str] = ()
) -> dict[str, KeywordScore]:
    """As `KeywordProvider.keyword_scores`, whatever the provider.

    Raises:
        InvalidInputError: it has no keyword index, and the filter lets through more documents than are read.
    """
    if isinstance(provider, KeywordProvider):
        return await provider.keyword_scores(name, text, where, limit=limit, also=also)
    documents = bulk(provider)
    ids = await documents.ids(name, where)
    if len(ids) > MOST_READ:
        message = (
            f"A keyword search reads every document of a collection on this provider, at most {MOST_READ}, and here "
            f"are {len(ids)}: narrow them with where, or search with mode vector"
        )
        raise InvalidInputError(message, [FieldError("mode", message)])
    asked = Counter(terms(text))
    rows: dict[str, tuple[list[int], int]] = {}
    for start in range(0, len(ids), _BATCH):
        found = await documents.get(name, ids[start : start + _BATCH])
        texts = {id_: entry.text for id_, entry in found.items()}
        rows |= await asyncio.to_thread(_counted, texts, list(asked))
    return _scored(rows, asked, limit, also)


def _counted(texts: dict[str, str], asked: Sequence[str]) -> dict[str, tuple[list[int], int]]:
    """Of each text how often it holds each term, and how many terms it has in all."""
    rows = {}
    for id_, text in texts.items():
        words = terms(text)
        counts = Counter(words)
        rows[id_] = [counts[term] for term in asked], len(words)
    return rows


def _scored(
    rows: dict[str, tuple[list[int], int]], asked: Counter[str], limit: int, also: Sequence[str]
) -> dict[str, KeywordScore]:
    if not rows or not asked:
        return {}
    counts = np.array([row for row, _ in rows.values()], dtype=np.float64)
    lengths = np.array([length for _, length in rows.values()], dtype=np.float64)
    idf = np.array([inverse_document_frequency(len(rows), int(held)) for held in (counts > 0).sum(axis=0)])
    scores = bm25(
        counts,
        lengths,
        idf * np.array(list(asked.values()), dtype=np.float64),
        np.full(len(rows), PROSE.k1),
        np.full(len(rows), PROSE.b),
        float(lengths.mean()),
    )
    shares = idf_share(counts, idf)
    every = {
        id_: KeywordScore(float(score), float(share))
        for id_, score, share in zip(rows, scores, shares, strict=True)
        if score > 0
    }
    best = sorted(every.items(), key=lambda item: (-item[1].bm25, item[0]))[:limit]
    return dict(best) | {id_: every[id_] for id_ in also if id_ in every}
