"""The record of the model that embedded a collection, in the same form on every provider.

The record is in the collection's metadata, under a key that callers can neither write nor read (their keys never
begin with `$`), so that every copy of the collection has it too.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from rag_context.domain.documents import Json
from rag_context.domain.embedding_model import EmbeddingModel
from rag_context.domain.vectors import Matrix
from rag_context.embedders.fingerprint import same_model
from rag_context.errors import ConflictError
from rag_context.ports.provider import Collection

RECORD = "$model"

SAMPLES = 8
"""Documents of a collection without a record that are embedded again, to check whether the model is the same."""

SAME_COSINE = 0.98
"""Least cosine between old and new vectors of one model; other processors differ less, other models far more."""

Record = Mapping[str, Json]


def record_of(model: EmbeddingModel) -> dict[str, Json]:
    """The record of a model."""
    return {
        "name": model.name,
        "dimension": model.dimension,
        "fingerprint": model.fingerprint,
        "query_prefix": model.query_prefix,
        "document_prefix": model.document_prefix,
    }


def recorded(collection: Collection) -> Record | None:
    """The record in a collection; None if an older version made it, or if nothing was embedded yet."""
    found = collection.metadata.get(RECORD)
    return found if isinstance(found, Mapping) else None


def is_of(record: Record, model: EmbeddingModel) -> bool:
    """Whether vectors of this model can be compared with those of the recorded one."""
    now = record_of(model)
    alike = all(record.get(key) == now[key] for key in ("dimension", "query_prefix", "document_prefix"))
    return alike and same_model(str(record.get("fingerprint")), model.fingerprint)


def are_alike(stored: Sequence[np.ndarray[tuple[int], np.dtype[np.float32]]], made: Matrix) -> bool:
    """Whether most of a sample's stored vectors, `(n, dim)`, equal those that the model makes for the same texts now.

    Most, because a document may have come with a vector of its own.
    """
    if any(len(row) != made.shape[1] for row in stored):
        return False
    near = np.vecdot(np.stack(list(stored)), made) >= SAME_COSINE
    return bool(near.mean() > 0.5)


def mismatch(collection: Collection, connection: str, model: EmbeddingModel) -> ConflictError:
    """The error for a collection that another model embedded."""
    record = recorded(collection)
    made_by = "another model"
    if record is not None:
        made_by = f"{record.get('name')} ({record.get('dimension')} dimensions, {str(record.get('fingerprint'))[:12]})"
    return ConflictError(
        f"The vectors of collection '{collection.name}' on connection '{connection}' were made by {made_by}, and the "
        f"model in use is {model.name} ({model.dimension} dimensions, {model.fingerprint[:12]}): run `rag-context "
        f"reindex`, which embeds '{collection.name}' again; until then search with mode text"
    )
