"""What OpenAPI says of the addresses beside the tools: collections and providers, and looking after a server."""

from typing import Any

from rag_context.api.maintenance import StatsRequest
from rag_context.api.operations import Access
from rag_context.api.operations.routes import ROUTES, Route
from rag_context.api.wire import DOTS, Schema, json_schema
from rag_context.server.middleware import OPEN_PATHS
from rag_context.server.options import ServerOptions
from rag_context.server.pages import EVENTS_PATH, MAX_WATCHERS, PAGE_PREFIX

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
        content = {"schema": ref(route.body.__name__), "example": dict(route.body_example)}
        described["requestBody"] = {"required": route.body_required, "content": {"application/json": content}}
    return described


def _description(route: Route[Any], options: ServerOptions) -> str:
    parts = [route.description or route.operation.description]
    if route.is_large:
        parts.append(f"At most {options.collection_body_bytes} bytes.")
    if route.operation.access is Access.WRITE:
        parts.append("Needs a key that may write, where keys are set.")
    return " ".join(parts)


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
