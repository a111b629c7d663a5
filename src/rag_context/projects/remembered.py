"""What this machine remembers of its projects: where their files lie, which are followed, when each was used."""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime

from rag_context.domain.documents import Tenant
from rag_context.domain.files import ProjectRecord
from rag_context.ports.maintenance import ProjectRegistry
from rag_context.projects.opening import Activation

NOTE_EVERY_S = 60.0
"""A use is written down at most this often."""


class Remembered:
    """The registry for coroutines; without one, nothing outlives the process.

    Args:
        registry: keeps the records; None keeps them in memory.
        now: the wall clock.
    """

    def __init__(
        self, registry: ProjectRegistry | None = None, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._registry = registry
        self.now = now
        self._records: dict[Tenant, ProjectRecord] = {}
        self._used: dict[Tenant, datetime] = {}
        self._noted_s = time.monotonic()

    async def records(self) -> list[ProjectRecord]:
        """Everything that is known, what was used last first."""
        if self._registry is not None:
            self._records = {each.tenant: each for each in await asyncio.to_thread(self._registry.records)}
        found = [
            replace(each, last_used=max(each.last_used, self._used.get(each.tenant, each.last_used)))
            for each in self._records.values()
        ]
        return sorted(found, key=lambda each: each.last_used, reverse=True)

    async def activated(self, activation: Activation, *, is_used: bool = True) -> None:
        """A project is followed from now on; `is_used` says that somebody asked for that."""
        known = None if is_used else self._records.get(activation.tenant)
        await self.put(
            ProjectRecord(
                tenant=activation.tenant,
                root=str(activation.repository_root),
                config_path=str(activation.config.path),
                last_used=self.now() if known is None else known.last_used,
                is_followed=True,
                is_forced=activation.branch_is_given,
            )
        )

    async def put(self, record: ProjectRecord) -> None:
        """Remember a project, in place of what was remembered of its tenant."""
        self._records[record.tenant] = record
        if self._registry is not None:
            await asyncio.to_thread(self._registry.put, record)

    async def left(self, tenant: Tenant) -> None:
        """A project is stored, and not followed any more: another branch took its place."""
        for record in await self.records():
            if record.tenant == tenant:
                await self.put(replace(record, is_followed=False))

    async def note_gone(self, tenant: Tenant, since: datetime | None) -> None:
        """Its files or its branch are gone since then; None: they are there."""
        if tenant in self._records:
            self._records[tenant] = replace(self._records[tenant], gone_since=since)
        if self._registry is not None:
            await asyncio.to_thread(self._registry.note_gone, tenant, since)

    async def forget(self, tenants: Collection[Tenant]) -> None:
        """Forget projects."""
        for tenant in tenants:
            self._records.pop(tenant, None)
            self._used.pop(tenant, None)
        if self._registry is not None:
            await asyncio.to_thread(self._registry.forget, tenants)

    async def note_used(self, tenant: Tenant) -> None:
        """Somebody asked for a project; written down now and then, so that a question costs nothing."""
        self._used[tenant] = self.now()
        if time.monotonic() - self._noted_s >= NOTE_EVERY_S:
            await self.flush()

    async def flush(self) -> None:
        """Write down when projects were used."""
        used, self._used = self._used, {}
        self._noted_s = time.monotonic()
        for tenant, at in used.items():
            if tenant in self._records:
                self._records[tenant] = replace(self._records[tenant], last_used=at)
        if self._registry is not None and used:
            await asyncio.to_thread(self._registry.note_used, used)
