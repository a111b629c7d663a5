"""The grammar of times in questions: patterns, and the period of the calendar that each match means. Pure.

A pattern is compiled when it is needed first: all of them together would slow every start.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from re import Match

from rag_context.search.time_words import (
    ABBREVIATIONS,
    AGO,
    AGO_BEHIND,
    BEHIND,
    BETWEEN,
    DAYS,
    FOLLOWING,
    FRENCH,
    HIER,
    LAST,
    MONTHS,
    NAMES,
    NUMBERS,
    OF,
    PARTS,
    RELATIONS,
    UNITS,
    VERBS,
    WEEKDAYS,
)

Period = tuple[datetime, datetime, bool]
"""First moment, end, and whether it is one of each year."""

_DAY = timedelta(days=1)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern, what reads its matches, and the sets of words of each of which a question has one where it matches."""

    pattern: str
    read: "Callable[[Match[str], datetime], Period | None]"
    keys: Sequence[frozenset[str]]

    def matches(self, question: str, words: frozenset[str]) -> Iterable[Match[str]]:
        """What matches; the words are compared first, because most questions have none of them."""
        has_words = all(not keys.isdisjoint(words) for keys in self.keys)
        return _compiled(self.pattern).finditer(question) if has_words else ()


_YEAR_KEY = "#year"
"""Stands among the words of a question for any year in digits."""


def _keys(phrases: Iterable[str]) -> frozenset[str]:
    """The last word of each phrase."""
    return frozenset(_WORD.findall(phrase)[-1] for phrase in phrases)


def _is_year(word: str) -> bool:
    return word[:2] in ("19", "20") and word[:4].isdecimal()


def _any(words: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


_YEAR = r"(?:19[7-9]\d|20[0-3]\d)(?![\w:/-]|[.,]\d)"
_MONTH = rf"(?P<month>\b(?:{_any(MONTHS)})\b)\.?"
_OF_YEAR = rf"(?:,?\s+(?:de |del |of )?(?P<year>{_YEAR}))?"
_ORDINAL = r"(?:st|nd|rd|th|er|º|\.)?"
_TO = r"(?:\s?(?:-|–|to|and|bis|au|al)\s?(?P<last>\d{1,2}))?"
_UNIT = rf"(?P<unit>{_any(UNITS)})\b"
_COUNT = rf"(?P<count>\b(?:\d{{1,3}}|{_any(NUMBERS)}))\s(?:of )?"
_BEFORE_IT = rf"(?:(?<![\w-])(?P<relation>{_any(RELATIONS)})\s+)?(?:(?:the|den|dem|der|la|el|los|las|le|les) )?"
_PART = rf"(?:(?<![\w-])(?P<part>{_any(PARTS)})[\s-]+)?"


def _pattern(rest: str) -> str:
    return _BEFORE_IT + rest


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def group_of(match: Match[str], name: str) -> str:
    """A part of a match in small letters; "" where it has none."""
    return (match.groupdict().get(name) or "").lower()


def relation_of(match: Match[str]) -> str | None:
    """What the word before a match means."""
    return RELATIONS.get(group_of(match, "relation"))


def _day(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _months_on(month: datetime, count: int) -> datetime:
    """The first of the month, so many months later."""
    number = 12 * month.year + month.month - 1 + count
    return _day(month).replace(year=number // 12, month=number % 12 + 1, day=1)


def _last_yearly(of_year: Callable[[int], tuple[datetime, datetime]], now: datetime) -> Period:
    """The last such period that has begun. Raises: ValueError if no year has it."""
    for year in range(now.year, now.year - 8, -1):
        try:
            since, until = of_year(year)
        except ValueError:  # 29 February
            continue
        if since <= now:
            return since, until, True
    raise ValueError("There is no such day.")


def _count(match: Match[str]) -> int:
    written = group_of(match, "count") or "1"
    return NUMBERS.get(written) or int(written)


def _ago(match: Match[str], now: datetime) -> Period | None:
    """`3 days ago`: that day; so many weeks: the seven days around; months and years: those of the calendar."""
    count, today = _count(match), _day(now)
    match UNITS[group_of(match, "unit")]:
        case "day":
            since, until = today - count * _DAY, today - (count - 1) * _DAY
        case "week":
            since = today - (7 * count + 3) * _DAY
            until = since + 7 * _DAY
        case "month":
            since, until = _months_on(today, -count), _months_on(today, 1 - count)
        case "year":
            since = _months_on(today, 1 - today.month - 12 * count)
            until = _months_on(since, 12)
        case "hour":
            since = now - timedelta(hours=count + 1)
            until = since + timedelta(hours=2)
        case _:
            return None
    return since, until, False


def _rolling(match: Match[str], now: datetime) -> Period | None:
    """`the last 3 weeks`: until the end of today."""
    count, today, unit = _count(match), _day(now), UNITS[group_of(match, "unit")]
    lengths = {
        "hour": 1,
        "day": count,
        "week": 7 * count,
        "month": 30 * count,
        "quarter": 91 * count,
        "year": 365 * count,
    }
    if LAST.get(group_of(match, "which")) == "this" or unit not in lengths:
        return None
    return today - lengths[unit] * _DAY, today + _DAY, False


def _last_unit(match: Match[str], now: datetime) -> Period | None:
    """`last week`, `this month`: as in the calendar."""
    which, unit, today = (LAST | BEHIND)[group_of(match, "which")], UNITS[group_of(match, "unit")], _day(now)
    if which == "rolling":
        return _rolling(match, now) if unit not in ("hour", "day") else None
    back = 1 if which == "last" else 0
    monday = today - (today.weekday() + 7 * back) * _DAY
    match unit:
        case "week":
            return monday, monday + 7 * _DAY, False
        case "weekend":
            return monday + 5 * _DAY, monday + 7 * _DAY, False
        case "month":
            return _months_on(today, -back), _months_on(today, 1 - back), False
        case "quarter":
            first = _months_on(today, -((today.month - 1) % 3) - 3 * back)
            return first, _months_on(first, 3), False
        case "year":
            first = _months_on(today, 1 - today.month - 12 * back)
            return first, _months_on(first, 12), False
    return None


def _last_month(match: Match[str], now: datetime) -> Period | None:
    """`last March`: the last one that has ended; `this March` is that of this year."""
    month = MONTHS[group_of(match, "month")]
    first = _day(now).replace(month=month, day=1)
    if (LAST | BEHIND)[group_of(match, "which")] != "this" and _months_on(first, 1) > now:
        first = _months_on(first, -12)
    return first, _months_on(first, 1), False


def _weekday(match: Match[str], now: datetime) -> Period | None:
    """`on Monday`, `last Monday`: the one before today."""
    which, today = group_of(match, "which"), _day(now)
    if not which and relation_of(match) is None:
        return None
    back = (today.weekday() - WEEKDAYS[group_of(match, "weekday")]) % 7 or 7
    day = today - back * _DAY
    return day, day + _DAY, False


def _named_day(match: Match[str], now: datetime) -> Period | None:
    name = re.sub(r"\s+", " ", group_of(match, "name").replace("’", "'"))
    if name == HIER and FRENCH.isdisjoint(_WORD.findall(match.string.lower())):
        return None
    day = _day(now) + DAYS[name] * _DAY
    return day, day + _DAY, False


def _digits(match: Match[str], now: datetime) -> Period | None:
    """`2025-06`, `2025-06-30`, `30.06.2025`."""
    day = group_of(match, "day")
    if not day and match.string[: match.start("year")].lower().endswith("the "):
        return None  # the 2011-12 season
    first = _day(now).replace(year=int(match["year"]), month=int(match["month"]), day=int(day or 1))
    return first, first + _DAY if day else _months_on(first, 1), False


def _day_of_month(match: Match[str], now: datetime) -> Period | None:
    """`7 May 2025`, `May 7`, `7 to 9 May`."""
    name, year = group_of(match, "month"), group_of(match, "year")
    is_small = match["month"].islower()
    relation, begins = relation_of(match), not match.string[: match.start()].strip()
    is_verb = name in VERBS and (is_small or begins) and relation is None
    is_word = name in ABBREVIATIONS and is_small and relation in (None, OF)
    if (is_verb or is_word) and not year:
        return None

    def of_year(number: int) -> tuple[datetime, datetime]:
        first = _day(now).replace(year=number, month=MONTHS[name], day=int(match["day"]))
        last = first.replace(day=int(match["last"] or match["day"]))
        return first, max(first, last) + _DAY

    return (*of_year(int(year)), False) if year else _last_yearly(of_year, now)


def _month(match: Match[str], now: datetime) -> Period | None:
    """`in March`, `March 2025`, `early May`."""
    name, year, relation = group_of(match, "month"), group_of(match, "year"), relation_of(match)
    if not year and not group_of(match, "part"):
        is_small = match["month"].islower()
        is_noun = is_small and name in VERBS and match.string[: match.start("month")].lower().endswith("the ")
        needs_more = (
            is_noun
            or (name in NAMES and relation is None)
            or (name in VERBS | ABBREVIATIONS and is_small and relation in (None, OF, BETWEEN))
        )
        if needs_more or (name in ABBREVIATIONS and relation == OF):
            return None

    def of_year(number: int) -> tuple[datetime, datetime]:
        first = _day(now).replace(year=number, month=MONTHS[name], day=1)
        return first, _months_on(first, 1)

    return (*of_year(int(year)), False) if year else _last_yearly(of_year, now)


def _quarter(match: Match[str], now: datetime) -> Period | None:
    """`Q3 2025`, `in Q3`."""
    year = group_of(match, "year")
    if not year and relation_of(match) is None:
        return None

    def of_year(number: int) -> tuple[datetime, datetime]:
        first = _day(now).replace(year=number, month=3 * int(match["quarter"]) - 2, day=1)
        return first, _months_on(first, 3)

    return (*of_year(int(year)), False) if year else _last_yearly(of_year, now)


def _year(match: Match[str], now: datetime) -> Period | None:
    """`in 2025`, but neither `limit of 2000` nor `in 2000 rows`."""
    behind = _WORD.match(match.string[match.end() :].lstrip(" "))
    is_related = relation_of(match) not in (None, OF) or group_of(match, "part")
    if not is_related or (behind is not None and behind[0].lower() not in FOLLOWING):
        return None
    first = _day(now).replace(year=int(match["year"]), month=1, day=1)
    last = first.replace(year=int(match["last"] or match["year"]))
    return first, max(_months_on(first, 12), _months_on(last, 12)), False


_ISO = (
    rf"{_PART}(?<![\w.:/#@-])(?P<year>(?:19|20)\d\d)(?P<mark>[-/])(?P<month>0[1-9]|1[0-2])"
    r"(?:(?P=mark)(?P<day>\d\d)(?:[T ]\d\d:\d\d[^\s?]*)?)?(?![\w/-]|\.\d)"
)
_DOTTED = r"(?<![\w.-])(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\.\s?(?P<year>(?:19|20)\d\d)(?![\w-]|\.\d)"
_DAY_MONTH = rf"(?<![\w.:/#-])(?P<day>\d{{1,2}}){_ORDINAL}{_TO}{_ORDINAL}\s+(?:of |de )?{_MONTH}{_OF_YEAR}"
_MONTH_DAY = rf"{_MONTH}\s+(?P<day>\d{{1,2}}){_ORDINAL}{_TO}(?![\d%]|[.:]\d){_OF_YEAR}"
_DAY_NAMES = _any(DAYS).replace("'", "['’]")
_TO_YEAR = rf"(?:\s?(?:to|and|through|until|till|-|–|bis|und|et|à|y|a|и|по)\s?(?P<last>{_YEAR}))?"
_YEARS = frozenset({_YEAR_KEY})
_QUARTERS = frozenset({"q1", "q2", "q3", "q4"})
_WHICH = rf"\b(?P<which>{_any(LAST)})\s"
_WHICH_BEHIND = rf"\s(?P<which>{_any(BEHIND)})\b"
_NOT_OF = r"(?! of\b| de[rs]?\b)"
_WEEKDAY = rf"\b(?P<weekday>{_any(WEEKDAYS)})\b"

_LAST_KEYS, _BEHIND_KEYS, _UNIT_KEYS, _MONTH_KEYS = _keys(LAST), _keys(BEHIND), _keys(UNITS), _keys(MONTHS)
RULES = (
    Rule(rf"\b(?:{_any(AGO)})\s{_COUNT}{_UNIT}", _ago, (_keys(AGO), _UNIT_KEYS)),
    Rule(_pattern(rf"(?:{_COUNT})?\b{_UNIT}\s(?:{_any(AGO_BEHIND)})\b"), _ago, (_keys(AGO_BEHIND), _UNIT_KEYS)),
    Rule(_pattern(rf"{_WHICH}{_COUNT}{_UNIT}"), _rolling, (_LAST_KEYS, _UNIT_KEYS)),
    Rule(_pattern(rf"{_COUNT}(?:derniers|dernières)\s{_UNIT}"), _rolling, (_BEHIND_KEYS, _UNIT_KEYS)),
    Rule(_pattern(rf"{_WHICH}{_UNIT}{_NOT_OF}"), _last_unit, (_LAST_KEYS, _UNIT_KEYS)),
    Rule(_pattern(rf"\b{_UNIT}{_WHICH_BEHIND}"), _last_unit, (_BEHIND_KEYS, _UNIT_KEYS)),
    Rule(_pattern(rf"{_WHICH}{_MONTH}(?!\s\d)"), _last_month, (_LAST_KEYS, _MONTH_KEYS)),
    Rule(_pattern(rf"{_MONTH}{_WHICH_BEHIND}"), _last_month, (_BEHIND_KEYS, _MONTH_KEYS)),
    Rule(_pattern(rf"(?:{_WHICH})?{_WEEKDAY}"), _weekday, (_keys(WEEKDAYS),)),
    Rule(_pattern(rf"{_WEEKDAY}{_WHICH_BEHIND}"), _weekday, (_keys(WEEKDAYS), _BEHIND_KEYS)),
    Rule(_pattern(rf"(?<![\w-])(?P<name>{_DAY_NAMES})(?![\w-])"), _named_day, (_keys(DAYS),)),
    Rule(_pattern(_ISO), _digits, (_YEARS,)),
    Rule(_pattern(_DOTTED), _digits, (_YEARS,)),
    Rule(_pattern(_DAY_MONTH), _day_of_month, (_MONTH_KEYS,)),
    Rule(_pattern(_MONTH_DAY), _day_of_month, (_MONTH_KEYS,)),
    Rule(_pattern(rf"{_PART}(?<!\d\s){_MONTH}{_OF_YEAR}(?!\s+\d)"), _month, (_MONTH_KEYS,)),
    Rule(_pattern(rf"\bQ(?P<quarter>[1-4])(?:(?: of)?\s+(?P<year>{_YEAR}))?(?![\w.])"), _quarter, (_QUARTERS,)),
    Rule(_pattern(rf"{_PART}(?<![\w.:/#@$€-])(?P<year>{_YEAR}){_TO_YEAR}"), _year, (_YEARS,)),
)
"""What is read by one rule is not read again by those after it."""

_KEYS = frozenset[str]().union(*(rule.keys[0] for rule in RULES))


def keys_of(question: str) -> frozenset[str]:
    """The words of a question, for the rules; none if no rule could match, as with most questions."""
    words = frozenset(_WORD.findall(question.lower()))
    if any(map(_is_year, words)):
        return words | _YEARS
    return frozenset() if _KEYS.isdisjoint(words) else words
