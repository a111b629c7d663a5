"""Logging, kept from what commands do to it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def restored_logging() -> Iterator[None]:
    """A command run inside this process sets logging up for itself; its streams end with it."""
    root, ours = logging.getLogger(), logging.getLogger("rag_context")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        ours.setLevel(levels[1])
