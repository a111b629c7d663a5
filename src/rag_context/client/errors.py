"""What a client raises. Each is also the error that the same mistake raises inside the server.

    ClientError                      status, code, details, request_id, retry_after_s
    ├── BadRequestError              the request is wrong: 400, 413, 415 ...          an InvalidInputError
    ├── AccessDeniedError            the key is missing, unknown or may not: 401, 403
    ├── NotFoundError                what the request names does not exist: 404       an errors.NotFoundError
    ├── ConflictError                it exists already, or is in another state: 409   an errors.ConflictError
    ├── ServerBusyError              not now: 429, 503                                a BackendUnavailableError
    ├── ServerError                  the server failed: other 5xx                     a BackendError
    ├── ServerUnreachableError       no connection                                    a BackendUnavailableError
    ├── ServerTimeoutError           no answer in time                                a BackendTimeoutError
    └── InvalidResponseError         the answer is not valid                          a BackendDataError

A request that is wrong by itself is never sent: it raises a plain `InvalidInputError`.
"""

from collections.abc import Sequence

from rag_context import errors

COMPONENT = "server"
"""Component of those errors that are a `BackendError`."""


class ClientError(errors.RagContextError):
    """A call that failed.

    Attributes:
        status: HTTP status; None where there was no answer.
        code: the server's word for programs, such as `INVALID_INPUT`.
        details: every field at fault.
        request_id: the id of the call in the server's logs.
        retry_after_s: how long the server says to wait.
        server_message: the server's own sentence; None where it said none, and the error's is the client's.
    """

    component = COMPONENT

    def __init__(
        self,
        message: str,
        *,
        request_id: str,
        status: int | None = None,
        code: str | None = None,
        details: Sequence[errors.FieldError] = (),
        retry_after_s: float | None = None,
        server_message: str | None = None,
    ) -> None:
        Exception.__init__(self, message)
        self.request_id = request_id
        self.status = status
        self.code = code
        self.details = tuple(details)
        self.retry_after_s = retry_after_s
        self.server_message = server_message
        answered = f"HTTP {status}" if status is not None else "no answer"
        self.add_note(f"{answered}, request id {request_id}")


class BadRequestError(ClientError, errors.InvalidInputError):
    """The server says that the request is wrong; `details` names every field at fault."""


class AccessDeniedError(ClientError):
    """The server wants another API key."""


class NotFoundError(ClientError, errors.NotFoundError):
    """The thing named in the request does not exist."""


class ConflictError(ClientError, errors.ConflictError):
    """The thing exists already, or is not in the state that the call needs."""


class ServerBusyError(ClientError, errors.BackendUnavailableError):
    """The server cannot do it now and did not do it; trying again later may help."""


class ServerError(ClientError, errors.BackendError):
    """The server failed; `request_id` finds the reason in its log."""


class ServerUnreachableError(ClientError, errors.BackendUnavailableError):
    """Nothing answered. `sent` says whether the request may have arrived all the same."""

    sent: bool = False


class ServerTimeoutError(ClientError, errors.BackendTimeoutError):
    """There was no answer in time; the work may have been done all the same."""


class InvalidResponseError(ClientError, errors.BackendDataError):
    """What answered is no server of ours, or one of another version."""
