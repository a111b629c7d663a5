"""When a failed call is tried again: where the server did not do it, or where doing it twice does no harm."""

from collections.abc import Callable
from dataclasses import dataclass

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    Retrying,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from rag_context.client.errors import ServerBusyError, ServerUnreachableError
from rag_context.errors import BackendUnavailableError


@dataclass(frozen=True, slots=True)
class Retries:
    """Tries in all, and the bounds of the exponential, jittered waits between them, in seconds."""

    tries: int = 3
    base_s: float = 0.1
    cap_s: float = 5.0

    def asynchronous(self, repeatable: bool) -> AsyncRetrying:
        """The loop for coroutines."""
        return AsyncRetrying(
            stop=stop_after_attempt(self.tries),
            wait=self._wait,
            retry=retry_if_exception(self._worth_it(repeatable)),
            reraise=True,
        )

    def blocking(self, repeatable: bool) -> Retrying:
        """The same loop for threads."""
        return Retrying(
            stop=stop_after_attempt(self.tries),
            wait=self._wait,
            retry=retry_if_exception(self._worth_it(repeatable)),
            reraise=True,
        )

    def until_available(self) -> AsyncRetrying:
        """The loop for work that no caller waits for: whatever was unavailable is tried again."""
        return AsyncRetrying(
            stop=stop_after_attempt(self.tries),
            wait=self._wait,
            retry=retry_if_exception_type(BackendUnavailableError),
            reraise=True,
        )

    def _worth_it(self, repeatable: bool) -> Callable[[BaseException], bool]:
        def judge(error: BaseException) -> bool:
            match error:
                case ServerBusyError():  # a longer wish is for the caller to know, not to sit out here
                    return (error.retry_after_s or 0.0) <= self.cap_s
                case ServerUnreachableError():
                    return repeatable or not error.sent
            return False

        return judge

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, BackendUnavailableError) and error.retry_after_s is not None:
            return min(error.retry_after_s, self.cap_s)
        return wait_random_exponential(multiplier=self.base_s, max=self.cap_s)(state)
