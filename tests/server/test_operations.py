"""Every operation is declared once, and every interface offers what is declared, or the declaration says why not."""

import inspect
from typing import Any, get_args, get_type_hints

import pytest

from rag_context import AsyncClient, Client
from rag_context.api.operations import Operation
from rag_context.api.operations.routes import OPERATIONS, ROUTES
from rag_context.api.toolsets import Toolset
from rag_context.api.wire import Vocabulary
from rag_context.cli.command_line import loaded
from rag_context.cli.operation_options import command_fields
from rag_context.server.app import create_app
from rag_context.server.openapi import build_openapi
from rag_context.server.options import ServerOptions
from rag_context.server.tools import build_tools

from .stub_service import StubService, as_service

ALL = [*OPERATIONS.values(), *(route.operation for route in ROUTES if route.operation.name not in OPERATIONS)]


def named(operations: list[Operation[Any, Any]]) -> list[Any]:
    return [pytest.param(each, id=each.name) for each in operations]


def test_a_server_offers_every_operation_but_the_one_for_files_of_its_machine() -> None:
    service = StubService()
    offered = set(build_tools(as_service(service), Vocabulary()))
    missing = {name for name, each in OPERATIONS.items() if each.toolset in (Toolset.MEMORY, Toolset.OPERATIONS)}
    assert missing - offered == {"rag_context_index_files"}
    assert offered <= set(OPERATIONS)


def test_openapi_describes_every_operation_that_is_offered_with_its_request() -> None:
    tools = create_app(as_service(StubService()), ServerOptions()).tools
    document = build_openapi(tools, ServerOptions(), "1")
    for name in tools:
        content = document["paths"][OPERATIONS[name].path]["post"]["requestBody"]["content"]
        shape = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
        aliases = {field.alias or key for key, field in OPERATIONS[name].request.model_fields.items()}
        assert set(document["components"]["schemas"][shape]["properties"]) == aliases


@pytest.mark.parametrize("operation", named(ALL))
def test_a_command_has_an_option_for_every_field(operation: Operation[Any, Any]) -> None:
    if operation.command is None:
        assert operation.omitted["cli"]
        return
    found: Any = loaded()
    for step in operation.command.split():
        found = found.commands[step]
    fields = {parameter.name for parameter in found.params}
    assert [name for name in command_fields(operation) if name not in fields] == []
    assert all(operation.omitted.values())


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize("operation", named([each for each in ALL if each.method is not None]))
def test_a_method_of_the_client_has_a_parameter_for_every_field(
    operation: Operation[Any, Any], client: type[Any]
) -> None:
    method = getattr(client, str(operation.method))
    omitted = {name.partition(".")[2] for name in operation.omitted if name.startswith("client.")}
    assert set(operation.request.model_fields) - parameters_of(method) == omitted


def parameters_of(method: Any) -> set[str]:
    """What may be given by name, the fields of an unpacked dictionary too."""
    given: set[str] = set()
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            (options,) = get_args(parameter.annotation)
            given |= set(get_type_hints(options))
        else:
            given.add(parameter.name)
    return given
