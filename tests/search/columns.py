"""Candidates one by one, as tests write them, into the columns that ranking reads."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rag_context.domain.search import Floats, Neighbours, RawScores
from rag_context.domain.vectors import Calibration
from rag_context.search.message_rules import with_session_prior
from rag_context.search.ranking import Candidate, Candidates, smoothed_scores


def columns(candidates: Sequence[Candidate]) -> Candidates:
    return Candidates([each.chunk for each in candidates], _raw(candidates))


def smoothed(
    candidates: Sequence[Candidate],
    near: Mapping[str, Neighbours] | None = None,
    scored: Sequence[Candidate] = (),
    calibration: Calibration | None = None,
) -> Floats:
    """Scores of candidates whose neighbours stand in `near`, and those neighbours' scores in `scored`."""
    known = {each.chunk.id: each for each in scored}
    around = [(near or {}).get(each.chunk.id, Neighbours()) for each in candidates]
    before = [known.get(each.before.id) if each.before is not None else None for each in around]
    after = [known.get(each.after.id) if each.after is not None else None for each in around]
    scores = smoothed_scores(columns(candidates), _raw(before), _raw(after), calibration)
    return with_session_prior(scores, [each.chunk for each in candidates], {})


def _raw(candidates: Sequence[Candidate | None]) -> RawScores:
    values = [(math.nan,) * 3 if each is None else (each.cosine, each.bm25, each.share) for each in candidates]
    raw = np.array(values, dtype=np.float64).reshape(-1, 3)
    return RawScores(raw[:, 0], raw[:, 1], raw[:, 2])
