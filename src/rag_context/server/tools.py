"""The tools of a running server: the operations that its service performs, in the server's vocabulary."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from rag_context.api.handlers import CallContext, Handler
from rag_context.api.operations import Operation, Request
from rag_context.api.operations.routes import OPERATIONS, PERFORMED
from rag_context.api.parsing import ErrorCode
from rag_context.api.toolsets import Toolset, Toolsets
from rag_context.api.wire import Vocabulary, WireResponse
from rag_context.errors import BackendError, BackendUnavailableError
from rag_context.memory.bounded import within_bounds
from rag_context.memory.service import Service
from rag_context.server.failures import component_sentence, retry_after
from rag_context.server.requests import RequestRejectedError


@dataclass(frozen=True, kw_only=True)
class Tool(Operation[Request, WireResponse]):
    """An operation of a running server: in its vocabulary, with what performs it."""

    run: Handler


def tool_of(operation: Operation[Request, Any], run: Handler, vocabulary: Vocabulary) -> Tool[Request]:
    declared = {each.name: getattr(operation, each.name) for each in fields(operation)}
    return Tool(**{**declared, "request": operation.request.with_vocabulary(vocabulary)}, run=run)


class Registry(dict[str, Tool[Any]]):
    """The tools by name, in the order in which they are listed."""

    def __init__(self, *tools: Tool[Any]) -> None:
        super().__init__((tool.name, tool) for tool in tools)

    def only(self, toolsets: Toolsets) -> "Registry":
        return Registry(*(tool for tool in self.values() if tool.toolset in toolsets))

    def listing(self) -> list[dict[str, Any]]:
        return [
            {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.input_schema,
                "outputSchema": tool.output_schema,
            }
            for tool in self.values()
        ]


def build_tools(
    service: Service, vocabulary: Vocabulary, further: Mapping[str, Handler] = MappingProxyType({})
) -> Registry:
    """The tools of this server in its vocabulary, in the order in which the operations are declared.

    `further` is what else performs an operation, by its name.
    """
    bounded = {name: within_bounds(PERFORMED[name], run, service.performers) for name, run in further.items()}
    handlers = {**service.handlers(), **bounded}
    return Registry(
        *(
            tool_of(operation, _with_codes(operation, handlers[name]), vocabulary)
            for name, operation in OPERATIONS.items()
            if name in handlers
        )
    )


def _with_codes(operation: Operation[Any, Any], run: Handler) -> Handler:
    """The same; of the tools of projects, failures of backends are reported in codes of their own (Q-9)."""
    if operation.toolset is not Toolset.PROJECTS:
        return run

    async def run_with_codes(request: Any, context: CallContext) -> WireResponse:
        try:
            return await run(request, context)
        except BackendError as error:
            is_embedder = error.component.startswith("embed")
            code = ErrorCode.EMBEDDING_SERVICE_ERROR if is_embedder else ErrorCode.DATABASE_ERROR
            wait = error.retry_after_s if isinstance(error, BackendUnavailableError) else None
            sentence = component_sentence(error.component)
            raise RequestRejectedError(503, sentence, code=code, retry_after_s=retry_after(wait)) from error

    return run_with_codes
