"""The embedding model of an index: it is used with the index that it made only.

Another model embeds all documents again in a run, while the old vectors still answer. A run makes the new vectors
beside the old ones and then replaces these. Its state is in the store, so that it survives the end of a process: the
next process with the run's model continues it. Several processes may use one index; one of them works on a run, and
another one takes over if there was no progress for some seconds.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import TypeAlias

import numpy as np

from rag_context import errors
from rag_context.domain import samples
from rag_context.domain.vectors import EmbeddingModel, Matrix, Rebuild, Vector, probed_calibration, same_vectors
from rag_context.ingest.indexer import Indexer
from rag_context.ports.models import Embedder, Provenance, Tokenizer
from rag_context.ports.writing import ModelRegistry, VectorRebuilder
from rag_context.tracing import span

OpenFormer: TypeAlias = Callable[[EmbeddingModel], Awaitable[Embedder | None]]
"""Loads the model that an index was embedded with; returns None while it loads, or if it is not available."""


@dataclass(eq=False)
class BoundEmbedder:
    """Forwards calls to the embedder as long as its model is the one of the index.

    While a run embeds all documents again with the model in use, queries are embedded by the model of the index, if it
    can be loaded (`open_former`).
    """

    inner: Embedder
    registry: ModelRegistry
    rebuilder: VectorRebuilder | None = None
    open_former: OpenFormer | None = None

    def __post_init__(self) -> None:
        self._former: Embedder | None = None
        self._recorded: EmbeddingModel | None = None
        self._failure: errors.BackendError | None = None
        # Loading the former model takes time: without turns, a comparison that began before a run ended could
        # overwrite the result of the one after it, and searches would stay without vectors until the next.
        self._in_turn = asyncio.Lock()

    @property
    def model(self) -> EmbeddingModel:
        return self._matching()[1]

    @property
    def provenance(self) -> Provenance:
        return (self._former or self.inner).provenance

    @property
    def tokenizer(self) -> Tokenizer:
        return self.inner.tokenizer

    @property
    def recorded(self) -> EmbeddingModel | None:
        return self._recorded

    async def bind(self) -> None:
        """Compare the model with the index's; an index without a model records this one. Raises: BackendError."""
        async with self._in_turn:
            try:
                recorded = await self._agreed()
                if recorded is None or same_vectors(self.inner.model, recorded):
                    self._former = None
                else:
                    self._former = self._former or await self._opened(recorded)
                self._recorded = recorded  # searches need not wait for the calibration
                self._recorded = recorded and await self._calibrated(recorded)
            except errors.BackendError as error:
                self._failure = error
                raise

    async def _agreed(self) -> EmbeddingModel | None:
        """The model that the index records, after recording this one if there was none."""
        model = self.inner.model
        recorded = await self.registry.recorded_model()
        if recorded is None or not (same_vectors(model, recorded) or self._former is not None):
            # The embedder's description of its model may be out of date: ask it again before recording it.
            await self.inner.ping()
        if recorded is None:
            with suppress(errors.IndexMismatchError):  # another process was faster: its record is read below
                await self.registry.adopt_model(self.inner.model)
            recorded = await self.registry.recorded_model()
        return recorded

    async def _calibrated(self, recorded: EmbeddingModel) -> EmbeddingModel:
        """The record, with a calibration by texts of no tenant where the index's model has none of its own."""
        embedder = self._former or self.inner
        if embedder.model.calibration.is_measured or not same_vectors(embedder.model, recorded):
            return recorded
        questions = [row["question"] for row in samples.questions()]
        passages = [row["content"] for row in samples.documents()]
        if recorded.calibration.sampled == len(questions) * len(passages):
            return recorded
        with suppress(errors.BackendError):  # another time: the model can be used as it is
            asked = np.stack([await embedder.embed_query(question) for question in questions])
            found = probed_calibration(asked, await embedder.embed_documents(passages))
            recorded = replace(recorded, calibration=found)
            await self.registry.adopt_model(recorded)
        return recorded

    async def _opened(self, recorded: EmbeddingModel) -> Embedder | None:
        """The model of the index, while a run embeds all documents again with the model in use."""
        if self.rebuilder is None or self.open_former is None:
            return None
        run = await self.rebuilder.under_way()
        is_ours = run is not None and same_vectors(self.inner.model, run.model)
        return await self.open_former(recorded) if is_ours else None

    async def embed_query(self, text: str) -> Vector:
        return await self._matching()[0].embed_query(text)

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        return await self._matching()[0].embed_documents(texts)

    async def ping(self) -> str:
        description = await self.inner.ping()
        embedder, _ = self._matching()
        if embedder is not self.inner:
            await embedder.ping()
        return description

    def _matching(self) -> tuple[Embedder, EmbeddingModel]:
        """The embedder whose vectors the index has, and its model."""
        model = self.inner.model
        if self._recorded is None:
            failure = self._failure
            if isinstance(failure, errors.BackendRejectedError):  # waiting does not help
                raise errors.BackendRejectedError("embedder", f"the index cannot be used with this model: {failure}")
            reason = "" if failure is None else f": {failure}"
            raise errors.BackendStartingError("embedder", f"the model has not been compared with the index yet{reason}")
        embedder = self.inner
        if not same_vectors(model, self._recorded):
            if self._former is None or not same_vectors(self._former.model, self._recorded):
                raise errors.BackendRejectedError("embedder", _mismatch(self._recorded, model))
            embedder, model = self._former, self._former.model
        calibration = model.calibration if model.calibration.is_measured else self._recorded.calibration
        # Its own fingerprint may differ from the index's by float noise, and stores compare fingerprints as text.
        return embedder, replace(model, fingerprint=self._recorded.fingerprint, calibration=calibration)


def _mismatch(index: EmbeddingModel, configured: EmbeddingModel) -> str:
    return (
        f"the index was made by {index.name} ({index.dimension} dimensions, {index.fingerprint[:12]}) and the model in "
        f"use is {configured.name} ({configured.dimension} dimensions, {configured.fingerprint[:12]}); "
        "run `rag-context reindex`, or start with `rag-context serve --reindex`"
    )


logger = logging.getLogger(__name__)

LEASE_S = 5.0
"""A run with progress in the last so many seconds belongs to a process that still works on it."""

ABANDONED_S = 600.0
"""A process that uses the index's model abandons a run of another model that had no progress for so long."""

BATCH = 100

OnDone = Callable[[int], None]


@dataclass(eq=False)
class Rebuilding:
    rebuilder: VectorRebuilder
    inner: Embedder
    bound: BoundEmbedder
    indexer: Indexer
    _: KW_ONLY
    begin_on_mismatch: bool = False
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._is_ours = False
        self._one_at_a_time = asyncio.Lock()
        self._beginning = asyncio.Lock()

    async def begin(self) -> None:
        """Begin a run, unless one with the same model exists. Raises: BackendError (no model, no store)."""
        async with self._beginning:  # or two callers would both find no run, and begin two
            model = self.inner.model
            run = await self.rebuilder.under_way()
            if run is None or not same_vectors(run.model, model):
                self._is_ours = await self.rebuilder.begin(model)
        await self._compare()

    async def _compare(self) -> None:
        """Compare the model with the index's; old vectors that it can never be used with do not matter in a run."""
        with suppress(errors.BackendRejectedError):
            await self.bound.bind()

    async def remaining(self) -> int | None:
        """How many documents have no new vectors; None if there is no run. Raises: BackendError."""
        return None if await self.rebuilder.under_way() is None else await self.rebuilder.remaining()

    async def require_ended(self) -> None:
        """Check that the index has vectors of the model in use. Raises: BackendRejectedError."""
        await self.bound.bind()
        recorded = self.bound.recorded
        if recorded is None or not same_vectors(self.inner.model, recorded):
            raise errors.BackendRejectedError(
                "vectors", "another process ended the reindexing; run `rag-context reindex` to start it again"
            )

    async def work(self, on_done: OnDone = lambda _done: None, *, together: int = 1) -> bool:
        """Finish the run of the model in use; False if there is none, or another works on it. Raises: BackendError."""
        # Another task of this process works on it; a caller that waits polls `remaining`.
        if self._one_at_a_time.locked():
            return False
        async with self._one_at_a_time:
            run = await self._due()
            if run is None:
                return False
            logger.info("all documents are embedded again with %s; the old vectors answer meanwhile", run.model.name)
            done = 0

            def count() -> None:
                nonlocal done
                done += 1
                on_done(done)

            # The model's own fingerprint may differ from the run's by float noise.
            embedder = _Named(self.inner, run.model)
            # Documents that were stored during a pass have no new vectors yet: the switch fails, and the next pass
            # embeds them. Those that cannot be embedded are left out, or the run would never end.
            while not await self.rebuilder.switch(run.model.fingerprint, await self._pass(embedder, count, together)):
                pass
            self._is_ours = False
            await self.bound.bind()
            logger.info("the vectors of %s are complete: searches use them from now on", run.model.name)
            return True

    async def _due(self) -> Rebuild | None:
        """The run to work on, or None; abandons a run of another model that no process continues."""
        run = await self.rebuilder.under_way()
        if run is None and not self.begin_on_mismatch:
            return None
        model = self.inner.model
        await self._compare()  # another process may have ended a run just now
        is_current = self.bound.recorded is not None and same_vectors(model, self.bound.recorded)
        idle_s = math.inf if run is None else self.now() - run.touched
        # A clock that was set back makes the idle time negative: such a run is free, not busy for hours.
        is_free = self._is_ours or not 0.0 <= idle_s < LEASE_S
        if run is not None and same_vectors(model, run.model):
            return run if is_free else None
        if self.begin_on_mismatch and not is_current and is_free:
            await self.begin()
            return await self.rebuilder.under_way()
        if run is not None and is_current and idle_s > ABANDONED_S:
            logger.warning("the new vectors of %s are deleted: no process continues them", run.model.name)
            await self.rebuilder.abandon()
        return None

    async def _pass(self, embedder: Embedder, count: Callable[[], None], together: int) -> set[str]:
        """Embed every document that has no new vectors; returns the ids of those that failed."""
        left: set[str] = set()
        last = ""
        semaphore = asyncio.Semaphore(together)

        async def complete(id_: str) -> None:
            async with semaphore:
                try:
                    with span("index.reembed"):
                        is_complete = await self.indexer.complete_beside(id_, embedder, self.rebuilder)
                except (errors.BackendDataError, errors.BackendRejectedError) as error:
                    logger.warning("document %s cannot be embedded again: %s", id_, error)
                    is_complete = False
            if is_complete:
                count()
            else:
                left.add(id_)

        while ids := await self.rebuilder.missing(last, BATCH):
            try:
                async with asyncio.TaskGroup() as group:
                    for id_ in ids:
                        group.create_task(complete(id_))
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from failures
            last = ids[-1]
        return left


class _Named:
    def __init__(self, inner: Embedder, model: EmbeddingModel) -> None:
        self.model = model
        self.provenance = inner.provenance
        self.tokenizer = inner.tokenizer
        self.embed_query = inner.embed_query
        self.embed_documents = inner.embed_documents
        self.ping = inner.ping
