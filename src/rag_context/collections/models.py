"""Which model made a collection's vectors: recorded with the collection, on every provider in the same way.

The record stands in the collection's metadata under a key that no caller can write or read (theirs never begin with
`$`), so that it moves with the collection wherever that is copied.
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
"""Documents of a collection without a record that are embedded again, to see whether the model is theirs."""

SAME_COSINE = 0.98
"""Least cosine of a sample's vectors: another processor's rounding leaves more, another model far less."""

Record = Mapping[str, Json]


def record_of(model: EmbeddingModel) -> dict[str, Json]:
    """What is recorded of a model."""
    return {
        "name": model.name,
        "dimension": model.dimension,
        "fingerprint": model.fingerprint,
        "query_prefix": model.query_prefix,
        "document_prefix": model.document_prefix,
    }


def recorded(collection: Collection) -> Record | None:
    """What a collection records of its model; None where it was made before models were recorded, or never embedded."""
    found = collection.metadata.get(RECORD)
    return found if isinstance(found, Mapping) else None


def is_of(record: Record, model: EmbeddingModel) -> bool:
    """Whether vectors of this model can be compared with those of the recorded one."""
    now = record_of(model)
    alike = all(record.get(key) == now[key] for key in ("dimension", "query_prefix", "document_prefix"))
    return alike and same_model(str(record.get("fingerprint")), model.fingerprint)


def are_alike(stored: Sequence[np.ndarray[tuple[int], np.dtype[np.float32]]], made: Matrix) -> bool:
    """Whether most of a sample's vectors, `(n, dim)`, are what the model makes of the same texts now.

    Most, because a document may have come with a vector of its own.
    """
    if any(len(row) != made.shape[1] for row in stored):
        return False
    near = np.vecdot(np.stack(list(stored)), made) >= SAME_COSINE
    return bool(near.mean() > 0.5)


def mismatch(collection: Collection, connection: str, model: EmbeddingModel) -> ConflictError:
    """What is said where a collection's vectors are another model's."""
    record = recorded(collection)
    made_by = "another model"
    if record is not None:
        made_by = f"{record.get('name')} ({record.get('dimension')} dimensions, {str(record.get('fingerprint'))[:12]})"
    return ConflictError(
        f"The vectors of collection '{collection.name}' on connection '{connection}' were made by {made_by}, and the "
        f"model in use is {model.name} ({model.dimension} dimensions, {model.fingerprint[:12]}): run `rag-context "
        f"reindex`, which makes the vectors of '{collection.name}' again; until then mode text finds its documents"
    )
