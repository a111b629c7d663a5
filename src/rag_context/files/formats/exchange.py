"""What passes between this process and its converters: the resources they may use, what they return, or why not.

A message is a frame: its length, then its bytes.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

Label: TypeAlias = str | int | list[str]

CHAT = "chat"
DOCUMENTATION = "documentation"
OWNER = "owner"
TEAMMATE = "teammate"
"""As in `domain.documents`, which a worker does not import: it loads NumPy, more memory than most files need."""

MAX_FILE_BYTES = 64 << 20
"""Size above which a file is not converted, by default."""

MAX_CHARS = 2_000_000
"""Longest text of one document; a longer conversation is split into parts, any other document is rejected."""

_LENGTH = struct.Struct(">I")
MAX_FRAME_BYTES = 1 << 30


class Format(StrEnum):
    """The formats that files are converted from."""

    PDF = "PDF"
    WORD = "Word"
    HTML = "HTML"
    NOTEBOOK = "notebook"
    CHATGPT = "ChatGPT export"
    CLAUDE = "Claude export"
    SLACK = "Slack export"
    CLAUDE_CODE = "Claude Code session"
    CODEX = "Codex session"
    GEMINI = "Gemini CLI session"
    COPILOT = "Copilot CLI session"
    QWEN = "Qwen Code session"
    CLINE = "Cline task"
    CONTINUE = "Continue session"
    CURSOR = "Cursor CLI session"
    GOOSE = "Goose session"
    TRANSCRIPT = "transcript"


@dataclass(frozen=True, slots=True)
class Extracted:
    """A document extracted from a file.

    `part` names one of several in the same file, and is empty where the file is one document; `session_id` is the
    conversation's own, if it has one; `extra` is other metadata of the file; `left_out` counts the parts of the file
    that are not messages of a person or a model.
    """

    content: str
    content_type: str = DOCUMENTATION
    part: str = ""
    session_id: str | None = None
    extra: Mapping[str, Label] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    origin: str | None = None
    """Whose words these are, as `domain.documents.Origin`; None where the format does not tell."""
    message_times: Sequence[tuple[int, int]] = ()
    """Where the messages of a conversation begin, and when each was said, in microseconds since 1970."""


def encoded(document: Extracted) -> bytes:
    """A document as a frame of JSON, which can do no more to its reader than hold values."""
    values = {each.name: getattr(document, each.name) for each in fields(document)}
    return json.dumps(values).encode("utf-8", "surrogatepass")


def decoded(values: dict[str, Any]) -> Extracted:
    """The document in a parsed frame; see `encoded`."""
    return Extracted(**{**values, "message_times": [(start, at) for start, at in values["message_times"]]})


class ConversionError(Exception):
    """Why a file, or the rest of it, cannot be used. `expected` among the files of any folder, such as empty ones."""

    def __init__(self, reason: str, *, expected: bool = False) -> None:
        super().__init__(reason)
        self.expected = expected


def title_block(title: str) -> str:
    """The title as front matter, for a text without one; empty for an empty title."""
    title = " ".join(title.split())[:200]
    if not title:
        return ""
    quoted = title.replace("\\", "\\\\").replace('"', '\\"')
    return f'---\ntitle: "{quoted}"\n---\n\n'


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one conversion.

    `cpu_s` is computing time, so that a busy machine changes no outcome; `wall_s` ends a process that waits instead.
    Memory is address space; where a platform cannot bound it (macOS, Windows), the size of what is unpacked still is.
    """

    cpu_s: int = 30
    wall_s: float = 180.0
    memory_bytes: int = 1 << 30
    unpacked_bytes: int = 256 << 20


class Source(Protocol):
    """A stream that is read from."""

    def read(self, size: int, /) -> bytes: ...


class Sink(Protocol):
    """A stream that is written to."""

    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> None: ...


class CutOffError(Exception):
    """The other process has ended."""


def send(sink: Sink, *frames: bytes) -> None:
    """Write frames. Raises: OSError if the other process has ended."""
    for frame in frames:
        sink.write(_LENGTH.pack(len(frame)))
        sink.write(frame)
    sink.flush()


def receive(source: Source) -> bytes:
    """The next frame. Raises: CutOffError at the end of the stream, or for an impossible length."""
    size: int = _LENGTH.unpack(_exactly(source, _LENGTH.size))[0]
    if size > MAX_FRAME_BYTES:  # a converter that a file has taken over may announce any length
        raise CutOffError
    return _exactly(source, size)


def _exactly(source: Source, size: int) -> bytes:
    # A buffered stream returns less only at its end.
    data = source.read(size)
    if len(data) < size:
        raise CutOffError
    return data
