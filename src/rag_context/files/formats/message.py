"""Turns of a conversation as programs store them: speaker, time and text, under any common field names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rag_context.files.formats.json_stream import Fields

_TEXTS = ("text", "content", "message", "body", "value", "utterance")
_SPEAKERS = ("speaker", "sender", "author", "from", "role", "user", "username", "user_name", "name")
_TIMES = (
    "timestamp time ts date datetime created_at createdAt create_time sent_at sentAt date_unixtime created".split()  # noqa: SIM905
)
_NAMES = ("display_name", "nickname", "real_name", "name", "username", "global_name", "id")
_CONVERSATION_FIELDS = ("messages", "conversations", "conversation", "turns", "transcript")
_DOCUMENT_FIELDS = frozenset({"contentType", "sessionId", "source"})
"""Fields of our own lines of documents, which are not conversations."""

_ROLES = {
    "user": "User",
    "human": "User",
    "prompter": "User",
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
_MILLISECONDS_FROM = 100_000_000_000
"""Seconds up to the year 5138; numbers above are milliseconds."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message: its speaker, its text, and its time if known."""

    speaker: str
    text: str
    at: datetime | None = None


def turn_of(item: Fields) -> Message | None:
    """The turn in an object; None if it is not a turn. A speaker needs a known role, or a time beside it.

    A model's message that only calls a tool has a `content` of null: it is a turn without text.
    """
    if not _DOCUMENT_FIELDS.isdisjoint(item):
        return None
    inner = item.get("message")
    said = {**item, **inner} if isinstance(inner, dict) else item
    key = next((key for key in _TEXTS if isinstance(said.get(key), str | list)), None)
    if key is None and "role" in said and said.get("content", "") is None:
        key = "content"
    at = time_of(said)
    for name in _SPEAKERS:
        speaker = _name_of(said.get(name))
        if key is not None and speaker and (at is not None or speaker.lower() in _ROLES):
            return Message(role_name(speaker), text_of(said[key]), at)
    return None


def messages_of(item: Fields) -> list[Fields] | None:
    """The turns in an object that contains a whole conversation; None if it does not."""
    for key in _CONVERSATION_FIELDS:
        inner = item.get(key)
        if isinstance(inner, list) and inner:
            found = [turn for turn in inner if isinstance(turn, dict)]
            return found if found and all(turn_of(turn) is not None for turn in found) else None
    return None


def role_name(speaker: str) -> str:
    """A speaker as people read it: `human` and `user` are the same."""
    return _ROLES.get(speaker.lower(), speaker)


def text_of(content: object) -> str:
    """The text in a message's content: a string, or parts that hold some; pictures and tool calls have none."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return content["text"] if isinstance(content.get("text"), str) else ""
    if isinstance(content, Sequence):
        parts = [text_of(part) for part in content]
        glue = "" if any(isinstance(part, str) for part in content) else "\n\n"
        return glue.join(part for part in parts if part)
    return ""


def time_of(item: Fields) -> datetime | None:
    """The time stamp of an object, in UTC."""
    moments = (moment(item[key]) for key in _TIMES if key in item)
    return next((found for found in moments if found is not None), None)


def moment(said: object) -> datetime | None:
    """A time stamp in seconds, milliseconds or ISO 8601, in UTC; None if it is invalid."""
    try:
        if isinstance(said, int | float) and not isinstance(said, bool):
            return datetime.fromtimestamp(said / 1000 if said > _MILLISECONDS_FROM else said, UTC)
        if isinstance(said, str):
            if said.replace(".", "", 1).isdigit():
                return moment(float(said))
            found = datetime.fromisoformat(said.strip())
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def _name_of(said: object) -> str:
    if isinstance(said, str):
        return said.strip()
    if isinstance(said, Mapping):
        names = (said[key] for key in _NAMES if isinstance(said.get(key), str))
        return next((name.strip() for name in names if name.strip()), "")
    return ""
