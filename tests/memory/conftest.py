"""The service of these tests."""

import pytest

from tests.memory.harness import ServiceHarness


@pytest.fixture
async def harness() -> ServiceHarness:
    """A service whose model is bound to its empty index."""
    made = ServiceHarness()
    await made.bound.bind()
    return made
