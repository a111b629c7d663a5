"""OpenAPI 3.1, made from the registry and the wire models."""

import json
from collections.abc import Mapping
from typing import Any

from rag_context.api.embeddings import EmbeddingsRequest, EmbeddingsResponse, Model, ModelsResponse, OpenAiErrorResponse
from rag_context.api.index import BulkLine, BulkReceipt, VersionsRequest, VersionsResponse
from rag_context.api.maintenance import BareHealth, StatsRequest
from rag_context.api.operations import Access
from rag_context.api.operations import Operation as Declared
from rag_context.api.operations.routes import ROUTES, Route
from rag_context.api.parsing import ErrorCode, ErrorResponse
from rag_context.api.search import SearchFailure
from rag_context.api.toolsets import Toolset
from rag_context.api.wire import DOTS, Schema, json_schema
from rag_context.server.middleware import OPEN_PATHS
from rag_context.server.options import ServerOptions
from rag_context.server.pages import EVENTS_PATH, MAX_WATCHERS, PAGE_PREFIX
from rag_context.server.tools import Registry, Tool

Operation = dict[str, Any]

READING = (401, 403, 429, 500, 503)
WRITING = (400, 401, 403, 408, 413, 415, 429, 500, 503)
ID_HEADER = {"X-Request-ID": {"$ref": "#/components/headers/RequestId"}}


def operation_of(
    summary: str, tag: str, name: str, success: Schema, errors: tuple[int, ...], description: str = ""
) -> Operation:
    """An operation that answers 200, or with one of the errors."""
    responses = {"200": success, **{str(status): {"$ref": f"#/components/responses/{status}"} for status in errors}}
    return {
        "operationId": name,
        "summary": summary,
        "description": description or summary,
        "tags": [tag],
        "responses": responses,
    }


def json_answer(schema: Schema, description: str) -> Schema:
    """An answer of JSON."""
    return {"description": description, "headers": ID_HEADER, "content": {"application/json": {"schema": schema}}}


def body_of(schema: Schema, example: Any, *, required: bool = True, kind: str = "application/json") -> Schema:
    """What a request brings."""
    return {"required": required, "content": {kind: {"schema": schema, "example": example}}}


def ref(name: str) -> Schema:
    """A schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def collection_schemas() -> Schema:
    """The shapes of requests and answers by name."""
    schemas = {}
    for route in ROUTES:
        response = route.operation.response
        schemas[response.__name__] = json_schema(response, "serialization")
        if route.body is not None:
            schemas[route.body.__name__] = {**json_schema(route.body, "validation"), **route.rules}
    return schemas


def collection_paths(options: ServerOptions) -> dict[str, Any]:
    """Every address of collections and providers."""
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _described(route, options)
    return paths


def _described(route: Route[Any], options: ServerOptions) -> Operation:
    operation = route.operation
    summary = (operation.response.__doc__ or "The answer").split("\n")[0]
    answer = json_answer(ref(operation.response.__name__), summary)
    described = operation_of(
        operation.title, route.tag, route.operation_id, answer, route.errors, _description(route, options)
    )
    described["responses"][str(route.status)] = described["responses"].pop("200")
    described["parameters"] = _parameters(route)
    if route.body is not None:
        schema = ref(route.body.__name__)
        described["requestBody"] = body_of(schema, dict(route.body_example), required=route.body_required)
    return described


def _description(route: Route[Any], options: ServerOptions) -> str:
    parts = [route.description or route.operation.description]
    if route.is_large:
        parts.append(f"At most {options.collection_body_bytes} bytes.")
    parts += _needed(route.operation)
    return " ".join(parts)


def _needed(operation: Declared[Any, Any]) -> list[str]:
    """What key an operation needs, as a sentence."""
    may = {Access.READ: None, Access.WRITE: "may write", Access.ADMIN: "has the access admin"}[operation.access]
    return [] if may is None else [f"Needs a key that {may}, where keys are set."]


def _parameters(route: Route[Any]) -> list[Schema]:
    query = json_schema(route.query, "validation")
    required = query.get("required", ())
    return [
        *(_in_path(route, position) for position, step in enumerate(route.steps) if step.startswith("{")),
        *(
            _parameter(name, "query", schema, schema.get("description", ""), required=name in required)
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
    return _parameter(name, "path", schema, f"{description}, percent-encoded", required=True)


def _parameter(name: str, where: str, schema: Schema, description: str, *, required: bool) -> Schema:
    return {"name": name, "in": where, "required": required, "description": description, "schema": schema}


def operation_paths(options: ServerOptions) -> dict[str, Any]:
    """Every address of health, metrics, pages and events."""
    text = {"type": "string"}
    alive = {"type": "object", "properties": {"status": text, "instance": text, "version": text, "proof": text}}
    ready = {"type": "object", "properties": {"status": text}}
    health = ref("HealthResponse")
    if options.api_keys:
        health = {"anyOf": [ref("HealthResponse"), ref("BareHealth")]}
    described = {
        "/health": (
            "How the system is; 200 also when degraded",
            json_answer(health, "The report"),
            (401, 403, 429, 500, 503),
        ),
        "/live": ("Whether the process answers", json_answer(alive, "It does"), (401, 403)),
        "/ready": ("Whether searches can be answered", json_answer(ready, "They can"), (401, 403, 500, 503)),
        "/metrics": ("Metrics in Prometheus' text format", _plain("text/plain", "The metrics"), READING),
        "/openapi.json": ("This document", json_answer({"type": "object"}, "OpenAPI 3.1"), READING),
        "/docs": ("This document, for people", _plain("text/html", "A page"), (401, 403, 429, 503)),
        "/": ("The page that shows the memory", _plain("text/html", "A page"), (401, 403, 429, 503)),
    }
    paths: dict[str, Any] = {}
    for path, (summary, success, errors) in described.items():
        name = path.strip("/").replace(".", "_") or "home"
        operation = operation_of(summary, "operation", name, success, errors)
        if path in OPEN_PATHS and options.api_keys:
            operation["security"] = [{}, {"bearer": []}, {"key": []}]
        paths[path] = {"get": operation}
    return paths | _page_paths(options)


def _page_paths(options: ServerOptions) -> dict[str, Any]:
    part = operation_of(
        "A script, style or picture of the page",
        "operation",
        "page_part",
        _plain("*/*", "The file"),
        (404, 403, 429, 503),
    )
    part["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    part["responses"]["304"] = {"description": "It has not changed", "headers": ID_HEADER}
    if options.api_keys:
        part["security"] = [{}, {"bearer": []}, {"key": []}]
    events = operation_of(
        "The state of the memory as server-sent events",
        "operation",
        "events",
        _plain("text/event-stream", "Events named state, with JSON: health, stats and latest, as those tools answer"),
        (400, *READING, 503),
        f"One at once and one whenever something changed, looked at every second, for at most {MAX_WATCHERS} clients.",
    )
    fields = json_schema(StatsRequest, "validation")["properties"]
    events["parameters"] = [{"name": name, "in": "query", "schema": schema} for name, schema in fields.items()]
    return {f"{PAGE_PREFIX}{{name}}": {"get": part}, EVENTS_PATH: {"get": events}}


def _plain(media_type: str, description: str) -> Schema:
    return {"description": description, "headers": ID_HEADER, "content": {media_type: {"schema": {"type": "string"}}}}


_ERRORS: Mapping[int, tuple[ErrorCode, str, str]] = {
    400: (ErrorCode.INVALID_INPUT, "The request is wrong; details name every field at fault", "Query cannot be empty"),
    401: (ErrorCode.UNAUTHORIZED, "No valid API key", "API key not valid"),
    403: (ErrorCode.FORBIDDEN, "Host, Origin or key may not do this", "This API key may only read"),
    404: (ErrorCode.NOT_FOUND, "No such thing", "Tool rag_context_find not found"),
    405: (ErrorCode.METHOD_NOT_ALLOWED, "Another method is needed; Allow names it", "Method not allowed"),
    409: (ErrorCode.CONFLICT, "It is there already, or no project is active", "Collection 'handbook' already exists"),
    408: (ErrorCode.REQUEST_TIMEOUT, "The body took too long to arrive", "Request body took too long"),
    413: (ErrorCode.PAYLOAD_TOO_LARGE, "The body is too large", "Request body too large (max 1048576 bytes)"),
    415: (ErrorCode.UNSUPPORTED_MEDIA_TYPE, "The body is not of the right kind", "Send Content-Type: application/json"),
    429: (ErrorCode.RATE_LIMITED, "Too many requests; Retry-After says when to ask again", "Too many requests"),
    500: (ErrorCode.INTERNAL_ERROR, "A fault of ours; go on without context", "Internal server error"),
    503: (
        ErrorCode.SERVICE_UNAVAILABLE,
        "A part is down, or (OVERLOADED) there is too much to do; see Retry-After",
        "Database unavailable",
    ),
}
_TAGS = ("tools", "bulk", "mcp", "collections", "providers", "embeddings", "operation")


def build_openapi(tools: Registry, options: ServerOptions, version: str) -> Schema:
    """The description of every route of this server."""
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
            "/bulk": {"post": _bulk(options)},
            "/bulk/versions": {"post": _versions()},
            "/mcp": {"post": _mcp(), "delete": _mcp_end()},
            **collection_paths(options),
            **_embedding_paths(),
            **operation_paths(options),
        },
        "components": {
            "schemas": _schemas(tools, options),
            "responses": {str(status): _error(status) for status in _ERRORS},
            "headers": {
                "RequestId": {"description": "Correlation id of the request", "schema": {"type": "string"}},
                "RetryAfter": {"description": "Seconds to wait", "schema": {"type": "string"}},
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


def _schemas(tools: Registry, options: ServerOptions) -> Schema:
    schemas: Schema = {
        "Error": json_schema(ErrorResponse, "serialization"),
        "SearchFailure": json_schema(SearchFailure, "serialization"),
        "BareHealth": json_schema(BareHealth, "serialization"),
        "BulkLine": json_schema(BulkLine.with_vocabulary(options.vocabulary), "validation"),
        "BulkReceipt": json_schema(BulkReceipt, "serialization"),
        "VersionsRequest": json_schema(VersionsRequest, "validation"),
        "VersionsResponse": json_schema(VersionsResponse, "serialization"),
        "EmbeddingsRequest": json_schema(EmbeddingsRequest, "validation"),
        "EmbeddingsResponse": json_schema(EmbeddingsResponse, "serialization"),
        "ModelsResponse": json_schema(ModelsResponse, "serialization"),
        "Model": json_schema(Model, "serialization"),
        "OpenAiError": json_schema(OpenAiErrorResponse, "serialization"),
        **collection_schemas(),
    }
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


def _tool_paths(tools: Registry) -> dict[str, Any]:
    listing = {
        "type": "object",
        "required": ["tools"],
        "properties": {"tools": {"type": "array", "items": _tool_schema()}},
    }
    paths: dict[str, Any] = {
        "/tools": {
            "get": operation_of("List the tools", "tools", "list_tools", json_answer(listing, "The tools"), READING)
        }
    }
    for tool in tools.values():
        paths[f"/tools/{tool.name}"] = {"post": _post(tool)}
        if tool.in_url:
            paths[f"/tools/{tool.name}"]["get"] = _get(tool)
    return paths


def _tool_schema() -> Schema:
    schema = {"type": "object", "description": "JSON Schema 2020-12"}
    return {
        "type": "object",
        "required": ["name", "description", "inputSchema", "outputSchema"],
        "properties": {
            "name": {"type": "string"},
            "description": {"type": "string"},
            "inputSchema": schema,
            "outputSchema": schema,
        },
    }


def _post(tool: Tool[Any]) -> Operation:
    may_miss = tool.names_one or "project" in tool.input_schema["properties"]
    may_conflict = tool.may_conflict or tool.needs_project or tool.toolset is Toolset.COLLECTIONS
    errors = (*WRITING, *((404,) if may_miss else ()), *((409,) if may_conflict else ()))
    operation = operation_of(
        tool.title, "tools", tool.name, json_answer(ref(tool.response.__name__), "The answer"), errors, tool.description
    )
    schema = ref(tool.request.__name__)
    operation["requestBody"] = body_of(schema, dict(tool.example), required=not tool.may_be_empty)
    if "strict" in tool.request.model_fields:
        for status in (429, 503):
            response = operation["responses"][str(status)] = _error(status)
            response["description"] += "; also what a strict search answers when nothing could be searched"
            response["content"]["application/json"]["schema"] = {"anyOf": [ref("SearchFailure"), ref("Error")]}
    operation["description"] = " ".join([operation["description"], *_needed(tool)])
    return operation


def _get(tool: Tool[Any]) -> Operation:
    operation = operation_of(
        tool.title,
        "tools",
        f"get_{tool.name}",
        json_answer(ref(tool.response.__name__), "The answer"),
        (400, *READING),
        tool.description,
    )
    operation["parameters"] = [
        {"name": name, "in": "query", "schema": schema, "description": schema.get("description", "")}
        for name, schema in tool.input_schema.get("properties", {}).items()
    ]
    return operation


def _bulk(options: ServerOptions) -> Operation:
    example = '{"content":"...","contentType":"code","sessionId":"files","source":"/src/a.py","fromFile":true}\n'
    receipts = {
        "description": "One receipt a line, in the order of the lines; a bad line never stops the rest",
        "headers": ID_HEADER,
        "content": {
            "application/x-ndjson": {
                "schema": {"type": "string", "description": "Lines of BulkReceipt"},
                "example": '{"status":"indexed","line":1,"source":"/src/a.py","chunksIndexed":3}\n',
            }
        },
    }
    operation = operation_of(
        "Index a stream of documents",
        "bulk",
        "bulk",
        receipts,
        (401, 403, 415, 429, 500, 503),
        f"NDJSON, each line a BulkLine of at most {options.bulk_line_bytes} bytes; the stream may be of any length.",
    )
    operation["requestBody"] = body_of({"type": "string"}, example, kind="application/x-ndjson")
    return operation


def _versions() -> Operation:
    operation = operation_of(
        "Ask which documents are stored as they were",
        "bulk",
        "bulk_versions",
        json_answer(ref("VersionsResponse"), "Those that are not"),
        WRITING,
        "Takes the documentId and contentHash of earlier receipts, so that a large folder need not be sent again.",
    )
    example = {"versions": {"0b1e7a52-5f0e-5d0e-9c5b-2f6f0a3b8d41": "9f86d081884c7d65"}}
    operation["requestBody"] = body_of(ref("VersionsRequest"), example)
    return operation


def _mcp() -> Operation:
    identifier = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    message: Schema = {
        "type": "object",
        "required": ["jsonrpc", "method"],
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": identifier,
            "method": {"type": "string"},
            "params": {"type": ["object", "null"]},
        },
    }
    answer: Schema = {"type": "object", "required": ["jsonrpc"], "properties": {"jsonrpc": {"const": "2.0"}}}
    operation = operation_of(
        "Model Context Protocol",
        "mcp",
        "mcp",
        json_answer(answer, "A result or an error of the protocol; a stream where the caller asks for progress"),
        (401, 403, 408, 413, 415, 429, 500, 503),
        "Streamable HTTP: the same tools, documents as resources, and prompts. Clients send Accept: "
        "application/json, text/event-stream.",
    )
    operation["requestBody"] = body_of(message, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    operation["responses"]["202"] = {"description": "A notification was accepted", "headers": ID_HEADER}
    operation["responses"]["400"] = json_answer(
        answer, "Not a message of the protocol, or one that its revision rejects"
    )
    operation["responses"]["404"] = json_answer(answer, "The revision has no such method, or the session has ended")
    operation["responses"]["406"] = {"description": "The answer is JSON", "headers": ID_HEADER}
    return operation


def _mcp_end() -> Operation:
    operation = operation_of(
        "End a session of the Model Context Protocol",
        "mcp",
        "mcp_end",
        {"description": "The session has ended", "headers": ID_HEADER},
        (400, 401, 403, 429, 500, 503),
    )
    session: Schema = {"type": "string", "pattern": "^[!-~]+$"}
    operation["parameters"] = [{"name": "Mcp-Session-Id", "in": "header", "required": True, "schema": session}]
    operation["responses"]["404"] = json_answer({"type": "object"}, "There is no such session")
    return operation


def _embedding_paths() -> dict[str, Any]:
    embed = operation_of(
        "Embed texts",
        "embeddings",
        "embeddings",
        json_answer(ref("EmbeddingsResponse"), "The vectors, each of length 1"),
        (404, *WRITING),
        "In the shapes of OpenAI's API, errors too, with the model that made the index. The name of another model is "
        "404; 503 while the model loads.",
    )
    example = {"input": ["mongodb connection retry logic"], "encoding_format": "float"}
    embed["requestBody"] = body_of(ref("EmbeddingsRequest"), example)
    models = operation_of(
        "The embedding model", "embeddings", "models", json_answer(ref("ModelsResponse"), "The models"), READING
    )
    model = operation_of(
        "The embedding model by its name",
        "embeddings",
        "model",
        json_answer(ref("Model"), "The model"),
        (404, *READING),
    )
    model["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    for operation in (embed, models, model):
        for status in operation["responses"].keys() - {"200"}:
            operation["responses"][status] = _openai_error(int(status))
    return {"/v1/embeddings": {"post": embed}, "/v1/models": {"get": models}, "/v1/models/{name}": {"get": model}}


def _openai_error(status: int) -> Schema:
    response = _error(status)
    content = response["content"]["application/json"]
    failure = OpenAiErrorResponse.of(status, ErrorResponse.model_validate(content["example"]))
    response["content"] = {"application/json": {"schema": ref("OpenAiError"), "example": json.loads(failure.to_json())}}
    return response


def _error(status: int) -> Schema:
    code, description, sentence = _ERRORS[status]
    example: dict[str, Any] = {"error": sentence, "code": code, "requestId": "5f0c1d8e7a6b4c3d2e1f0a9b"}
    if code is ErrorCode.INVALID_INPUT:
        example["details"] = [{"field": "query", "message": sentence}]
    headers: Schema = dict(ID_HEADER)
    if status >= 500:
        example |= {"fallback": True, "fallbackLevel": 3}
    if status in {429, 503}:
        headers["Retry-After"] = {"$ref": "#/components/headers/RetryAfter"}
    return {
        "description": description,
        "headers": headers,
        "content": {"application/json": {"schema": ref("Error"), "example": example}},
    }
