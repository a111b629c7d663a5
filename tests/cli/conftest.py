"""Fixtures of the command line's tests."""

from pathlib import Path

import pytest

from .running import Commands


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    """Commands in an empty folder."""
    (tmp_path / "home").mkdir()
    return Commands(tmp_path)
