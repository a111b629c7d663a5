"""A search request, and its response at every level of the fallback chain."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import Field

from rag_context.api import wire
from rag_context.domain.documents import FILTERED
from rag_context.errors import RagContextError

QUERY_CHARS = 1000
MAX_LIMIT = 20
DEFAULT_LIMIT = 5
MAX_TOKENS = 100_000

Mode = Literal["hybrid", "vector", "text"]
CitationKind = Literal["path", "symbol", "commit", "flag", "setting"]
CitationStatus = Literal["fresh", "moved", "stale", "unverifiable"]
LegStatus = Literal["ok", "failed", "timeout", "open", "loading", "skipped"]

_FILTERS = wire.filter_types({name: field.searched for name, field in FILTERED.items()})


class SearchRequest(wire.TenantRequest, wire.DeclaredRequest, declared=_FILTERS, behind="limit"):
    """A question, and what the answer is narrowed to."""

    sentences: ClassVar[Mapping[str, wire.Sentences]] = {
        "query": wire.Sentences("Query cannot be empty", "Query too long (max 1000 characters)")
    }
    for_programs: ClassVar[frozenset[str]] = frozenset(
        {
            "agent",
            "agents",
            "as_of",
            "explain",
            "include_superseded",
            "min_score",
            "min_trust",
            "mode",
            "strict",
            "branch",
            "path_hash",
        }
    ) | {name for name, field in FILTERED.items() if not field.for_models}

    query: Annotated[str, wire.present("Search query text", QUERY_CHARS)]
    limit: Annotated[int, wire.whole("Maximum number of results to return", DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)] = (
        DEFAULT_LIMIT
    )
    session_id: Annotated[wire.Identifier | None, wire.about("Filter by specific session ID")] = None
    content_type: Annotated[str | None, wire.about("Filter by content type")] = None
    agent: Annotated[
        wire.Identifier | None, wire.about("Name of agent making the query (for metrics, not a filter)")
    ] = None
    agents: wire.Agents = None
    tags: wire.AllTags = None
    source: wire.OfSource = None
    since: wire.Since = None
    until: wire.Until = None
    as_of: wire.AsOf = None
    min_trust: wire.MinTrust = None
    min_score: Annotated[
        wire.Score | None,
        wire.about("Minimum score of a result; absent: the model's threshold; 0: none", allow_inf_nan=False),
    ] = None
    mode: Annotated[Mode, wire.about("Hybrid search, vector search, or keyword search"), wire.Otherwise("hybrid")] = (
        "hybrid"
    )
    include_superseded: Annotated[bool | None, wire.about("Also passages of versions that were corrected, marked")] = (
        None
    )
    explain: Annotated[wire.Flag, wire.about("Return rank and raw scores of each result")] = False
    max_tokens: Annotated[
        int | None,
        wire.whole(
            "Most tokens of all passages together; the answer ends with the last whole passage that fits",
            ge=1,
            le=MAX_TOKENS,
        ),
    ] = None
    strict: Annotated[
        wire.Flag, wire.about("Answer 503 or 429 instead of an empty 200 when nothing could be searched")
    ] = False
    project: Annotated[
        wire.Identifier | None, wire.about("Search this project's documents; absent: the agents' own memory")
    ] = None


class LegScore(wire.WireResponse):
    """Where one leg put a result, and its raw score there (a cosine, a BM25 score)."""

    rank: Annotated[int, Field(ge=1)]
    score: float


class Explain(wire.WireResponse):
    """How a result came to its place."""

    legs: Annotated[dict[str, LegScore], wire.about("Rank and raw score in each leg that found it")]
    fused: Annotated[float, wire.about("Score after fusion, which orders the results")]
    boosts: dict[str, float] = Field(default_factory=dict, description="What was added to the score, by reason")
    signals: dict[str, float] = Field(default_factory=dict, description="Other raw values, such as the idf share")


class Surroundings(wire.WireResponse):
    """The messages right before and after a passage of a conversation."""

    before: str | None = None
    after: str | None = None


class NewerVersion(wire.WireResponse):
    """The passage of a later statement."""

    document_id: str
    chunk_id: str
    occurred_at: wire.OccurredAt


class CitedReference(wire.WireResponse):
    """Something that a passage cites of its repository, and what became of it."""

    text: Annotated[str, wire.about("As the passage has it")]
    kind: CitationKind
    status: Annotated[CitationStatus, wire.about("stale: no longer there; unverifiable: the repository never had it")]
    now: Annotated[str | None, wire.about("Where a moved one is")] = None

    def sentence(self) -> str | None:
        """What a reader should know; None where nothing changed or nothing is known."""
        if self.status == "moved":
            return f"`{self.text}` is now `{self.now}`"
        if self.status == "stale":
            return f"`{self.text}` " + ("is on no branch any more" if self.kind == "commit" else "no longer exists")
        return None


class SearchResult(wire.WireResponse):
    """One passage."""

    content: Annotated[str, wire.about("The matched content text")]
    score: Annotated[wire.Score, wire.about("Calibrated relevance, comparable between queries")]
    source: Annotated[str, wire.about("Source document identifier")]
    timestamp: wire.IndexedAt
    occurred_at: wire.OccurredAt
    metadata: wire.ReturnedMetadata
    origin: wire.OriginName = "unknown"
    document_id: str | None = None
    chunk_id: str | None = None
    title: str | None = None
    content_type: str | None = None
    session_id: str | None = None
    heading: str | None = None
    start_line: Annotated[int | None, Field(ge=1)] = None
    end_line: Annotated[int | None, Field(ge=1)] = None
    context: Annotated[
        Surroundings | None, wire.about("For chats: the neighbouring turns, to show the passage among")
    ] = None
    instruction_like: Annotated[
        bool | None, wire.about("It reads like an instruction to a model, and is not in the owner's words")
    ] = None
    newer_version: Annotated[
        NewerVersion | None, wire.about("A later passage that says nearly the same and gives another value")
    ] = None
    references: Annotated[
        list[CitedReference] | None,
        wire.about("What it cites of its repository, checked; absent where that is nothing, or was not checked"),
    ] = None
    superseded_by: Annotated[str | None, wire.about("The document that took its place")] = None
    reason: Annotated[str | None, wire.about("Why its place was taken")] = None
    explain: Explain | None = None


class StandingInstruction(wire.WireResponse):
    """A passage of a conversation in which the owner gives an instruction once and for all."""

    content: Annotated[str, wire.about("The passage, without what the owner only quotes")]
    score: Annotated[wire.Score, wire.about("Calibrated relevance, comparable with those of results")]
    source: str
    occurred_at: wire.OccurredAt
    document_id: str
    chunk_id: str
    session_id: str
    tags: Annotated[list[str] | None, wire.about("Tags of its document; absent if it has none")] = None


LEVELS: Mapping[int, str] = {
    1: "complete",
    2: "keyword search alone",
    3: "nothing could be searched",
    4: "circuit breaker open",
}
"""What the levels are called."""

VECTORS_INCOMPLETE = "hybrid search, vectors incomplete"
"""What level 2 is called where vectors are a part of the answer."""


class HasStatus(Protocol):
    """The report of a retriever."""

    @property
    def status(self) -> LegStatus: ...


class HasLevel(Protocol):
    """An answer with how it was obtained."""

    @property
    def fallback_level(self) -> int: ...

    @property
    def legs(self) -> Mapping[str, HasStatus]: ...


def level_name(answer: HasLevel) -> str:
    """What the level of an answer is called: keyword search is alone only where vectors are no part of it."""
    level, vector = answer.fallback_level, answer.legs.get("vector")
    return VECTORS_INCOMPLETE if level == 2 and vector is not None and vector.status == "ok" else LEVELS[level]


class LegReport(wire.WireResponse):
    """What one leg of the search did."""

    status: LegStatus
    latency_ms: wire.Milliseconds
    detail: str | None = None


class TimeRange(wire.WireResponse):
    """A period."""

    since: Annotated[wire.UtcTime | None, wire.about("First moment; absent: open")] = None
    until: Annotated[wire.UtcTime | None, wire.about("Moment at which it has ended; absent: open")] = None


class Interpreted(wire.WireResponse):
    """The time that the question names, as it was understood."""

    time_range: TimeRange
    phrase: Annotated[str, wire.about("What the question says")]
    every_year: Annotated[
        bool | None,
        wire.about("True if the question names no year: the latest is shown, and those of other years count as much"),
    ] = None

    def sentence(self) -> str:
        """The same in words, with the last day in place of the end."""
        since, until = self.time_range.since, self.time_range.until
        first, last = _day(since), None if until is None else _day(until - timedelta(microseconds=1))
        if first is None or last is None:
            days = f"until {last}" if first is None else f"since {first}"
        else:
            days = first if first == last else f"{first} to {last}"
        years = ", and the same of other years" if self.every_year else ""
        return f'"{self.phrase}" is read as {days}{years}; what is from near then comes first.'


def _day(moment: datetime | None) -> str | None:
    return None if moment is None else moment.date().isoformat()


class SearchResponse(wire.WireResponse):
    """The answer, with a label that says how it was obtained."""

    results: list[SearchResult]
    latency: Annotated[wire.Milliseconds, wire.about("Total query latency in milliseconds")]
    fallback: Annotated[bool, wire.about("Whether a fallback mechanism was used")]
    fallback_level: Annotated[int, wire.about("1=primary, 2=text search, 3=empty, 4=circuit breaker", ge=1, le=4)]
    circuit_breaker_open: Annotated[bool, wire.about("Whether the circuit breaker is currently open")]
    total_indexed: Annotated[wire.Count, wire.about("Number of documents of the tenant that was searched")]
    request_id: str
    legs: Annotated[dict[str, LegReport], wire.about("Status and latency of each part")]
    warning: Annotated[str | None, wire.about("Why the answer is degraded")] = None
    cached: Annotated[bool | None, wire.about("True if the answer is from the cache")] = None
    no_answer: Annotated[bool | None, wire.about("True if probably nothing in the index answers the query")] = None
    other_speaker: Annotated[
        str | None, wire.about("Who probably said it, where the question names another person; a label")
    ] = None
    interpreted: Annotated[Interpreted | None, wire.about("The time that the question names, if it names one")] = None
    standing: Annotated[
        list[StandingInstruction] | None,
        wire.about("Standing instructions of the owner that may apply, nearest first; absent if there are none"),
    ] = None
    omitted: Annotated[
        wire.Count | None, wire.about("Passages left out because of maxTokens; absent without maxTokens")
    ] = None


class SearchFailure(SearchResponse):
    """What a strict search answers when nothing could be searched."""

    error: str
    code: Literal["SERVICE_UNAVAILABLE", "CIRCUIT_OPEN"]

    @classmethod
    def of(cls, response: SearchResponse) -> "SearchFailure":
        """The same envelope as an error: level 4 is an open breaker, level 3 a failure of everything."""
        is_open = response.fallback_level == 4
        return cls.model_construct(
            **dict(response),
            error=response.warning or "All search methods failed, returning empty results",
            code="CIRCUIT_OPEN" if is_open else "SERVICE_UNAVAILABLE",
        )


class SearchFailedError(RagContextError):
    """A strict search found nothing that could be searched."""

    def __init__(self, response: SearchResponse, retry_after_s: float | None = None) -> None:
        self.failure = SearchFailure.of(response)
        self.retry_after_s = retry_after_s
        super().__init__(self.failure.error)


Url = Annotated[str, wire.about("Where the document is from, for citations")]


class FindRequest(wire.WireRequest):
    """A question."""

    for_programs: ClassVar[frozenset[str]] = frozenset({"agent"})

    query: Annotated[str, wire.present("What to look for", QUERY_CHARS)]
    agent: Annotated[wire.Identifier | None, wire.about("Name of the agent, for statistics")] = None


class FoundDocument(wire.WireResponse):
    """A document, with its best passage."""

    id: str
    title: str
    url: Url
    text: Annotated[str, wire.about("The passage that answers best")]


class FindResponse(wire.WireResponse):
    """The documents that answer the question, best first."""

    is_json_text: ClassVar[bool] = True

    results: list[FoundDocument]
    warning: Annotated[str | None, wire.about("What is missing from the answer; absent: nothing")] = None


class FetchRequest(wire.WireRequest):
    """Which document."""

    id: wire.DocumentId


class FetchResponse(wire.WireResponse):
    """The whole document."""

    is_json_text: ClassVar[bool] = True

    id: str
    title: str
    text: str
    url: Url
    metadata: wire.ReturnedMetadata
