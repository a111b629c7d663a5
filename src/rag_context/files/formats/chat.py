"""A conversation as text: `[Name] message`, with a time stamp after pauses, and its metadata."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rag_context.files.formats.extracted import CHAT, MAX_CHARS, Extracted, Label, front_matter
from rag_context.files.formats.message import Message

NEW_STRETCH = timedelta(hours=1)
"""A pause of this length, or another day, is stamped; every turn's time would cost each chunk a tenth of its size."""

MAX_NAME_CHARS = 63
MAX_SPEAKERS = 32

_LIKE_A_TURN = re.compile(r"(?<=\n)(?=[ ]{0,3}(?:\[|\d{1,4}[-:./T][^\n]{1,28}\[))")
"""A line inside a message that looks like the next turn: it is indented."""

_NO_NAME = re.compile(r"[\[\]\r\n\t]+")


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
                yield _document(conversation, head, stretch, turns, number)
                stretch, turns, size = [], [], len(head)
            stretch.append(line)
            size += len(line)
        turns.append(Message(turn.speaker, "", turn.at))
        stamped = turn.at or stamped
    if stretch:
        yield _document(conversation, head, stretch, turns, number + 1)


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
    conversation: Conversation, head: str, stretch: list[str], turns: list[Message], number: int
) -> Extracted:
    part = conversation.part if number == 1 else f"{conversation.part}-{number}" if conversation.part else str(number)
    return Extracted(
        content=head + "".join(stretch),
        content_type=CHAT,
        part=part,
        session_id=conversation.id or None,
        extra=_facts(turns),
        left_out=conversation.left_out if number == 1 else {},
    )


def _facts(turns: list[Message]) -> dict[str, Label]:
    facts: dict[str, Label] = {}
    times: list[datetime] = [turn.at for turn in turns if turn.at is not None]
    if times:
        facts["startedAt"] = f"{min(times):%Y-%m-%dT%H:%M:%SZ}"
        facts["endedAt"] = f"{max(times):%Y-%m-%dT%H:%M:%SZ}"
    facts["speakers"] = list(dict.fromkeys(_name(turn.speaker) for turn in turns))[:MAX_SPEAKERS]
    facts["turns"] = len(turns)
    return facts
