"""What an embedder made is checked before it is used."""

import logging

import numpy as np
import pytest

from rag_context.domain.vectors import Matrix
from rag_context.embedders.model_vectors import Checker, checked
from rag_context.errors import BackendDataError


def rows(*values: list[float]) -> Matrix:
    return np.array(values, np.float32)


@pytest.mark.parametrize("norm", [0.901, 1.0, 1.099])
def test_vectors_of_about_norm_one_are_returned_as_they_are(norm: float) -> None:
    vectors = rows([norm, 0.0], [0.0, norm])
    assert checked(vectors, 2) is vectors


@pytest.mark.parametrize("norm", [1e-30, 0.5, 0.89, 1.11, 20.0, 1e30])
def test_other_norms_are_normalised(norm: float) -> None:
    result = checked(rows([1.0, 0.0], [0.6 * norm, 0.8 * norm]), 2)
    np.testing.assert_allclose(result, [[1.0, 0.0], [0.6, 0.8]], rtol=1e-6)
    assert result.dtype == np.float32


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_rejected(bad: float) -> None:
    with pytest.raises(BackendDataError, match="vector 1 of 2"):
        checked(rows([1.0, 0.0], [bad, 0.0]), 2)


def test_a_zero_vector_is_rejected() -> None:
    with pytest.raises(BackendDataError, match="vector 0 of 1 is zero"):
        checked(rows([0.0, 0.0]), 2)


def test_another_dimension_is_rejected_and_named() -> None:
    with pytest.raises(BackendDataError, match=r"\(1, 3\), expected \(n, 2\)"):
        checked(rows([1.0, 0.0, 0.0]), 2)


def test_a_single_vector_is_no_matrix() -> None:
    with pytest.raises(BackendDataError):
        checked(np.array([1.0, 0.0], np.float32), 2)


def test_no_vectors_are_fine() -> None:
    assert checked(np.empty((0, 2), np.float32), 2).shape == (0, 2)


def test_a_checker_warns_once_and_only_when_it_changes_something(caplog: pytest.LogCaptureFixture) -> None:
    check = Checker()
    with caplog.at_level(logging.WARNING):
        check(rows([1.0, 0.0]), 2)
        assert not caplog.records
        for _ in range(3):
            np.testing.assert_allclose(check(rows([2.0, 0.0]), 2), [[1.0, 0.0]])
    assert len(caplog.records) == 1
