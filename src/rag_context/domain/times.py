"""The wall clock, and moments as stores keep them: microseconds since 1970. A time without a zone is UTC."""

from datetime import UTC, datetime, timedelta
from functools import partial

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

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
