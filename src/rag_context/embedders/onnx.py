"""Embeds in this process with an ONNX sentence model; the one that comes with the package needs no network.

A pool of threads runs the model over many texts: urgent ones first, equal ones once. The event loop is woken once per
call, not once per text, which is what keeps bulk work near the bare function.
"""

import asyncio
import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path

import numpy as np

from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector
from rag_context.embedders.model_tokenizer import ModelTokenizer
from rag_context.embedders.model_vectors import Checker
from rag_context.embedders.onnx_model import BUNDLED, OnnxModel, load
from rag_context.errors import BackendStartingError, BackendUnavailableError
from rag_context.ports.models import CONFIRMED

__all__ = ["BUNDLED", "OnnxEmbedder"]

logger = logging.getLogger(__name__)

COMPONENT = "embedder"


class Urgency(IntEnum):
    """The priority of a call; lower values first."""

    QUERY = 0
    DOCUMENT = 1


class _Call:
    """One caller's texts: the matrix that the rows are written to, and the future of the result."""

    __slots__ = ("future", "jobs", "left", "loop", "rows")

    def __init__(self, size: int, dimension: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.rows: Matrix = np.empty((size, dimension), np.float32)
        self.left = size
        self.jobs: list[_Job] = []

    def finish(self, error: Exception | None) -> None:
        """Set the caller's future, from any thread."""
        try:
            self.loop.call_soon_threadsafe(self._set_result, error)
        except RuntimeError:  # its loop is closed: no caller waits any more
            return

    def _set_result(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


class _Job:
    """One text, and the rows of the callers that wait for it."""

    __slots__ = ("started", "targets", "text", "urgency")

    def __init__(self, text: str, urgency: Urgency) -> None:
        self.text = text
        self.urgency = urgency
        self.targets: list[tuple[_Call, int]] = []
        self.started = False


class WorkerPool:
    """A priority queue of texts and the daemon threads that drain it."""

    def __init__(self, function: Callable[[str], Vector], *, dimension: int, workers: int) -> None:
        """Start `workers` threads that call `function`, which returns `(dimension,) float32`."""
        self._function = function
        self._dimension = dimension
        self._queue: list[tuple[int, int, _Job]] = []
        self._sequence = itertools.count()
        self._jobs: dict[str, _Job] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"embedder-{number}", daemon=True) for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, texts: Sequence[str], urgency: Urgency) -> Matrix:
        """Compute `(n, dimension) float32`, a row per text in order. Cancelling drops texts that have not started.

        Raises: BackendUnavailableError (the pool was closed before), BackendError (of the function, for one of the
        texts).
        """
        call = _Call(len(texts), self._dimension)
        if not texts:
            return call.rows
        self._submit(call, texts, urgency)
        try:
            await call.future
        finally:
            # The caller was cancelled, or one text failed: the rest of its texts are computed for no caller.
            if call.left:
                self._abandon(call)
        return call.rows

    async def close(self) -> None:
        """Reject the queued texts and end the threads; texts being computed are finished first."""
        with self._changed:
            self._closed = True
            waiting = [job for _, _, job in self._queue if not job.started]
            self._queue.clear()
            for job in waiting:
                self._end(job, None, _closed())
            self._changed.notify_all()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _submit(self, call: _Call, texts: Sequence[str], urgency: Urgency) -> None:
        with self._changed:
            if self._closed:
                raise _closed()
            for row, text in enumerate(texts):
                job = self._jobs.get(text)
                if job is None:
                    job = self._jobs[text] = _Job(text, urgency)
                    self._push(job)
                elif urgency < job.urgency and not job.started:
                    # A second, earlier entry for the same job; the late one is skipped when it comes up.
                    job.urgency = urgency
                    self._push(job)
                job.targets.append((call, row))
                call.jobs.append(job)
            # Not all threads: those without a text would wake, take the lock, and sleep again.
            self._changed.notify(len(texts))

    def _push(self, job: _Job) -> None:
        heapq.heappush(self._queue, (job.urgency, next(self._sequence), job))

    def _abandon(self, call: _Call) -> None:
        """Remove a caller, and the texts that no other caller waits for."""
        with self._changed:
            for job in call.jobs:
                job.targets = [target for target in job.targets if target[0] is not call]
                # A text that is being computed stays known: a new caller may still join it.
                if not job.targets and not job.started and self._jobs.get(job.text) is job:
                    del self._jobs[job.text]

    def _work(self) -> None:
        while (job := self._next()) is not None:
            vector: Vector | None = None
            error: Exception | None = None
            try:
                vector = self._function(job.text)
            except Exception as raised:  # noqa: BLE001  any error goes to the callers, who would wait for ever
                error = raised
            with self._changed:
                self._end(job, vector, error)

    def _next(self) -> _Job | None:
        """Wait for a text that a caller still waits for; None when the pool is closed."""
        with self._changed:
            while True:
                while not self._queue:
                    if self._closed:
                        return None
                    self._changed.wait()
                _, _, job = heapq.heappop(self._queue)
                # Entries of abandoned jobs, and old ones of jobs that became urgent, stay in the heap until then.
                if job.targets and not job.started:
                    job.started = True
                    return job

    def _end(self, job: _Job, vector: Vector | None, error: Exception | None) -> None:
        """Pass a job's result to all its callers; the lock must be held."""
        job.started = True
        if self._jobs.get(job.text) is job:
            del self._jobs[job.text]
        for call, row in job.targets:
            if error is not None:
                call.finish(error)
                continue
            # Written into the caller's own matrix; the event loop is woken for the last row only.
            call.rows[row] = vector
            call.left -= 1
            if not call.left:
                call.finish(None)
        job.targets = []


def _closed() -> BackendUnavailableError:
    return BackendUnavailableError(COMPONENT, "the embedder was closed before the text was embedded")


class OnnxEmbedder:
    """Fits `ports.Embedder`. The model loads in a thread after `start`; calls before it is loaded raise."""

    def __init__(self, directory: Path = BUNDLED, *, workers: int) -> None:
        """Take the directory of a model and how many texts to embed at once (as many as there are cores)."""
        self._directory = directory
        self._workers = workers
        self._checked = Checker()
        self._loading: asyncio.Task[None] | None = None
        self._loaded: tuple[OnnxModel, WorkerPool] | None = None
        self._failure: BackendUnavailableError | None = None
        self._fallback: ModelTokenizer | None = None
        self._closed = False

    async def start(self) -> None:
        self._begin_loading()

    async def ready(self, timeout_s: float) -> bool:
        """Wait until loading has ended; True if the model can be used."""
        await self._loading_ended(timeout_s)
        return self._loaded is not None

    async def close(self) -> None:
        self._closed = True
        await self._loading_ended()
        if self._loaded is not None:
            _, pool = self._loaded
            self._loaded = None
            await pool.close()

    @property
    def model(self) -> EmbeddingModel:
        return self._require()[0].model

    provenance = CONFIRMED

    @property
    def tokenizer(self) -> ModelTokenizer:
        """The model's tokenizer; the bundled one if the directory has no readable one. Needs no loaded model."""
        if self._loaded is not None:
            return self._loaded[0].tokenizer
        if self._fallback is None:
            try:
                self._fallback = ModelTokenizer(self._directory / "tokenizer.json")
            except BackendUnavailableError:
                if self._directory == BUNDLED:
                    raise
                logger.warning("%s has no readable tokenizer; using the bundled one", self._directory)
                self._fallback = ModelTokenizer(BUNDLED / "tokenizer.json")
        return self._fallback

    async def embed_query(self, text: str) -> Vector:
        model, pool = self._require()
        rows = await pool.run([model.model.query_prefix + text], Urgency.QUERY)
        vector: Vector = self._checked(rows, model.model.dimension)[0]
        return vector

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        model, pool = self._require()
        prefix = model.model.document_prefix
        rows = await pool.run([prefix + text for text in texts], Urgency.DOCUMENT)
        return self._checked(rows, model.model.dimension)

    async def ping(self) -> str:
        """Embed a probe; where the model could not be loaded, try again first. Raises as `embed_query` does."""
        if self._failure is not None:
            self._begin_loading()
            await self._loading_ended()
        vector = await self.embed_query("probe")
        return f"{self.model.name}, {len(vector)} dimensions, {self._workers} workers"

    def _begin_loading(self) -> None:
        if self._closed or (self._loading is not None and not self._loading.done()):
            return
        self._loading = asyncio.create_task(self._load(), name="load the embedding model")

    async def _loading_ended(self, timeout_s: float | None = None) -> None:
        """Wait for the load without cancelling it, however the waiting ends."""
        if self._loading is not None:
            await asyncio.wait({self._loading}, timeout=timeout_s)

    async def _load(self) -> None:
        try:
            model = await asyncio.to_thread(load, self._directory)
        except BackendUnavailableError as error:
            logger.error("%s", error)
            self._failure = error
            return
        self._failure = None
        self._loaded = model, WorkerPool(model.embed, dimension=model.model.dimension, workers=self._workers)

    def _require(self) -> tuple[OnnxModel, WorkerPool]:
        if self._loaded is not None:
            return self._loaded
        if self._closed:
            raise BackendUnavailableError(COMPONENT, "the embedder is closed")
        if self._failure is not None:
            raise BackendUnavailableError(COMPONENT, str(self._failure)) from self._failure
        if self._loading is not None and self._loading.done():
            self._loading.result()  # a bug while loading surfaces here
        raise BackendStartingError(COMPONENT, f"the embedding model in {self._directory} is still loading")
