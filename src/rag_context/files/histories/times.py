"""Times as people and programs write them, other than ISO 8601: `1:56 pm on 8 May, 2023`, `31.12.24 23:59`."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple, TypeAlias

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
