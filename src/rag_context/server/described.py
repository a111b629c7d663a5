"""The pieces that descriptions of operations are made of."""

from typing import Any

from rag_context.api.schema import Schema

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
