"""Who called what changes something, and who was rejected: one line of JSON each, in a file for each month.

A line names the key, the client, the operation, what it was about by its id or a hash of its name, and the outcome;
never a text, a source, a tag or a query. Several processes append to one file. Without a server there is none:
`recorded_in` opens it.
"""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

from rag_context.domain.documents import utc_now
from rag_context.logs import REQUEST_ID

logger = logging.getLogger(__name__)

FOLDER = "audit"

_folders: list[tuple[Path, int]] = []
"""Where this process records, and for how many days; the last one counts."""


@contextmanager
def recorded_in(data_dir: Path, days: int) -> Iterator[None]:
    """Record calls below a data directory for the time of the block."""
    _folders.append((data_dir / FOLDER, days))
    try:
        yield
    finally:
        _folders.pop()


def hashed(name: str) -> str:
    """A project or a collection, whose name goes when it is deleted: who knows the name finds it."""
    return f"sha256:{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def record(
    operation: str, outcome: str, *, key: str | None, client: str | None = None, target: Sequence[str] = ()
) -> None:
    """Append a line; where that fails, the log says so, and the call goes on."""
    if not _folders:
        return
    (folder, days), now = _folders[-1], utc_now()
    fields = {
        "at": now.isoformat(timespec="milliseconds"),
        "key": key,
        "client": client,
        "operation": operation,
        "target": list(target) or None,
        "outcome": outcome,
        "requestId": REQUEST_ID.get(),
    }
    line = json.dumps({name: value for name, value in fields.items() if value is not None}) + "\n"
    file = folder / f"{now:%Y-%m}.jsonl"
    try:
        if not file.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
            _prune(folder, f"{now - timedelta(days=days):%Y-%m}.jsonl")
        # One write to a file that is opened for appending: lines of several processes do not mix.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        logger.warning("a call could not be recorded: %s", error)


def _prune(folder: Path, oldest: str) -> None:
    for file in folder.glob("*.jsonl"):
        if file.name < oldest:
            file.unlink(missing_ok=True)


def lines(data_dir: Path) -> Iterator[str]:
    """All lines, the latest first."""
    for file in sorted((data_dir / FOLDER).glob("*.jsonl"), reverse=True):
        yield from reversed(file.read_text("utf-8").splitlines())
