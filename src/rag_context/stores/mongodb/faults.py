"""Maps the driver's errors to ours. The server's messages are never quoted: they may contain stored data."""

from collections.abc import Iterator
from contextlib import contextmanager

from bson.errors import BSONError
from pymongo.errors import (
    BulkWriteError,
    ConnectionFailure,
    DocumentTooLarge,
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    WaitQueueTimeoutError,
    WTimeoutError,
)
from pymongo.errors import ConfigurationError as DriverConfigurationError

from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendRejectedError,
    BackendTimeoutError,
    BackendUnavailableError,
)

COMPONENT = "mongodb"

INDEX_NOT_FOUND = 27
TIME_EXPIRED = 50

_UNKNOWN_USER = frozenset({11, 13, 18, 33, 8000})
_FULL = 14031
_TOO_LARGE = frozenset({10334, 17419, 17420})
_TRANSIENT = frozenset(
    {1, 6, 7, 8, 89, 91, 112, 189, 262, 317, 358, 462, 9001, 10058, 10107, 11600, 11602, 13388, 13435, 13436, 17280}
)
"""Codes with which a server that changes its role, starts, stops, is overloaded or broken rejects an operation; as
in the drivers' rules for retries, with those of failed write concerns."""

_WRITE_CONCERN_TIMEOUT = 64
_NO_MAJORITY = (
    "No majority of the members of MongoDB at {} had the write in time, so it may yet be undone;"
    " it is safe to write it again once enough members are up."
)
_TOO_LARGE_SAYS = "The document is larger than one MongoDB record may be (16 MB); split it."


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Raise what the driver raises inside the block as our errors; `place` names the server.

    Raises:
        BackendError: the driver failed.
    """
    try:
        yield
    except (PyMongoError, BSONError, UnicodeEncodeError, OverflowError) as error:
        raise backend_error(error, place) from error


def backend_error(error: Exception, place: str) -> BackendError:
    """Our error for `error`; raise it `from error`."""
    match error:
        case DocumentTooLarge():
            return BackendRejectedError(COMPONENT, _TOO_LARGE_SAYS)
        case BSONError() | UnicodeEncodeError() | OverflowError():
            return _encoding_error(error, place)
        case WTimeoutError():
            return BackendTimeoutError(COMPONENT, _NO_MAJORITY.format(place))
        case NetworkTimeout() | WaitQueueTimeoutError() | ExecutionTimeout():
            return BackendTimeoutError(COMPONENT, f"MongoDB at {place} did not answer in time.")
        case OperationFailure():
            return _failed_operation(error, place)
        case ConnectionFailure():
            return BackendUnavailableError(COMPONENT, f"MongoDB at {place} cannot be reached.")
        case DriverConfigurationError():
            return BackendUnavailableError(COMPONENT, f"The address of MongoDB at {place} cannot be resolved or used.")
        case PyMongoError() if error.timeout:
            return BackendTimeoutError(COMPONENT, f"MongoDB at {place} did not answer in time.")
        case _:
            return BackendUnavailableError(COMPONENT, f"MongoDB at {place} cannot be used ({type(error).__name__}).")


def is_code(error: PyMongoError, *codes: int) -> bool:
    """Whether the server rejected the call with one of `codes`."""
    return isinstance(error, OperationFailure) and error.code in codes


def _encoding_error(error: Exception, place: str) -> BackendError:
    """The error for data that cannot be encoded or decoded."""
    if isinstance(error, UnicodeEncodeError | OverflowError) or type(error).__name__ == "InvalidDocument":
        return BackendRejectedError(COMPONENT, "MongoDB cannot store this text or number.")
    return BackendDataError(COMPONENT, f"MongoDB at {place} returned an invalid response.")


def _failed_operation(error: OperationFailure, place: str) -> BackendError:
    codes = _codes(error)
    named = f"code {error.code}" if error.code is not None else type(error).__name__
    if codes & _UNKNOWN_USER:
        return BackendRejectedError(
            COMPONENT, f"MongoDB at {place} rejected the user or the password of stores.mongodb_uri ({named})."
        )
    if _WRITE_CONCERN_TIMEOUT in codes:
        return BackendTimeoutError(COMPONENT, _NO_MAJORITY.format(place))
    if _FULL in codes:
        return BackendUnavailableError(COMPONENT, f"No space left for MongoDB at {place}; free some and try again.")
    if codes & _TOO_LARGE:
        return BackendRejectedError(COMPONENT, _TOO_LARGE_SAYS)
    if codes & _TRANSIENT or error.has_error_label("RetryableWriteError"):
        return BackendUnavailableError(COMPONENT, f"MongoDB at {place} cannot serve this now ({named}).")
    return BackendRejectedError(COMPONENT, f"MongoDB at {place} rejected the operation ({named}).")


def _codes(error: OperationFailure) -> set[int]:
    """Every code that a failure names: its own, and those of the single writes of a batch."""
    codes = {error.code} if error.code is not None else set()
    details = error.details or {}
    if isinstance(error, BulkWriteError):
        codes |= {each["code"] for each in (*details["writeErrors"], *details["writeConcernErrors"])}
    return codes
