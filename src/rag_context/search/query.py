"""What goes into the chain and what comes out of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum, StrEnum

from rag_context.domain.ranking_rules import Rule
from rag_context.domain.search import Filter, Passage
from rag_context.domain.vectors import Vector
from rag_context.search.question_times import Window, windows
from rag_context.search.ranking import Ranked


class Mode(StrEnum):
    """Which retrievers a search uses."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    TEXT = "text"


class Level(IntEnum):
    """How an answer was obtained."""

    PRIMARY = 1
    TEXT = 2
    EMPTY = 3
    OPEN = 4


class RetrieverStatus(StrEnum):
    """How a part of a search ended."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OPEN = "open"
    LOADING = "loading"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Query:
    """A question, the documents it may find, and how many passages it returns.

    A `min_score` is a real minimum: nothing below it is returned. Without one the model's threshold applies, from which
    passages that hold the question's rare terms are exempt.
    `per_document` bounds how many passages of one document are returned, so that a large one cannot crowd out the rest.

    With a `vector` of its own, nothing is embedded; with a vector and no text, only vector search is possible.
    `without` leaves rules of ranking out, so that their effect can be measured.
    `windows` are the times that the text names; what was said near them comes first.
    """

    text: str
    limit: int = 5
    where: Filter = field(default_factory=Filter)
    mode: Mode = Mode.HYBRID
    min_score: float | None = None
    per_document: int | None = None
    vector: Vector | None = None
    windows: tuple[Window, ...] = ()
    without: tuple[Rule, ...] = ()

    def with_windows(self, now: datetime) -> "Query":
        """The query with the times that it names, counted from `now`; one retriever alone keeps its own order."""
        if self.mode is not Mode.HYBRID:
            return self
        found = windows(self.text, now)
        return replace(self, windows=found) if found else self

    @property
    def has_text(self) -> bool:
        """Whether there is text for a keyword search."""
        return self.vector is None or bool(self.text.strip())


@dataclass(frozen=True, slots=True)
class RetrieverReport:
    """What one part of a search did, in how many milliseconds."""

    status: RetrieverStatus
    latency_ms: float
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A passage with its rank in each retriever (from 1; None where the retriever did not find it).

    A passage of a conversation comes with the messages right before and after it, where there are any.
    """

    passage: Passage
    ranked: Ranked
    vector_rank: int | None
    text_rank: int | None
    before: Passage | None = None
    after: Passage | None = None
    rerank_score: float | None = None
    """The reranker's score, which then orders; None where there is none."""
    newer: Passage | None = None
    """The latest of the passages above it that say nearly the same with another value."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A passage with a standing instruction, and its calibrated relevance by its cosine to the query, 0..1."""

    passage: Passage
    score: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What the chain returns. `unanswerable` is a label: probably nothing in the index answers this.

    `standing` are the instructions that may apply to the query, nearest first, whatever the results are.
    """

    results: tuple[Result, ...]
    level: Level
    legs: Mapping[str, RetrieverReport]
    total_indexed: int
    breaker_open: bool = False
    warning: str | None = None
    unanswerable: bool = False
    standing: tuple[Standing, ...] = ()
    cached: bool = False
    retry_after_s: float | None = None
    error: str | None = None
