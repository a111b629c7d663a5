"""What is left of a project, when it is removed, and what is followed again."""

import dataclasses
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rag_context.domain.documents import ProjectRecord
from rag_context.projects.activation import Projects
from rag_context.projects.housekeeping import SEEN_S, Housekeeping, HousekeepingRules, why_gone
from rag_context.projects.project_opening import open_project
from rag_context.projects.tenants import MAX_BRANCH_CHARS, has_branch
from rag_context.stores.machine_tables import SqliteProjectRegistry
from rag_context.testing import FrozenClock
from tests.projects.sync_harness import ManualWatch, SyncHarness, configure, write

GRACE = timedelta(days=14)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    write(root / ".git" / "HEAD", "ref: refs/heads/main\n")
    configure(root)
    write(root / "docs" / "a.md", "# A\n")
    return root


def record(root: Path, **changed: object) -> ProjectRecord:
    activation = open_project(str(root))
    made = ProjectRecord(
        tenant=activation.tenant,
        root=str(root),
        config_path=str(activation.config.path),
        last_used=datetime.now().astimezone(),
        is_followed=True,
    )
    return dataclasses.replace(made, **changed)  # type: ignore[arg-type]


def test_a_branch_is_there_as_git_keeps_it(shop: Path) -> None:
    write(shop / ".git/refs/heads/topic/one", "0" * 40)
    write(shop / ".git/packed-refs", f"# pack-refs\n{'0' * 40} refs/heads/packed\n{'0' * 40} refs/tags/tagged\n")
    for branch in ("main", "topic/one", "packed", "x" * MAX_BRANCH_CHARS):
        assert has_branch(shop, branch)
    for branch in ("topic", "tagged", "acked", "0" * 12):
        assert not has_branch(shop, branch)
    (shop / ".git/reftable").mkdir()
    assert has_branch(shop, "nobody-knows")


def test_a_worktree_has_the_branches_of_its_repository(shop: Path, tmp_path: Path) -> None:
    write(shop / ".git/refs/heads/other", "0" * 40)
    write(shop / ".git/worktrees/w/HEAD", "ref: refs/heads/here\n")
    write(shop / ".git/worktrees/w/commondir", "../..\n")
    write(tmp_path / "w/.git", f"gitdir: {shop}/.git/worktrees/w\n")
    assert has_branch(tmp_path / "w", "here")
    assert has_branch(tmp_path / "w", "other")
    assert not has_branch(tmp_path / "w", "gone")


def test_why_a_project_is_gone_is_reported(shop: Path) -> None:
    kept = record(shop)
    assert why_gone(kept) is None
    write(shop / ".git/HEAD", "ref: refs/heads/next\n")
    assert "branch 'main'" in str(why_gone(kept))
    assert why_gone(dataclasses.replace(kept, is_forced=True)) is None
    write(shop / ".git/HEAD", "ref: refs/heads/main\n")
    write(shop / ".rag-context/config.json", "{ broken")
    assert why_gone(kept) is None
    configure(shop, project_name="store")
    assert "'store'" in str(why_gone(kept))
    (shop / ".rag-context/config.json").unlink()
    assert "configuration" in str(why_gone(kept))
    shutil.rmtree(shop)
    assert "folder" in str(why_gone(kept))


async def test_a_grace_period_counts_from_when_it_was_seen_and_again_after_each_use(
    harness: SyncHarness, shop: Path
) -> None:
    clock = FrozenClock()
    projects = Projects(harness.indexer, harness.documents, watch=ManualWatch())
    now = datetime.now().astimezone()
    projects.project_records.now = lambda: now
    housekeeping = Housekeeping(projects, HousekeepingRules(grace=GRACE), clock)
    tenant = (await projects.activate(str(shop))).tenant
    shutil.rmtree(shop)
    await housekeeping.check()
    now += GRACE - timedelta(hours=1)
    clock.advance(GRACE.total_seconds())
    await housekeeping.check()
    await projects.project_records.note_used(tenant)
    now += timedelta(days=2)
    await housekeeping.check()
    assert await projects.tenants.known() == (tenant,)
    now += GRACE
    await housekeeping.check()
    assert await projects.tenants.known() == ()
    assert await projects.project_records.records() == []
    await projects.aclose()


async def test_a_disk_that_is_mounted_late_loses_nothing(harness: SyncHarness, shop: Path, tmp_path: Path) -> None:
    """A process that starts long after files were deleted must have seen that itself before it removes anything."""
    clock = FrozenClock()
    projects = Projects(harness.indexer, harness.documents, watch=ManualWatch())
    tenant = (await projects.activate(str(shop))).tenant
    long_ago = projects.project_records.now() - 3 * GRACE
    (known,) = await projects.project_records.records()
    shutil.move(shop, tmp_path / "not-mounted")
    await projects.project_records.put(dataclasses.replace(known, last_used=long_ago, gone_since=long_ago))
    housekeeping = Housekeeping(projects, HousekeepingRules(grace=GRACE), clock)
    await housekeeping.check()
    clock.advance(SEEN_S / 2)
    await housekeeping.check()
    assert await projects.tenants.known() == (tenant,)
    shutil.move(tmp_path / "not-mounted", shop)
    await housekeeping.check()
    (back,) = await projects.project_records.records()
    assert back.gone_since is None
    shutil.move(shop, tmp_path / "not-mounted")
    await projects.project_records.put(dataclasses.replace(known, last_used=long_ago, gone_since=long_ago))
    await housekeeping.check()
    clock.advance(SEEN_S)
    await housekeeping.check()
    assert await projects.tenants.known() == ()
    await projects.aclose()


@pytest.mark.parametrize("is_same_process", [True, False])
async def test_what_is_forgotten_while_it_waits_is_not_followed_again(
    harness: SyncHarness, shop: Path, tmp_path: Path, is_same_process: bool
) -> None:
    registry = SqliteProjectRegistry(tmp_path)
    before = Projects(harness.indexer, harness.documents, registry=registry, watch=ManualWatch())
    tenant = (await before.activate(str(shop))).tenant
    await before.aclose()
    projects = Projects(harness.indexer, harness.documents, registry=registry, watch=ManualWatch())
    (known,) = await projects.project_records.records()
    projects.resuming[tenant] = "soon"
    await (projects if is_same_process else before).delete_documents("shop", None, None)
    await projects.resume(known)
    assert projects.resuming == {}
    assert projects.followed(tenant) is None
    assert await projects.tenants.known() == ()
    await projects.aclose()
    registry.close()
