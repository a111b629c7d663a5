"""Which model made the vectors of the index: a part of the record of its state."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rag_context.domain.embedding_model import Calibration, EmbeddingModel
from rag_context.errors import IndexMismatchError


def model_entry(model: EmbeddingModel) -> dict[str, Any]:
    """The model as it is recorded."""
    return asdict(model)


def model_of(entry: Mapping[str, Any] | None) -> EmbeddingModel | None:
    """The recorded model; None where none is recorded."""
    if entry is None:
        return None
    return EmbeddingModel(**{**entry, "calibration": Calibration(**entry["calibration"])})


def require_same(recorded: EmbeddingModel, model: EmbeddingModel) -> None:
    """Refuse a model whose vectors cannot be compared with those of the recorded one.

    Raises:
        IndexMismatchError: it is such a model.
    """
    if _identity(recorded) != _identity(model):
        raise IndexMismatchError(
            f"The index was made by {recorded.name!r} ({recorded.dimension} dimensions), not by {model.name!r}"
            f" ({model.dimension}); run `rag-context reindex`."
        )


def _identity(model: EmbeddingModel) -> tuple[int, str, str, str]:
    """What makes vectors comparable; the name proves nothing."""
    return model.dimension, model.fingerprint, model.query_prefix, model.document_prefix
