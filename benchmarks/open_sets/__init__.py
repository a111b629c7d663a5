"""Open labelled sets: generated from sentences of our own, the same bytes each time, in the layout with evidence."""

from pathlib import Path

from benchmarks.open_sets import conversation_sets, document_sets
from rag_context.errors import InvalidInputError

SETS = (
    conversation_sets.roles,
    conversation_sets.names,
    conversation_sets.updates,
    conversation_sets.dated,
    conversation_sets.standing,
    document_sets.repository,
    document_sets.manual,
    document_sets.variants,
    document_sets.project,
)


def write_open_sets(folder: Path) -> list[Path]:
    """Write every set into a folder of its own; returns these. Raises: InvalidInputError."""
    try:
        return [make().write(folder) for make in SETS]
    except OSError as error:
        raise InvalidInputError(f"{folder} cannot be written: {error.strerror}.") from error
