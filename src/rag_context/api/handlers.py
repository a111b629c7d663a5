"""Which method of the service performs an operation, and what it knows of the call.

`@performs(OPERATION)` above a method is all that connects the two: HTTP, MCP, the command line and a memory in this
process call what `handlers_of` finds.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from rag_context.api.operations import Operation, Request, Response
from rag_context.api.wire import WireResponse
from rag_context.domain.callers import ANONYMOUS, CallerId
from rag_context.domain.journal import acting

Self_ = TypeVar("Self_")
Rest = ParamSpec("Rest")

OnProgress: TypeAlias = Callable[[int, int], Awaitable[None]]
"""Called with how much is done, and of how much."""

_MARK = "_performed_operation"

ClientRoots: TypeAlias = Callable[[], Awaitable[Sequence[str] | None]]
"""Requests from the client the folders that it works in; None if it has no way to say."""


async def no_roots() -> None:
    """A client that does not say where it works."""


async def ignore_progress(_done: int, _total: int) -> None:
    """Progress that no caller follows."""


@dataclass(frozen=True, slots=True)
class CallContext:
    request_id: str
    on_progress: OnProgress = ignore_progress
    caller: CallerId = ANONYMOUS
    may_write: bool = True
    """Whether the caller's key may change anything, for operations that do less for one that may not."""
    client_roots: ClientRoots = no_roots
    project: str | None = None
    """The tag of the project that the caller works on, where it is known and on this machine."""


Handler: TypeAlias = Callable[[Any, CallContext], Awaitable[WireResponse]]
"""Performs an operation: its request and the context in, its response out."""


def performs(
    operation: Operation[Request, Response],
) -> Callable[
    [Callable[Concatenate[Self_, Request, Rest], Coroutine[Any, Any, Response]]],
    Callable[Concatenate[Self_, Request, Rest], Coroutine[Any, Any, Response]],
]:
    """Mark the method that performs an operation. It takes the request, and if it needs it the `CallContext`."""

    def mark(
        method: Callable[Concatenate[Self_, Request, Rest], Coroutine[Any, Any, Response]],
    ) -> Callable[Concatenate[Self_, Request, Rest], Coroutine[Any, Any, Response]]:
        setattr(method, _MARK, operation.name)
        return method

    return mark


def handlers_of(*services: object) -> dict[str, Handler]:
    """What performs the operations, by their names; a service that is None performs none."""
    return {
        operation: _handler(getattr(service, name))
        for service in services
        # By name, so that a subclass that overrides a method is called.
        for kind in type(service).__mro__
        for name, method in vars(kind).items()
        if (operation := getattr(method, _MARK, None)) is not None
    }


def _handler(method: Callable[..., Awaitable[WireResponse]]) -> Handler:
    takes_context = method.__code__.co_argcount > 2  # self, request, context

    async def run(request: Any, context: CallContext) -> WireResponse:
        agent = None if "agent" in request.exactly_one_of else getattr(request, "agent", None)
        with acting(context.caller.key or agent, only_adds=context.caller.only_adds):
            return await (method(request, context) if takes_context else method(request))

    return run
