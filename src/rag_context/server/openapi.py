"""OpenAPI 3.1, made from the registry and the wire models."""

import json
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

import yaml

from rag_context.api.embeddings import EmbeddingsRequest, EmbeddingsResponse, Model, ModelsResponse, OpenAiErrorResponse
from rag_context.api.index import BulkLine, BulkReceipt, VersionsRequest, VersionsResponse
from rag_context.api.maintenance import BareHealth, StatsRequest
from rag_context.api.operations import Access
from rag_context.api.operations import Operation as Declared
from rag_context.api.operations.routes import ROUTES, Route
from rag_context.api.parsing import CODES, ErrorResponse
from rag_context.api.search import SearchFailure
from rag_context.api.toolsets import Toolset
from rag_context.api.wire import DOTS, Schema, WireRequest, WireResponse, json_schema
from rag_context.server.middleware import OPEN_PATHS
from rag_context.server.options import ServerOptions
from rag_context.server.pages import MAX_WATCHERS
from rag_context.server.tools import Registry, Tool

Operation = dict[str, Any]

READING = (401, 403, 429, 500, 503)
WRITING = (400, 401, 403, 408, 413, 415, 429, 500, 503)
ID_HEADER = {"X-Request-ID": {"$ref": "#/components/headers/RequestId"}}
_TAGS = ("tools", "bulk", "mcp", "collections", "providers", "embeddings", "operation")
_TEXT = {"type": "string"}
_ERRORS: Mapping[int, tuple[str, str]] = {
    400: ("The request is wrong; details name every field at fault", "Query cannot be empty"),
    401: ("No valid API key", "API key not valid"),
    403: ("Host, Origin or key may not do this", "This API key may only read"),
    404: ("No such thing", "Tool rag_context_find not found"),
    405: ("Another method is needed; Allow names it", "Method not allowed"),
    409: ("It is there already, or no project is active", "Collection 'handbook' already exists"),
    408: ("The body took too long to arrive", "Request body took too long"),
    413: ("The body is too large", "Request body too large (max 1048576 bytes)"),
    415: ("The body is not of the right kind", "Send Content-Type: application/json"),
    429: ("Too many requests; Retry-After says when to ask again", "Too many requests"),
    500: ("A fault of ours; go on without context", "Internal server error"),
    503: ("A part is down, or (OVERLOADED) there is too much to do; see Retry-After", "Database unavailable"),
}
"""By status, what it means, and the sentence of an example."""


def build_openapi(tools: Registry, options: ServerOptions, version: str) -> Schema:
    written = _written(options)
    document: Schema = {
        "openapi": "3.1.0",
        "info": {
            "title": "rag-context",
            "version": version,
            "summary": "The context layer for AI agents",
            "description": (
                "Every reply carries X-Request-ID: the one sent (1 to 128 visible ASCII characters), else a new one. "
                "Every error has one shape. In requests null means absent, and unknown fields are rejected by name."
            ),
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in _TAGS],
        "paths": {
            **_tool_paths(tools),
            **{path: written[path] for path in ("/bulk", "/bulk/versions", "/mcp")},
            **_collection_paths(options),
            **written,
        },
        "components": {
            "schemas": _schemas(tools, options),
            "responses": {str(status): _error(status) for status in _ERRORS},
            "headers": {
                "RequestId": {"description": "Correlation id of the request", "schema": _TEXT},
                "RetryAfter": {"description": "Seconds to wait", "schema": _TEXT},
            },
        },
    }
    if options.api_keys:
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        document["security"] = [{"bearer": []}, {"key": []}]
    return document


def _operation(
    summary: str, tag: str, name: str, success: Schema, errors: Iterable[int], description: str = "", **more: Any
) -> Operation:
    """An operation that answers 200, or with one of the errors; `more` are its parameters and its body."""
    return {
        "operationId": name,
        "summary": summary,
        "description": description or summary,
        "tags": [tag],
        "responses": {"200": success, **{str(each): {"$ref": f"#/components/responses/{each}"} for each in errors}},
        **more,
    }


def _answer(schema: Schema, description: str, **more: Any) -> Schema:
    return _with_id({"description": description, "content": {"application/json": {"schema": schema, **more}}})


def _with_id(response: Schema) -> Schema:
    return {"description": response["description"], "headers": ID_HEADER, **response}


def _body(schema: Schema, example: Any, *, required: bool) -> Schema:
    return {"required": required, "content": {"application/json": {"schema": schema, "example": example}}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _parameter(name: str, where: str, schema: Schema, **more: Any) -> Schema:
    return {"name": name, "in": where, "schema": schema, **more}


def _schemas(tools: Registry, options: ServerOptions) -> Schema:
    models: tuple[type[WireRequest | WireResponse], ...] = (
        *(SearchFailure, BareHealth, BulkLine.with_vocabulary(options.vocabulary), BulkReceipt),
        *(VersionsRequest, VersionsResponse, EmbeddingsRequest, EmbeddingsResponse, ModelsResponse, Model),
        *(route.operation.response for route in ROUTES),
        *(route.body for route in ROUTES if route.body is not None),
    )
    named = {"Error": ErrorResponse, "OpenAiError": OpenAiErrorResponse, **{each.__name__: each for each in models}}
    schemas = {
        name: json_schema(model, "serialization" if issubclass(model, WireResponse) else "validation")
        for name, model in named.items()
    }
    for route in ROUTES:
        if route.body is not None:
            schemas[route.body.__name__] |= route.rules
    for tool in tools.values():
        schemas[tool.request.__name__] = {**tool.input_schema, **_choice(tool)}
        schemas[tool.response.__name__] = tool.output_schema
    return schemas


def _choice(tool: Tool[Any]) -> Schema:
    """That exactly one of some fields must be there, and not null."""
    fields = [tool.request.model_fields[name].alias or name for name in tool.request.exactly_one_of]
    types = {field: tool.input_schema["properties"][field].get("type", "string") for field in fields}
    ways = [{"required": [field], "properties": {field: {"type": type_}}} for field, type_ in types.items()]
    return {"oneOf": ways} if ways else {}


def _error(status: int) -> Schema:
    description, sentence = _ERRORS[status]
    example: dict[str, Any] = {"error": sentence, "code": CODES[status], "requestId": "5f0c1d8e7a6b4c3d2e1f0a9b"}
    if status == 400:
        example["details"] = [{"field": "query", "message": sentence}]
    if status >= 500:
        example |= {"fallback": True, "fallbackLevel": 3}
    response = _answer(_ref("Error"), description, example=example)
    if status in {429, 503}:
        response["headers"] = {**ID_HEADER, "Retry-After": {"$ref": "#/components/headers/RetryAfter"}}
    return response


def _tool_paths(tools: Registry) -> dict[str, Any]:
    schema = {"type": "object", "description": "JSON Schema 2020-12"}
    fields = {"name": _TEXT, "description": _TEXT, "inputSchema": schema, "outputSchema": schema}
    tool_schema = {"type": "object", "required": [*fields], "properties": fields}
    listing = {
        "type": "object",
        "required": ["tools"],
        "properties": {"tools": {"type": "array", "items": tool_schema}},
    }
    listed = _operation("List the tools", "tools", "list_tools", _answer(listing, "The tools"), READING)
    paths: dict[str, Any] = {"/tools": {"get": listed}}
    for tool in tools.values():
        paths[f"/tools/{tool.name}"] = {"post": _post(tool)}
        if tool.in_url:
            answer = _answer(_ref(tool.response.__name__), "The answer")
            paths[f"/tools/{tool.name}"]["get"] = _operation(
                tool.title,
                "tools",
                f"get_{tool.name}",
                answer,
                (400, *READING),
                tool.description,
                parameters=[
                    _parameter(name, "query", schema, description=schema.get("description", ""))
                    for name, schema in tool.input_schema.get("properties", {}).items()
                ],
            )
    return paths


def _post(tool: Tool[Any]) -> Operation:
    may_miss = tool.names_one or "project" in tool.input_schema["properties"]
    may_conflict = tool.may_conflict or tool.needs_project or tool.toolset is Toolset.COLLECTIONS
    operation = _operation(
        tool.title,
        "tools",
        tool.name,
        _answer(_ref(tool.response.__name__), "The answer"),
        (*WRITING, *((404,) if may_miss else ()), *((409,) if may_conflict else ())),
        " ".join([tool.description, *_needed(tool)]),
        requestBody=_body(_ref(tool.request.__name__), dict(tool.example), required=not tool.may_be_empty),
    )
    if "strict" in tool.request.model_fields:
        for status in (429, 503):
            response = operation["responses"][str(status)] = _error(status)
            response["description"] += "; also what a strict search answers when nothing could be searched"
            response["content"]["application/json"]["schema"] = {"anyOf": [_ref("SearchFailure"), _ref("Error")]}
    return operation


def _needed(operation: Declared[Any, Any]) -> list[str]:
    may = {Access.READ: None, Access.ADD: "may add", Access.WRITE: "may write", Access.ADMIN: "has the access admin"}[
        operation.access
    ]
    return [] if may is None else [f"Needs a key that {may}, where keys are set."]


def _collection_paths(options: ServerOptions) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _described(route, options)
    return paths


def _described(route: Route[Any], options: ServerOptions) -> Operation:
    operation, name = route.operation, route.operation.response.__name__
    description = [route.description or operation.description]
    if route.is_large:
        description.append(f"At most {options.collection_body_bytes} bytes.")
    described = _operation(
        operation.title,
        route.tag,
        route.operation_id,
        _answer(_ref(name), (operation.response.__doc__ or "The answer").split("\n")[0]),
        route.errors,
        " ".join([*description, *_needed(operation)]),
        parameters=_parameters(route),
    )
    described["responses"][str(route.status)] = described["responses"].pop("200")
    if route.body is not None:
        example = dict(route.body_example)
        described["requestBody"] = _body(_ref(route.body.__name__), example, required=route.body_required)
    return described


def _parameters(route: Route[Any]) -> list[Schema]:
    query = json_schema(route.query, "validation")
    required = query.get("required", ())
    return [
        *(_in_path(route, position) for position, step in enumerate(route.steps) if step.startswith("{")),
        *(
            _parameter(name, "query", schema, required=name in required, description=schema.get("description", ""))
            for name, schema in query.get("properties", {}).items()
        ),
    ]


def _in_path(route: Route[Any], position: int) -> Schema:
    """A name in the address; it cannot be what another address spells out in its place."""
    name = route.steps[position].strip("{}")
    schema = dict(route.operation.input_schema["properties"][name])
    description = schema.pop("description")
    others = [
        other.steps[position]
        for other in ROUTES
        if other.steps[:position] == route.steps[:position] and other.steps[position:]
    ]
    reserved = [step for step in dict.fromkeys(others) if not step.startswith("{")]
    if reserved:
        schema["not"] = {"enum": [*reserved, *DOTS]}
    return _parameter(name, "path", schema, required=True, description=f"{description}, percent-encoded")


def _written(options: ServerOptions) -> dict[str, Any]:
    """The addresses that no operation declares, as `openapi.yaml` has them."""
    file = resources.files("rag_context.server").joinpath("openapi.yaml")
    values = {"{bulk_line_bytes}": options.bulk_line_bytes, "{max_watchers}": MAX_WATCHERS}
    text = re.sub("|".join(map(re.escape, values)), lambda match: str(values[match[0]]), file.read_text("utf-8"))
    paths: dict[str, Any] = yaml.safe_load(text)
    for methods in paths.values():
        for method, parts in methods.items():
            methods[method] = _operation(
                parts["summary"],
                *(parts["tags"][0], parts["operationId"], _with_id(parts["answer"]), parts["errors"]),
                parts.get("description", ""),
                **{name: parts[name] for name in ("requestBody", "parameters") if name in parts},
            )
            for status, response in parts.get("responses", {}).items():
                methods[method]["responses"][status] = _with_id(response)
    for path in ("/v1/embeddings", "/v1/models", "/v1/models/{name}"):
        for operation in paths[path].values():
            for status in operation["responses"].keys() - {"200"}:
                operation["responses"][status] = _openai_error(int(status))
    fields = json_schema(StatsRequest, "validation")["properties"]
    events = [_parameter(name, "query", schema) for name, schema in fields.items()]
    paths["/events"]["get"]["parameters"] = events
    if options.api_keys:
        report = paths["/health"]["get"]["responses"]["200"]["content"]["application/json"]
        report["schema"] = {"anyOf": [report["schema"], _ref("BareHealth")]}
        for path in (*OPEN_PATHS, "/page/{name}"):
            paths[path]["get"]["security"] = [{}, {"bearer": []}, {"key": []}]
    return paths


def _openai_error(status: int) -> Schema:
    response = _error(status)
    example = response["content"]["application/json"]["example"]
    failure = OpenAiErrorResponse.of(status, ErrorResponse.model_validate(example))
    response["content"] = _answer(_ref("OpenAiError"), "", example=json.loads(failure.to_json()))["content"]
    return response
