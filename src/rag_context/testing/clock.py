"""A clock that stands still until it is advanced."""

from dataclasses import dataclass


@dataclass(slots=True)
class FrozenClock:
    """Call it for the time in seconds."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        """Advance the time."""
        self.seconds += seconds
