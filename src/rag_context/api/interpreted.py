"""What an answer says of the time that its question names."""

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from rag_context.api.projects import NullableFlag, NullableTime
from rag_context.api.wire import PlainResponse, UtcTime, WireResponse

_FIRST = "First moment; absent: open"
_END = "Moment at which it has ended; absent: open"
_PHRASE = "What the question says"
_EVERY_YEAR = "True if the question names no year: the latest is shown, and those of other years count as much"


class TimeRange(WireResponse):
    """A period."""

    since: Annotated[UtcTime | None, Field(description=_FIRST)] = None
    until: Annotated[UtcTime | None, Field(description=_END)] = None


class Interpreted(WireResponse):
    """The time that the question names, as it was understood."""

    time_range: TimeRange
    phrase: Annotated[str, Field(description=_PHRASE)]
    every_year: Annotated[bool | None, Field(description=_EVERY_YEAR)] = None


class PlainTimeRange(PlainResponse):
    """A period, null where it is open."""

    since: Annotated[NullableTime, Field(description=_FIRST)] = None
    until: Annotated[NullableTime, Field(description=_END)] = None


class PlainInterpreted(PlainResponse):
    """The time that the question names, as it was understood."""

    time_range: PlainTimeRange
    phrase: Annotated[str, Field(description=_PHRASE)]
    every_year: Annotated[NullableFlag, Field(description=_EVERY_YEAR)] = None


def sentence(interpreted: Interpreted | PlainInterpreted) -> str:
    """The same in words, with the last day in place of the end."""
    since, until = interpreted.time_range.since, interpreted.time_range.until
    first, last = _day(since), None if until is None else _day(until - timedelta(microseconds=1))
    if first is None or last is None:
        days = f"until {last}" if first is None else f"since {first}"
    else:
        days = first if first == last else f"{first} to {last}"
    years = ", and the same of other years" if interpreted.every_year else ""
    return f'"{interpreted.phrase}" is read as {days}{years}; what is from near then comes first.'


def _day(moment: datetime | None) -> str | None:
    return None if moment is None else moment.date().isoformat()
