"""The bench of these tests."""

import pytest

from tests.search.harness import TEXTS, Bench


@pytest.fixture
async def bench() -> Bench:
    """A chain over three documents."""
    made = Bench()
    for name, text in TEXTS.items():
        await made.add(name, text)
    return made
