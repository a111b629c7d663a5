"""When a text was said or written, by whom, and whose words it is; and where its front matter ends.

Times are those of front matter and those before messages. Speakers have the names that all sources share, and some of
these are roles. Whose words a text is follows from how it came in, and in a conversation from who speaks. Of what the
owner says, standing instructions such as "always answer in metric units" hold from then on.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby

from rag_context.domain.documents import CHAT, CODE, Channel, DocumentInput, Json, MessageTime, Origin, Stored, aware
from rag_context.domain.own_words import OTHERS, instructions, own_words, quotes

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
    **dict.fromkeys(("user", "human", "prompter"), USER),
    **dict.fromkeys(("assistant", "ai", "bot", "gpt", "model", "chatgpt"), "Assistant"),
    **dict.fromkeys(("system", "developer"), "System"),
    **dict.fromkeys(("tool", "function"), "Tool"),
}

_ROLE_NAMES = frozenset(_ROLES.values())

SPEAKER_FIELDS = ("speaker", "role")
"""The metadata of a single message that name who said it."""


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
    """When a content was said or written: by its front matter or `extra`, else by its first message; None if unsaid.

    In code nothing is read.
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
    """The time of the first message in `start..end`, of which the start may be inside; else `otherwise`."""
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


def has_other_origin(document: DocumentInput, stored: Stored) -> bool:
    """Whether an unchanged content comes in another way than the stored one, or that way is not known."""
    return document.origin is not None and document.origin is not stored.origin


def has_other_time(document: DocumentInput, stored: Stored) -> bool:
    """Whether unchanged content brings a time that replaces the stored one; a file's only if it is earlier."""
    if document.occurred_at is None:
        return False
    if document.channel is Channel.FILE:
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


def origin_of(content_type: str, source: str, channel: Channel, speakers: Collection[str]) -> Origin:
    """Whose words a document is, by how it came in; `speakers` of a conversation as `role_name` writes them.

    A conversation that is submitted as one of a user and an assistant counts as the owner's, whose agent submitted it.
    A file that merely looks like one does not: `files.formats` knows those that a client recorded.
    """
    if source[:8].lower().startswith(("http://", "https://")):
        return Origin.WEB
    if content_type != CHAT:
        return Origin.DOCUMENT if channel is Channel.FILE else Origin.AGENT
    roles = {name for name in speakers if is_role(name)}
    if channel is Channel.TOOL and USER in roles and (len(roles) > 1 or len(speakers) <= 2):
        return Origin.OWNER
    if len(roles) < len(speakers):
        return Origin.TEAMMATE
    return Origin.AGENT if channel is Channel.TOOL and roles else Origin.UNKNOWN


_CLIENT_FOLDERS = re.compile(
    r"/\.?(?:claude/projects|codex/(?:archived_)?sessions|gemini/tmp|qwen/|copilot/session-state|cursor/projects|"
    r"continue/sessions|goose/sessions)|/(?:saoudrizwan\.claude-dev|rooveterinaryinc\.roo-cline)/tasks/"
)


def earlier_origin(
    content_type: str, session_id: str, source: str, thread: str | None, speakers: Collection[str]
) -> Origin:
    """Whose words a document is that an earlier version stored, as far as its fields tell.

    Conversations that were read from files are the owner's where a client keeps its own; others are known when their
    file is read again.
    """
    path = source.replace("\\", "/")
    if content_type == CHAT and thread is None and _CLIENT_FOLDERS.search(path):
        return Origin.OWNER
    is_file = thread is None and (content_type == CHAT or session_id == "files" or path.startswith("/"))
    return origin_of(content_type, source, Channel.FILE if is_file else Channel.TOOL, speakers)


def origins(
    content: str, content_type: str, origin: Origin, pieces: Sequence[tuple[int, int, str | None]]
) -> list[tuple[Origin, bool]]:
    """Of each of its `pieces` (start, end, speaker): whose words it is, and whether it is a standing instruction.

    What quotes is no more trusted than what it quotes.
    """
    if content_type != CHAT or origin is not Origin.OWNER:
        return [(origin, False)] * len(pieces)
    found: list[tuple[Origin, bool]] = []
    begin = text_start(content)
    for speaker, said in groupby(pieces, key=lambda piece: piece[2]):
        spans = [(max(start, begin), end) for start, end, _ in said]
        if speaker != USER:
            found += [(Origin.AGENT, False)] * len(spans)
            continue
        first = spans[0][0]
        text = content[first : spans[-1][1]]
        own, orders = own_words(text), instructions(text)
        for start, end in spans:
            inside = orders[bisect_left(orders, start - first) : bisect_left(orders, end - first)]
            is_standing = bool(inside) and all(own[at] != OTHERS for at in inside)
            is_own = not quotes(own[start - first : end - first])
            found.append((Origin.OWNER if is_own else Origin.UNKNOWN, is_standing))
    return found
