"""Which times are read from questions, and what looks like a time and is none."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.search.question_times import Window, windows

ASKED = datetime(2026, 3, 18, 10, 30, tzinfo=UTC)
"""A Wednesday."""


def shown(window: Window) -> str:
    """`2026-03-01..2026-03-31`, both days included; `*` behind it: of every year."""
    last = None if window.until is None else window.until - timedelta(microseconds=1)
    ends = ("" if end is None else str(end.date()) for end in (window.since, last))
    return "..".join(ends) + ("*" if window.yearly else "")


TIMES = [
    # relative days
    ("What did we decide yesterday?", "yesterday", "2026-03-17..2026-03-17"),
    ("yesterday's meeting", "yesterday", "2026-03-17..2026-03-17"),
    ("what happened the day before yesterday", "the day before yesterday", "2026-03-16..2026-03-16"),
    ("What did Jon say this morning?", "this morning", "2026-03-18..2026-03-18"),
    ("what broke last night", "last night", "2026-03-17..2026-03-17"),
    ("3 days ago we changed it", "3 days ago", "2026-03-15..2026-03-15"),
    ("What did I read two weeks ago?", "two weeks ago", "2026-03-01..2026-03-07"),
    ("a couple of weeks ago", "couple of weeks ago", "2026-03-01..2026-03-07"),
    ("what was planned 2 months ago?", "2 months ago", "2026-01-01..2026-01-31"),
    ("a year ago", "a year ago", "2025-01-01..2025-12-31"),
    # relative periods
    ("what did we decide last week", "last week", "2026-03-09..2026-03-15"),
    ("What did we decide this week?", "this week", "2026-03-16..2026-03-22"),
    ("bugs of the previous month", "of the previous month", "2026-02-01..2026-02-28"),
    ("which bugs did we fix last month", "last month", "2026-02-01..2026-02-28"),
    ("what happened last year?", "last year", "2025-01-01..2025-12-31"),
    ("last quarter's goals", "last quarter", "2025-10-01..2025-12-31"),
    ("What did I do last weekend?", "last weekend", "2026-03-14..2026-03-15"),
    ("errors in the last 3 days", "in the last 3 days", "2026-03-15..2026-03-18"),
    ("decisions during the past two weeks", "during the past two weeks", "2026-03-04..2026-03-18"),
    ("what changed in the past month", "in the past month", "2026-02-16..2026-03-18"),
    ("What did we discuss on Monday?", "on Monday", "2026-03-16..2026-03-16"),
    ("last Wednesday", "last Wednesday", "2026-03-11..2026-03-11"),
    ("since Friday", "since Friday", "2026-03-13.."),
    # months
    ("What was decided in March?", "in March", "2026-03-01..2026-03-31*"),
    ("what happened in may", "in may", "2025-05-01..2025-05-31*"),
    ("What did I buy in July 2025?", "in July 2025", "2025-07-01..2025-07-31"),
    ("the January numbers", "the January", "2026-01-01..2026-01-31*"),
    ("in early March 2025", "in early March 2025", "2025-03-01..2025-03-11"),
    ("in late February 2026", "in late February 2026", "2026-02-19..2026-02-28"),
    ("by the end of April", "by the end of April", "..2025-04-30"),
    ("last March", "last March", "2025-03-01..2025-03-31"),
    ("since March", "since March", "2026-03-01.."),
    ("everything before October 2025", "before October 2025", "..2025-09-30"),
    ("after May", "after May", "2025-06-01.."),
    ("until February", "until February", "..2026-02-28"),
    ("in Q3 2025", "in Q3 2025", "2025-07-01..2025-09-30"),
    ("in 2025, who led the team?", "in 2025", "2025-01-01..2025-12-31"),
    ("profits from 2023 to 2025", "from 2023 to 2025", "2023-01-01..2025-12-31"),
    ("Who joined since 2024?", "since 2024", "2024-01-01.."),
    # days
    ("What did I cook on August 23, 2025?", "on August 23, 2025", "2025-08-23..2025-08-23"),
    ("Which meal did I make on 29 December 2025?", "on 29 December 2025", "2025-12-29..2025-12-29"),
    ("the 7th of May, 2023", "the 7th of May, 2023", "2023-05-07..2023-05-07"),
    ("on May 7", "on May 7", "2025-05-07..2025-05-07*"),
    ("Dec 24", "Dec 24", "2025-12-24..2025-12-24*"),
    ("on 29 February", "on 29 February", "2024-02-29..2024-02-29*"),
    ("between 3 and 7 March 2026", "between 3 and 7 March 2026", "2026-03-03..2026-03-07"),
    ("Which hike did I do on 2026-01-26?", "on 2026-01-26", "2026-01-26..2026-01-26"),
    ("log of 2026-01-26T10:15:00Z", "of 2026-01-26T10:15:00Z", "2026-01-26..2026-01-26"),
    ("as of 2025-06 which port is used", "as of 2025-06", "..2025-06-30"),
    ("before 2025-06-01", "before 2025-06-01", "..2025-05-31"),
    # ranges
    ("between March and May 2025", "between March and May 2025", "2025-03-01..2025-05-31"),
    ("from November to January 2026", "from November to January 2026", "2025-11-01..2026-01-31"),
    ("from 2025-02-01 until 2025-02-14", "from 2025-02-01 until 2025-02-14", "2025-02-01..2025-02-14"),
    # other languages
    ("Was haben wir gestern beschlossen?", "gestern", "2026-03-17..2026-03-17"),
    ("Was haben wir letzte Woche beschlossen?", "letzte Woche", "2026-03-09..2026-03-15"),
    ("Was war vor zwei Wochen?", "vor zwei Wochen", "2026-03-01..2026-03-07"),
    ("Was geschah im Mai 2025?", "im Mai 2025", "2025-05-01..2025-05-31"),
    ("seit dem 7. Januar 2026", "seit dem 7. Januar 2026", "2026-01-07.."),
    ("am 30.06.2025", "am 30.06.2025", "2025-06-30..2025-06-30"),
    ("Qu'avons-nous décidé hier ?", "hier", "2026-03-17..2026-03-17"),
    ("qu'a-t-on fait la semaine dernière", "la semaine dernière", "2026-03-09..2026-03-15"),
    ("il y a 3 jours", "il y a 3 jours", "2026-03-15..2026-03-15"),
    ("en mars 2025", "en mars 2025", "2025-03-01..2025-03-31"),
    ("¿Qué decidimos ayer?", "ayer", "2026-03-17..2026-03-17"),
    ("la semana pasada", "la semana pasada", "2026-03-09..2026-03-15"),
    ("el 7 de mayo de 2023", "el 7 de mayo de 2023", "2023-05-07..2023-05-07"),
    ("hace dos semanas", "hace dos semanas", "2026-03-01..2026-03-07"),
    ("Что мы решили вчера?", "вчера", "2026-03-17..2026-03-17"),
    ("что решили на прошлой неделе", "на прошлой неделе", "2026-03-09..2026-03-15"),
    ("в марте 2025 года", "в марте 2025", "2025-03-01..2025-03-31"),
    ("3 дня назад", "3 дня назад", "2026-03-15..2026-03-15"),
]

NO_TIMES = [
    "",
    "How do we retry payments?",
    "May I deploy on my own?",
    "May 3 workers share one database?",
    "how may 2 servers share it",
    "the function may fail in the second attempt",
    "march on with the migration",
    "who took part in the march?",
    "during the 2011-12 season",
    "What did April say about June's plan?",
    "august company",
    "does Jan know the sun",
    "what is in version 2.1",
    "upgrade from 2025.1 to 2025.2",
    "timeout of 30 seconds, retries for 2 weeks",
    "keep logs for 30 days",
    "port 3000 on 10.0.0.1",
    "error 2013 lost connection",
    "a limit of 2000",
    "in 2000 rows of the table",
    "in 2025 rows",
    "CVE-2024-12345 and RFC 2025",
    "docs/2025-06-30-notes.md",
    "https://example.org/2025/06/30/post",
    "the last version, the last attempt, the last day of the sprint",
    "what comes next week",
    "next March",
    "how does this work this time",
    "the week of the release",
    "dec 10 to hex 16",
    "sec 4 of mar 3",
    "was ist hier passiert",
    "on 31 February",
    "2025-13-01",
    "on Mondays we deploy",
    "Monday mornings",
    "in a week",
    "the past tense",
    "q3 of the survey",
]


@pytest.mark.parametrize(("question", "phrase", "period"), TIMES, ids=[each[0] for each in TIMES])
def test_a_time_is_read_as_people_mean_it(question: str, phrase: str, period: str) -> None:
    (window,) = windows(question, ASKED)
    assert (window.phrase, shown(window)) == (phrase, period)


@pytest.mark.parametrize("question", NO_TIMES)
def test_words_that_only_look_like_times_are_ignored(question: str) -> None:
    assert windows(question, ASKED) == ()


def test_a_question_may_name_several_times() -> None:
    found = windows("What changed between last week and 7 May 2025, and in June 2024?", ASKED)
    assert [shown(each) for each in found] == ["2025-05-07..2026-03-15", "2024-06-01..2024-06-30"]


@given(st.text(max_size=200), st.datetimes(timezones=st.just(UTC)))
def test_no_question_and_no_moment_is_an_error(question: str, asked: datetime) -> None:
    windows(question + " last 3 weeks, 900 years ago, on 29 February, since last quarter", asked)


def test_the_day_decides_and_not_the_hour() -> None:
    """So that a cached answer lasts for the day of its question, and not longer."""
    question = "what did we decide yesterday, last week, in May, and 2 months ago"
    morning, evening = (datetime(2026, 3, 18, hour, tzinfo=UTC) for hour in (0, 23))
    assert windows(question, morning) == windows(question, evening) != windows(question, evening + timedelta(hours=1))
    assert date(2026, 3, 18).weekday() == 2
