"""An unmeasured model gets its calibration from vectors of sample texts, a collection from its own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain import samples
from rag_context.domain.vectors import (
    LEAST_SAMPLED,
    MINILM,
    RANDOM_MEAN,
    RANDOM_SPREAD,
    Matrix,
    probed_calibration,
    sampled_calibration,
)
from rag_context.embedders.onnx import OnnxEmbedder
from rag_context.search.ranking import calibrated


def vectors(seed: int, count: int = 2 * LEAST_SAMPLED, dimension: int = 24) -> Matrix:
    """Normalised vectors with something in common, and nothing in the last direction."""
    made = np.random.default_rng(seed).normal(0.3, 1.0, (count, dimension))
    made[:, -1] = 0.0
    normalised: Matrix = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)
    return normalised


def moved(made: Matrix, far: float) -> Matrix:
    """`normalise(v + far * u)`, where u is a direction that no vector has a part of."""
    made = made.copy()
    made[:, -1] = far
    normalised: Matrix = made / np.linalg.norm(made, axis=1, keepdims=True)
    return normalised


@given(st.integers(0, 1000), st.floats(0.0, 3.0), st.floats(-1.0, 1.0))
def test_vectors_moved_by_a_constant_direction_have_the_same_relevances(seed: int, far: float, cosine: float) -> None:
    plain = sampled_calibration(vectors(seed))
    squeezed = sampled_calibration(moved(vectors(seed), far))
    assert plain is not None
    assert squeezed is not None
    same = (cosine + far**2) / (1.0 + far**2)
    assert calibrated(same, squeezed) == pytest.approx(calibrated(cosine, plain), abs=1e-3)
    assert squeezed.threshold == plain.threshold


def test_random_pairs_get_the_relevance_that_they_have_with_the_bundled_model() -> None:
    sample = vectors(5)
    cosines = (sample @ sample.T)[np.triu_indices(len(sample), 1)]
    found = sampled_calibration(sample)
    assert found is not None
    for deviations in (-1.0, 0.0, 2.0):
        cosine = float(cosines.mean() + deviations * cosines.std())
        assert calibrated(cosine, found) == pytest.approx(
            calibrated(RANDOM_MEAN + deviations * RANDOM_SPREAD, MINILM), abs=1e-3
        )


def test_too_few_vectors_and_equal_ones_say_nothing() -> None:
    assert sampled_calibration(vectors(1, LEAST_SAMPLED - 1)) is None
    assert sampled_calibration(np.repeat(vectors(1, 1), LEAST_SAMPLED, axis=0)) is None


async def test_the_sample_texts_give_the_bundled_model_the_calibration_that_was_measured() -> None:
    embedder = OnnxEmbedder(workers=1)
    await embedder.start()
    assert await embedder.ready(60)
    try:
        asked = np.stack([await embedder.embed_query(row["question"]) for row in samples.questions()])
        passages = await embedder.embed_documents([row["content"] for row in samples.documents()])
    finally:
        await embedder.close()
    found = probed_calibration(asked, passages)
    assert found.slope == pytest.approx(MINILM.slope, rel=0.01)
    assert found.unrelated_cosine == pytest.approx(MINILM.unrelated_cosine, abs=0.002)
    assert found.answerable_cosine == pytest.approx(MINILM.answerable_cosine, abs=0.002)
    assert found.sampled == len(samples.questions()) * len(samples.documents())
