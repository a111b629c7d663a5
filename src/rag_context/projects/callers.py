"""The activations of callers: by the handle of an activation, the session of a client, or an API key.

A handle or a session belongs to one window of one client. Several clients may share a key. If a key has activated
several projects, a request with neither a handle nor a project is rejected.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from rag_context.domain.documents import Tenant
from rag_context.projects.opening import Activation
from rag_context.projects.records import ProjectNotActivatedError

IDLE_S = 24 * 3600.0
"""An activation expires after so long without use."""

MAX_HANDLES = 1000
"""The most activations of one key; of more, those that were used longest ago are dropped."""

MAX_SESSIONS = 10_000

_HANDLE_BYTES = 18

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class CallerId:
    """The identity of a caller, as the server knows it.

    Args:
        session: an MCP session or a stdio process, verified to be the caller's; None without one.
        key: name of the API key; None if the server needs none.
    """

    session: str | None = None
    key: str | None = None


ANONYMOUS = CallerId()
"""A caller without a session and without a key."""


@dataclass(frozen=True, slots=True)
class _Work:
    activation: Activation
    used_s: float


class _Recent(Generic[Key]):
    """The activations that were used last, at most `limit`; reading counts as use."""

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self._entries: OrderedDict[Key, _Work] = OrderedDict()
        self._limit = limit
        self._clock = clock

    def put(self, key: Key, activation: Activation) -> None:
        self._entries[key] = _Work(activation, self._clock())
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def get(self, key: Key) -> Activation | None:
        self._drop_idle()
        work = self._entries.get(key)
        if work is None:
            return None
        self.put(key, work.activation)
        return work.activation

    def all(self) -> tuple[Activation, ...]:
        self._drop_idle()
        return tuple(work.activation for work in self._entries.values())

    def replace(self, before: Tenant, after: Activation | None) -> None:
        """Replace the activations of a tenant by another one; None deletes them."""
        for key in [key for key, work in self._entries.items() if work.activation.tenant == before]:
            if after is None:
                del self._entries[key]
            else:
                self._entries[key] = replace(self._entries[key], activation=after)

    def _drop_idle(self) -> None:
        oldest_s = self._clock() - IDLE_S
        while self._entries and next(iter(self._entries.values())).used_s < oldest_s:
            self._entries.popitem(last=False)


class Activations:
    """The activations of all callers of this process. Bounded in number and in time without use."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: _Recent[str] = _Recent(MAX_SESSIONS, clock)
        self._handles: dict[str | None, _Recent[str]] = {}
        """Handles by key: no key can use another's handle, and none can displace another's."""
        self._keys: dict[str, _Recent[Tenant]] = {}

    def note(self, caller: CallerId, activation: Activation) -> str:
        """Record an activation of a caller; returns its handle."""
        handle = secrets.token_urlsafe(_HANDLE_BYTES)
        self._handles.setdefault(caller.key, _Recent(MAX_HANDLES, self._clock)).put(handle, activation)
        if caller.session is not None:
            self._sessions.put(caller.session, activation)
        elif caller.key is not None:
            self._keys.setdefault(caller.key, _Recent(MAX_HANDLES, self._clock)).put(activation.tenant, activation)
        return handle

    def of(self, caller: CallerId, handle: str | None = None) -> tuple[Activation, ...]:
        """The activations of a caller: one, none, or several of a key.

        Raises:
            ProjectNotActivatedError: the handle is unknown or expired, or belongs to another key.
        """
        if handle is not None:
            own = self._handles.get(caller.key)
            activation = None if own is None else own.get(handle)
            if activation is None:
                raise ProjectNotActivatedError(
                    "This activation is unknown or has expired: call activate_project again and send the activation "
                    "that it returns"
                )
            return (activation,)
        if caller.session is not None:
            found = self._sessions.get(caller.session)
            return () if found is None else (found,)
        keyed = self._keys.get(caller.key) if caller.key is not None else None
        several = () if keyed is None else keyed.all()
        if keyed is not None and len(several) == 1:
            keyed.get(several[0].tenant)  # counts as use, so that it does not expire
        return several

    def replace(self, before: Tenant, after: Activation | None) -> None:
        """Replace the activations of a tenant, of all callers, by another one; None deletes them."""
        for recent in (self._sessions, *self._handles.values()):
            recent.replace(before, after)
        for keyed in self._keys.values():
            if any(each.tenant == before for each in keyed.all()):
                keyed.replace(before, None)
                if after is not None:
                    keyed.put(after.tenant, after)
