"""The wall clock, and moments as stores keep them: microseconds since 1970. A time without a zone is UTC."""

from datetime import UTC, datetime, timedelta
from functools import partial

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LATEST = datetime.max.replace(tzinfo=UTC)

utc_now = partial(datetime.now, UTC)
"""The wall clock."""


def aware(moment: datetime) -> datetime:
    """The moment with its zone."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (aware(moment) - EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    """The moment `value` microseconds after 1970, in UTC."""
    return EPOCH + value * _MICROSECOND


def end_of(until: datetime | None, as_of: datetime | None) -> datetime | None:
    """The end of what is before `until` and not after `as_of`, itself excluded; None: there is none."""
    if as_of is None or as_of == _LATEST:
        return until
    after = as_of + _MICROSECOND
    return after if until is None else min(until, after)
