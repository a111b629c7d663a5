"""The tree of errors.

    RagContextError
    ├── InvalidInputError               the request is invalid                HTTP 400
    ├── NotFoundError                   the named thing does not exist        HTTP 404
    ├── ForbiddenError                  the caller's key may not do this      HTTP 403
    ├── ConflictError                   the thing was made or changed before   HTTP 409
    │   └── ForgottenError              what is indexed was forgotten
    ├── ConfigurationError              the configuration cannot work         exit 78
    │   └── IndexMismatchError          another model embedded the index
    └── BackendError                    a component behind a port failed
        ├── BackendUnavailableError     it did not answer                     may be retried
        │   ├── BackendTimeoutError     it did not answer in time
        │   ├── BackendStartingError    it is still starting; not a failure
        │   └── OverloadedError         this process has too many requests    HTTP 503
        ├── BackendRejectedError        it rejected the call
        │   └── ForeignDataError        another program's data is in the way   HTTP 409
        ├── BackendDataError            it returned an invalid response
        │   ├── ForeignIndexError       another program or a newer version wrote its file
        │   └── LostIndexError          there was an index, and its file is empty or missing
        └── ProviderFailedError         a provider of collections raised another error than the ones above

The search chain falls back to its next level on `BackendError`. Every other exception is a bug and is not caught.
"""

from collections.abc import Sequence
from typing import NamedTuple


class FieldError(NamedTuple):
    """One field of a request and what is wrong with it."""

    field: str
    message: str


class RagContextError(Exception):
    """Root of everything this package raises on purpose."""


class InvalidInputError(RagContextError):
    """The request is invalid; `details` names every wrong field."""

    def __init__(self, message: str, details: Sequence[FieldError] = ()) -> None:
        super().__init__(message)
        self.details = tuple(details)


_LISTED = 3


def joined(problems: Sequence[str]) -> str:
    """Several problems as one sentence: the first three, and the number of the others."""
    distinct = list(dict.fromkeys(problems))
    if len(distinct) <= _LISTED + 1:
        return "; ".join(distinct)
    return f"{'; '.join(distinct[:_LISTED])}; and {len(distinct) - _LISTED} more problems, see details"


class NotFoundError(RagContextError):
    """The thing named in the request does not exist."""


class ForbiddenError(RagContextError):
    """The key of the caller may not do this."""


class ConflictError(RagContextError):
    """The thing to create exists already, or another caller changed it first; nothing changed."""


class ForgottenError(ConflictError):
    """What is to be stored was forgotten, and stays so."""

    def __init__(self, document_id: str) -> None:
        super().__init__(f"Document {document_id} was forgotten; send force true to store it all the same")


class ConfigurationError(RagContextError):
    """The configuration cannot work; the message says what to change."""


class IndexMismatchError(ConfigurationError):
    """The index was embedded by another model than the configured one."""


class BackendError(RagContextError):
    """A component behind a port failed. `component` is its name in labels, breakers and logs."""

    def __init__(self, component: str, message: str) -> None:
        super().__init__(message)
        self.component = component


class BackendUnavailableError(BackendError):
    """The backend did not answer; trying again may help. `retry_after_s` is its own `Retry-After`, if it sent one."""

    def __init__(self, component: str, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(component, message)
        self.retry_after_s = retry_after_s


class BackendTimeoutError(BackendUnavailableError):
    """The backend did not answer in time."""


class BackendStartingError(BackendUnavailableError):
    """The backend is still starting, such as a model that loads; breakers do not count this error."""


class OverloadedError(BackendUnavailableError):
    """This process has too many requests: nothing was begun, and `retry_after_s` says when to try again."""


class BackendRejectedError(BackendError):
    """The backend rejected the call; the same call would be rejected again."""


class ForeignDataError(BackendRejectedError):
    """Data of another program is where ours would be; nothing was changed. The message says what to do instead."""


class BackendDataError(BackendError):
    """The backend returned an invalid response."""


class ForeignIndexError(BackendDataError):
    """Another program, or a newer version of this one, wrote the file."""


class LostIndexError(BackendDataError):
    """There was an index, and its file is empty or missing; no new index is created in its place."""


class ProviderFailedError(BackendError):
    """A provider of collections, most likely a plug-in, raised an unexpected error. Only its type is in the message."""

    def __init__(self, component: str, provider: str, connection: str, error: Exception) -> None:
        super().__init__(
            component, f"The provider '{provider}' of connection '{connection}' failed with {type(error).__name__}"
        )
