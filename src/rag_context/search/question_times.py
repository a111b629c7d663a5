"""Times that a question names, as "yesterday", "last week", "in March", "since 7 May 2025" or "as of 2025-06". Pure.

Passages from near such a time come first. It is a boost and never a filter: people date things roughly, and speak of a
day on another one. On 189 dated questions to conversations in use, half-lives of 3 to 15 days and weights of .2 to .6
ranked equally well; docs/design/quality.md shows what the weight and the threshold change in the open set.

The grammar is small: dateparser takes "may", "we", "march on" and "3000 on 10.0.0.1" for dates, returns moments for
periods, and takes 0.9 ms for a question and 0.26 s to import.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import MAXYEAR, MINYEAR, datetime, timedelta
from functools import cache
from re import Match

import numpy as np

from rag_context.domain.documents import microseconds, moment
from rag_context.domain.search import ChunkRef, Filter, Floats
from rag_context.search import periods
from rag_context.search.rules import HALF_LIFE_DAYS, OUTSIDE, THRESHOLD_SHARE, TIME_WEIGHT, YEARS_BACK

_DAY = timedelta(days=1)
_DAY_US = _DAY / timedelta(microseconds=1)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Window:
    """A time that a question names: `since <= t < until`, where None is open.

    `phrase` is how the question puts it. Without a year it is `yearly`, the last such period by the time of asking,
    and stands for those of other years too.
    """

    phrase: str
    since: datetime | None = None
    until: datetime | None = None
    yearly: bool = False


def merged(windows: Sequence[Window]) -> Window | None:
    """One window from the beginning of the first to the end of the last; None without any."""
    if len(windows) < 2:
        return windows[0] if windows else None
    since, until = [each.since for each in windows], [each.until for each in windows]
    return Window(
        ", ".join(each.phrase for each in windows),
        None if None in since else min(at for at in since if at is not None),
        None if None in until else max(at for at in until if at is not None),
        any(each.yearly for each in windows),
    )


def nearnesses(windows: Sequence[Window], chunks: Sequence[ChunkRef]) -> Floats:
    """Nearness of each chunk to a window, `(n,)`: 1 inside, else `.8 * 2^(-days / 7)`; 0 where its time is unknown."""
    known = [chunk.occurred_us for chunk in chunks]
    times = np.array([math.nan if at is None else at for at in known], dtype=np.float64)
    gaps = np.full(len(times), np.inf)  # in days
    for window in (each for found in windows for each in _around(found, known)):
        since = -np.inf if window.since is None else microseconds(window.since)
        until = np.inf if window.until is None else microseconds(window.until)
        after = np.where(times >= until, np.maximum(times - until, 1.0), 0.0)  # its end is outside
        np.fmin(gaps, np.where(times < since, since - times, after) / _DAY_US, out=gaps)
    near = np.where(gaps > 0.0, OUTSIDE * 2.0 ** (-gaps / HALF_LIFE_DAYS), 1.0)
    near[np.isnan(times)] = 0.0
    return near


def time_boosts(windows: Sequence[Window], chunks: Sequence[ChunkRef], scores: Floats) -> Floats:
    """What is added to the score of each chunk, `(n,)`, for its nearness to a window."""
    return TIME_WEIGHT * float(scores.max(initial=0.0)) * nearnesses(windows, chunks)


def threshold_shares(windows: Sequence[Window], chunks: Sequence[ChunkRef]) -> Floats:
    """How much of the default threshold applies to each chunk, `(n,)`; all of it outside, and in open windows."""
    closed = [each for each in windows if each.since is not None and each.until is not None]
    if not closed:
        return np.ones(len(chunks))
    return np.where(nearnesses(closed, chunks) == 1.0, THRESHOLD_SHARE, 1.0)


def near_filters(windows: Sequence[Window], where: Filter) -> Iterator[Filter]:
    """Filters that let through what is near a window and passes `where`, the latest years first."""
    for window in windows:
        last = window.since.year if window.yearly and window.since is not None else 0
        years = range(last, last - YEARS_BACK - 1, -1) if last else (0,)
        for year in years:
            each = _in_year(window, year) if last else window
            since, until = _widened(each.since, -1), _widened(each.until, 1)
            since = max((at for at in (since, where.since) if at is not None), default=None)
            until = min((at for at in (until, where.until) if at is not None), default=None)
            # The filter of the search may leave nothing of the window.
            if since is None or until is None or since < until:
                yield replace(where, since=since, until=until)


def _widened(bound: datetime | None, sign: int) -> datetime | None:
    """The bound, so much further out that what is between them has the least nearness that counts as near."""
    try:
        return None if bound is None else bound + sign * HALF_LIFE_DAYS * _DAY
    except OverflowError:  # beyond the calendar nothing is bounded
        return None


def _around(window: Window, times: Sequence[int | None]) -> Iterator[Window]:
    """The window; a yearly one in the years of the moments (microseconds), and in those before and after them."""
    if not window.yearly:
        yield window
        return
    years = {moment(at).year for at in times if at is not None}
    for year in sorted({year + step for year in years for step in (-1, 0, 1)}):
        yield _in_year(window, year)


def _in_year(window: Window, year: int) -> Window:
    if window.since is None or window.until is None:
        return window
    since = moved(window.since, year - window.since.year)
    return replace(window, since=since, until=moved(window.until, year - window.since.year))


def moved(at: datetime, years: int) -> datetime:
    """The same day so many years later; 29 February is 1 March where there is none."""
    year = min(max(at.year + years, MINYEAR), MAXYEAR)
    try:
        return at.replace(year=year)
    except ValueError:
        return at.replace(year=year, month=3, day=1)


@dataclass(frozen=True, slots=True)
class _Expression:
    """A pattern, what reads its matches, and sets of words; a match has one of each. Years in digits have no sets."""

    pattern: str
    read: "Callable[[Match[str], datetime], periods.Period | None]"
    keys: Sequence[frozenset[str]]

    def matches(self, question: str, words: frozenset[str]) -> Iterable[Match[str]]:
        """What matches; the words are compared first, because most questions have none of them."""
        has_words = all(not keys.isdisjoint(words) for keys in self.keys)
        return _compiled(self.pattern).finditer(question) if has_words else ()


def _keys(phrases: Iterable[str]) -> frozenset[str]:
    """The last word of each phrase."""
    return frozenset(_WORD.findall(phrase)[-1] for phrase in phrases)


def _any(words: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


_YEAR = r"(?:19[7-9]\d|20[0-3]\d)(?![\w:/-]|[.,]\d)"
_MONTH = rf"(?P<month>\b(?:{_any(periods.MONTHS)})\b)\.?"
_OF_YEAR = rf"(?:,?\s+(?:de |del |of )?(?P<year>{_YEAR}))?"
_ORDINAL = r"(?:st|nd|rd|th|er|º|\.)?"
_TO = r"(?:\s?(?:-|–|to|and|bis|au|al)\s?(?P<last>\d{1,2}))?"
_UNIT = rf"(?P<unit>{_any(periods.UNITS)})\b"
_COUNT = rf"(?P<count>\b(?:\d{{1,3}}|{_any(periods.NUMBERS)}))\s(?:of )?"
_BEFORE_IT = rf"(?:(?<![\w-])(?P<relation>{_any(periods.RELATIONS)})\s+)?(?:(?:the|den|dem|der|la|el|los|las|le|les) )?"
_PART = rf"(?:(?<![\w-])(?P<part>{_any(periods.PARTS)})[\s-]+)?"


def _pattern(rest: str) -> str:
    return _BEFORE_IT + rest


# Compiled when it is needed first: all of them together would slow every start.
@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_ISO = (
    rf"{_PART}(?<![\w.:/#@-])(?P<year>(?:19|20)\d\d)(?P<mark>[-/])(?P<month>0[1-9]|1[0-2])"
    r"(?:(?P=mark)(?P<day>\d\d)(?:[T ]\d\d:\d\d[^\s?]*)?)?(?![\w/-]|\.\d)"
)
_DOTTED = r"(?<![\w.-])(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\.\s?(?P<year>(?:19|20)\d\d)(?![\w-]|\.\d)"
_DAY_MONTH = rf"(?<![\w.:/#-])(?P<day>\d{{1,2}}){_ORDINAL}{_TO}{_ORDINAL}\s+(?:of |de )?{_MONTH}{_OF_YEAR}"
_MONTH_DAY = rf"{_MONTH}\s+(?P<day>\d{{1,2}}){_ORDINAL}{_TO}(?![\d%]|[.:]\d){_OF_YEAR}"
_DAY_NAMES = _any(periods.DAYS).replace("'", "['’]")
_TO_YEAR = rf"(?:\s?(?:to|and|through|until|till|-|–|bis|und|et|à|y|a|и|по)\s?(?P<last>{_YEAR}))?"
_QUARTERS = frozenset({"q1", "q2", "q3", "q4"})
_WHICH = rf"\b(?P<which>{_any(periods.LAST)})\s"
_WHICH_BEHIND = rf"\s(?P<which>{_any(periods.BEHIND)})\b"
_NOT_OF = r"(?! of\b| de[rs]?\b)"
_WEEKDAY = rf"\b(?P<weekday>{_any(periods.WEEKDAYS)})\b"

_LAST_KEYS, _BEHIND_KEYS, _UNIT_KEYS, _MONTH_KEYS = (
    _keys(periods.LAST),
    _keys(periods.BEHIND),
    _keys(periods.UNITS),
    _keys(periods.MONTHS),
)
_EXPRESSIONS = (
    _Expression(rf"\b(?:{_any(periods.AGO)})\s{_COUNT}{_UNIT}", periods.ago, (_keys(periods.AGO), _UNIT_KEYS)),
    _Expression(
        _pattern(rf"(?:{_COUNT})?\b{_UNIT}\s(?:{_any(periods.AGO_BEHIND)})\b"),
        periods.ago,
        (_keys(periods.AGO_BEHIND), _UNIT_KEYS),
    ),
    _Expression(_pattern(rf"{_WHICH}{_COUNT}{_UNIT}"), periods.rolling, (_LAST_KEYS, _UNIT_KEYS)),
    _Expression(_pattern(rf"{_COUNT}(?:derniers|dernières)\s{_UNIT}"), periods.rolling, (_BEHIND_KEYS, _UNIT_KEYS)),
    _Expression(_pattern(rf"{_WHICH}{_UNIT}{_NOT_OF}"), periods.last_unit, (_LAST_KEYS, _UNIT_KEYS)),
    _Expression(_pattern(rf"\b{_UNIT}{_WHICH_BEHIND}"), periods.last_unit, (_BEHIND_KEYS, _UNIT_KEYS)),
    _Expression(_pattern(rf"{_WHICH}{_MONTH}(?!\s\d)"), periods.last_month, (_LAST_KEYS, _MONTH_KEYS)),
    _Expression(_pattern(rf"{_MONTH}{_WHICH_BEHIND}"), periods.last_month, (_BEHIND_KEYS, _MONTH_KEYS)),
    _Expression(_pattern(rf"(?:{_WHICH})?{_WEEKDAY}"), periods.weekday, (_keys(periods.WEEKDAYS),)),
    _Expression(_pattern(rf"{_WEEKDAY}{_WHICH_BEHIND}"), periods.weekday, (_keys(periods.WEEKDAYS), _BEHIND_KEYS)),
    _Expression(_pattern(rf"(?<![\w-])(?P<name>{_DAY_NAMES})(?![\w-])"), periods.named_day, (_keys(periods.DAYS),)),
    _Expression(_pattern(_ISO), periods.digits, ()),
    _Expression(_pattern(_DOTTED), periods.digits, ()),
    _Expression(_pattern(_DAY_MONTH), periods.day_of_month, (_MONTH_KEYS,)),
    _Expression(_pattern(_MONTH_DAY), periods.day_of_month, (_MONTH_KEYS,)),
    _Expression(_pattern(rf"{_PART}(?<!\d\s){_MONTH}{_OF_YEAR}(?!\s+\d)"), periods.month, (_MONTH_KEYS,)),
    _Expression(
        _pattern(rf"\bQ(?P<quarter>[1-4])(?:(?: of)?\s+(?P<year>{_YEAR}))?(?![\w.])"), periods.quarter, (_QUARTERS,)
    ),
    _Expression(_pattern(rf"{_PART}(?<![\w.:/#@$€-])(?P<year>{_YEAR}){_TO_YEAR}"), periods.year, ()),
)
"""What one expression matches is not matched again by those after it."""

TIME_WORDS = frozenset[str]().union(*(expression.keys[0] for expression in _EXPRESSIONS if expression.keys))
"""A question that names a time has one of these words, or a year in digits."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A period in a question: where it stands, and the word before it that relates the answer to it."""

    start: int
    end: int
    relation: str | None
    since: datetime
    until: datetime
    yearly: bool = False


def windows(question: str, now: datetime) -> tuple[Window, ...]:
    """The times that a question names, in their order; relative ones count from `now`, in UTC."""
    words = frozenset(_WORD.findall(question.lower()))
    found: list[_Found] = []
    for expression in _EXPRESSIONS:
        for match in expression.matches(question, words):
            # An earlier expression has the longer match: in `7 May 2025` neither the month nor the year is read again.
            is_free = all(match.end() <= other.start or other.end <= match.start() for other in found)
            period = _period(expression, match, now) if is_free else None
            if period is not None:
                found.append(period)
    found.sort(key=lambda each: each.start)
    return tuple(_window(each, question) for each in _joined(found, question) if each.relation != periods.NEXT)


def _period(expression: _Expression, match: Match[str], now: datetime) -> _Found | None:
    """The period that a match means; None if it is not a time, or not a day of the calendar."""
    try:
        period = expression.read(match, now)
    except (ValueError, OverflowError):
        return None
    if period is None:
        return None
    since, until, yearly = period
    third = (until - since) / 3
    match periods.PARTS.get(periods.group_of(match, "part")):
        case "early":
            until = since + third
        case "mid":
            since, until = since + third, until - third
        case "late":
            since = until - third
    return _Found(match.start(), match.end(), periods.relation_of(match), since, until, yearly)


def _joined(found: Sequence[_Found], question: str) -> Iterator[_Found]:
    """The periods in their order, "between A and B" and "from A to B" joined to one."""
    waiting = list(reversed(found))
    while waiting:
        first = waiting.pop()
        second = waiting[-1] if waiting and first.relation in (periods.BETWEEN, periods.SINCE) else None
        if second is not None:
            beside = question[first.end : second.start].strip().lower()
            if beside in periods.JOINERS or (not beside and second.relation == periods.UNTIL):
                first = _from_to(first, waiting.pop())
        yield first


def _from_to(first: _Found, second: _Found) -> _Found:
    """One period of two; of a pair with one year, it is the year of both."""
    since = first.since
    if first.yearly:
        # `from December to February 2025`: the last December before it.
        since = moved(since, second.since.year - since.year)
        if since > second.since:
            since = moved(since, -1)
    since, until = min(since, second.since), max(second.until, second.until if first.yearly else first.until)
    return replace(second, start=first.start, relation=periods.BETWEEN, since=since, until=until)


def _window(found: _Found, question: str) -> Window:
    phrase = " ".join(question[found.start : found.end].split())
    match found.relation:
        case "since":
            return Window(phrase, found.since, None)
        case "until":
            return Window(phrase, None, found.until)
        case "before":
            return Window(phrase, None, found.since)
        case "after":
            return Window(phrase, found.until, None)
    return Window(phrase, found.since, found.until, found.yearly)
