"""What OpenAPI says of looking after a server: health, metrics, pages and events."""

from typing import Any

from rag_context.api.maintenance import StatsRequest
from rag_context.api.wire import Schema, json_schema
from rag_context.server.events import EVENTS_PATH, MAX_WATCHERS
from rag_context.server.openapi_collections import ID_HEADER, READING, json_answer, operation_of, ref
from rag_context.server.options import ServerOptions
from rag_context.server.pages import PAGE_PREFIX


def operation_paths(options: ServerOptions) -> dict[str, Any]:
    """Their addresses."""
    text = {"type": "string"}
    alive = {"type": "object", "properties": {"status": text, "instance": text, "version": text}}
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
    open_paths = {"/health", "/live", "/ready", "/docs", "/"}
    paths: dict[str, Any] = {}
    for path, (summary, success, errors) in described.items():
        name = path.strip("/").replace(".", "_") or "home"
        operation = operation_of(summary, "operation", name, success, errors)
        if path in open_paths and options.api_keys:
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
