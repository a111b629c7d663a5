"""Records of this machine's projects: the folder of their files, which are followed, when each was last used."""

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
"""Times of use are written to the registry at most this often."""


class ProjectRecords:
    """The project registry for coroutines; without a registry the records end with the process.

    Args:
        registry: stores the records; None: they are in memory.
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
        """All records, those used last first."""
        if self._registry is not None:
            self._records = {each.tenant: each for each in await asyncio.to_thread(self._registry.records)}
        found = [
            replace(each, last_used=max(each.last_used, self._used.get(each.tenant, each.last_used)))
            for each in self._records.values()
        ]
        return sorted(found, key=lambda each: each.last_used, reverse=True)

    async def activated(self, activation: Activation, *, is_used: bool = True) -> None:
        """Record that a project is followed; `is_used` says whether a caller activated it."""
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
        """Store the record of a project, replacing an older one of the same tenant."""
        self._records[record.tenant] = record
        if self._registry is not None:
            await asyncio.to_thread(self._registry.put, record)

    async def left(self, tenant: Tenant) -> None:
        """Record that a project is no longer followed, because another branch is."""
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
        """Delete the records of projects."""
        for tenant in tenants:
            self._records.pop(tenant, None)
            self._used.pop(tenant, None)
        if self._registry is not None:
            await asyncio.to_thread(self._registry.forget, tenants)

    async def note_used(self, tenant: Tenant) -> None:
        """Record that a caller used a project; written to the registry only now and then, to keep requests fast."""
        self._used[tenant] = self.now()
        if time.monotonic() - self._noted_s >= NOTE_EVERY_S:
            await self.flush()

    async def flush(self) -> None:
        """Write the times of use to the registry."""
        used, self._used = self._used, {}
        self._noted_s = time.monotonic()
        for tenant, at in used.items():
            if tenant in self._records:
                self._records[tenant] = replace(self._records[tenant], last_used=at)
        if self._registry is not None and used:
            await asyncio.to_thread(self._registry.note_used, used)
