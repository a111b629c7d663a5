"""The harness of these tests."""

import pytest

from tests.search.harness import TEXTS, ChainHarness


@pytest.fixture
async def harness() -> ChainHarness:
    """A chain over three documents."""
    made = ChainHarness()
    for name, text in TEXTS.items():
        await made.add(name, text)
    return made
