"""Log lines, for people and for programs."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from rag_context.logs import REQUEST_ID, configure_logging

logger = logging.getLogger("rag_context.tests")


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("rag_context")
    before = (root.handlers[:], root.level, ours.level)
    flags = (logging.logThreads, logging.logProcesses, logging.logMultiprocessing)
    root.handlers = []
    yield
    root.handlers, root.level = before[0], before[1]
    ours.setLevel(before[2])
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = flags


def test_a_console_line_carries_the_request_id() -> None:
    """T-9."""
    stream = io.StringIO()
    configure_logging("info", "console", stream)
    token = REQUEST_ID.set("r-1")
    logger.info("indexed %d chunks", 3)
    REQUEST_ID.reset(token)
    logger.warning("without a request")
    first, second = stream.getvalue().splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    rag_context\.tests: indexed 3 chunks \[r-1\]", first
    )
    assert second.endswith("WARNING rag_context.tests: without a request")


def test_a_json_line_contains_its_extras() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    logger.info("done\nand dusted", extra={"chunks": 3})
    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "INFO",
        "logger": "rag_context.tests",
        "message": "done\nand dusted",
        "requestId": None,
        "chunks": 3,
    }


@pytest.mark.parametrize(("level", "lines"), [("debug", 3), ("info", 2), ("warn", 1), ("WARNING", 1), ("error", 0)])
def test_the_level_counts_for_our_own_lines(level: str, lines: int) -> None:
    """M-6: `warn` is accepted; other packages stay quiet below a warning."""
    stream = io.StringIO()
    configure_logging(level, "console", stream)
    logger.debug("a")
    logger.info("b")
    logger.warning("c")
    logging.getLogger("somebody.else").info("d")
    assert len(stream.getvalue().splitlines()) == lines
