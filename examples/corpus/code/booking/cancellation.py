"""What a skipper gets back for a cancelled stay."""

from datetime import datetime, timedelta

FREE_UNTIL = timedelta(hours=48)
HALF_UNTIL = timedelta(hours=12)


def refund_minor(paid_minor: int, arrival: datetime, cancelled: datetime) -> int:
    """All of it until two days before arrival, half of it until twelve hours before, then nothing.

    A storm warning of force 8 or more for the arrival day always gives everything back; the caller checks that.
    """
    left = arrival - cancelled
    if left >= FREE_UNTIL:
        return paid_minor
    if left >= HALF_UNTIL:
        return (paid_minor + 1) // 2
    return 0
