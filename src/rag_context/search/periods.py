"""The words for times in English, German, French, Spanish and Russian, and the periods that they mean. Pure.

From each word to its meaning, and from each match of a pattern of `question_times` to its period of the calendar. Days
are those of UTC, and weeks begin on Mondays.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from re import Match

Period = tuple[datetime, datetime, bool]
"""First moment, end, and whether it is one of each year."""

_DAY = timedelta(days=1)
_WORD = re.compile(r"\w+")


def _meanings(table: Mapping[int | str, str]) -> dict[str, int]:
    return {word: int(meaning) for meaning, words in table.items() for word in words.split()}


def _phrases(table: Mapping[str, str]) -> dict[str, str]:
    return {phrase: meaning for meaning, phrases in table.items() for phrase in phrases.split("|")}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MONTHS = _meanings(
    {
        1: "january januar janvier enero январь январе января jan",
        2: "february februar février fevrier febrero февраль феврале февраля feb",
        3: "march märz maerz mars marzo март марте марта mar",
        4: "april avril abril апрель апреле апреля apr",
        5: "may mai mayo май мае мая",
        6: "june juni juin junio июнь июне июня jun",
        7: "july juli juillet julio июль июле июля jul",
        8: "august août aout agosto август августе августа aug",
        9: "september septembre septiembre сентябрь сентябре сентября sep sept",
        10: "october oktober octobre octubre октябрь октябре октября oct",
        11: "november novembre noviembre ноябрь ноябре ноября nov",
        12: "december dezember décembre decembre diciembre декабрь декабре декабря dec",
    }
)
VERBS = frozenset({"may", "march", "mars"})
"""In small letters these are months only behind a word such as `in`, or with a year."""

ABBREVIATIONS = _words("jan feb mar apr jun jul aug sep sept oct nov dec")
NAMES = frozenset({*VERBS, *ABBREVIATIONS, "april", "june", "august"})
"""What people, planets and columns are called too: alone, these are no months."""

UNITS = _phrases(
    {
        "hour": "hour|hours|stunde|stunden|heure|heures|hora|horas|час|часа|часов",
        "day": "day|days|tag|tage|tagen|jour|jours|día|días|dia|dias|день|дня|дней",
        "week": "week|weeks|woche|wochen|semaine|semaines|semana|semanas|неделя|недели|неделе|неделю|недель",
        "weekend": "weekend|wochenende|week-end",
        "month": "month|months|monat|monate|monaten|monats|mois|mes|meses|месяц|месяца|месяце|месяцев",
        "quarter": "quarter|quarters|quartal",
        "year": "year|years|jahr|jahre|jahren|an|ans|année|années|año|años|год|года|году|лет",
    }
)
NUMBERS = _meanings(
    {
        1: "a an one ein eine einem einer un une una один одну",
        2: "two couple zwei deux dos два две",
        3: "three few drei trois tres три",
        4: "four vier quatre cuatro четыре",
        5: "five fünf cinq cinco пять",
        6: "six sechs seis шесть",
        7: "seven sieben sept siete семь",
        8: "eight acht huit ocho восемь",
        9: "nine neun neuf nueve девять",
        10: "ten zehn dix diez десять",
    }
)
WEEKDAYS = _meanings(
    {
        0: "monday montag lundi lunes понедельник",
        1: "tuesday dienstag mardi martes вторник",
        2: "wednesday mittwoch mercredi miércoles среду",
        3: "thursday donnerstag jeudi jueves четверг",
        4: "friday freitag vendredi viernes пятницу",
        5: "saturday samstag samedi sábado субботу",
        6: "sunday sonntag dimanche domingo воскресенье",
    }
)
DAYS = {
    phrase: int(days)
    for phrase, days in _phrases(
        {
            "-2": "day before yesterday|vorgestern|avant-hier|anteayer|позавчера",
            "-1": "yesterday|last night|gestern|hier|hier soir|ayer|anoche|вчера",
            "0": "today|this morning|this afternoon|this evening|tonight|heute|aujourd'hui|ce matin|hoy|сегодня",
        }
    ).items()
}
HIER = "hier"
"""Yesterday in French, here in German."""

FRENCH = _words("nous avons avez ont quoi que qu quel quelle le la ai est été c")

SINCE, UNTIL, BEFORE, AFTER, BETWEEN, NEXT, IN, OF = "since", "until", "before", "after", "between", "next", "in", "of"
RELATIONS = _phrases(
    {
        SINCE: "since|starting|ab|seit|depuis|desde|с",
        UNTIL: "as of|until|till|by|up to|bis|hasta|по состоянию на",
        BEFORE: "before|prior to|vor|avant|antes de|antes del|до",
        AFTER: "after|nach|après|después de|después del|после",
        BETWEEN: "between|from|zwischen|von|entre|между",
        NEXT: "next|coming|nächsten|nächste|prochain|próximo",
        IN: "in|during|throughout|within|im|en|в|за|на",
        OF: "of|for|around|on|am|vom|du|de|el|le|des",
    }
)
PARTS = _phrases(
    {
        "early": "early|beginning of|start of|anfang|début|a principios de|в начале",
        "mid": "mid|middle of|mitte|mi|a mediados de|в середине",
        "late": "late|end of|ende|fin|a finales de|в конце",
    }
)
LAST = _phrases(
    {
        "last": "last|previous|letzte|letzten|letztem|letztes|letzter|vorige|vorigen|voriges|прошлый|прошлом|прошлой|"
        "прошлую|прошлого",
        "rolling": "past|vergangene|vergangenen|vergangenes|последний|последние|последних|последнюю|últimos|últimas",
        "this": "this|diese|diesen|diesem|dieses|dieser|cette|esta|este|эту|этой|этом|этот",
    }
)
BEHIND = _phrases({"last": "dernier|dernière|derniers|dernières|passé|passée|pasado|pasada|pasados|pasadas"})
AGO = ("vor", "il y a", "hace")
"""Before a number and a unit."""

AGO_BEHIND = ("ago", "назад")
"""Behind them."""

JOINERS = _words("and to till until through - – und bis et à au y a al и по до")

FOLLOWING = _words(
    "and or but did do does was were is are has have had the we i it they he she you who what when which how why "
    "where to about on with by for und haben wir wurde ist nous on que qu до мы года году год"
)
"""What may follow on a year that stands alone; behind "in 2000" a noun makes it a number."""


def group_of(match: Match[str], name: str) -> str:
    """A part of a match in small letters; "" where it has none."""
    return (match.groupdict().get(name) or "").lower()


def relation_of(match: Match[str]) -> str | None:
    """How the word before a match relates the answer to the period; None without such a word."""
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


def ago(match: Match[str], now: datetime) -> Period | None:
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


def rolling(match: Match[str], now: datetime) -> Period | None:
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


def last_unit(match: Match[str], now: datetime) -> Period | None:
    """`last week`, `this month`: as in the calendar."""
    which, unit, today = (LAST | BEHIND)[group_of(match, "which")], UNITS[group_of(match, "unit")], _day(now)
    if which == "rolling":
        return rolling(match, now) if unit not in ("hour", "day") else None
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


def last_month(match: Match[str], now: datetime) -> Period | None:
    """`last March`: the last one that has ended; `this March` is that of this year."""
    month = MONTHS[group_of(match, "month")]
    first = _day(now).replace(month=month, day=1)
    if (LAST | BEHIND)[group_of(match, "which")] != "this" and _months_on(first, 1) > now:
        first = _months_on(first, -12)
    return first, _months_on(first, 1), False


def weekday(match: Match[str], now: datetime) -> Period | None:
    """`on Monday`, `last Monday`: the one before today."""
    which, today = group_of(match, "which"), _day(now)
    if not which and relation_of(match) is None:
        return None
    back = (today.weekday() - WEEKDAYS[group_of(match, "weekday")]) % 7 or 7
    day = today - back * _DAY
    return day, day + _DAY, False


def named_day(match: Match[str], now: datetime) -> Period | None:
    name = re.sub(r"\s+", " ", group_of(match, "name").replace("’", "'"))
    if name == HIER and FRENCH.isdisjoint(_WORD.findall(match.string.lower())):
        return None
    day = _day(now) + DAYS[name] * _DAY
    return day, day + _DAY, False


def digits(match: Match[str], now: datetime) -> Period | None:
    """`2025-06`, `2025-06-30`, `30.06.2025`."""
    day = group_of(match, "day")
    if not day and match.string[: match.start("year")].lower().endswith("the "):
        return None  # the 2011-12 season
    first = _day(now).replace(year=int(match["year"]), month=int(match["month"]), day=int(day or 1))
    return first, first + _DAY if day else _months_on(first, 1), False


def day_of_month(match: Match[str], now: datetime) -> Period | None:
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


def month(match: Match[str], now: datetime) -> Period | None:
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


def quarter(match: Match[str], now: datetime) -> Period | None:
    """`Q3 2025`, `in Q3`."""
    year = group_of(match, "year")
    if not year and relation_of(match) is None:
        return None

    def of_year(number: int) -> tuple[datetime, datetime]:
        first = _day(now).replace(year=number, month=3 * int(match["quarter"]) - 2, day=1)
        return first, _months_on(first, 3)

    return (*of_year(int(year)), False) if year else _last_yearly(of_year, now)


def year(match: Match[str], now: datetime) -> Period | None:
    """`in 2025`, but neither `limit of 2000` nor `in 2000 rows`."""
    behind = _WORD.match(match.string[match.end() :].lstrip(" "))
    is_related = relation_of(match) not in (None, OF) or group_of(match, "part")
    if not is_related or (behind is not None and behind[0].lower() not in FOLLOWING):
        return None
    first = _day(now).replace(year=int(match["year"]), month=1, day=1)
    last = first.replace(year=int(match["last"] or match["year"]))
    return first, max(_months_on(first, 12), _months_on(last, 12)), False
