"""What every store requires of vectors before it stores them or searches them: number, dimension and model.

And of a rebuild: that it is under way, and that hardly a document is without new vectors when it ends. `component` is
what an error names.
"""

from collections.abc import Collection

from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.errors import BackendRejectedError, IndexMismatchError

NORM_TOLERANCE = 1e-3
"""How far a stored vector's length may be from 1; float32 rounding of 384 squares is a thousand times less."""

STRAGGLERS = 0.01
"""Up to this share of the documents may be without new vectors at the switch; they are embedded afterwards."""


def require_comparable(recorded: EmbeddingModel, model: EmbeddingModel) -> None:
    """Check that vectors of a model can be compared with the recorded one's. Raises: IndexMismatchError."""
    if not recorded.is_comparable(model):
        raise IndexMismatchError(
            f"The index was made by {recorded.name!r} ({recorded.dimension} dimensions), not by {model.name!r}"
            f" ({model.dimension}); run `rag-context reindex`."
        )


def require_model(component: str, recorded: str | None, made_by: str | None) -> None:
    """Check that vectors (fingerprint `made_by`) are of the index's `recorded` model. Raises: BackendRejectedError."""
    if made_by is not None and made_by != recorded:
        raise BackendRejectedError(
            component, "The vectors were made by another model than the index's; embed the document again."
        )


def require_shape(component: str, vectors: Matrix, chunks: int, dimension: int | None = None) -> None:
    """Check that each chunk has a vector, of the index's dimension if it has one. Raises: BackendRejectedError."""
    if len(vectors) != chunks:
        raise BackendRejectedError(component, f"{len(vectors)} vectors were submitted for {chunks} chunks.")
    if dimension is not None and chunks and vectors.shape[1] != dimension:
        raise BackendRejectedError(
            component, f"The vectors have dimension {vectors.shape[1]}, the index has {dimension}; run a reindex."
        )


def no_rebuild(component: str) -> BackendRejectedError:
    return BackendRejectedError(
        component, "No reindexing with this model is under way; start one with `rag-context reindex`."
    )


def can_switch(missing: Collection[str], without: Collection[str], documents: int) -> bool:
    """Whether a rebuild may end, although documents are `missing` new vectors; those in `without` cannot have any."""
    return len(set(missing) - set(without)) <= STRAGGLERS * documents
