"""A write path for every test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.projects.sync_harness import Rig, open_rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    (tmp_path / "store").mkdir()
    async with open_rig(tmp_path / "store") as rig:
        yield rig
