"""Labels of collections, checks of whether they can be written and embedded here, and reserved names."""

from collections.abc import Mapping

from rag_context.domain.documents import Json
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


def writable(collection: Collection) -> Collection:
    """Return the collection if it is writable. Raises: ConflictError."""
    if collection.foreign:
        raise ConflictError(
            f"Collection '{collection.name}' was made by another program and is read-only here: writing into it could "
            "break it for that program. `rag-context collections copy` makes a writable copy"
        )
    return collection


def embeddable(collection: Collection) -> None:
    """Check that the server embeds the texts of a collection. Raises: InvalidInputError."""
    if collection.embedding_provider != OWN_EMBEDDER:
        raise InvalidInputError(
            f"Collection '{collection.name}' has embeddings made elsewhere: send an embedding instead of a text "
            f"(its embedding_provider is not '{OWN_EMBEDDER}')",
            [FieldError("text", "this collection is queried by embedding")],
        )


def labelled(collection: Collection) -> Collection:
    """The collection with the labels in its metadata moved to their fields."""
    given = overriding(collection.metadata)
    return Collection(
        name=collection.name,
        metadata={key: value for key, value in collection.metadata.items() if key not in given},
        embedding_provider=given.get(PROVIDER_LABEL, collection.embedding_provider),
        embedding_model=given.get(MODEL_LABEL, collection.embedding_model),
        dimension=collection.dimension,
        created=collection.created,
        count=collection.count,
        foreign=collection.foreign,
    )


def overriding(metadata: Mapping[str, Json]) -> dict[str, str]:
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
