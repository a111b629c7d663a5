"""OpenAPI 3.1, made from the registry and the wire models."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

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
from rag_context.server.pages import EVENTS_PATH, MAX_WATCHERS, PAGE_PREFIX
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
            **_collection_paths(options),
            **_embedding_paths(),
            **_operation_paths(options),
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


def _answer(schema: Schema, description: str, media_type: str = "application/json", **more: Any) -> Schema:
    content = {media_type: {"schema": schema, **more}}
    return {"description": description, "headers": ID_HEADER, "content": content}


def _body(schema: Schema, example: Any, *, required: bool = True, media_type: str = "application/json") -> Schema:
    return {"required": required, "content": {media_type: {"schema": schema, "example": example}}}


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


def _bulk(options: ServerOptions) -> Operation:
    example = '{"content":"...","contentType":"code","sessionId":"files","source":"/src/a.py","fromFile":true}\n'
    receipts = _answer(
        {"type": "string", "description": "Lines of BulkReceipt"},
        "One receipt a line, in the order of the lines; a bad line never stops the rest",
        "application/x-ndjson",
        example='{"status":"indexed","line":1,"source":"/src/a.py","chunksIndexed":3}\n',
    )
    return _operation(
        "Index a stream of documents",
        "bulk",
        "bulk",
        receipts,
        (401, 403, 415, 429, 500, 503),
        f"NDJSON, each line a BulkLine of at most {options.bulk_line_bytes} bytes; the stream may be of any length.",
        requestBody=_body(_TEXT, example, media_type="application/x-ndjson"),
    )


def _versions() -> Operation:
    example = {"versions": {"0b1e7a52-5f0e-5d0e-9c5b-2f6f0a3b8d41": "9f86d081884c7d65"}}
    return _operation(
        "Ask which documents are stored as they were",
        "bulk",
        "bulk_versions",
        _answer(_ref("VersionsResponse"), "Those that are not"),
        WRITING,
        "Takes the documentId and contentHash of earlier receipts, so that a large folder need not be sent again.",
        requestBody=_body(_ref("VersionsRequest"), example),
    )


def _mcp() -> Operation:
    fields = {
        "jsonrpc": {"const": "2.0"},
        "id": {"anyOf": [_TEXT, {"type": "integer"}]},
        "method": _TEXT,
        "params": {"type": ["object", "null"]},
    }
    message: Schema = {"type": "object", "required": ["jsonrpc", "method"], "properties": fields}
    answer: Schema = {"type": "object", "required": ["jsonrpc"], "properties": {"jsonrpc": {"const": "2.0"}}}
    operation = _operation(
        "Model Context Protocol",
        "mcp",
        "mcp",
        _answer(answer, "A result or an error of the protocol; a stream where the caller asks for progress"),
        (401, 403, 408, 413, 415, 429, 500, 503),
        "Streamable HTTP: the same tools, documents as resources, and prompts. Clients send Accept: "
        "application/json, text/event-stream.",
        requestBody=_body(message, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    )
    operation["responses"] |= {
        "202": {"description": "A notification was accepted", "headers": ID_HEADER},
        "400": _answer(answer, "Not a message of the protocol, or one that its revision rejects"),
        "404": _answer(answer, "The revision has no such method, or the session has ended"),
        "406": {"description": "The answer is JSON", "headers": ID_HEADER},
    }
    return operation


def _mcp_end() -> Operation:
    session = {"type": "string", "pattern": "^[!-~]+$"}
    operation = _operation(
        "End a session of the Model Context Protocol",
        "mcp",
        "mcp_end",
        {"description": "The session has ended", "headers": ID_HEADER},
        (400, 401, 403, 429, 500, 503),
        parameters=[_parameter("Mcp-Session-Id", "header", session, required=True)],
    )
    operation["responses"]["404"] = _answer({"type": "object"}, "There is no such session")
    return operation


def _embedding_paths() -> dict[str, Any]:
    embed = _operation(
        "Embed texts",
        "embeddings",
        "embeddings",
        _answer(_ref("EmbeddingsResponse"), "The vectors, each of length 1"),
        (404, *WRITING),
        "In the shapes of OpenAI's API, errors too, with the model that made the index. The name of another model is "
        "404; 503 while the model loads.",
        requestBody=_body(
            _ref("EmbeddingsRequest"), {"input": ["mongodb connection retry logic"], "encoding_format": "float"}
        ),
    )
    listed, one = _answer(_ref("ModelsResponse"), "The models"), _answer(_ref("Model"), "The model")
    models = _operation("The embedding model", "embeddings", "models", listed, READING)
    name = _parameter("name", "path", _TEXT, required=True)
    model = _operation(
        "The embedding model by its name", "embeddings", "model", one, (404, *READING), parameters=[name]
    )
    for operation in (embed, models, model):
        for status in operation["responses"].keys() - {"200"}:
            operation["responses"][status] = _openai_error(int(status))
    return {"/v1/embeddings": {"post": embed}, "/v1/models": {"get": models}, "/v1/models/{name}": {"get": model}}


def _openai_error(status: int) -> Schema:
    response = _error(status)
    example = response["content"]["application/json"]["example"]
    failure = OpenAiErrorResponse.of(status, ErrorResponse.model_validate(example))
    response["content"] = _answer(_ref("OpenAiError"), "", example=json.loads(failure.to_json()))["content"]
    return response


def _operation_paths(options: ServerOptions) -> dict[str, Any]:
    alive = {"type": "object", "properties": dict.fromkeys(("status", "instance", "version", "proof"), _TEXT)}
    ready = {"type": "object", "properties": {"status": _TEXT}}
    health = _ref("HealthResponse")
    if options.api_keys:
        health = {"anyOf": [_ref("HealthResponse"), _ref("BareHealth")]}
    page, metrics = _answer(_TEXT, "A page", "text/html"), _answer(_TEXT, "The metrics", "text/plain")
    state = "Events named state, with JSON: health, stats and latest, as those tools answer"
    described = {
        "/health": ("How the system is; 200 also when degraded", _answer(health, "The report"), READING),
        "/live": ("Whether the process answers", _answer(alive, "It does"), (401, 403)),
        "/ready": ("Whether searches can be answered", _answer(ready, "They can"), (401, 403, 500, 503)),
        "/metrics": ("Metrics in Prometheus' text format", metrics, READING),
        "/openapi.json": ("This document", _answer({"type": "object"}, "OpenAPI 3.1"), READING),
        "/docs": ("This document, for people", page, (401, 403, 429, 503)),
        "/": ("The page that shows the memory", page, (401, 403, 429, 503)),
    }
    names = {path: path.strip("/").replace(".", "_") or "home" for path in described}
    paths = {
        path: {"get": _operation(summary, "operation", names[path], success, errors)}
        for path, (summary, success, errors) in described.items()
    }
    part = _operation(
        "A script, style or picture of the page",
        "operation",
        "page_part",
        _answer(_TEXT, "The file", "*/*"),
        (404, 403, 429, 503),
        parameters=[_parameter("name", "path", _TEXT, required=True)],
    )
    part["responses"]["304"] = {"description": "It has not changed", "headers": ID_HEADER}
    fields = json_schema(StatsRequest, "validation")["properties"]
    events = _operation(
        "The state of the memory as server-sent events",
        "operation",
        "events",
        _answer(_TEXT, state, "text/event-stream"),
        (400, *READING),
        f"One at once and one whenever something changed, looked at every second, for at most {MAX_WATCHERS} clients.",
        parameters=[_parameter(name, "query", schema) for name, schema in fields.items()],
    )
    page_path = f"{PAGE_PREFIX}{{name}}"
    paths |= {page_path: {"get": part}, EVENTS_PATH: {"get": events}}
    for path in (*OPEN_PATHS, page_path) if options.api_keys else ():
        paths[path]["get"]["security"] = [{}, {"bearer": []}, {"key": []}]
    return paths
