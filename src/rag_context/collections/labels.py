"""What is said of a collection beside its documents: its labels, whose it is, and the names that are kept for us."""

from collections.abc import Mapping

from rag_context.domain.documents import Json
from rag_context.errors import ConflictError, FieldError, InvalidInputError
from rag_context.ports.provider import Collection

OWN_EMBEDDER = "rag-context"
"""The one label that is more than a label: texts of such a collection are embedded here."""

PROVIDER_LABEL = "embedding_provider"
MODEL_LABEL = "embedding_model"

BUILT = "\x1f"
"""Only names of collections that a reindexing builds hold it; no caller can name them."""


def built_name(name: str) -> str:
    """The name of the collection in which a reindexing builds what takes the place of another."""
    return f"{name}{BUILT}reindex"


def writable(collection: Collection) -> Collection:
    """See that a collection may be written to. Raises: ConflictError."""
    if collection.foreign:
        raise ConflictError(
            f"Collection '{collection.name}' was made by another program, and is only read here: writing into it "
            "could break it for that program. `rag-context collections copy` makes a copy that can be written to"
        )
    return collection


def embeddable(collection: Collection) -> None:
    """See that texts of a collection are embedded here. Raises: InvalidInputError."""
    if collection.embedding_provider != OWN_EMBEDDER:
        raise InvalidInputError(
            f"Collection '{collection.name}' has embeddings made elsewhere: send an embedding instead of a text "
            f"(its embedding_provider is not '{OWN_EMBEDDER}')",
            [FieldError("text", "this collection is queried by embedding")],
        )


def labelled(collection: Collection) -> Collection:
    """A collection with the labels that its metadata gives it, where it gives it any."""
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
    """Labels that metadata gives a collection in place of those that it was made with."""
    found = {label: metadata.get(label) for label in (PROVIDER_LABEL, MODEL_LABEL)}
    return {label: value for label, value in found.items() if isinstance(value, str)}


def without_empty_labels(metadata: Mapping[str, Json]) -> dict[str, Json]:
    """Metadata that is put, without labels that are null and so stay. Raises: InvalidInputError."""
    wrong = [
        FieldError(f"metadata.{label}", f"metadata.{label} must be a string; leave it out to keep it as it is")
        for label in (PROVIDER_LABEL, MODEL_LABEL)
        if not isinstance(metadata.get(label), str | None)
    ]
    if wrong:
        raise InvalidInputError("; ".join(each.message for each in wrong), wrong)
    return {
        key: value for key, value in metadata.items() if value is not None or key not in (PROVIDER_LABEL, MODEL_LABEL)
    }
