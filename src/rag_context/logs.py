"""Structured logging to stderr, for the console or as JSON lines, with the request's id in every record.

Programs call `configure_logging`. As a library, the package only emits records.
"""

import logging
import sys
import time
from contextvars import ContextVar
from functools import lru_cache
from typing import Literal, TextIO

from pythonjsonlogger.json import JsonFormatter

REQUEST_ID: ContextVar[str | None] = ContextVar("rag_context_request_id", default=None)
"""Id of the request in progress."""

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


class _Origin(logging.Filter):
    """Adds the id of the request in progress to every record, and the worker where a server has several."""

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._worker = worker

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "request_id"):
            record.request_id = REQUEST_ID.get()
        if self._worker is not None:
            record.worker = self._worker
        return True


class _ConsoleFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO    rag_context.server: message [request id]`."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  (stdlib's name)
        return _timestamp(record)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s%(suffix)s")

    def format(self, record: logging.LogRecord) -> str:
        request_id = getattr(record, "request_id", None)
        worker = getattr(record, "worker", None)
        origin = [each for each in (worker and f"worker {worker}", request_id) if each]
        record.suffix = f" [{', '.join(origin)}]" if origin else ""
        return super().format(record)


class _JsonLines(JsonFormatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  (stdlib's name)
        return _timestamp(record)

    def __init__(self) -> None:
        super().__init__(
            "%(asctime)s %(levelname)s %(name)s %(message)s %(request_id)s",
            rename_fields={"asctime": "timestamp", "levelname": "level", "name": "logger", "request_id": "requestId"},
        )


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _timestamp(record: logging.LogRecord) -> str:
    return f"{_second(int(record.created))}.{int(record.msecs):03d}Z"


def configure_logging(
    level: str = "info",
    style: Literal["auto", "console", "json"] = "console",
    stream: TextIO | None = None,
    worker: int | None = None,
) -> None:
    """Send the package's records, and warnings of everything else, to `stream` (default: stderr).

    Args:
        level: One of `LEVELS`; `warn` is `warning`.
        style: Lines for people, or JSON lines for log collectors; `auto` is for people where stderr is a terminal.
        stream: Where records go; a server that uses stdout for MCP must not log there.
        worker: Number of this process among the workers of a server; None: it is alone.
    """
    # No format uses them, and computing them costs time for every record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    if style == "auto":
        style = "console" if sys.stderr.isatty() else "json"
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.addFilter(_Origin(worker))
    handler.setFormatter(_JsonLines() if style == "json" else _ConsoleFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("rag_context").setLevel(LEVELS[level.lower()])
