"""A write path for every test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.projects.sync_harness import SyncHarness, open_sync_harness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[SyncHarness]:
    (tmp_path / "store").mkdir()
    async with open_sync_harness(tmp_path / "store") as harness:
        yield harness
