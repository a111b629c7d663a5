"""Which files are converted: by their suffix, and conversations in JSON by their first bytes."""

from collections.abc import Sequence
from pathlib import PurePath

from rag_context.files.formats.clients import CLIENTS
from rag_context.files.formats.extracted import Format
from rag_context.files.formats.json_stream import Fields, beginning, elements, fields, lines
from rag_context.files.formats.message import messages_of, turn_of

SNIFFED_BYTES = 1 << 16
"""How much of a file's beginning is read to recognise it."""

SNIFFED_ITEMS = 20


_BY_SUFFIX = {
    ".pdf": Format.PDF,
    ".docx": Format.WORD,
    ".docm": Format.WORD,
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".xhtml": Format.HTML,
    ".ipynb": Format.NOTEBOOK,
}
_OF_OBJECTS = (".json",)
_OF_LINES = (".jsonl", ".ndjson")


def format_of(name: str, head: bytes) -> Format | None:
    """The format a file must be converted from; None for plain text and unknown formats.

    Args:
        name: the file's name or path.
        head: its first `SNIFFED_BYTES`, or fewer; used for JSON files only.
    """
    path = PurePath(name)
    if (own := next((client.format for client in CLIENTS if path.name in client.files), None)) is not None:
        return own
    suffix = path.suffix.lower()
    if suffix in _OF_OBJECTS:
        return _of_object(head)
    if suffix in _OF_LINES:
        return _of_lines(head)
    return _BY_SUFFIX.get(suffix)


def _of_object(head: bytes) -> Format | None:
    """Exports are one array of conversations or messages, or an object around one."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"["):
        if b'"mapping"' in head and b'"create_time"' in head:
            return Format.CHATGPT
        if b'"chat_messages"' in head:
            return Format.CLAUDE
    elif not start.startswith(b"{"):
        return None
    begun = beginning(start.decode("utf-8", "replace"))
    found = [item for item, _ in zip(elements(head), range(SNIFFED_ITEMS), strict=False)]
    if not found and isinstance(begun, list):  # the first message is longer than what is read
        found = [item for item in begun if isinstance(item, dict)]
    if (client := _client([fields(begun), *found])) is not None:
        return client
    if found and all(map(_is_slack, found)):
        return Format.SLACK
    return _transcript(found)


def _of_lines(head: bytes) -> Format | None:
    found = [item for item, _ in zip(lines(head), range(SNIFFED_ITEMS), strict=False)]
    last = fields(beginning(head[head.rfind(b"\n") + 1 :].decode("utf-8", "replace")))
    if (client := _client([*found, last])) is not None:
        return client
    return _transcript(found or ([last] if last else []))


def _client(found: Sequence[Fields]) -> Format | None:
    return next((client.format for client in CLIENTS if any(map(client.is_own, found))), None)


def _transcript(found: list[Fields]) -> Format | None:
    """Every item is a turn, or every item a conversation."""
    if not found:
        return None
    if all(turn_of(item) is not None for item in found) or all(messages_of(item) is not None for item in found):
        return Format.TRANSCRIPT
    return None


def _is_slack(item: Fields) -> bool:
    return item.get("type") == "message" and "ts" in item and ("user" in item or "bot_id" in item or "text" in item)
