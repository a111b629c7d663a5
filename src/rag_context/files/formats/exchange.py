"""What passes between this process and its converters: what they return, or why not."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeAlias

Label: TypeAlias = str | int | list[str]

CHAT = "chat"
DOCUMENTATION = "documentation"
OWNER = "owner"
TEAMMATE = "teammate"
"""As in `domain.documents`, which a worker does not import: it loads NumPy, more memory than most files need."""

PERSON = "person"
HEADLESS = "headless"
SUBAGENT = "subagent"

MAX_FILE_BYTES = 64 << 20
"""Size above which a file is not converted, by default."""

MAX_CHARS = 2_000_000
"""Longest text of one document; a longer conversation is split into parts, any other document is rejected."""


class Format(StrEnum):
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
    VSCODE = "VS Code chat"
    AMP = "Amp thread"
    DROID = "Droid session"
    AIDER = "Aider history"
    ROWS = "session in a database"
    COPIED = "copied conversation"
    TRANSCRIPT = "transcript"


@dataclass(frozen=True, slots=True)
class Ways:
    """How conversations are read: cut into documents of `max_chars`, and only those of these drivers (None: all).

    `repeated` are the messages of a client's session to leave out, by their numbers.
    """

    max_chars: int = MAX_CHARS
    drivers: Sequence[str] | None = None
    repeated: Sequence[int] = ()


WHOLE = Ways()


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
    folder: str = ""
    """Where a client ran; empty where its records do not say so."""
    remote: str = ""
    """The remote of the repository there."""
    driver: str = ""
    """Who talked to the model: `HEADLESS` (a program), `SUBAGENT`, `PERSON`, or empty where nothing says so."""
    keys: Sequence[str] = ()
    """Of a session's first document: names each message whichever session it stands in; empty for one without an id."""


def encoded(document: Extracted) -> bytes:
    """A document as a frame of JSON, which can do no more to its reader than hold values."""
    values = {each.name: getattr(document, each.name) for each in fields(document)}
    return json.dumps(values).encode("utf-8", "surrogatepass")


def decoded(values: dict[str, Any]) -> Extracted:
    return Extracted(**{**values, "message_times": [(start, at) for start, at in values["message_times"]]})


class ConversionError(Exception):
    """Why a file, or the rest of it, cannot be used. `expected` among the files of any folder, such as empty ones."""

    def __init__(self, reason: str, *, expected: bool = False) -> None:
        super().__init__(reason)
        self.expected = expected


class MissingLibraryError(ConversionError):
    """The library that reads such files is not installed; nothing is known of the file."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, expected=True)


def title_block(title: str) -> str:
    """The title as front matter, for a text without one; empty for an empty title."""
    title = " ".join(title.split())[:200]
    if not title:
        return ""
    quoted = title.replace("\\", "\\\\").replace('"', '\\"')
    return f'---\ntitle: "{quoted}"\n---\n\n'
