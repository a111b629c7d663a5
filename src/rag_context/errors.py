"""One tree of errors.

    RagContextError
    ├── InvalidInputError               the request is wrong                  HTTP 400
    ├── NotFoundError                   the thing named is not there          HTTP 404
    ├── ConflictError                   the thing named is there already      HTTP 409
    ├── ConfigurationError              the set-up cannot work                exit 78
    │   └── IndexMismatchError          the index was made by another model
    └── BackendError                    something behind a port failed
        ├── BackendUnavailableError     it did not answer                     may be retried
        │   ├── BackendTimeoutError     it did not answer in time
        │   ├── BackendStartingError    it is not ready yet; no fault of it
        │   └── OverloadedError         this process has too much to do now   HTTP 503
        ├── BackendRejectedError        it answered no
        ├── BackendDataError            it answered nonsense
        │   ├── ForeignIndexError       its file is another program's, or a newer version's
        │   └── LostIndexError          there was an index, and its file is empty or missing
        └── ProviderFailedError         a provider of collections raised something else than the errors above

The search chain answers `BackendError` with its next level. Anything else is a bug and stays one.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field of a request and what is wrong with it."""

    field: str
    message: str


class RagContextError(Exception):
    """Root of everything this package raises on purpose."""


class InvalidInputError(RagContextError):
    """The request is wrong; `details` names every field at fault."""

    def __init__(self, message: str, details: Sequence[FieldError] = ()) -> None:
        super().__init__(message)
        self.details = tuple(details)


_SAID = 3


def joined(problems: Sequence[str]) -> str:
    """Several problems as one sentence: the first three, and how many more the details name."""
    said = list(dict.fromkeys(problems))
    if len(said) <= _SAID + 1:
        return "; ".join(said)
    return f"{'; '.join(said[:_SAID])}; and {len(said) - _SAID} more problems, see details"


class NotFoundError(RagContextError):
    """The thing named in the request does not exist."""


class ConflictError(RagContextError):
    """What was to be made is there already; nothing changed."""


class ConfigurationError(RagContextError):
    """The configuration cannot work; the message says in one sentence what to do."""


class IndexMismatchError(ConfigurationError):
    """The index was made by another embedding model than the one configured."""


class BackendError(RagContextError):
    """Something behind a port failed. `component` names it for labels, breakers and logs."""

    def __init__(self, component: str, message: str) -> None:
        super().__init__(message)
        self.component = component


class BackendUnavailableError(BackendError):
    """The backend did not answer; trying again may help. `retry_after_s` is its own wish, if it had one."""

    def __init__(self, component: str, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(component, message)
        self.retry_after_s = retry_after_s


class BackendTimeoutError(BackendUnavailableError):
    """The backend did not answer in time."""


class BackendStartingError(BackendUnavailableError):
    """The backend is still starting (a model that loads); it counts against no breaker."""


class OverloadedError(BackendUnavailableError):
    """This process has more to do than it can do in time: nothing was begun, and `retry_after_s` says when to ask."""


class BackendRejectedError(BackendError):
    """The backend understood and refused; the same call would be refused again."""


class BackendDataError(BackendError):
    """The backend answered something that cannot be right."""


class ForeignIndexError(BackendDataError):
    """The file is another program's, or was written by a newer version of this one."""


class LostIndexError(BackendDataError):
    """There was an index, and its file is empty or missing; it is never taken for a new one."""


class ProviderFailedError(BackendError):
    """A provider of collections, most likely a plug-in, raised what it must not. Says of what kind, never its text."""

    def __init__(self, component: str, provider: str, connection: str, error: Exception) -> None:
        super().__init__(
            component, f"The provider '{provider}' of connection '{connection}' failed with {type(error).__name__}"
        )
