"""Messages of the protocol as bytes: what the library would misread or pass over is found and answered before it.

Of a key that an object has twice the library takes the last one. A request whose id is no id it takes for a
notification, which is never answered. Bytes that are no message it drops, or answers with its validator's report.
"""

import json
from typing import Any

import mcp_types as types

from rag_context.api.parsing import repeated_keys
from rag_context.server.mcp.handshake import BATCHING, UNBATCHED

_CLIENT_CHARS = 64


class InvalidMessageError(Exception):
    """These bytes are not one valid message; `response` is the answer to them."""

    def __init__(self, response: types.JSONRPCError) -> None:
        super().__init__(response.error.message)
        self.response = response


def read_message(line: bytes) -> types.JSONRPCMessage:
    """The message in these bytes, whatever its method. Raises: InvalidMessageError."""
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        raise InvalidMessageError(_problem(line)) from None
    try:
        is_ambiguous = bool(repeated_keys(line))
    except (ValueError, RecursionError):
        is_ambiguous = False
    if is_ambiguous or (isinstance(message, types.JSONRPCNotification) and _has_id(line)):
        raise InvalidMessageError(_problem(line))
    return message


def named_client(message: types.JSONRPCMessage) -> str | None:
    match message:
        case types.JSONRPCRequest(params={"clientInfo": {"name": str() as name}}):
            return client_name(name)
    return None


def client_name(name: str) -> str | None:
    """A program's name as one that an agent may have; None where nothing is left of it."""
    return "".join(filter(str.isprintable, name)).strip()[:_CLIENT_CHARS] or None


def negotiable(line: bytes) -> bytes:
    """The same message; an `initialize` for the revision with batches requests the one before it instead."""
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


def line_of(message: types.JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def _has_id(notification: bytes) -> bool:
    """Whether what looks like a notification has an id, which then is neither a text nor a whole number."""
    if b'"id"' not in notification:
        return False
    try:
        return "id" in json.loads(notification)
    except (ValueError, RecursionError):
        return False


def _problem(line: bytes) -> types.JSONRPCError:
    """What is wrong with these bytes; it names the request where it can be recognised."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return _error(types.PARSE_ERROR, "Parse error: not one JSON-RPC message in UTF-8")
    if isinstance(value, list):
        return _error(types.INVALID_REQUEST, "Batches are not supported: send one message at a time")
    id_ = value.get("id") if isinstance(value, dict) else None
    if not isinstance(id_, str | int) or isinstance(id_, bool):
        id_ = None
    if repeated := repeated_keys(line):
        sentence = f"An object in this message has a key twice: {', '.join(repeated)}"
        return _error(types.INVALID_REQUEST, sentence, id_)
    return _error(
        types.INVALID_REQUEST,
        'Not a JSON-RPC 2.0 message: jsonrpc is "2.0", id a string or whole number, method a string, params an object',
        id_,
    )


def _error(code: int, sentence: str, id_: Any = None) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=id_, error=types.ErrorData(code=code, message=sentence))
