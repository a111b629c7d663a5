"""Who works on which project: the activations of callers, and the records of the projects that this machine follows.

An activation belongs to a handle, the session of a client, or an API key. A handle or a session belongs to one window
of one client. Several clients may share a key. If a key has activated several projects, a request with neither a handle
nor a project is rejected. The records outlive the process: the folder of a project's files, whether it is followed, and
when it was last used.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Hashable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from cachetools import TTLCache

from rag_context.domain.callers import CallerId
from rag_context.domain.documents import ProjectRecord, Tenant, utc_now
from rag_context.ports.writing import ProjectRegistry
from rag_context.projects.project_opening import Activation
from rag_context.projects.records import ProjectNotActivatedError

IDLE_S = 24 * 3600.0
"""An activation expires after so long without use."""

MAX_HANDLES = 1000
"""The most activations of one key; of more, those that were used longest ago are dropped."""

MAX_SESSIONS = 10_000

_HANDLE_BYTES = 18

Key = TypeVar("Key", bound=Hashable)

NOTE_EVERY_S = 60.0
"""Times of use are written to the registry at most this often."""


class _Recent(TTLCache[Key, Activation]):
    """The activations that were used last; reading counts as use."""

    def used(self, key: Key) -> Activation | None:
        activation = self.get(key)
        if activation is not None:
            self[key] = activation  # its time begins again
        return activation

    def replace(self, before: Tenant, after: Activation | None) -> None:
        """Replace the activations of a tenant by another one; None deletes them."""
        for key in [key for key, activation in self.items() if activation.tenant == before]:
            if after is None:
                del self[key]
            else:
                self[key] = after


class Activations:
    """The activations of all callers of this process. Bounded in number and in time without use."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._recent: Callable[[int], _Recent[Any]] = partial(_Recent, ttl=IDLE_S, timer=clock)
        self._sessions: _Recent[str] = self._recent(MAX_SESSIONS)
        self._handles: dict[str | None, _Recent[str]] = {}
        """Handles by key: no key can use another's handle, and none can displace another's."""
        self._keys: dict[str, _Recent[Tenant]] = {}

    def note(self, caller: CallerId, activation: Activation) -> str:
        """Record an activation of a caller; returns its handle."""
        handle = secrets.token_urlsafe(_HANDLE_BYTES)
        self._handles.setdefault(caller.key, self._recent(MAX_HANDLES))[handle] = activation
        if caller.session is not None:
            self._sessions[caller.session] = activation
        elif caller.key is not None:
            self._keys.setdefault(caller.key, self._recent(MAX_HANDLES))[activation.tenant] = activation
        return handle

    def of(self, caller: CallerId, handle: str | None = None) -> tuple[Activation, ...]:
        """The activations of a caller: one, none, or several of a key. Raises: ProjectNotActivatedError."""
        if handle is not None:
            own = self._handles.get(caller.key)
            activation = None if own is None else own.used(handle)
            if activation is None:
                raise ProjectNotActivatedError(
                    "This activation is unknown or has expired: call activate_project again and send the activation "
                    "that it returns"
                )
            return (activation,)
        if caller.session is not None:
            found = self._sessions.used(caller.session)
            return () if found is None else (found,)
        keyed = self._keys.get(caller.key) if caller.key is not None else None
        several = () if keyed is None else tuple(keyed.values())
        if keyed is not None and len(several) == 1:
            keyed.used(several[0].tenant)  # so that it does not expire
        return several

    def replace(self, before: Tenant, after: Activation | None) -> None:
        """Replace the activations of a tenant, of all callers, by another one; None deletes them."""
        for recent in (self._sessions, *self._handles.values()):
            recent.replace(before, after)
        for keyed in self._keys.values():
            # The entry's own key is the tenant, so it gets another one.
            if keyed.pop(before, None) is not None and after is not None:
                keyed[after.tenant] = after


class ProjectRecords:
    """The project registry for coroutines; without a registry the records end with the process."""

    def __init__(self, registry: ProjectRegistry | None = None, now: Callable[[], datetime] = utc_now) -> None:
        self._registry = registry
        self.now = now
        self._records: dict[Tenant, ProjectRecord] = {}
        self._used: dict[Tenant, datetime] = {}
        self._noted_s = time.monotonic()

    async def records(self) -> list[ProjectRecord]:
        """The records, those used last first."""
        if self._registry is not None:
            self._records = {each.tenant: each for each in await asyncio.to_thread(self._registry.records)}
        found = [
            replace(each, last_used=max(each.last_used, self._used.get(each.tenant, each.last_used)))
            for each in self._records.values()
        ]
        return sorted(found, key=lambda each: each.last_used, reverse=True)

    async def has(self, tenant: Tenant) -> bool | None:
        """Whether a project is recorded; None where that cannot be read, or no other process can delete a record."""
        return None if self._registry is None else await asyncio.to_thread(self._registry.has, tenant)

    async def activated(self, activation: Activation, *, is_used: bool = True) -> None:
        """Record that a project is followed; `is_used` says whether a caller activated it."""
        earlier = None if is_used else self._records.get(activation.tenant)
        await self.put(
            ProjectRecord(
                tenant=activation.tenant,
                root=str(activation.repository_root),
                config_path=str(activation.config.path),
                last_used=self.now() if earlier is None else earlier.last_used,
                is_followed=True,
                is_forced=activation.branch_is_given,
            )
        )

    async def put(self, record: ProjectRecord) -> None:
        self._records[record.tenant] = record
        if self._registry is not None:
            await asyncio.to_thread(self._registry.put, record)

    async def left(self, tenant: Tenant) -> None:
        for record in await self.records():
            if record.tenant == tenant:
                await self.put(replace(record, is_followed=False))

    async def note_gone(self, tenant: Tenant, since: datetime | None) -> None:
        """Record since when its files or its branch no longer exist; None: they exist."""
        if tenant in self._records:
            self._records[tenant] = replace(self._records[tenant], gone_since=since)
        if self._registry is not None:
            await asyncio.to_thread(self._registry.note_gone, tenant, since)

    async def forget(self, tenants: Collection[Tenant]) -> None:
        for tenant in tenants:
            self._records.pop(tenant, None)
            self._used.pop(tenant, None)
        if self._registry is not None:
            await asyncio.to_thread(self._registry.forget, tenants)

    @asynccontextmanager
    async def forgetting(self, tenants: Collection[Tenant]) -> AsyncIterator[None]:
        """Delete the records of projects while the block deletes the projects; if it fails, put them back."""
        deleted = [each for each in await self.records() if each.tenant in tenants]
        await self.forget(tenants)
        try:
            yield
        except BaseException:
            for record in deleted:
                await self.put(record)
            raise

    async def note_used(self, tenant: Tenant) -> None:
        """Record that a caller used a project; written to the registry only now and then, to keep requests fast."""
        self._used[tenant] = self.now()
        if time.monotonic() - self._noted_s >= NOTE_EVERY_S:
            await self.flush()

    async def flush(self) -> None:
        """Write the times of use to the registry."""
        used, self._used = self._used, {}  # before the first await: uses that are noted meanwhile are written next time
        self._noted_s = time.monotonic()
        for tenant, at in used.items():
            if tenant in self._records:
                self._records[tenant] = replace(self._records[tenant], last_used=at)
        if self._registry is not None and used:
            await asyncio.to_thread(self._registry.note_used, used)
