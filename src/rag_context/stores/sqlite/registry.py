"""Which model made the vectors of the index."""

import json
import sqlite3
from dataclasses import asdict

from rag_context.domain.embedding_model import Calibration, EmbeddingModel
from rag_context.errors import IndexMismatchError
from rag_context.stores.sqlite.changes import PENDING, forget_old_deletions

_NAME = "model"


def read_model(connection: sqlite3.Connection) -> EmbeddingModel | None:
    """The recorded model; None if none is recorded."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (_NAME,)).fetchone()
    return None if row is None else model_from(row[0])


def model_from(stored: str) -> EmbeddingModel:
    """A model as it is recorded."""
    fields = json.loads(stored)
    return EmbeddingModel(**{**fields, "calibration": Calibration(**fields["calibration"])})


def record_model(model: EmbeddingModel, connection: sqlite3.Connection) -> None:
    """Record `model`, unless the index has vectors of another model.

    Raises:
        IndexMismatchError: it has.
    """
    recorded = read_model(connection)
    made: int = connection.execute("SELECT vectors > 0 OR documents > pending FROM totals").fetchone()[0]
    if recorded is not None and made and _identity(recorded) != _identity(model):
        raise IndexMismatchError(
            f"The index was made by {recorded.name!r} ({recorded.dimension} dimensions), not by {model.name!r}"
            f" ({model.dimension}); run `rag-context reindex`."
        )
    connection.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (_NAME, json.dumps(asdict(model))),
    )


def forget_vectors(connection: sqlite3.Connection) -> int:
    """Drop all vectors and the model; every document becomes pending. Returns how many documents there are.

    So do those that were being made beside them.
    """
    connection.execute("DELETE FROM meta WHERE name IN (?, 'next_model', 'next_touched')", (_NAME,))
    connection.execute("DELETE FROM vectors")
    connection.execute("DELETE FROM next_vectors")
    connection.execute("UPDATE totals SET version = version + 1, vectors_epoch = vectors_epoch + 1")
    forget_old_deletions(connection)
    connection.execute("UPDATE documents SET status = ? WHERE status <> ?", (PENDING, PENDING))
    documents: int = connection.execute("SELECT documents FROM totals").fetchone()[0]
    return documents


def _identity(model: EmbeddingModel) -> tuple[int, str, str, str]:
    """What makes vectors comparable; the name proves nothing."""
    return model.dimension, model.fingerprint, model.query_prefix, model.document_prefix
