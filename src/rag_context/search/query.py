"""What goes into the chain and what comes out of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from rag_context.domain.search import Filter, Passage
from rag_context.domain.vectors import Vector
from rag_context.search.ranking import Ranked


class Mode(StrEnum):
    """Which legs a search walks on."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    TEXT = "text"


class Level(IntEnum):
    """How an answer was obtained."""

    PRIMARY = 1
    TEXT = 2
    EMPTY = 3
    OPEN = 4


class LegStatus(StrEnum):
    """How a leg of a search went."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OPEN = "open"
    LOADING = "loading"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Query:
    """A question, what it may see, and how it wants to be answered.

    A `min_score` is a real minimum: nothing below it is returned. Without one the model's threshold applies, from which
    passages that hold the question's rare terms are exempt.
    `per_document` bounds how many passages of one document are returned, so that a large one cannot crowd out the rest.

    With a `vector` of its own, nothing is embedded; with a vector and no text, only the vector leg has something to
    search for.
    """

    text: str
    limit: int = 5
    where: Filter = field(default_factory=Filter)
    mode: Mode = Mode.HYBRID
    min_score: float | None = None
    per_document: int | None = None
    vector: Vector | None = None

    @property
    def has_words(self) -> bool:
        """Whether there is something for the text leg to search for."""
        return self.vector is None or bool(self.text.strip())


@dataclass(frozen=True, slots=True)
class LegReport:
    """What one part of a search did, in how many milliseconds."""

    status: LegStatus
    latency_ms: float
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A passage in its place, with the rank it had in each leg (from 1; None where the leg did not find it).

    A passage of a talk comes with what was said right before and after it, where something was.
    """

    passage: Passage
    ranked: Ranked
    vector_rank: int | None
    text_rank: int | None
    before: Passage | None = None
    after: Passage | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the chain says. `unanswerable` is a label: probably nothing in the index answers this."""

    results: tuple[Result, ...]
    level: Level
    legs: Mapping[str, LegReport]
    total_indexed: int
    breaker_open: bool = False
    warning: str | None = None
    unanswerable: bool = False
    cached: bool = False
    retry_after_s: float | None = None
    error: str | None = None
