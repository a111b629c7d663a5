from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rag_context.stores.sqlite import FILE_NAME, open_database
from tests.stores.builders import Stores


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@pytest.fixture(params=["sqlite"])
async def store(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Stores]:
    """Every adapter that keeps documents, vectors, texts and metrics; each must pass all tests with this fixture."""
    async with open_database(path) as opened:
        yield opened
