"""What a conversion returns, why it returns nothing, and the resources it may use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

Label: TypeAlias = str | int | list[str]

CHAT = "chat"
DOCUMENTATION = "documentation"
"""As in `types`, which a worker does not import: it loads NumPy, more memory than most files need."""


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


class ConversionError(Exception):
    """Why a file, or the rest of it, cannot be used. `expected` among the files of any folder, such as empty ones."""

    def __init__(self, reason: str, *, expected: bool = False) -> None:
        super().__init__(reason)
        self.expected = expected


def front_matter(title: str) -> str:
    """The title as front matter, for a text without one; empty for an empty title."""
    title = " ".join(title.split())[:200]
    if not title:
        return ""
    quoted = title.replace("\\", "\\\\").replace('"', '\\"')
    return f'---\ntitle: "{quoted}"\n---\n\n'


MAX_FILE_BYTES = 64 << 20
"""Size above which a file is not converted, by default."""

MAX_CHARS = 2_000_000
"""Longest text of one document; a longer conversation is split into parts, any other document is rejected."""


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
