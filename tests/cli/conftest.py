"""Fixtures of the command line's tests."""

from pathlib import Path

import pytest

from .run_command import Commands


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    """Commands in an empty folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    return Commands(folder)
