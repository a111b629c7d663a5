"""Finds the berth for a boat: the smallest that fits, so that large ones stay free for large boats."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

KEEL_CLEARANCE_CM = 50


@dataclass(frozen=True)
class Boat:
    name: str
    length_cm: int
    draught_cm: int


@dataclass(frozen=True)
class Berth:
    number: str
    length_cm: int
    depth_cm: int


@dataclass(frozen=True)
class Stay:
    """Nights from `arrival` up to, not including, `departure`."""

    arrival: date
    departure: date

    def overlaps(self, other: "Stay") -> bool:
        return self.arrival < other.departure and other.arrival < self.departure


def fits(boat: Boat, berth: Berth) -> bool:
    """Whether the boat is short enough, and floats at the lowest water."""
    return boat.length_cm <= berth.length_cm and boat.draught_cm + KEEL_CLEARANCE_CM <= berth.depth_cm


def allocate(boat: Boat, berths: Iterable[Berth], taken: dict[str, list[Stay]], stay: Stay) -> Berth | None:
    """The shortest berth that fits and is free for the whole stay; None when the harbour is full."""
    free = (berth for berth in berths if not any(stay.overlaps(other) for other in taken.get(berth.number, [])))
    return min((berth for berth in free if fits(boat, berth)), key=lambda berth: berth.length_cm, default=None)
