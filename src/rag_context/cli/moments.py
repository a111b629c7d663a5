"""Moments as people type them: a date, a time with its offset, or how long ago."""

import re
from datetime import UTC, datetime, timedelta

from rag_context.errors import InvalidInputError

_AGO = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(text: str, option: str, now: datetime) -> datetime:
    """Read `7d`, `2026-01-31` or `2026-01-31T12:00:00+01:00`; without an offset it is this machine's time.

    Raises:
        InvalidInputError: It is none of these.
    """
    text = text.strip()
    try:
        if ago := _AGO.fullmatch(text.lower()):
            return (now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).astimezone(UTC)
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInputError(
            f"{option} {text!r} is not a moment: write 7d, 2026-01-31 or 2026-01-31T12:00:00Z."
        ) from None
