"""Turns of a conversation: read from any program's field names, and written as `[Name] message`.

A turn has a speaker, a time and a text; a time stamp is written after pauses.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from rag_context.domain.documents import microseconds
from rag_context.files.formats.exchange import CHAT, MAX_CHARS, Extracted, Label, front_matter
from rag_context.files.formats.json_stream import Fields
from rag_context.provenance import is_role, role_name

_TEXTS = ("text", "content", "message", "body", "value", "utterance")
_SPEAKERS = ("speaker", "sender", "author", "from", "role", "user", "username", "user_name", "name")
_TIMES = (
    "timestamp time ts date datetime created_at createdAt create_time sent_at sentAt date_unixtime created".split()  # noqa: SIM905
)
_NAMES = ("display_name", "nickname", "real_name", "name", "username", "global_name", "id")
_CONVERSATION_FIELDS = ("messages", "conversations", "conversation", "turns", "transcript")
_DOCUMENT_FIELDS = frozenset({"contentType", "sessionId", "source"})
"""Fields of our own lines of documents, which are not conversations."""

_MILLISECONDS_FROM = 100_000_000_000
"""Seconds up to the year 5138; numbers above are milliseconds."""

NEW_STRETCH = timedelta(hours=1)
"""A pause of this length, or another day, is stamped; every turn's time would cost each chunk a tenth of its size."""

MAX_NAME_CHARS = 63
MAX_SPEAKERS = 32

_LIKE_A_TURN = re.compile(r"(?<=\n)(?=[ ]{0,3}(?:\[|\d{1,4}[-:./T][^\n]{1,28}\[))")
"""A line inside a message that looks like the next turn: it is indented."""

_NO_NAME = re.compile(r"[\[\]\r\n\t]+")


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
        if key is not None and speaker and (at is not None or is_role(role_name(speaker))):
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
    times = (timestamp(item[key]) for key in _TIMES if key in item)
    return next((found for found in times if found is not None), None)


def timestamp(said: object) -> datetime | None:
    """A time stamp in seconds, milliseconds or ISO 8601, in UTC; None if it is invalid."""
    try:
        if isinstance(said, int | float) and not isinstance(said, bool):
            return datetime.fromtimestamp(said / 1000 if said > _MILLISECONDS_FROM else said, UTC)
        if isinstance(said, str):
            if said.replace(".", "", 1).isdigit():
                return timestamp(float(said))
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


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation: its own id, its title where it has one, and its turns."""

    id: str
    title: str
    turns: Iterable[Message]
    part: str = ""
    """Its name among the other conversations of its file; empty if it is the only one."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many other parts of the file were left out, by kind."""


def joined(turns: Iterable[Message]) -> list[Message]:
    """Turns with a text; consecutive pieces of one turn are joined."""
    pieces: list[tuple[Message, list[str]]] = []
    for turn in turns:
        if pieces and pieces[-1][0].speaker == turn.speaker:
            pieces[-1][1].append(turn.text)
        elif turn.text:
            pieces.append((turn, [turn.text]))
    return [Message(turn.speaker, "\n\n".join(filter(None, texts)), turn.at) for turn, texts in pieces]


def documents(conversation: Conversation, max_chars: int = MAX_CHARS) -> Iterator[Extracted]:
    """The conversation as documents: one, several if it is longer than `max_chars`, or none if it has no text."""
    head = front_matter(conversation.title)
    stretch: list[str] = []
    turns: list[Message] = []
    times: list[tuple[int, int]] = []
    size, number, stamped = len(head), 0, None
    for turn in conversation.turns:
        if not turn.text.strip():
            continue
        is_new = turn.at is not None and (
            stamped is None or turn.at.date() != stamped.date() or abs(turn.at - stamped) >= NEW_STRETCH
        )
        for line in _lines(turn, max_chars // 2, is_stamped=is_new):
            if stretch and size + len(line) > max_chars:
                number += 1
                yield _document(conversation, head, stretch, turns, times, number)
                stretch, turns, times, size = [], [], [], len(head)
            if turn.at is not None and (not times or times[-1][1] != microseconds(turn.at)):
                times.append((size, microseconds(turn.at)))
            stretch.append(line)
            size += len(line)
        turns.append(Message(turn.speaker, "", turn.at))
        stamped = turn.at or stamped
    if stretch:
        yield _document(conversation, head, stretch, turns, times, number + 1)


def _lines(turn: Message, max_chars: int, *, is_stamped: bool) -> Iterator[str]:
    """The turn as it is written; one longer than `max_chars` as several of the same speaker."""
    stamp = f"[{turn.at:%Y-%m-%d %H:%M}] " if is_stamped and turn.at is not None else ""
    text = _LIKE_A_TURN.sub("    ", turn.text.strip().replace("\r\n", "\n"))
    for start in range(0, len(text), max_chars):
        yield f"{stamp}[{_name(turn.speaker)}] {text[start : start + max_chars]}\n"


def _name(speaker: str) -> str:
    """The speaker as a turn can begin with it: on one line, from a letter."""
    name = " ".join(_NO_NAME.sub(" ", speaker).split()).lstrip("@")[:MAX_NAME_CHARS].rstrip()
    return name if name and name[0].isalpha() else f"User {name}".rstrip()


def _document(
    conversation: Conversation,
    head: str,
    stretch: list[str],
    turns: list[Message],
    times: list[tuple[int, int]],
    number: int,
) -> Extracted:
    part = conversation.part if number == 1 else f"{conversation.part}-{number}" if conversation.part else str(number)
    return Extracted(
        content=head + "".join(stretch),
        content_type=CHAT,
        part=part,
        session_id=conversation.id or None,
        extra=_details(turns),
        left_out=conversation.left_out if number == 1 else {},
        message_times=times,
    )


def _details(turns: list[Message]) -> dict[str, Label]:
    details: dict[str, Label] = {}
    times: list[datetime] = [turn.at for turn in turns if turn.at is not None]
    if times:
        details["startedAt"] = f"{min(times):%Y-%m-%dT%H:%M:%SZ}"
        details["endedAt"] = f"{max(times):%Y-%m-%dT%H:%M:%SZ}"
    details["speakers"] = list(dict.fromkeys(_name(turn.speaker) for turn in turns))[:MAX_SPEAKERS]
    details["turns"] = len(turns)
    return details
