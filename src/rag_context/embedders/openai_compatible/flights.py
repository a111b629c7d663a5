"""Requests under way that several callers may wait for."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Flight(Generic[T]):
    __slots__ = ("passengers", "task")

    def __init__(self, task: "asyncio.Task[T]") -> None:
        self.task = task
        self.passengers = 0


class Flights(Generic[T]):
    """Runs one piece of work per key at a time. It goes on while anybody waits, and is cancelled when nobody does."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def join(self, key: Hashable, work: Callable[[], Coroutine[None, None, T]]) -> T:
        """The result of the work under way for `key`, begun here where there is none. Raises what it raises."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(work()))
            flight.task.add_done_callback(lambda task: self._land(key, task))
        flight.passengers += 1
        try:
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
