"""What every test may rely on."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command run inside this process sets logging up for itself; its streams end with it."""
    root, ours = logging.getLogger(), logging.getLogger("rag_context")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
