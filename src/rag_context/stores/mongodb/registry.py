"""The registry of models and generations: which model made the vectors, which generation of them is active.

Both are part of the record of the index's state.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rag_context.domain.embedding_model import EmbeddingModel, Rebuild
from rag_context.ports.maintenance import require_comparable
from rag_context.stores.mongodb.document_records import INDEXED, PENDING
from rag_context.stores.mongodb.mongo import Mongo
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
                require_comparable(recorded, model)
            instead_of = recorded.fingerprint if recorded else None
            if await self._state.record({"model.fingerprint": instead_of}, {"model": asdict(model)}):
                return

    async def drop_vectors(self) -> int:
        """Delete the record of the model; every document becomes pending. Returns the number of documents."""
        await self._state.known()
        await self._state.forget_model()
        await self._state.change(self._await_vectors)
        return (await self._state.known()).totals.documents

    async def active_generation(self) -> tuple[int, str | None]:
        """The active generation of vectors, and the fingerprint of its model."""
        entry = await self._state.entry()
        model = entry.get("model")
        return int(entry.get("generation", 0)), None if model is None else str(model["fingerprint"])

    async def run_under_way(self) -> Rebuild | None:
        """The run that builds the next generation."""
        entry = await self._state.entry()
        model = _model_of(entry.get("next"))
        return None if model is None else Rebuild(model, float(entry.get("nextTouched", 0.0)))

    async def inactive_generation(self) -> int | None:
        """An inactive generation that may exist."""
        return (await self._state.entry()).get("debris")

    async def begin_run(self, run: Rebuild, generation: int, inactive_generation: int | None) -> bool:
        """Record a run and the generation that it builds, unless another inactive generation is recorded."""
        await self._state.look()  # creates the record if it is missing
        begun = {"next": asdict(run.model), "nextTouched": run.touched, "debris": generation}
        return await self._state.record({"debris": inactive_generation}, begun)

    async def touch_run(self, made_by: str, touched: float) -> None:
        """Record progress of the run of the model `made_by`, if it is still under way."""
        await self._state.record({"next.fingerprint": made_by}, {"nextTouched": touched})

    async def abandon_run(self) -> None:
        """Record that no run is under way; the generation of the last one stays inactive."""
        await self._state.record({}, {"next": None, "nextTouched": 0.0})

    async def forget_inactive_generation(self, generation: int) -> None:
        """Record that this generation was removed, unless another one is recorded or a run is under way."""
        await self._state.record({"next.fingerprint": None, "debris": generation}, {"debris": None})

    async def end_run(self, made_by: str, generation: int) -> bool:
        """Make this generation the active one, unless no run of the model `made_by` builds it; the version grows."""
        before = await self._state.entry()
        model = before.get("next")
        if model is None or model["fingerprint"] != made_by:
            return False
        former = int(before.get("generation", 0))
        ended = {"model": model, "next": None, "nextTouched": 0.0, "generation": generation, "debris": former}
        # The condition again: another process may have begun or ended a run since the record was read.
        where = {"next.fingerprint": made_by, "debris": generation}
        return await self._state.record(where, ended, {"begun": 1, "version": 1})

    async def _await_vectors(self, change: Change) -> None:
        """Make all documents pending, and set the change of the totals."""
        vectors = (await self._state.known()).totals.vectors
        marked = await self._written.update_many({"status": INDEXED}, {"$set": {"status": PENDING}})
        if marked.modified_count:
            change.delta = Totals(pending=marked.modified_count, vectors=-vectors)

    async def _has_indexed(self) -> bool:
        async with self._mongo.reached():
            return await self._documents.find_one({"status": INDEXED}, {"_id": 1}) is not None


def _model_of(entry: Mapping[str, Any] | None) -> EmbeddingModel | None:
    return None if entry is None else EmbeddingModel.from_record(entry)
