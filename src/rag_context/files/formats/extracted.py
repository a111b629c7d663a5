"""What a conversion returns, why it returns nothing, and the resources it may use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

Label: TypeAlias = str | int | list[str]

CHAT = "chat"
DOCUMENTATION = "documentation"
"""As in `types`, which a worker does without: it brings NumPy, more memory than most files need."""


class Format(StrEnum):
    """What a file must be converted from."""

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
    """A document taken out of a file.

    `part` names one of several in the same file, and is empty where the file is one document; `session_id` is the
    talk's own, where it has one; `extra` is what else the file says of it; `left_out` counts what is in the file but
    was not said by a person or a model.
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
    """A title for a text that does not say it itself, where titles are looked for; empty for an empty one."""
    title = " ".join(title.split())[:200]
    if not title:
        return ""
    quoted = title.replace("\\", "\\\\").replace('"', '\\"')
    return f'---\ntitle: "{quoted}"\n---\n\n'


MAX_FILE_BYTES = 64 << 20
"""Size above which a file is not converted, unless the caller says otherwise."""

MAX_CHARS = 2_000_000
"""Longest text of one document; a longer talk comes in several parts, any other document is refused."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one conversion.

    `cpu_s` is computing time, so that a busy machine changes no outcome; `wall_s` ends what waits instead.
    Memory is address space; where a platform cannot bound it (macOS, Windows), the size of what is unpacked still is.
    """

    cpu_s: int = 30
    wall_s: float = 180.0
    memory_bytes: int = 1 << 30
    unpacked_bytes: int = 256 << 20
