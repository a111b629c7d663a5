"""What a collection's metadata and name say to this program: labels, reserved names, and the record of its model.

The record of the model that embedded a collection has the same form on every provider. It is in the metadata, under a
key that callers can neither write nor read (their keys never begin with `$`), so that every copy of the collection
has it too.
"""

from collections.abc import Mapping
from dataclasses import replace

from rag_context.domain.documents import Json
from rag_context.domain.vectors import EmbeddingModel, same_model
from rag_context.errors import ConflictError, FieldError, InvalidInputError
from rag_context.ports.provider import Collection

OWN_EMBEDDER = "rag-context"
"""The value of `embedding_provider` with an effect: the server embeds the texts of such a collection."""

PROVIDER_LABEL = "embedding_provider"
MODEL_LABEL = "embedding_model"

BUILT = "\x1f"
"""A control character in the names of collections that a reindexing builds; callers cannot use it in names."""


def built_name(name: str) -> str:
    """The name of the collection in which a reindexing builds the replacement of another."""
    return f"{name}{BUILT}reindex"


def require_writable(collection: Collection) -> Collection:
    """Return the collection if it is writable. Raises: ConflictError."""
    if collection.foreign:
        raise ConflictError(
            f"Collection '{collection.name}' was made by another program and is read-only here: writing into it could "
            "break it for that program. `rag-context collections copy` makes a writable copy"
        )
    return collection


def require_embeddable(collection: Collection) -> None:
    """Check that the server embeds the texts of a collection. Raises: InvalidInputError."""
    if collection.embedding_provider != OWN_EMBEDDER:
        raise InvalidInputError(
            f"Collection '{collection.name}' has embeddings made elsewhere: send an embedding instead of a text "
            f"(its embedding_provider is not '{OWN_EMBEDDER}')",
            [FieldError("text", "this collection is queried by embedding")],
        )


def with_labels(collection: Collection) -> Collection:
    """The collection with the labels in its metadata moved to their fields."""
    if PROVIDER_LABEL not in collection.metadata and MODEL_LABEL not in collection.metadata:
        return collection
    given = label_overrides(collection.metadata)
    return replace(
        collection,
        metadata={key: value for key, value in collection.metadata.items() if key not in given},
        embedding_provider=given.get(PROVIDER_LABEL, collection.embedding_provider),
        embedding_model=given.get(MODEL_LABEL, collection.embedding_model),
    )


def label_overrides(metadata: Mapping[str, Json]) -> dict[str, str]:
    """The labels in the metadata, which override those that the collection was created with."""
    found = {label: metadata.get(label) for label in (PROVIDER_LABEL, MODEL_LABEL)}
    return {label: value for label, value in found.items() if isinstance(value, str)}


def without_empty_labels(metadata: Mapping[str, Json]) -> dict[str, Json]:
    """The metadata without labels that are null, which leave a label unchanged. Raises: InvalidInputError."""
    wrong = [
        FieldError(f"metadata.{label}", f"metadata.{label} must be a string; leave it out to keep it unchanged")
        for label in (PROVIDER_LABEL, MODEL_LABEL)
        if not isinstance(metadata.get(label), str | None)
    ]
    if wrong:
        raise InvalidInputError("; ".join(each.message for each in wrong), wrong)
    return {
        key: value for key, value in metadata.items() if value is not None or key not in (PROVIDER_LABEL, MODEL_LABEL)
    }


RECORD = "$model"

SAMPLES = 8
"""Documents of a collection without a record that are embedded again, to check whether the model is the same."""

SAME_COSINE = 0.98
"""Least cosine between old and new vectors of one model; other processors differ less, other models far more."""

Record = Mapping[str, Json]


def record_of(model: EmbeddingModel) -> dict[str, Json]:
    return {
        "name": model.name,
        "dimension": model.dimension,
        "fingerprint": model.fingerprint,
        "query_prefix": model.query_prefix,
        "document_prefix": model.document_prefix,
    }


def model_record(collection: Collection) -> Record | None:
    """The record in a collection; None if an older version made it, or if nothing was embedded yet."""
    found = collection.metadata.get(RECORD)
    return found if isinstance(found, Mapping) else None


def is_made_by(record: Record, model: EmbeddingModel) -> bool:
    """Whether vectors of this model can be compared with those of the recorded one."""
    recorded = (record.get("dimension"), record.get("query_prefix"), record.get("document_prefix"))
    alike = recorded == (model.dimension, model.query_prefix, model.document_prefix)
    return alike and same_model(str(record.get("fingerprint")), model.fingerprint)


def model_mismatch(collection: Collection, connection: str, model: EmbeddingModel) -> ConflictError:
    """The error for a collection that another model embedded."""
    record = model_record(collection)
    made_by = "another model"
    if record is not None:
        made_by = f"{record.get('name')} ({record.get('dimension')} dimensions, {str(record.get('fingerprint'))[:12]})"
    return ConflictError(
        f"The vectors of collection '{collection.name}' on connection '{connection}' were made by {made_by}, and the "
        f"model in use is {model.name} ({model.dimension} dimensions, {model.fingerprint[:12]}): run `rag-context "
        f"reindex`, which embeds '{collection.name}' again; until then search with mode text"
    )
