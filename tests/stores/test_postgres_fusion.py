"""The fused scores that PostgreSQL computes are those of `search.ranking`."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.domain.documents import CHAT, CODE, DOCUMENTATION
from rag_context.domain.search import ChunkRef, RawScores
from rag_context.domain.vectors import MINILM, Calibration
from rag_context.embedders.profiles import profile
from rag_context.search.ranking import Candidates, VectorWeights, fused_scores, presumed_best, unrelated_cosine
from rag_context.stores.postgres.candidates import FUSED
from tests.servers.postgres import query
from tests.servers.postgres_fixtures import database, server, template

__all__ = ["database", "server", "template"]

CALIBRATIONS = [MINILM, *(profile(name).calibration for name in ("e5-small", "nomic-embed-text", "bge-m3")), None]
WEIGHTS = VectorWeights(code=0.8, other=0.5)

rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.floats(-1, 1), st.floats(0.7, 0.95)),
        st.one_of(st.just(0.0), st.floats(0.01, 40)),
        st.sampled_from([CHAT, CODE, DOCUMENTATION]),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows, st.sampled_from(CALIBRATIONS))
def test_the_statement_fuses_as_ranking_does(
    database: str, candidates: list[tuple[float | None, float, str]], calibration: Calibration | None
) -> None:
    if calibration is None:
        candidates = [(None, score, kind) for _, score, kind in candidates]
    fused = FUSED.format(
        unrelated_cosine=unrelated_cosine(calibration),
        presumed_best=presumed_best(calibration),
        code_weight=WEIGHTS.code,
        weight=WEIGHTS.other,
        speakers="'{}'",
        boost=1.0,
    )
    statement = f"""
        WITH candidates AS (
            SELECT *, NULL::text AS speaker
            FROM unnest($1::float8[], $2::float8[], $3::text[]) WITH ORDINALITY AS c(cosine, score, kind, row)
        ), {fused}
        SELECT fused FROM fused ORDER BY row"""
    cosines, scores, kinds = map(list, zip(*candidates, strict=True))
    found = [row["fused"] for row in query(database, statement, cosines, scores, kinds)]
    chunks = [ChunkRef(str(row), "document", row, str(kind), None) for row, kind in enumerate(kinds)]
    raw = RawScores(np.array(cosines, dtype=np.float64), np.array(scores), np.zeros(len(scores)))
    assert found == pytest.approx(fused_scores(Candidates(chunks, raw), calibration, WEIGHTS).tolist(), abs=1e-12)
