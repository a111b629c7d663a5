"""Fault injection: makes any port fail, hang or answer late, call by call."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from rag_context.errors import RagContextError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a call: an error, a delay in seconds, or an endless wait."""

    error: RagContextError | None = None
    delay_s: float = 0.0
    hang: bool = False


class Faulty(Generic[T]):
    """Wraps a port. `port` can be used in place of the target; `fault` may be changed at any time.

    Args:
        target: the working port.
        methods: names of the async methods that fail; all of them when none is named.
    """

    def __init__(self, target: T, *methods: str) -> None:
        self.fault: Fault | None = None
        self.calls = 0
        """The number of calls to the failing methods so far, successful or not."""
        self.methods = frozenset(methods)
        self.port = cast("T", _Front(target, self))


class _Front:
    def __init__(self, target: object, owner: "Faulty[T]") -> None:
        self._target = target
        self._owner = owner

    def __getattr__(self, name: str) -> object:
        value = getattr(self._target, name)
        if not asyncio.iscoroutinefunction(value) or (self._owner.methods and name not in self._owner.methods):
            return value
        return self._faulty(value)

    def _faulty(self, work: Callable[..., object]) -> Callable[..., object]:
        async def call(*args: object, **kwargs: object) -> object:
            self._owner.calls += 1
            fault = self._owner.fault
            if fault is not None:
                await _suffer(fault)
            return await work(*args, **kwargs)  # type: ignore[misc]

        return call


async def _suffer(fault: Fault) -> None:
    if fault.hang:
        await asyncio.Event().wait()
    await asyncio.sleep(fault.delay_s)
    if fault.error is not None:
        raise fault.error
