"""Moments: MongoDB keeps milliseconds, so the rest of a microsecond stands in a field of its own."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970; a time without a zone is UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    """The moment `value` microseconds after 1970."""
    return _EPOCH + value * _MICROSECOND


def parted(at: datetime) -> tuple[datetime, int]:
    """The whole milliseconds of a moment, as they are stored, and the microseconds beyond them, 0..999."""
    whole, rest = divmod(microseconds(at), 1000)
    return _EPOCH + whole * _MILLISECOND, rest


def first_not_before(at: int) -> datetime:
    """The earliest whole millisecond at or after `at` microseconds after 1970."""
    return _EPOCH + -(-at // 1000) * _MILLISECOND
