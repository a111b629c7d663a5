"""Conversations that were exported or copied as text: WhatsApp, Slack, Teams, ChatML, ChatGPT, `### Human:`.

A text is one of them where two of its messages begin in the same way, the first of them near its beginning.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import PurePath

from rag_context.domain.provenance import role_name
from rag_context.files.histories.client_records import LeftOut, left_out_role
from rag_context.files.histories.conversation import Clock, Conversation, Dates, Message, numbers_of, written_time

SUFFIXES = frozenset(("", ".txt", ".text", ".md", ".markdown", ".log", ".chat"))

_FIRST_LINES = 8
"""The first message begins within so many lines; before it stand notices of the program, and a date."""

_MARKS = dict.fromkeys(map(ord, "\u200e\u200f\u202a\u202c\ufeff"))
"""Invisible characters that WhatsApp writes around names and times."""

_CLOCK = r"(?P<clock>\d{1,2}[:.]\d\d(?:[:.]\d\d)?(?:[ \u00a0\u202f]?[AaPp]\.?[Mm]\.?)?)"
_NUMBERS = r"(?P<date>\d{1,4}[./-]\d{1,2}[./-]\d{1,4})"
_NAME = r"(?P<name>[^\W\d_][^:\n]{0,60}?|\+\d[\d ()-]{5,24})"


@dataclass(frozen=True, slots=True)
class _Form:
    """How messages begin; `notice` also matches the program's notices.

    `is_named`: what stands for a name must look like one, as the rest of the form is that of logs and lists, too.
    """

    message: re.Pattern[str]
    notice: re.Pattern[str] | None = None
    is_named: bool = False

    def starts(self, text: str) -> Iterator[re.Match[str]]:
        return (match for match in self.message.finditer(text) if self._fits(match["name"].strip()))

    def _fits(self, name: str) -> bool:
        if name.lower() in _LEVELS:
            return False
        words = name.split()
        return not self.is_named or (len(words) <= _NAME_WORDS and not any(word[0].islower() for word in words))


def _lines(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"^{pattern}", re.MULTILINE)


_LEVELS = frozenset(("trace", "debug", "info", "notice", "warn", "warning", "error", "critical", "fatal"))
_NAME_WORDS = 4

_FORMS = (
    # WhatsApp on iOS, and on Android
    _Form(_lines(rf"\[{_NUMBERS},? {_CLOCK}\] {_NAME}: "), _lines(rf"\[{_NUMBERS},? {_CLOCK}\] ")),
    _Form(_lines(rf"{_NUMBERS},? {_CLOCK} [-\u2013] {_NAME}: "), _lines(rf"{_NUMBERS},? {_CLOCK} [-\u2013] ")),
    # Teams
    _Form(_lines(rf"\[(?:{_NUMBERS} |[^\W\d]\w{{2,12}} )?{_CLOCK}\] {_NAME}(?::[ \t]|[ \t]*$)"), is_named=True),
    # Slack
    _Form(
        _lines(
            r"(?P<name>[^\W\d_][^:\n\[]{0,40}?)(?:[ \t]{2,20}|[ \t]{1,20}\[|\n[ \t]{0,20}\[?)"
            rf"(?:{_NUMBERS} )?{_CLOCK}\]?[ \t]*$"
        ),
        is_named=True,
    ),
    _Form(_lines(r"<\|im_start\|>(?P<name>\w+)[ \t]*\n")),
    _Form(_lines(r"(?P<name>You|ChatGPT|Claude|Gemini|Copilot|Assistant) said:[ \t]*\n?")),
    _Form(_lines(r"#{2,4} (?P<name>Human|User|Assistant|System|Instruction|Response|Input|Bot|AI):?[ \t]*\n?")),
)  # fmt: skip
_ENDS = re.compile(r"<\|im_end\|>\s*$")
_SPEAKERS = {
    **dict.fromkeys(("you", "instruction", "input"), "User"),
    **dict.fromkeys(("chatgpt", "claude", "gemini", "copilot", "response"), "Assistant"),
}
_MEDIA = re.compile(
    r"<(?:Media omitted|attached: [^>\n]*|Medien ausgeschlossen)>|(?:image|video|audio|sticker|GIF|document) omitted"
)


def is_copied(name: str, head: str) -> bool:
    """Whether a file is a conversation that was exported or copied as text."""
    return PurePath(name).suffix.lower() in SUFFIXES and _form_of(head) is not None


def copied(data: bytes, name: str) -> Conversation:
    """The conversation in a text; `name` is its id."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").translate(_MARKS)
    form = _form_of(text)
    if form is None:
        return Conversation(name, "", [])
    starts = [*form.starts(text)]
    notices = [*form.notice.finditer(text)] if form.notice is not None else []
    edges = sorted({match.start() for match in (*starts, *notices)} | {len(text)})
    following = dict(pairwise(edges))
    dates = Dates(numbers for match in starts if (numbers := numbers_of(match.groupdict().get("date"))) is not None)
    day = written_time(text[: starts[0].start()].strip())
    left_out: Counter[str] = Counter({LeftOut.NOTICE: len(notices) - len(starts) if notices else 0})
    messages = []
    for match in starts:
        said = _MEDIA.sub("", _ENDS.sub("", text[match.end() : following[match.start()]].rstrip())).strip()
        speaker = match["name"].strip()
        if kind := left_out_role(speaker):
            left_out[kind] += 1
        elif said:
            messages.append(
                Message(_SPEAKERS.get(speaker.lower()) or role_name(speaker), said, _time(match, dates, day))
            )
    return Conversation(name, "", messages, left_out=+left_out)


def _form_of(text: str) -> _Form | None:
    text = text.lstrip("\ufeff").translate(_MARKS)
    for form in _FORMS:
        matches = [match for match, _ in zip(form.starts(text), range(2), strict=False)]
        if len(matches) == 2 and text.count("\n", 0, matches[0].start()) < _FIRST_LINES:
            return form
    return None


def _time(match: re.Match[str], dates: Dates, day: datetime | None) -> datetime | None:
    groups = match.groupdict()
    clock = Clock.read(groups.get("clock") or "")
    numbers = numbers_of(groups.get("date"))
    if numbers is not None:
        return dates.time(numbers, clock)
    return None if day is None or clock is None else day.replace(hour=clock.hour, minute=clock.minute)
