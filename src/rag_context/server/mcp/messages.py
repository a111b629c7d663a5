"""Messages that are none, and what to say of them."""

import json
from typing import Any

import mcp_types as types

from rag_context.api.reading import repeated_keys
from rag_context.server.mcp.handshake import BATCHING, UNBATCHED


def parse_error(line: bytes) -> types.JSONRPCError:
    """The answer to bytes that are no message; it names the request where that can be told."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return _error(types.PARSE_ERROR, "Parse error: not one JSON-RPC message in UTF-8")
    if isinstance(value, list):
        return _error(types.INVALID_REQUEST, "Batches are not supported: send one message at a time")
    id_ = value.get("id") if isinstance(value, dict) else None
    if repeated := repeated_keys(line):
        sentence = f"An object in this message has a key twice: {', '.join(repeated)}"
        return _error(types.INVALID_REQUEST, sentence, id_ if _is_id(id_) else None)
    return _error(
        types.INVALID_REQUEST,
        'Not a JSON-RPC 2.0 message: jsonrpc is "2.0", id a string or whole number, method a string, params an object',
        id_ if _is_id(id_) else None,
    )


def negotiable(line: bytes) -> bytes:
    """The same message; an `initialize` for the revision with batches asks for the one before it instead."""
    if BATCHING.encode() not in line or b'"initialize"' not in line:
        return line
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return line
    match message:
        case {"method": "initialize", "params": {"protocolVersion": str() as version}} if version == BATCHING:
            message["params"]["protocolVersion"] = UNBATCHED
            return json.dumps(message).encode()
    return line


def oversized() -> types.JSONRPCError:
    """The answer to a message that was not read to its end."""
    return _error(types.INVALID_REQUEST, "Message too large")


def is_message(line: bytes) -> bool:
    """Whether these bytes are one message of the protocol, whatever it asks for."""
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return False
    return not (isinstance(message, types.JSONRPCNotification) and has_bad_id(line))


def has_repeated_key(line: bytes) -> bool:
    """Whether an object in this JSON has a key twice, of which the library would take the last."""
    try:
        return bool(repeated_keys(line))
    except (ValueError, RecursionError):
        return False


def has_bad_id(line: bytes) -> bool:
    """Whether this is a request whose id is none, which the library takes for a notification and never answers."""
    if b'"id"' not in line:
        return False
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "id" in value and "method" in value and not _is_id(value["id"])


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _error(code: int, sentence: str, id_: types.RequestId | None = None) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=id_, error=types.ErrorData(code=code, message=sentence))
