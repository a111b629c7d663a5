"""What each server with each fault may do to the memory: nothing but this."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from tests.faults.backends import Role
from tests.faults.fault_kinds import ON_THE_WIRE, FaultKind

KEYWORDS_ONLY = "Vector search unavailable, using text search fallback"
VECTORS_ONLY = "Text search unavailable, using vector search alone"
VECTORS_LOST = "Vectors were lost and are computed again: passages without one are ranked by keyword search alone"
INEXACT = "Passages are ranked without some of their scores or neighbours, which were not available in time"
NOTHING = "All search methods failed, returning empty results"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a client sees.

    A search is at `level` with `warning`, and exactly the `legs` named did not do their part (None: whichever). `index`
    is the status of a document's receipt, or 503. `health` is the status of the server's own component, `healthy` the
    verdict on the whole.
    """

    level: int
    warning: str | None
    legs: frozenset[str] | None
    index: str
    stats: int
    health: str
    healthy: bool


class Case(Protocol):
    """A fault, and what it may do."""

    @property
    def name(self) -> str: ...

    @property
    def expected(self) -> Expected: ...

    @property
    def statuses(self) -> Mapping[str, str]:
        """The status of each component that is not healthy, in a report of health."""
        ...

    @property
    def says(self) -> str:
        """What the details of these components contain."""
        ...


@dataclass(frozen=True, slots=True)
class FaultCase:
    """One server with one fault."""

    role: Role
    kind: FaultKind
    expected: Expected

    @property
    def name(self) -> str:
        return f"{self.role}-{self.kind.name.lower()}"

    @property
    def statuses(self) -> Mapping[str, str]:
        return {self.role: self.expected.health}

    @property
    def says(self) -> str:
        return ""


OF: dict[Role, Expected] = {
    Role.EMBEDDER: Expected(2, KEYWORDS_ONLY, frozenset({"embedding"}), "pending", 200, "unavailable", healthy=False),
    Role.VECTORS: Expected(2, KEYWORDS_ONLY, frozenset({"vector"}), "pending", 200, "unavailable", healthy=False),
    Role.DOCUMENTS: Expected(1, VECTORS_ONLY, frozenset({"text"}), "503", 503, "unavailable", healthy=False),
    Role.CACHE: Expected(1, None, frozenset(), "indexed", 200, "degraded", healthy=True),
}
"""What a server does to the memory when it cannot be used at all."""

UNAFFECTED = Expected(1, None, frozenset(), "indexed", 200, "healthy", healthy=True)

PARTLY: dict[tuple[Role, FaultKind], Expected] = {
    # Whatever it has, it still answers.
    (Role.VECTORS, FaultKind.FULL): replace(UNAFFECTED, index="pending", health="degraded", healthy=False),
    (Role.DOCUMENTS, FaultKind.FULL): replace(UNAFFECTED, index="503", health="degraded", healthy=False),
    (Role.CACHE, FaultKind.FULL): UNAFFECTED,
}
"""Where a server can still be used for something."""

ELSEWHERE: dict[Role, frozenset[FaultKind]] = {
    Role.DOCUMENTS: frozenset({FaultKind.ERROR, FaultKind.BUSY, FaultKind.KILLED, FaultKind.FULL}),
    Role.CACHE: frozenset({FaultKind.ERROR, FaultKind.BUSY, FaultKind.KILLED, FaultKind.FULL}),
    Role.VECTORS: frozenset({FaultKind.KILLED, FaultKind.FULL}),
    Role.EMBEDDER: frozenset({FaultKind.KILLED}),
}
"""Faults that are the server's own."""


def _fault_cases() -> Iterator[FaultCase]:
    for role in Role:
        for kind in FaultKind:
            if kind in ON_THE_WIRE[role] or kind in ELSEWHERE[role]:
                yield FaultCase(role, kind, PARTLY.get((role, kind), OF[role]))


FAULT_CASES = tuple(_fault_cases())
"""The whole matrix. An embedder keeps nothing, and a document store and a cache have no dimension."""
