"""The model of a server, which a probe tells, and requests that callers share."""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rag_context.domain.vectors import EmbeddingModel, Vector
from rag_context.embedders.model_vectors import PROBE, SAME_COSINE, Checker, fingerprint
from rag_context.embedders.openai_api import COMPONENT, EmbeddingApi
from rag_context.embedders.profiles import profile
from rag_context.errors import BackendDataError, BackendError

logger = logging.getLogger(__name__)

T = TypeVar("T")

SHARED_S = 2.0
"""Callers share a probe that began within this time; one that hangs does not hold up those who come later."""


@dataclass(frozen=True, slots=True)
class _Known:
    model: EmbeddingModel
    probe: Vector


class ServedModel:
    """The model of one server, learnt from a probe and confirmed by it.

    Args:
        api: the server.
        name: the model's name, which chooses its profile.
        checked: checks the probe's vector.
        clock: monotonic seconds.
    """

    def __init__(self, api: EmbeddingApi, name: str, checked: Checker, clock: Callable[[], float]) -> None:
        self._api = api
        self._profile = profile(name)
        self._name = name
        self._checked = checked
        self._clock = clock
        self._probes: SingleFlight[None] = SingleFlight()
        self._known: _Known | None = None
        self._confirmed_at: float | None = None
        self._announced: str | None = None

    @property
    def model(self) -> EmbeddingModel | None:
        """The model as it was last confirmed; None before the server was first reached."""
        return None if self._known is None else self._known.model

    def doubt(self) -> None:
        """Make the next confirmation embed the probe again."""
        self._confirmed_at = None

    def heard(self, announced: str | None) -> None:
        """Doubt the model if the server names it differently than when it was confirmed."""
        if announced != self._announced:
            self.doubt()

    async def confirm(self, since: float = -math.inf) -> EmbeddingModel:
        """The model, confirmed not earlier than `since`; without doubt, any earlier confirmation counts.

        Raises:
            BackendError: The server is unavailable, or has another model than the configured one.
        """
        while self._known is None or self._confirmed_at is None or self._confirmed_at < since:
            await self._probes.join(int(self._clock() / SHARED_S), self._ask)
        return self._known.model

    async def _ask(self) -> None:
        # Taken before the request: the model may change while the answer is on its way.
        asked_at = self._clock()
        answer = await self._api.embed([PROBE])
        vector: Vector = self._checked(answer.vectors, answer.vectors.shape[1])[0]
        expected = self._profile.dimension
        if expected is not None and len(vector) != expected:
            raise BackendDataError(
                COMPONENT,
                f"{self._api.server} returns vectors of {len(vector)} dimensions, and {self._name} has {expected}: "
                "another model is loaded there; load this one, or set embedder.model to that one's name",
            )
        if self._known is None:
            await self._compare_names()
        if self._confirmed_at is not None and asked_at < self._confirmed_at:
            return  # a later probe was answered sooner
        if self._known is None:
            self._known = self._learn(vector)
        elif not _alike(vector, self._known.probe):
            former, self._known = self._known.model, self._learn(vector)
            logger.warning(
                "%s has another model than before (%.12s instead of %.12s)",
                self._api.server,
                self._known.model.fingerprint,
                former.fingerprint,
            )
        self._announced = answer.model
        self._confirmed_at = asked_at

    def _learn(self, vector: Vector) -> _Known:
        known = self._profile
        model = EmbeddingModel(
            name=self._name,
            dimension=len(vector),
            fingerprint=fingerprint(vector),
            window=int(known.window / known.pieces),
            calibration=known.calibration,
            query_prefix=known.query_prefix,
            document_prefix=known.document_prefix,
        )
        return _Known(model, vector)

    async def _compare_names(self) -> None:
        """Log a warning if the server does not list the model: many servers use any model that they have loaded."""
        try:
            listed = await self._api.models()
        except BackendError as error:
            logger.debug("%s lists no models: %s", self._api.server, error)
            return
        if listed and not any(self._name.lower() in name.lower() for name in listed):
            logger.warning("%s does not list the model %r; it may answer with another", self._api.server, self._name)


def _alike(one: Vector, other: Vector) -> bool:
    return len(one) == len(other) and float(one @ other) >= SAME_COSINE


class _Flight(Generic[T]):
    __slots__ = ("passengers", "task")

    def __init__(self, task: "asyncio.Task[T]") -> None:
        self.task = task
        self.passengers = 0


class SingleFlight(Generic[T]):
    """Single flight: callers with the same key share one task, cancelled when the last of them stops waiting."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def join(self, key: Hashable, work: Callable[[], Coroutine[None, None, T]]) -> T:
        """The result of the work under way for `key`, started if there is none. Raises what the work raises."""
        flight = self._flights.get(key)
        if flight is None or flight.task.done():  # done, and not yet landed: its work began before this caller came
            flight = self._flights[key] = _Flight(asyncio.create_task(work()))
            flight.task.add_done_callback(lambda task: self._land(key, task))
        flight.passengers += 1
        try:
            # Shielded: one caller that is cancelled must not cancel the work for the others.
            return await asyncio.shield(flight.task)
        finally:
            flight.passengers -= 1
            if not flight.passengers and not flight.task.done():
                self._land(key, flight.task)
                flight.task.cancel()

    def _land(self, key: Hashable, task: "asyncio.Task[T]") -> None:
        flight = self._flights.get(key)
        if flight is not None and flight.task is task:
            del self._flights[key]
