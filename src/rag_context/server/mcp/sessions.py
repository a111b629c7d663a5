"""Sessions of clients over HTTP: a name that is given with the answer to `initialize`, and comes back in a header.

A session holds nothing itself, so that it costs no more than its entry here: requests are answered one by one, and
what a client activated is remembered under the session's name. Revisions from 2026-07-28 on have none.
"""

import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

IDLE_S = 24 * 3600.0
"""A session that was not heard of for so long is forgotten."""

MAX_SESSIONS = 1000
"""Sessions of one key that are remembered; of more, those that were not heard of longest are forgotten."""

HEADER = b"mcp-session-id"
_ID_BYTES = 24


class Sessions:
    """The sessions that were opened, by the key that opened them: nobody enters another key's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard_s: dict[str | None, OrderedDict[str, float]] = {}

    def open(self, key: str | None) -> str:
        """A new session of a key; None where no key is needed."""
        own = self._heard_s.setdefault(key, OrderedDict())
        self._drop_idle(own)
        if len(own) >= MAX_SESSIONS:
            own.popitem(last=False)
        session = secrets.token_urlsafe(_ID_BYTES)
        own[session] = self._clock()
        return session

    def enter(self, session: str, key: str | None) -> bool:
        """Whether there is such a session of this key; it has been heard of, then."""
        own = self._heard_s.get(key)
        if own is None:
            return False
        self._drop_idle(own)
        if session not in own:
            return False
        own[session] = self._clock()
        own.move_to_end(session)
        return True

    def end(self, session: str, key: str | None) -> bool:
        """Forget a session; False where there is none."""
        own = self._heard_s.get(key)
        return own is not None and own.pop(session, None) is not None

    def _drop_idle(self, own: OrderedDict[str, float]) -> None:
        oldest_s = self._clock() - IDLE_S
        while own and next(iter(own.values())) < oldest_s:
            own.popitem(last=False)


def opens_session(body: bytes) -> bool:
    """Whether a request is the first one of a session."""
    if b'"initialize"' not in body:
        return False
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and message.get("method") == "initialize" and "id" in message
