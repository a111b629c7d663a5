"""The registry of models and generations: which model made the vectors, which generation of them is active.

Both are part of the record of the index's state.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rag_context.domain.embedding_model import Calibration, EmbeddingModel, Rebuild
from rag_context.errors import IndexMismatchError
from rag_context.stores.mongodb.connection import Mongo
from rag_context.stores.mongodb.entries import INDEXED, PENDING
from rag_context.stores.mongodb.state import Change, IndexState, Totals

OTHER_MODEL = "The vectors were made by another model than the index's; embed the document again."


class MongoRegistry:
    """`ModelRegistry` and `GenerationRegistry` over the record of the index's state."""

    def __init__(self, mongo: Mongo, state: IndexState) -> None:
        self._mongo = mongo
        self._documents = mongo.documents
        self._written = mongo.writing.documents
        self._state = state

    async def recorded_model(self) -> EmbeddingModel | None:
        """The model that made the vectors; None if none is recorded."""
        return _model_of((await self._state.look()).model)

    async def adopt_model(self, model: EmbeddingModel) -> None:
        """Record the model of an index that has none, or no vectors. Vectors without a recorded model do not count.

        Raises:
            IndexMismatchError: the vectors of the index were made by another model.
        """
        while True:
            recorded = _model_of((await self._state.look()).model)
            if recorded is None:
                await self._state.change(self._await_vectors)
            elif await self._has_indexed():
                _require_same(recorded, model)
            if await self._state.record_model(_model_entry(model), recorded.fingerprint if recorded else None):
                return

    async def drop_vectors(self) -> int:
        """Delete the record of the model; every document becomes pending. Returns the number of documents."""
        await self._state.known()
        await self._state.forget_model()
        await self._state.change(self._await_vectors)
        return (await self._state.known()).totals.documents

    async def active_generation(self) -> tuple[int, str | None]:
        """The active generation of vectors, and the fingerprint of its model."""
        return await self._state.active_generation()

    async def run_under_way(self) -> Rebuild | None:
        """The run that builds the next generation."""
        entry, touched = await self._state.run()
        model = _model_of(entry)
        return None if model is None else Rebuild(model, touched)

    async def inactive_generation(self) -> int | None:
        """An inactive generation that may exist."""
        return await self._state.inactive_generation()

    async def begin_run(self, run: Rebuild, generation: int, inactive_generation: int | None) -> bool:
        """Record a run and the generation that it builds, unless another inactive generation is recorded."""
        return await self._state.begin_run(_model_entry(run.model), run.touched, generation, inactive_generation)

    async def touch_run(self, made_by: str, touched: float) -> None:
        """Record progress of the run of the model `made_by`, if it is still under way."""
        await self._state.touch_run(made_by, touched)

    async def abandon_run(self) -> None:
        """Record that no run is under way; the generation of the last one stays inactive."""
        await self._state.abandon_run()

    async def forget_inactive_generation(self, generation: int) -> None:
        """Record that this generation was removed, unless another one is recorded or a run is under way."""
        await self._state.forget_inactive_generation(generation)

    async def end_run(self, made_by: str, generation: int) -> bool:
        """Make this generation the active one, unless no run of the model `made_by` is under way."""
        return await self._state.end_run(made_by, generation)

    async def _await_vectors(self, change: Change) -> None:
        """Make all documents pending, and set the change of the totals."""
        vectors = (await self._state.known()).totals.vectors
        marked = await self._written.update_many({"status": INDEXED}, {"$set": {"status": PENDING}})
        if marked.modified_count:
            change.delta = Totals(pending=marked.modified_count, vectors=-vectors)

    async def _has_indexed(self) -> bool:
        async with self._mongo.reached():
            return await self._documents.find_one({"status": INDEXED}, {"_id": 1}) is not None


def _model_entry(model: EmbeddingModel) -> dict[str, Any]:
    """The model as it is recorded."""
    return asdict(model)


def _model_of(entry: Mapping[str, Any] | None) -> EmbeddingModel | None:
    """The recorded model; None if none is recorded."""
    if entry is None:
        return None
    return EmbeddingModel(**{**entry, "calibration": Calibration(**entry["calibration"])})


def _require_same(recorded: EmbeddingModel, model: EmbeddingModel) -> None:
    """Check that vectors of a model can be compared with those of the recorded one.

    Raises:
        IndexMismatchError: they cannot.
    """
    if _identity(recorded) != _identity(model):
        raise IndexMismatchError(
            f"The index was made by {recorded.name!r} ({recorded.dimension} dimensions), not by {model.name!r}"
            f" ({model.dimension}); run `rag-context reindex`."
        )


def _identity(model: EmbeddingModel) -> tuple[int, str, str, str]:
    """What makes vectors comparable; the name proves nothing."""
    return model.dimension, model.fingerprint, model.query_prefix, model.document_prefix
