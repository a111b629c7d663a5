"""What goes wrong with Qdrant: exceptions of its client as our errors, over HTTP and gRPC."""

import json
import re

import grpc  # type: ignore[import-untyped]
import httpx
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from rag_context import errors

COMPONENT = "qdrant"

FAULTS = (
    ApiException,
    QdrantException,
    grpc.aio.AioRpcError,
    TimeoutError,
    AssertionError,
    ValidationError,
    json.JSONDecodeError,
    UnicodeDecodeError,
    PydanticSerializationError,
    UnicodeEncodeError,
)
"""What a call may raise where the server, the way to it or the text is at fault. The client asserts that an answer
has a result, and lets some answers that are no JSON through to its caller."""

_KEY_REJECTED = (
    "Qdrant rejected the key: check stores.qdrant_api_key (a connection's api_key) and that key's permissions."
)
_UNREADABLE = "Qdrant's answer cannot be read."
_LONGEST_REASON = 200

_UNAVAILABLE = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
    }
)
_KEY_CODES = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
_INVALID = frozenset({grpc.StatusCode.DATA_LOSS, grpc.StatusCode.UNIMPLEMENTED})


class NoCollectionError(errors.BackendRejectedError):
    """The collection does not exist on a running server; a write may create it again."""


class NoPointError(errors.BackendRejectedError):
    """A point that is to be changed does not exist."""


def backend_error(error: BaseException, collection: str) -> errors.BackendError:
    match error:
        case TimeoutError():
            return errors.BackendTimeoutError(COMPONENT, "Qdrant did not answer in time.")
        case ResponseHandlingException():
            return _broken(error.source)
        case UnexpectedResponse():
            return _rejected(error.status_code or 0, _reason(error.content), collection)
        case ResourceExhaustedResponse():
            return errors.BackendUnavailableError(
                COMPONENT,
                "Qdrant limits the rate of requests: try again later.",
                retry_after_s=float(error.retry_after_s),
            )
        case QdrantException():  # a Retry-After that is not a number of seconds
            return errors.BackendUnavailableError(COMPONENT, "Qdrant limits the rate of requests: try again later.")
        case grpc.aio.AioRpcError():
            return _failed_call(error, collection)
        case PydanticSerializationError() | UnicodeEncodeError():
            return errors.BackendRejectedError(COMPONENT, "Qdrant cannot store this text: it is not valid Unicode.")
        case AssertionError():
            return errors.BackendDataError(COMPONENT, "Qdrant's response has no result.")
        case _:
            return errors.BackendDataError(COMPONENT, _UNREADABLE)


def _broken(source: Exception) -> errors.BackendError:
    match source:
        case httpx.TimeoutException():
            return errors.BackendTimeoutError(COMPONENT, "Qdrant did not answer in time.")
        case httpx.RemoteProtocolError() if "without sending a response" not in str(source):
            return errors.BackendDataError(COMPONENT, "Qdrant's answer broke off, or is no HTTP.")
        case httpx.TransportError():
            return errors.BackendUnavailableError(COMPONENT, f"Qdrant cannot be reached ({type(source).__name__}).")
        case AttributeError():  # uvloop: a connection reset while it was made has no socket, which anyio reads
            return errors.BackendUnavailableError(COMPONENT, "Qdrant cannot be reached (reset).")
        case _:
            return errors.BackendDataError(COMPONENT, _UNREADABLE)


def _rejected(status: int, reason: str | None, collection: str) -> errors.BackendError:
    if status in (401, 403):
        return errors.BackendRejectedError(COMPONENT, _KEY_REJECTED)
    if status == 408:
        return errors.BackendTimeoutError(COMPONENT, "Qdrant gave up: it did not answer in the time it allows itself.")
    if status == 429 or status >= 500:
        return errors.BackendUnavailableError(COMPONENT, f"Qdrant answered {status}.")
    if reason is None:
        return errors.BackendDataError(COMPONENT, f"What answers at Qdrant's address ({status}) is no Qdrant.")
    if status == 404:
        return _missing(reason, collection)
    return errors.BackendRejectedError(COMPONENT, f"Qdrant rejected the request ({status}): {reason}.")


def _missing(reason: str, collection: str) -> errors.BackendError:
    """The error for what is missing: a collection that exists may still miss shards, aliases and snapshots."""
    if re.search(r"collection .*(doesn't|does not) exist", reason, re.IGNORECASE):
        return NoCollectionError(COMPONENT, f"Qdrant has no collection {collection!r}.")
    if re.search(r"\bpoints?\b", reason, re.IGNORECASE):
        return NoPointError(COMPONENT, f"Qdrant misses a point in {collection!r}: {reason}.")
    return errors.BackendUnavailableError(COMPONENT, f"Qdrant cannot serve {collection!r} now: {reason}.")


def _failed_call(error: grpc.aio.AioRpcError, collection: str) -> errors.BackendError:
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.BackendTimeoutError(COMPONENT, "Qdrant did not answer in time.")
    if code in _UNAVAILABLE:
        return errors.BackendUnavailableError(
            COMPONENT, f"Qdrant cannot be reached, or failed, over gRPC ({code.name})."
        )
    if code in _KEY_CODES:
        return errors.BackendRejectedError(COMPONENT, _KEY_REJECTED)
    if code is grpc.StatusCode.NOT_FOUND:
        return _missing(_short(error.details() or ""), collection)
    if code in _INVALID:
        return errors.BackendDataError(
            COMPONENT, f"What answers at Qdrant's gRPC port ({code.name}) is no Qdrant, or damaged."
        )
    return errors.BackendRejectedError(
        COMPONENT, f"Qdrant rejected the request ({code.name}): {_short(error.details() or '')}."
    )


def _reason(body: bytes) -> str | None:
    try:
        reason = json.loads(body)["status"]["error"]
    except (ValueError, TypeError, KeyError):
        return None
    return _short(reason) if isinstance(reason, str) else None


def _short(reason: str) -> str:
    return reason[:_LONGEST_REASON].rstrip(". ")
