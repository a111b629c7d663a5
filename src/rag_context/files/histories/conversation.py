"""Messages of a conversation: read from any program's field names, and written as `[Name] message`.

A message has a speaker, a time and a text; a time stamp is written after pauses.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from rag_context.domain.documents import microseconds
from rag_context.domain.provenance import is_role, role_name
from rag_context.files.formats.exchange import CHAT, MAX_CHARS, Extracted, Label, title_block
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

_MILLISECONDS_FROM = 100_000_000_000
"""Seconds up to the year 5138; numbers above are milliseconds."""

NEW_STRETCH = timedelta(hours=1)
"""A pause of this length, or another day, is stamped; a time before every message would be a tenth of each chunk."""

MAX_NAME_CHARS = 63
MAX_SPEAKERS = 32

_LIKE_A_MESSAGE = re.compile(r"(?<=\n)(?=[ ]{0,3}(?:\[|\d{1,4}[-:./T][^\n]{1,28}\[))")
"""A line inside a message that looks like the next one: it is indented."""

_NO_NAME = re.compile(r"[\[\]\r\n\t]+")


@dataclass(frozen=True, slots=True)
class Message:
    speaker: str
    text: str
    at: datetime | None = None


def message_of(item: Fields) -> Message | None:
    """The message in an object, which may be without text; None without a known role or a time beside its speaker."""
    if not _DOCUMENT_FIELDS.isdisjoint(item):
        return None
    inner = item.get("message")
    merged = {**item, **inner} if isinstance(inner, dict) else item
    key = next((key for key in _TEXTS if isinstance(merged.get(key), str | list)), None)
    if key is None and "role" in merged and merged.get("content", "") is None:
        key = "content"
    at = time_of(merged)
    for name in _SPEAKERS:
        speaker = _name_of(merged.get(name))
        if key is not None and speaker and (at is not None or is_role(role_name(speaker))):
            return Message(role_name(speaker), text_of(merged[key]), at)
    return None


def messages_of(item: Fields) -> list[Fields] | None:
    """The messages in an object that contains a whole conversation; None if it does not."""
    for key in _CONVERSATION_FIELDS:
        inner = item.get(key)
        if isinstance(inner, list) and inner:
            found = [message for message in inner if isinstance(message, dict)]
            return found if found and all(message_of(message) is not None for message in found) else None
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
    times = (timestamp(item[key]) for key in _TIMES if key in item)
    return next((found for found in times if found is not None), None)


def timestamp(value: object) -> datetime | None:
    """A time stamp in seconds, milliseconds or ISO 8601, in UTC; None if it is invalid."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > _MILLISECONDS_FROM else value, UTC)
        if isinstance(value, str):
            if value.replace(".", "", 1).isdigit():
                return timestamp(float(value))
            found = datetime.fromisoformat(value.strip())
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return written_time(value) if isinstance(value, str) else None
    return None


def _name_of(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, Mapping):
        names = (value[key] for key in _NAMES if isinstance(value.get(key), str))
        return next((name.strip() for name in names if name.strip()), "")
    return ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation: its own id, its title where it has one, and its messages."""

    id: str
    title: str
    messages: Iterable[Message]
    part: str = ""
    """Its name among the other conversations of its file; empty if it is the only one."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many other parts of the file were left out, by kind."""
    folder: str = ""
    remote: str = ""
    driver: str = ""
    keys: Sequence[str] = ()
    """As in `Extracted`."""


def joined(messages: Iterable[Message]) -> list[Message]:
    """Messages with a text; consecutive ones of a speaker are joined."""
    pieces: list[tuple[Message, list[str]]] = []
    for message in messages:
        if pieces and pieces[-1][0].speaker == message.speaker:
            pieces[-1][1].append(message.text)
        elif message.text:
            pieces.append((message, [message.text]))
    return [Message(message.speaker, "\n\n".join(filter(None, texts)), message.at) for message, texts in pieces]


def documents(conversation: Conversation, max_chars: int = MAX_CHARS) -> Iterator[Extracted]:
    """The conversation as documents: one, several if it is longer than `max_chars`, or none if it has no text."""
    head = title_block(conversation.title)
    stretch: list[str] = []
    messages: list[Message] = []
    times: list[tuple[int, int]] = []
    size, number, stamped = len(head), 0, None
    for message in conversation.messages:
        if not message.text.strip():
            continue
        is_new = message.at is not None and (
            stamped is None or message.at.date() != stamped.date() or abs(message.at - stamped) >= NEW_STRETCH
        )
        # Half of a document at most, so that no document ends before it is half full.
        for line in _lines(message, max_chars // 2, is_stamped=is_new):
            if stretch and size + len(line) > max_chars:
                number += 1
                yield _document(conversation, head, stretch, messages, times, number)
                stretch, messages, times, size = [], [], [], len(head)
            # Only where the time changes: a message has the time of the last entry before it.
            if message.at is not None and (not times or times[-1][1] != microseconds(message.at)):
                times.append((size, microseconds(message.at)))
            stretch.append(line)
            size += len(line)
        messages.append(Message(message.speaker, "", message.at))
        stamped = message.at or stamped
    if stretch:
        yield _document(conversation, head, stretch, messages, times, number + 1)


def _lines(message: Message, max_chars: int, *, is_stamped: bool) -> Iterator[str]:
    """The message as it is written; one longer than `max_chars` as several of the same speaker."""
    stamp = f"[{message.at:%Y-%m-%d %H:%M}] " if is_stamped and message.at is not None else ""
    text = _LIKE_A_MESSAGE.sub("    ", message.text.strip().replace("\r\n", "\n"))
    for start in range(0, len(text), max_chars):
        yield f"{stamp}[{_name(message.speaker)}] {text[start : start + max_chars]}\n"


def _name(speaker: str) -> str:
    """The speaker as a message can begin with it: on one line, from a letter."""
    name = " ".join(_NO_NAME.sub(" ", speaker).split()).lstrip("@")[:MAX_NAME_CHARS].rstrip()
    return name if name and name[0].isalpha() else f"User {name}".rstrip()


def _document(
    conversation: Conversation,
    head: str,
    stretch: list[str],
    messages: list[Message],
    times: list[tuple[int, int]],
    number: int,
) -> Extracted:
    part = conversation.part if number == 1 else f"{conversation.part}-{number}" if conversation.part else str(number)
    return Extracted(
        content=head + "".join(stretch),
        content_type=CHAT,
        part=part,
        session_id=conversation.id or None,
        extra=_details(messages),
        left_out=conversation.left_out if number == 1 else {},
        message_times=times,
        folder=conversation.folder,
        remote=conversation.remote,
        driver=conversation.driver,
        keys=conversation.keys if number == 1 else (),
    )


def _details(messages: list[Message]) -> dict[str, Label]:
    details: dict[str, Label] = {}
    times: list[datetime] = [message.at for message in messages if message.at is not None]
    if times:
        details["startedAt"] = f"{min(times):%Y-%m-%dT%H:%M:%SZ}"
        details["endedAt"] = f"{max(times):%Y-%m-%dT%H:%M:%SZ}"
    details["speakers"] = list(dict.fromkeys(_name(message.speaker) for message in messages))[:MAX_SPEAKERS]
    details["turns"] = len(messages)
    return details


_MONTHS = {
    name: number
    for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)  # noqa: SIM905
}
_CLOCK = re.compile(
    r"(?<![\d.:/-])(?P<hour>\d{1,2})[:.](?P<minute>\d\d)(?:[:.](?P<second>\d\d))?(?![\d.:/-])"
    r"(?:[\s\u00a0\u202f]?(?P<half>[ap])\.?m\b)?",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"(?<!\d)(\d{1,4})([./-])(\d{1,2})\2(\d{1,4})(?!\d)")
_MONTH = re.compile(r"\b(?P<name>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\b", re.IGNORECASE)
_DAY = re.compile(r"(?<![\d:.])(\d{1,2})(?:st|nd|rd|th)?(?![\d:.])", re.IGNORECASE)
_ZONE = re.compile(r"(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)$")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_REST = re.compile(r"\b(?:on|at|um|UTC|Z)\b|[\s,;()\[\]]")
_MAX_CHARS = 64
_MAX_MONTH = 12
_CENTURY = 100

Numbers: TypeAlias = tuple[int, int, int]


class Clock(NamedTuple):
    hour: int = 0
    minute: int = 0
    second: int = 0

    @classmethod
    def read(cls, text: str) -> "Clock | None":
        match = _CLOCK.search(text)
        if match is None:
            return None
        hour, half = int(match["hour"]), (match["half"] or "").lower()
        return cls(hour % 12 + 12 * (half == "p") if half else hour, int(match["minute"]), int(match["second"] or 0))


class Dates:
    """Dates in one order of numbers (of which `found` are some): that in which all are dates, and none goes back."""

    def __init__(self, found: Iterable[Numbers]) -> None:
        numbers = [*found]
        day_first = [_date(each, is_day_first=True) for each in numbers]
        month_first = [_date(each, is_day_first=False) for each in numbers]
        self._is_day_first = _disorder(day_first) <= _disorder(month_first)

    def time(self, numbers: Numbers, clock: Clock | None) -> datetime | None:
        """The time of a date; None if there is no such day."""
        date = _date(numbers, is_day_first=self._is_day_first)
        return None if date is None else _at(date, clock)


def numbers_of(text: str | None) -> Numbers | None:
    match = _NUMBERS.search(text or "")
    return None if match is None else (int(match[1]), int(match[3]), int(match[4]))


def written_time(text: str) -> datetime | None:
    """The time that a short text is, in UTC where it names no other zone; None if it is none."""
    if len(text) > _MAX_CHARS:
        return None
    clock = Clock.read(text)
    if (month := _MONTH.search(text)) is not None:
        return _named(text, _MONTHS[month["name"].lower()], clock)
    if _REST.sub("", _CLOCK.sub("", _NUMBERS.sub("", text))):
        return None
    numbers = numbers_of(text)
    return None if numbers is None else Dates([numbers]).time(numbers, clock)


def _named(text: str, month: int, clock: Clock | None) -> datetime | None:
    year = _YEAR.search(text)
    day = _DAY.search(_CLOCK.sub(" ", text))
    found = None if year is None or day is None else _at((int(year[0]), month, int(day[1])), clock)
    if found is None or (zone := _ZONE.search(text)) is None:
        return found
    offset = timedelta(hours=int(zone["hours"]), minutes=int(zone["minutes"]))
    return found - offset if zone["sign"] == "+" else found + offset


def _at(date: Numbers, clock: Clock | None) -> datetime | None:
    try:
        return datetime(*date, *(clock or Clock()), tzinfo=UTC)
    except ValueError:
        return None


def _date(numbers: Numbers, *, is_day_first: bool) -> Numbers | None:
    """Year, month and day."""
    first, second, third = numbers
    if first >= _CENTURY:
        date = first, second, third
    else:
        day, month = (first, second) if is_day_first else (second, first)
        date = third + 2000 * (third < _CENTURY), month, day
    return date if 1 <= date[1] <= _MAX_MONTH else None


def _disorder(dates: list[Numbers | None]) -> int:
    """How many are no dates, or before the one before."""
    known = [date for date in dates if date is not None]
    return 1000 * (len(dates) - len(known)) + sum(later < earlier for earlier, later in pairwise(known))
