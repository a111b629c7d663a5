"""Files of other formats: which ones are converted, and by worker processes that are started for the first one.

A format is recognised by the file's suffix, conversations in JSON by their first bytes.
"""

import importlib.util
import json
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path, PurePath

from rag_context.files.formats import exchange
from rag_context.files.formats.json_stream import Fields, beginning, elements, fields, lines
from rag_context.files.histories.conversation import message_of, messages_of
from rag_context.files.histories.copied import is_copied
from rag_context.files.histories.transcripts import CLIENTS
from rag_context.resilience.confinement import ProcessLimits
from rag_context.resilience.worker_processes import WorkerFailedError, WorkerProcesses
from rag_context.settings.installation import install_command

SNIFFED_BYTES = 1 << 16
"""How much of a file's beginning is read to recognise it."""

SNIFFED_ITEMS = 20
AIDER_FILE = ".aider.chat.history.md"

_BY_SUFFIX = {
    ".pdf": exchange.Format.PDF,
    **dict.fromkeys((".docx", ".docm"), exchange.Format.WORD),
    **dict.fromkeys((".html", ".htm", ".xhtml"), exchange.Format.HTML),
    ".ipynb": exchange.Format.NOTEBOOK,
}
_OF_OBJECTS = (".json",)
_OF_LINES = (".jsonl", ".ndjson")

_LIBRARIES = {
    exchange.Format.PDF: ("pypdfium2",),
    exchange.Format.WORD: ("mammoth", "markdownify"),
    exchange.Format.HTML: ("markdownify",),
}
_MAX_USERS_BYTES = 16 << 20


def format_of(name: str, head: bytes) -> exchange.Format | None:
    """The format a file must be converted from; None for others. `head`, its first bytes, is used for JSON alone."""
    path = PurePath(name)
    if path.name == AIDER_FILE:
        return exchange.Format.AIDER
    if (own := next((client.format for client in CLIENTS if path.name in client.files), None)) is not None:
        return own
    suffix = path.suffix.lower()
    if suffix in _OF_OBJECTS:
        return _of_object(head)
    if suffix in _OF_LINES:
        return _of_lines(head)
    if is_copied(path.name, head.decode("utf-8", "replace")):
        return exchange.Format.COPIED
    return _BY_SUFFIX.get(suffix)


def _of_object(head: bytes) -> exchange.Format | None:
    """Exports are one array of conversations or messages, or an object around one."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"["):
        if b'"mapping"' in head and b'"create_time"' in head:
            return exchange.Format.CHATGPT
        if b'"chat_messages"' in head:
            return exchange.Format.CLAUDE
    elif not start.startswith(b"{"):
        return None
    begun = beginning(start.decode("utf-8", "replace"))
    found = [item for item, _ in zip(elements(head), range(SNIFFED_ITEMS), strict=False)]
    if not found and isinstance(begun, list):  # the first message is longer than what is read
        found = [item for item in begun if isinstance(item, dict)]
    if (client := _client([fields(begun), *found])) is not None:
        return client
    if found and all(map(_is_slack, found)):
        return exchange.Format.SLACK
    return _transcript(found)


def _of_lines(head: bytes) -> exchange.Format | None:
    found = [item for item, _ in zip(lines(head), range(SNIFFED_ITEMS), strict=False)]
    last = fields(beginning(head[head.rfind(b"\n") + 1 :].decode("utf-8", "replace")))
    if (client := _client([*found, last])) is not None:
        return client
    return _transcript(found or ([last] if last else []))


def _client(found: Sequence[Fields]) -> exchange.Format | None:
    return next((client.format for client in CLIENTS if any(map(client.is_own, found))), None)


def _transcript(found: list[Fields]) -> exchange.Format | None:
    """Every item is a message, or every item a conversation."""
    if not found:
        return None
    if all(message_of(item) is not None for item in found) or all(messages_of(item) is not None for item in found):
        return exchange.Format.TRANSCRIPT
    return None


def _is_slack(item: Fields) -> bool:
    return item.get("type") == "message" and "ts" in item and ("user" in item or "bot_id" in item or "text" in item)


class Converter(AbstractContextManager["Converter"]):
    """Converts files in at most `workers` processes, each of which serves many files. Use as a context manager."""

    def __init__(self, limits: ProcessLimits | None = None, *, workers: int = 2) -> None:
        self._processes = WorkerProcesses(
            "rag_context.files.formats.worker", limits or ProcessLimits(), workers=workers
        )

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes, also those at work: a command that is ended does not wait for the file that it reads."""
        self._processes.close()

    def documents(
        self, format_: exchange.Format, path: Path, data: bytes, ways: exchange.Ways = exchange.WHOLE
    ) -> Generator[exchange.Extracted, None, None]:
        """The documents in a file, in order; to be called from any thread. Next to a Slack export, its users are read.

        Raises: ConversionError (earlier documents are valid), WorkersClosedError (nothing is known of the file).
        """
        if missing := [name for name in _LIBRARIES.get(format_, ()) if importlib.util.find_spec(name) is None]:
            needed = " and ".join(missing)
            raise exchange.MissingLibraryError(f"{format_} files need {needed}: run `{install_command('formats')}`")
        beside = _users(path) if format_ is exchange.Format.SLACK else b""
        parameters = json.dumps({"format": format_.value, "name": str(path), **asdict(ways)}).encode()
        try:
            with self._processes.worker() as worker:
                outcome = json.loads(worker.request(parameters, data, beside))
                while "content" in outcome:
                    yield exchange.decoded(outcome)
                    outcome = json.loads(worker.next_frame())
                worker.is_ready = "ended" in outcome or "expected" in outcome
        except WorkerFailedError as error:
            raise exchange.ConversionError(str(error)) from error
        if "reason" in outcome:
            raise exchange.ConversionError(str(outcome["reason"]), expected=bool(outcome.get("expected")))


def _users(path: Path) -> bytes:
    """The list of users of the Slack export that a channel's day belongs to; empty without one."""
    try:
        with (path.parent.parent / "users.json").open("rb") as file:
            return file.read(_MAX_USERS_BYTES)
    except OSError:
        return b""
