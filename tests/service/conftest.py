"""The house of these tests."""

import pytest

from tests.service.harness import House


@pytest.fixture
async def house() -> House:
    """A service whose model is bound to its empty index."""
    made = House()
    await made.bound.bind()
    return made
