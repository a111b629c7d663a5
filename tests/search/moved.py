"""A model whose unrelated texts have no cosine near 0, as that of most models."""

from dataclasses import replace

import numpy as np

from rag_context.domain.vectors import UNMEASURED, Calibration, Vector
from rag_context.testing import FakeEmbedder


class MovedEmbedder(FakeEmbedder):
    """Vectors moved by a constant direction, which no other vector has a part of: `normalise(v + k u)`.

    Args:
        far: how far, as a multiple of a vector's length.
    """

    def __init__(self, far: float) -> None:
        super().__init__()
        self._far = far
        base, squeeze = self.model.calibration, 1.0 / (1.0 + far**2)
        slope, unrelated = base.slope / squeeze, far**2 * squeeze
        answerable = unrelated + squeeze * base.answerable_cosine
        squeezed = Calibration(slope, base.intercept - slope * unrelated, base.threshold, answerable)
        self.model = replace(self.model, calibration=squeezed)

    @classmethod
    def unmeasured(cls, far: float) -> "MovedEmbedder":
        """Such a model, whose cosines mean nothing yet."""
        made = cls(far)
        made.model = replace(made.model, fingerprint=f"moved {far}", calibration=UNMEASURED)
        return made

    def _vector(self, text: str) -> Vector:
        vector = super()._vector(text)
        vector[-1] = 0.0
        vector /= np.linalg.norm(vector)
        vector[-1] = self._far
        moved: Vector = vector / np.linalg.norm(vector)
        return moved
