"""When a text was said or written, and by whom, as far as it says so itself; and where its front matter ends.

Times are those of front matter and those before messages. Speakers have the names that all sources share, and some of
these are roles. Of what users say, standing instructions such as "always answer in metric units" hold from then on.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rag_context.domain.documents import (
    CHAT,
    CODE,
    Chunk,
    DocumentInput,
    Json,
    MessageTime,
    Origin,
    Stored,
    aware,
)

_OPENING = re.compile(r"\ufeff?---[ \t]*+\r?\n")
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*+\r?$", re.MULTILINE)
_FRONT_MATTER_CHARS = 16_384
"""So much of a text is searched for the end of its front matter."""

_DATE = re.compile(
    r"^(?P<name>date|created|created_at|createdAt|published)[ \t]*:[ \t]*[\"']?"
    r"(?P<time>\d{4}-\d{2}-\d{2}(?:[Tt ][ \t]*\d{2}:\d{2}[^\"'#\r\n]{0,24})?)[\"']?[ \t]*(?:#[^\r\n]*)?\r?$",
    re.MULTILINE,
)
_DATE_FIELDS = ("date", "created", "created_at", "createdAt", "published")

_STAMP = re.compile(
    r"^[ \t]{0,3}[\[(]?(?P<time>\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?)[\])]?"
    r"[ \t]{1,4}(?=\[[^\W\d]|<[^\W\d]|\*\*|__"
    r"|@?[^\W\d][\w.'@-]{0,38}(?: [\w.'@-]{1,38}){0,2}(?: \([^()\n]{1,24}\))?:\s)",
    re.MULTILINE,
)
"""The date and time before a message and its speaker; a time without a date says too little."""

STARTED = "startedAt"
"""The metadata of a conversation from a file that names the time of its first message."""

USER = "User"

_ROLES = {
    "user": USER,
    "human": USER,
    "prompter": USER,
    "assistant": "Assistant",
    "ai": "Assistant",
    "bot": "Assistant",
    "gpt": "Assistant",
    "model": "Assistant",
    "chatgpt": "Assistant",
    "system": "System",
    "developer": "System",
    "tool": "Tool",
    "function": "Tool",
}

_ROLE_NAMES = frozenset(_ROLES.values())

SPEAKER_FIELDS = ("speaker", "role")
"""The metadata of a single message that name who said it."""

# Linear on any text: every repeat is possessive or bounded, and starts where no other one of its kind can.
_INSTRUCTION = re.compile(
    # The beginning of a line, of a sentence, or of a message behind its speaker; then the mark of a list.
    r"(?:^[^\S\n]*+|[.!?:;>*\]][\"”)]?\s++)(?:[-*+•]\s++|\d{1,3}[.)]\s++)?+"
    r"(?:(?:please|and|also|but|so|ok|okay|oh),?\s++)?+"
    r"(?:(?:always|never)\b(?!\W{1,4}(?:mind|been|had|heard|seen|knew|thought|said|wanted|liked|loved|used|tried)\b)"
    r"|(?:from now on|in (?:the )?future|whenever|every ?time|remember to|when I ask)\b)"
    r"(?![^.!?\n]{0,300}\?)",  # a question is no instruction
    re.IGNORECASE | re.MULTILINE,
)


def front_matter(text: str) -> tuple[int, int]:
    """Offsets between the lines that enclose a leading YAML block; `(0, 0)` without one."""
    if (opening := _OPENING.match(text)) and (closing := _CLOSING.search(text, opening.end())):
        return opening.end(), closing.start()
    return 0, 0


def text_start(text: str) -> int:
    """The offset of the line behind the front matter; 0 without one, the end of a text that has nothing else."""
    _, end = front_matter(text)
    line_end = text.find("\n", end) if end else -1
    return line_end + 1 if line_end >= 0 else len(text) if end else 0


def event_time(document: DocumentInput, now: datetime) -> datetime:
    """When a document was said or written: as submitted, else as its text states it, else now."""
    return document.occurred_at or stated_time(document.content, document.content_type, document.metadata.extra) or now


def stated_time(content: str, content_type: str, extra: Mapping[str, Json] | None = None) -> datetime | None:
    """When a content was said or written: by its front matter, else by its first message; None if it does not say.

    Args:
        content: the text.
        content_type: the kind of content; in code nothing is read.
        extra: other metadata of the document.
    """
    if content_type == CODE:
        return None
    started = (extra or {}).get(STARTED)
    found = _in_front_matter(content) or (parsed(started) if isinstance(started, str) else None)
    if found is not None or content_type != CHAT:
        return found
    return min((each.at for each in stated_message_times(content)), default=None)


def stated_message_times(content: str) -> tuple[MessageTime, ...]:
    """The times that stand before the messages of a conversation, in the order of the text."""
    found = ((match.start(), parsed(match["time"])) for match in _STAMP.finditer(content))
    return tuple(MessageTime(start, at) for start, at in found if at is not None)


def time_at(times: Sequence[MessageTime], start: int, end: int, otherwise: datetime) -> datetime:
    """The time of the first message in `start..end` of a content with these times.

    A stretch that begins inside a message has that message's time; `otherwise` where none is known.
    """
    row = bisect_right(times, start, key=lambda each: each.start) - 1
    if row >= 0:
        return times[row].at
    return times[0].at if times and times[0].start < end else otherwise


def parsed(text: str) -> datetime | None:
    """A date, or a date and time, in ISO 8601; without a zone it is UTC. None if it is invalid."""
    try:
        return aware(datetime.fromisoformat(" ".join(text.split()).upper().replace(" Z", "Z"))).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def has_other_time(document: DocumentInput, stored: Stored) -> bool:
    """Whether an unchanged content comes with a time that replaces the stored one.

    A file's time does so only if it is earlier: a copy, a checkout or a touch makes a later one, and writes nothing.
    """
    if document.occurred_at is None:
        return False
    if document.origin is Origin.FILE:
        return document.occurred_at < stored.occurred_at
    return document.occurred_at != stored.occurred_at


def _in_front_matter(content: str) -> datetime | None:
    opening = _OPENING.match(content)
    closing = opening and _CLOSING.search(content, opening.end(), opening.end() + _FRONT_MATTER_CHARS)
    if opening is None or closing is None:
        return None
    found = {match["name"]: match["time"] for match in _DATE.finditer(content, opening.end(), closing.start())}
    times = (parsed(found[name]) for name in _DATE_FIELDS if name in found)
    return next((time for time in times if time is not None), None)


def role_name(speaker: str) -> str:
    """A speaker as people read it: `human` and `user` are the same."""
    return _ROLES.get(speaker.lower(), speaker)


def is_role(speaker: str) -> bool:
    """Whether a speaker, as `role_name` writes it, is a role and no person."""
    return speaker in _ROLE_NAMES


def is_standing(chunk: Chunk, content_type: str) -> bool:
    """Whether a chunk of a document of this type holds a standing instruction.

    Only conversations do, and of those between a user and an assistant what the user says.
    """
    by_other_role = chunk.speaker is not None and chunk.speaker != USER and is_role(chunk.speaker)
    return content_type == CHAT and not by_other_role and _INSTRUCTION.search(chunk.text) is not None
