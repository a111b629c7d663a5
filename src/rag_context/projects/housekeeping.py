"""Background work of a server on projects: follows them again after a restart, and removes those without files."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from rag_context.domain.documents import ProjectRecord, Tenant
from rag_context.errors import BackendError, RagContextError
from rag_context.projects.activation import Projects
from rag_context.projects.config import read_config
from rag_context.projects.tenants import has_branch
from rag_context.resilience.deadline import together

MAX_RESUMED = 32
"""The most projects that are followed again; of more, those that were used last."""

CHECK_EVERY_S = 3600.0
"""How often the files of all projects are checked; more often if the grace period is short."""

SEEN_S = 3600.0
"""How long this process must have found the files missing: a disk that is not mounted yet looks the same."""

RESUME_EVERY_S = 30.0
"""The interval at which projects are tried that could not be followed again."""

SHORTEST_S = 0.2
"""The shortest interval of these checks, whatever the grace period."""

CATCHING_UP = "its files have not been compared with the index yet since the server started"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HousekeepingRules:
    """The settings: `grace` is how long a tenant without files is kept, after they disappeared and after its last use.

    `follow` follows projects again after a restart.
    """

    follow: bool = True
    grace: timedelta = timedelta(days=14)


DEFAULT_RULES = HousekeepingRules()


class Housekeeping:
    """Runs beside a server until it is cancelled."""

    def __init__(
        self, projects: Projects, rules: HousekeepingRules, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._projects = projects
        self._rules = rules
        self._clock = clock
        self._seen_gone: dict[Tenant, float] = {}
        """Since when this process has found the files of a tenant missing."""

    async def run(self) -> None:
        await together(self._resume(), self._check_regularly())

    async def _resume(self) -> None:
        if not self._rules.follow:
            return
        records = [
            each for each in await self._projects.project_records.records() if each.is_followed and each.config_path
        ]
        waiting = {record.tenant: record for record in records[:MAX_RESUMED]}
        # All of them first: queries say why the documents of those that wait may be old.
        self._projects.resuming.update(dict.fromkeys(waiting, CATCHING_UP))
        for record in records[MAX_RESUMED:]:
            logger.warning("project %s is not followed again: too many projects are followed", record.tenant.project)
        while waiting:
            for tenant, record in list(waiting.items()):
                if tenant not in self._projects.resuming:  # activated or forgotten meanwhile
                    del waiting[tenant]
                    continue
                try:
                    await self._projects.resume(record)
                except RagContextError as error:
                    if tenant in self._projects.resuming:
                        self._projects.resuming[tenant] = f"its files cannot be followed now: {error}"
                    logger.warning("project %s cannot be followed again now: %s", tenant.project, error)
                else:
                    logger.info("project %s (%s) is followed again", tenant.project, tenant.branch)
                    del waiting[tenant]
            await asyncio.sleep(RESUME_EVERY_S if waiting else 0)

    async def _check_regularly(self) -> None:
        every_s = max(SHORTEST_S, min(CHECK_EVERY_S, self._rules.grace.total_seconds() / 4))
        while True:
            try:
                await self.check()
            except BackendError as error:
                logger.info("projects without files cannot be checked now: %s", error)
            await asyncio.sleep(every_s)

    async def check(self) -> None:
        """Check the files of all tenants once, and remove tenants whose grace period is over. Raises: BackendError."""
        project_records = self._projects.project_records
        await project_records.flush()
        for record in await project_records.records():
            reason = await asyncio.to_thread(why_gone, record)
            if reason is None:
                self._seen_gone.pop(record.tenant, None)
                if record.gone_since is not None:
                    await project_records.note_gone(record.tenant, None)
            else:
                await self._note_gone(record, reason)

    async def _note_gone(self, record: ProjectRecord, reason: str) -> None:
        now, tenant = self._projects.project_records.now(), record.tenant
        seen_s = self._clock() - self._seen_gone.setdefault(tenant, self._clock())
        if record.gone_since is None:
            await self._projects.project_records.note_gone(tenant, now)
            end = removal_time(now, record, self._rules.grace)
            logger.info("project %s (%s): %s; removed after %s", tenant.project, tenant.branch, reason, end.isoformat())
            return
        grace = self._rules.grace
        if now < removal_time(record.gone_since, record, grace) or seen_s < min(SEEN_S, grace.total_seconds()):
            return
        removed = await self._projects.delete_documents(tenant.project, tenant.branch, tenant.path_hash)
        self._seen_gone.pop(tenant, None)
        logger.warning(
            "project %s (%s, %s) was removed with %d documents, because %s",
            tenant.project,
            tenant.branch,
            tenant.path_hash,
            removed.documents,
            reason,
        )


def why_gone(record: ProjectRecord) -> str | None:
    """Why the files of a project no longer exist; None if they exist or cannot be checked now. Blocking."""
    root = Path(record.root)
    try:
        if not root.is_dir():
            return f"the folder {record.root!r} no longer exists"
        if record.config_path:
            config = Path(record.config_path)
            if not config.is_file():
                return f"its configuration {record.config_path!r} no longer exists"
            name = read_config(config).project_name
            if name != record.tenant.project:
                return f"its configuration has the project name {name!r} now"
        if not record.is_forced and not has_branch(root, record.tenant.branch):
            return f"the branch {record.tenant.branch!r} no longer exists"
    except (OSError, RagContextError):
        return None
    return None


def removal_time(gone_since: datetime, record: ProjectRecord, grace: timedelta) -> datetime:
    """When a tenant without files is removed: a grace period after they disappeared, and after its last use."""
    try:
        return max(gone_since, record.last_used) + grace
    except OverflowError:
        return datetime.max.replace(tzinfo=gone_since.tzinfo)
