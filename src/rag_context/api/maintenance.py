"""Requests and responses about the index as a whole: statistics, health, reindexing, checking."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rag_context.api import wire
from rag_context.api.search import LEVELS, VECTORS_INCOMPLETE
from rag_context.api.wire import about, whole
from rag_context.domain.documents import Status

TimeRange = Literal["1h", "24h", "7d", "30d"]
MAX_RECENT = 200


class StatsRequest(wire.WireRequest):
    """How far to look back."""

    for_programs: ClassVar[frozenset[str]] = frozenset({"include"})

    time_range: Annotated[TimeRange, about("Time range"), wire.Otherwise("24h")] = "24h"
    include: Annotated[
        Literal["recent"] | None, about(f"recent: list the latest searches too, {MAX_RECENT} at most")
    ] = None


class ClearQueriesRequest(wire.WireRequest):
    """Which records."""

    before: Annotated[
        wire.Instant | None, about("Only of searches before this moment (RFC 3339 with offset); absent: all")
    ] = None


class ClearQueriesResponse(wire.WireResponse):
    """How many records were deleted."""

    deleted_count: Annotated[wire.Count, about("Deleted records of searches and of errors")]


class RecentSearch(wire.WireResponse):
    """A recorded search."""

    at: wire.UtcTime
    query: Annotated[str, about("Its beginning, secrets masked; empty where queries are not recorded")]
    agent: str
    results: Annotated[wire.Count, about("How many passages it returned")]
    level: Annotated[int, Field(ge=1, le=4)]
    latency: wire.Milliseconds
    answered: Annotated[bool, about("False if nothing was found that probably answers it")]


class StatsBucket(wire.WireResponse):
    """One slice of the timeline."""

    start: wire.UtcTime
    queries: wire.Count
    avg_latency: wire.Milliseconds
    p95_latency: wire.Milliseconds
    fallbacks: wire.Count


class TimeSpan(wire.WireResponse):
    """The first and the last moment."""

    first: wire.UtcTime
    last: wire.UtcTime


class StatsResponse(wire.WireResponse):
    """Totals, rates (0..1) and latencies (ms) of the span."""

    total_documents: wire.Count
    occurred: Annotated[TimeSpan | None, about("When the documents were said or written")] = None
    indexed: Annotated[TimeSpan | None, about("When the documents were indexed")] = None
    passages_by_origin: Annotated[
        dict[str, int] | None,
        about(
            "Passages of the agents' own memory by whose words they are, the most trusted first; of many documents at "
            "most a minute old, and absent until they are counted"
        ),
    ] = None
    total_queries: wire.Count
    avg_latency: wire.Milliseconds
    p95_latency: wire.Milliseconds
    p99_latency: wire.Milliseconds
    cache_hit_rate: wire.Score
    fallback_rate: Annotated[
        wire.Score, about("Share of searches for which vectors were unavailable: keyword search alone, levels 3 and 4")
    ]
    queries_by_agent: dict[str, int]
    queries_by_level: dict[str, int]
    queries_with_vectors_incomplete: Annotated[
        wire.Count,
        about(
            f"How many of level 2 are `{VECTORS_INCOMPLETE}`; the others are `{LEVELS[2]}`. "
            "They do not count in `fallbackRate`"
        ),
    ] = 0
    embedding_cache_hits: Annotated[
        wire.Count, about("Query embeddings that the cache had, since this process started")
    ] = 0
    embedding_cache_misses: Annotated[
        wire.Count, about("Query embeddings that were computed, since this process started")
    ] = 0
    queries_by_game: dict[str, int]
    timeline: list[StatsBucket]
    recent: Annotated[list[RecentSearch] | None, about("Newest first; only if asked for")] = None

    def queries_by_level_name(self) -> dict[str, int]:
        """The number of searches by level and by what it is called, which tells the two kinds of level 2 apart."""
        counts = {f"{level} ({LEVELS[int(level)]})": count for level, count in self.queries_by_level.items()}
        if incomplete := self.queries_with_vectors_incomplete:
            counts[f"2 ({LEVELS[2]})"] -= incomplete
            counts[f"2 ({VECTORS_INCOMPLETE})"] = incomplete
        return {name: count for name, count in counts.items() if count}


class HealthRequest(wire.WireRequest):
    """No arguments."""


class ComponentHealth(wire.WireResponse):
    """One part of the system."""

    name: str
    role: str
    status: Status
    latency_ms: wire.Milliseconds | None = None
    detail: str | None = None


class ModelName(wire.WireResponse):
    """The embedding model in use."""

    name: str
    dimension: Annotated[int, Field(ge=1)]


class HealthResponse(wire.WireResponse):
    """How the system is; the three seed roles speak for whichever backend holds them."""

    healthy: Annotated[bool, about("Whether searches are at level 1 and writes succeed")]
    qdrant_status: Annotated[Status, about("The vector store")]
    lm_studio_status: Annotated[Status, about("The embedder")]
    mongo_status: Annotated[Status, about("The document store")]
    latency: Annotated[wire.Milliseconds, about("How long the check took, in milliseconds")]
    indexed_documents: wire.Count
    circuit_breaker_open: bool
    components: list[ComponentHealth]
    embedding_model: Annotated[ModelName | None, about("Absent while the model is unknown")] = None
    pending_documents: Annotated[wire.Count, about("Documents without vectors yet")]
    indexing: Annotated[bool, about("Documents are being embedded; healthy while this makes progress")] = False
    version: str


class BareHealth(wire.WireResponse):
    """What a caller without a key may know."""

    healthy: bool


class ReindexRequest(wire.WireRequest):
    """Whether to begin, and whether to wait for the end."""

    force: Annotated[wire.Flag, about("Re-embed even if the vectors are already the configured model's")] = False
    status_only: Annotated[wire.Flag, about("Only report the progress, and start nothing")] = False
    wait: Annotated[wire.Flag, about("Respond when it is done, or after five minutes; it continues in any case")] = (
        False
    )


class ReindexedCollection(wire.WireResponse):
    """A collection whose vectors another model made."""

    collection: str
    connection: str
    status: Annotated[
        Literal["needed", "running", "done", "failed"], about("failed: detail says why; asking again goes on with it")
    ]
    documents: wire.Count
    done: Annotated[wire.Count, about("Documents that have their new vectors")]
    detail: Annotated[str | None, about("Why it failed")] = None


class ReindexResponse(wire.WireResponse):
    """How far it is."""

    status: Annotated[
        Literal["current", "running", "waiting", "needed"],
        about(
            "current: every document has its vectors; running: they are being made, and the old ones "
            "answer where they can; waiting: they will be made once the embedder is there; needed: they are another "
            "model's, and nothing was begun"
        ),
    ]
    documents: Annotated[wire.Count, about("Documents in the index")]
    done: Annotated[wire.Count, about("Documents that have their vectors")]
    pending: Annotated[
        wire.Count, about("Documents that wait for theirs; the old vectors answer meanwhile, where there are some")
    ]
    detail: Annotated[str | None, about("Why it waits or is needed, or what is left out")] = None
    collections: Annotated[
        list[ReindexedCollection] | None,
        about("Collections that this server embeds and whose vectors were made by another model"),
    ] = None


class IssueReport(wire.WireResponse):
    """One kind of issue, and how often it was found."""

    kind: str
    says: Annotated[str, about("Message")]
    count: wire.Count
    examples: Annotated[list[str], about("Some positions, ids if there are any")]
    repair: Annotated[str, about("Effect of a repair")]
    mendable: Annotated[bool, about("Whether a repair can fix it")]


class CheckResponse(wire.WireResponse):
    """The index as it was found, or as a repair left it."""

    sound: bool
    thoroughness: Annotated[str, about("quick or full")]
    documents: Annotated[wire.Count | None, about("This count and the next three are absent where the file is damaged")]
    pending: wire.Count | None
    chunks: wire.Count | None
    vectors: wire.Count | None
    compared_terms: Annotated[
        wire.Count, about("Chunks whose terms were compared; fewer than `chunks` where a sample was taken")
    ]
    flaws: list[IssueReport]
    mended: Annotated[list[IssueReport] | None, about("What a repair fixed; absent without one")] = None


class AdoptedSource(wire.WireResponse):
    """What became of the records of one source; without outcomes it is what would be taken over."""

    source: str
    records: int
    documents: int
    superseded: Annotated[int, about("Records that are earlier versions of a document")]
    covered: Annotated[int, about("Passages of documents that another source has")]
    without_text: int
    outcomes: dict[str, int]
    rejected: int
    reasons: Annotated[dict[str, str], about("By record, why it was rejected; the first ones")]


class AdoptionReceipt(wire.WireResponse):
    """What became of all sources."""

    dry_run: bool
    sources: list[AdoptedSource]


MAX_INJECTIONS = 500
DEFAULT_INJECTIONS = 50


class InjectionsRequest(wire.WireRequest):
    """Of which session, and how many."""

    session_id: Annotated[
        wire.Identifier | None, about("Session of the agent's client; absent: those of all sessions")
    ] = None
    limit: Annotated[
        int, whole("Maximum number of records, the latest", DEFAULT_INJECTIONS, ge=1, le=MAX_INJECTIONS)
    ] = DEFAULT_INJECTIONS
    shown_only: Annotated[wire.Flag, about("Leave out what was withheld")] = False


class InjectedPassage(wire.WireResponse):
    """A passage that was shown to an agent unasked, or withheld."""

    at: wire.UtcTime
    session_id: str
    client: str
    event: Annotated[Literal["session-start", "prompt", "action"], about("The moment of the session")]
    project: Annotated[str, about("Tag of the project that the agent worked in")]
    subject: Annotated[str | None, about("The file or the command, before an action")] = None
    shown: bool
    reason: Annotated[str | None, about("Why it was withheld")] = None
    tokens: Annotated[wire.Count, about("What it cost; 0 if it was withheld")]
    scores: Annotated[dict[str, float], about("What it was judged by: relevance, share of the terms, ranks")]
    document_id: Annotated[str | None, about("Absent where no passage was found at all")] = None
    title: Annotated[str | None, about("Absent where the document was deleted since")] = None
    source: str | None = None
    content: Annotated[str | None, about("The passage, as it is stored now")] = None


class InjectionsResponse(wire.WireResponse):
    """The records, newest first."""

    injections: list[InjectedPassage]
    tokens: Annotated[wire.Count, about("Tokens that these records cost in all")]
