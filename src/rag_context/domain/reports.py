"""Reports on an index: the records of searches and errors, their statistics, what a check of it found, and counts.

Stores that sum up many latencies count them in bins whose limits grow by a constant factor, as in DDSketch (Masson,
Rim, Lee: "DDSketch: A Fast and Fully-Mergeable Quantile Sketch with Relative-Error Guarantees", VLDB 2019): with limits
that grow by (1 + e) / (1 - e), a bin's middle is within e of every value in it, so within e of the nearest-rank
percentile too. Where they are few, latencies are counted by value.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import accumulate
from secrets import token_hex
from typing import Any

from rag_context.domain.documents import FILTERED, Counts, FilterFields, Origin, microseconds, moment

QUERY_CHARS = 200
"""A recorded query is cut to this many characters."""

UNANSWERED = "unanswered"
"""`SearchRecord.error` of a search whose answer says that probably nothing in the index answers it."""

PERCENTILE_ERROR = 0.0095
"""Most relative error of a percentile from bins; just below 1 %, which leaves room for rounding."""

BIN_GROWTH = (1.0 + PERCENTILE_ERROR) / (1.0 - PERCENTILE_ERROR)

SMALLEST_MS = 0.001
"""Shorter latencies are in the first bin, and count as 0."""


@dataclass(frozen=True, slots=True)
class Period:
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class Periods:
    """When the documents of an index were said or written, and when they were indexed."""

    occurred: Period
    indexed: Period


def new_record_id() -> str:
    """Names a record, so that a store which may have it already does not store it twice."""
    return token_hex(12)


@dataclass(frozen=True, slots=True)
class SearchRecord(FilterFields):
    """One search, as recorded for statistics, with what narrowed it; times in ms, None for parts that are missing."""

    timestamp: datetime
    request_id: str
    query: str
    results_count: int
    latency_ms: float
    embedding_latency_ms: float | None
    vector_latency_ms: float | None
    text_latency_ms: float | None
    level: int
    cache_hit: bool
    agent: str
    content_type: str | None = None
    error: str | None = None
    id: str = field(default_factory=new_record_id, compare=False)

    @property
    def is_fallback(self) -> bool:
        """Whether vectors were unavailable: an answer of level 2 with those that there are is none."""
        # `FALLBACK` in `stores.search_statistics` is its twin.
        return self.vector_latency_ms is None if self.level == 2 else self.level > 2


ERROR, ACCESS = "error", "access"
"""The levels of an `ErrorRecord`."""


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """One failure of a component, or of the level `ACCESS` a call that changed something or was rejected.

    `message` (of a call its outcome) never holds document text, keys or connection strings.
    """

    timestamp: datetime
    level: str
    component: str
    operation: str
    message: str
    request_id: str | None = None
    context: Mapping[str, str | int | list[str]] = field(default_factory=dict)
    id: str = field(default_factory=new_record_id, compare=False)


@dataclass(frozen=True, slots=True)
class Bucket:
    """One slice of the timeline, beginning at `start`."""

    start: datetime
    queries: int
    average_ms: float
    p95_ms: float
    fallbacks: int


@dataclass(frozen=True, slots=True)
class SearchSummary:
    queries: int
    average_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    cache_hit_rate: float
    fallback_rate: float
    by_agent: Mapping[str, int]
    by_level: Mapping[int, int]
    vectors_incomplete: int
    """How many of level 2 are hybrid searches in which vectors were missing; the others are keyword searches alone."""
    by_field: Mapping[str, Mapping[str, int]]
    """For each field in `COUNTED_FIELDS`."""
    timeline: tuple[Bucket, ...]


EXACT_RECORDS = 10_000
"""A span of fewer searches is summed up from the records themselves."""

COUNTED_FIELDS = tuple(name for name, declared in FILTERED.items() if declared.is_counted)
COUNTED = ("agent", "level", *COUNTED_FIELDS)
"""What searches are counted by."""


@dataclass(frozen=True, slots=True)
class Slices:
    """A span of time in equal parts, in microseconds."""

    start: int
    end: int
    count: int

    def begins(self, number: int) -> int:
        """The first microsecond of a slice."""
        return self.start - (self.end - self.start) * -number // self.count

    def of(self, at: datetime) -> int:
        return (microseconds(at) - self.start) * self.count // (self.end - self.start)


@dataclass(slots=True)
class Sums:
    queries: int = 0
    latency_ms: float = 0.0
    fallbacks: int = 0
    cache_hits: int = 0
    latencies: Counter[float] = field(default_factory=Counter)
    """The number of searches by latency."""

    def add(self, queries: int, latency_ms: float, fallbacks: int, cache_hits: int) -> None:
        self.queries += queries
        self.latency_ms += latency_ms
        self.fallbacks += fallbacks
        self.cache_hits += cache_hits

    def percentile(self, percent: int) -> float:
        """By nearest rank; 0 without searches."""
        values = sorted(self.latencies)
        if not values:
            return 0.0
        ranks = list(accumulate(self.latencies[value] for value in values))
        return values[bisect_left(ranks, (percent * ranks[-1] + 99) // 100)]

    @property
    def average_ms(self) -> float:
        return self.latency_ms / max(self.queries, 1)


def middle(number: int) -> float:
    """The value of a bin: at the same relative distance from its lower and its upper limit."""
    return 0.0 if number <= 0 else SMALLEST_MS * 2.0 * BIN_GROWTH**number / (BIN_GROWTH + 1.0)


def summary(
    sums: Mapping[int, Sums], counts_by_value: Mapping[str, Mapping[Any, int]], slices: Slices, buckets: int
) -> SearchSummary:
    """The summary of a span; `sums` by slice, `counts_by_value` by the names in `COUNTED`."""
    total = Sums()
    for part in sums.values():
        total.add(part.queries, part.latency_ms, part.fallbacks, part.cache_hits)
        total.latencies.update(part.latencies)
    by_level = counts_by_value["level"]
    below_first = sum(count for level, count in by_level.items() if level > 1)
    return SearchSummary(
        queries=total.queries,
        average_ms=total.average_ms,
        p50_ms=total.percentile(50),
        p95_ms=total.percentile(95),
        p99_ms=total.percentile(99),
        cache_hit_rate=total.cache_hits / max(total.queries, 1),
        fallback_rate=total.fallbacks / max(total.queries, 1),
        by_agent=dict(sorted(counts_by_value["agent"].items())),
        by_level=dict(sorted(by_level.items())),
        vectors_incomplete=max(below_first - total.fallbacks, 0),
        by_field={name: dict(sorted(counts_by_value[name].items())) for name in COUNTED_FIELDS},
        timeline=tuple(_bucket(slices, number, sums.get(number, Sums())) for number in range(buckets)),
    )


def _bucket(slices: Slices, number: int, sums: Sums) -> Bucket:
    start = moment(slices.begins(number))
    return Bucket(start, sums.queries, sums.average_ms, sums.percentile(95), sums.fallbacks)


EXAMPLES = 5
"""Examples that are listed for each kind of issue."""

COMPARED = 20_000
"""Chunks of a larger index whose terms are compared in a quick examination, evenly spread."""


class Thoroughness(StrEnum):
    """How closely an index is examined."""

    QUICK = "quick"
    """While the index is in use; writers do not wait."""
    FULL = "full"
    """Every page, every term; writers wait while the text index is compared."""


class IssueKind(StrEnum):
    """The kinds of damage and inconsistency of an index."""

    DAMAGED_FILE = "damaged-file"
    WRONG_COUNTERS = "wrong-counters"
    ORPHANS = "orphans"
    LOST_CONTENT = "lost-content"
    CHANGED_CONTENT = "changed-content"
    WRONG_ID = "wrong-id"
    WRONG_TAGS = "wrong-tags"
    BROKEN_CHUNKS = "broken-chunks"
    MISSING_VECTORS = "missing-vectors"
    BAD_VECTORS = "bad-vectors"
    STALE_VECTORS = "stale-vectors"
    NO_MODEL = "no-model"
    STALE_TERMS = "stale-terms"
    TEXT_INDEX = "text-index"
    STATISTICS = "statistics"


COUNTERS = ("documents", "pending", "chunks", "vectors", "terms")
"""What an index counts as it changes."""

DAMAGED = frozenset({IssueKind.LOST_CONTENT, IssueKind.CHANGED_CONTENT})
"""Issues that only indexing the source of a document again repairs."""


@dataclass(frozen=True, slots=True)
class Issue:
    """A kind of issue, how often it occurs, and a few examples (ids where there are some)."""

    kind: IssueKind
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IntegrityReport:
    counts: Counts
    compared_terms: int
    """Of how many chunks the stored terms were compared with the analyser's; a sample of a large index."""
    issues: tuple[Issue, ...]
    broken: tuple[str, ...] = ()
    """Ids of all documents whose chunks are broken."""
    damaged: tuple[str, ...] = ()
    """Ids of all documents whose content is lost, damaged or changed."""


class Findings:
    """What an examination has found so far: counts issues, and keeps a few examples of each kind."""

    def __init__(self) -> None:
        self._counts: Counter[IssueKind] = Counter()
        self._examples: dict[IssueKind, list[str]] = {}
        self._broken: list[str] = []
        self._damaged: list[str] = []

    def add(self, kind: IssueKind, example: str) -> None:
        self._counts[kind] += 1
        examples = self._examples.setdefault(kind, [])
        if len(examples) < EXAMPLES:
            examples.append(example)

    def add_document(self, id_: str, kinds: Collection[IssueKind]) -> None:
        """Count what is wrong with a document, which the report names if its chunks or content need repair."""
        for kind in kinds:
            self.add(kind, id_)
        if IssueKind.BROKEN_CHUNKS in kinds:
            self._broken.append(id_)
        if not DAMAGED.isdisjoint(kinds):
            self._damaged.append(id_)

    def compare_counters(self, recorded: Sequence[int], counted: Sequence[int]) -> None:
        """Count the counters that differ from what was counted; both in the order of `COUNTERS`."""
        for name, one, other in zip(COUNTERS, recorded, counted, strict=True):
            if one != other:
                self.add(IssueKind.WRONG_COUNTERS, f"{name}: {one} recorded, {other} counted")

    def report(self, counts: Counts, compared_terms: int) -> IntegrityReport:
        """All that was found, issues in the order of the kinds."""
        issues = tuple(
            Issue(kind, self._counts[kind], tuple(self._examples[kind])) for kind in IssueKind if kind in self._counts
        )
        return IntegrityReport(counts, compared_terms, issues, tuple(self._broken), tuple(self._damaged))


@dataclass(frozen=True, slots=True)
class Injection:
    """A passage that an agent was shown unasked, or one that was withheld from it.

    `event` is the moment of the session, `project` the tag of its project, `subject` the file or command that it is
    about ("" at other moments), `document_id` that of the passage ("" where a moment came to nothing as a whole).
    `reason` says why it was withheld ("" where it was shown), `tokens` what it cost (0 where it was withheld), and
    `scores` what it was judged by.
    """

    at: datetime
    session_id: str
    client: str
    event: str
    project: str
    subject: str = ""
    document_id: str = ""
    chunk_ids: tuple[str, ...] = ()
    reason: str = ""
    tokens: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)


DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class DocumentGroup:
    """How many documents of a tenant agree in all of this. `day` counts from 1970, `last_us` is in microseconds."""

    content_type: str
    agent: str | None
    session_id: str
    tags: tuple[str, ...]
    day: int
    count: int
    last_us: int


@dataclass(slots=True)
class SessionCount:
    session_id: str
    count: int = 0
    last_us: int = 0
    agents: set[str] = field(default_factory=set)
    content_types: set[str] = field(default_factory=set)
    tags: set[str] = field(default_factory=set)


@dataclass(slots=True)
class FieldCounts:
    """Documents by each of their fields, and passages by origin."""

    origins: Mapping[Origin, int]
    content_types: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    tags: Counter[str] = field(default_factory=Counter)
    days: Counter[int] = field(default_factory=Counter)
    sessions: int = 0
    latest: list[SessionCount] = field(default_factory=list)
    """The latest sessions, as many as were requested."""

    @classmethod
    def of(cls, groups: Iterable[DocumentGroup], origins: Mapping[Origin, int], most: int) -> "FieldCounts":
        counts, sessions = cls(origins), dict[str, SessionCount]()
        for group in groups:
            counts.content_types[group.content_type] += group.count
            counts.days[group.day] += group.count
            if group.agent:
                counts.agents[group.agent] += group.count
            for tag in group.tags:
                counts.tags[tag] += group.count
            session = sessions.setdefault(group.session_id, SessionCount(group.session_id))
            session.count += group.count
            session.last_us = max(session.last_us, group.last_us)
            session.content_types.add(group.content_type)
            session.agents.update(filter(None, [group.agent]))
            session.tags.update(group.tags)
        counts.sessions = len(sessions)
        counts.latest = sorted(sessions.values(), key=lambda each: (-each.last_us, each.session_id))[:most]
        return counts
