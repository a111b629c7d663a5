"""Ports of the read path: vectors, keyword index, documents, metrics, cache; and records of other programs."""

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from rag_context.domain import documents
from rag_context.domain.reports import ErrorRecord, FieldCounts, Periods, SearchRecord, SearchSummary
from rag_context.domain.search import ChunkRef, Filter, KeywordHit, Neighbours, Passage, RawScores, VectorHit
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendError

T = TypeVar("T")


class VectorStore(Protocol):
    async def search(self, vector: Vector, *, limit: int, where: Filter) -> list[VectorHit]:
        """The chunks of highest cosine to `vector`, `(dim,) float32`; equal ones by chunk id."""

    async def score(self, vector: Vector, chunk_ids: Sequence[str]) -> dict[str, float]:
        """Exact cosine of the given chunks; chunks without a vector are left out."""

    async def passages(self, chunk_ids: Sequence[str]) -> dict[str, Passage]:
        """The store's own copies of the given chunks, for use while the document store is unavailable."""

    async def vectors(self, chunk_ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of the given chunks; those without are left out."""

    async def ping(self) -> str:
        """Read some of what searches read; returns one line for people."""


class IndexVectors(VectorStore, Protocol):
    """The vectors of an index, made by one model."""

    @property
    def made_by(self) -> str | None:
        """Fingerprint of the model of the vectors that answer now; None while it is not known. No I/O."""


class KeywordIndex(Protocol):
    """Finds chunks by keyword (BM25). The query is data: no character of it is syntax."""

    async def search(self, query: str, *, limit: int, where: Filter) -> list[KeywordHit]:
        """The chunks that hold the terms of the query best; equal ones by chunk id."""

    async def score(self, query: str, chunks: Sequence[ChunkRef], *, tenant: documents.Tenant) -> dict[str, KeywordHit]:
        """Exact BM25 scores of the given chunks of a tenant; unknown ones and those without any term may be left out.

        Frequencies of terms and mean lengths are the tenant's own here and in `search`: no other's chunk counts.
        """

    async def conversations(
        self, query: str, threads: Sequence[str], *, tenant: documents.Tenant
    ) -> Mapping[str, float]:
        """BM25 of all that was said in each of these conversations of a tenant; none where the store cannot add it up.

        `text.conversation_bm25` of the sums of their messages.
        """


class DocumentStore(Protocol):
    @property
    def version(self) -> int:
        """Grows with every change of the index that this process knows of; read without any I/O."""

    async def passages(self, chunk_ids: Sequence[str]) -> dict[str, Passage]: ...

    async def neighbours(self, chunk_ids: Sequence[str]) -> dict[str, Neighbours]:
        """The chunks before and after each chunk: in its document, else in its conversation."""

    async def get(self, document_id: str) -> documents.Document | None:
        """A document with its content; None where it is unknown."""

    async def stored(self, document_id: str) -> documents.Stored | None:
        """The content hash, status and chunk ids of a stored document; None where it is unknown."""

    async def states(self, document_ids: Sequence[str]) -> dict[str, documents.Stored]:
        """As `stored`, for many documents; unknown ones are left out."""

    async def chunks(self, document_id: str) -> list[documents.Chunk]:
        """The chunks of a document by position."""

    async def pending(self, limit: int) -> list[str]:
        """Ids of documents whose vectors are missing, oldest first."""

    async def matching(self, where: Filter, limit: int) -> list[str]:
        """Ids of the documents that a filter lets through, oldest first."""

    async def similar(self, documents: Sequence[documents.Document]) -> list[list[str]]:
        """For each document others of its tenant whose similarity hash is within 3 bits; none for the hash 0."""

    async def listing(
        self, where: Filter, *, limit: int, after: documents.Cursor | None = None
    ) -> list[documents.Listing]:
        """The documents that a filter lets through, newest first, then by id; those after the cursor `after`."""

    async def field_counts(self, where: Filter, most: int) -> FieldCounts:
        """The documents that a filter lets through, and the `most` latest sessions; may read a row of each."""

    async def inventory(self, after: str, limit: int) -> dict[str, documents.Stored]:
        """All documents of all tenants by ascending id, those after the id `after` ("" for the first)."""

    async def content_hashes(self, document_ids: Sequence[str]) -> dict[str, str]:
        """The content hash of each stored document, of any tenant."""

    async def tenants(self) -> list[documents.Tenant]:
        """All tenants that have documents."""

    async def record_retrievals(self, document_ids: Sequence[str], at: datetime) -> None:
        """Record that documents were returned, each as often as it is named."""

    async def retrievals(self, document_id: str) -> documents.Retrievals:
        """How often a document was returned, and when last, as far as it has been recorded."""

    async def counts(self) -> documents.Counts: ...

    async def tenant_state(self, tenant: documents.Tenant) -> documents.TenantState:
        """What this tenant has come to; no other's change is seen in it."""

    async def periods(self) -> Periods | None:
        """When the documents of all tenants were said or written, and when they were indexed; None without any."""

    async def missing_vectors(self, where: Filter) -> documents.Missing:
        """How many of the passages that a filter lets through have no vector; the total is 0 where all have one."""

    async def has_all_vectors(self) -> bool:
        """Whether each passage in the store has its vector, as far as that is known without counting."""

    async def ping(self) -> str: ...


class Snapshot(Protocol):
    """One index in one moment, read in one thread. Results are those of the ports of the same names."""

    def lag(self, tenant: documents.Tenant) -> BackendError | None:
        """Why it is without what a tenant stored last, as a sentence for people; None if nothing is missing."""

    def vector_hits(self, vector: Vector, limit: int, where: Filter) -> Sequence[VectorHit]: ...

    def keyword_hits(self, query: str, limit: int, where: Filter) -> Sequence[KeywordHit]: ...

    def scores(
        self, query: str, vector: Vector | None, chunk_ids: Sequence[str], tenant: documents.Tenant
    ) -> RawScores:
        """Both exact scores of those chunks of a tenant that are there, and no cosines without a vector."""

    def neighbours(self, chunk_ids: Sequence[str]) -> Mapping[str, Neighbours]: ...

    def conversations(self, query: str, threads: Sequence[str], tenant: documents.Tenant) -> Mapping[str, float]: ...

    def passages(self, chunk_ids: Sequence[str]) -> Mapping[str, Passage]: ...


def completed(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits, without an event loop: what runs in a reading thread."""
    try:
        # A coroutine that waits for nothing runs to its end at once, and returns by StopIteration.
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("a coroutine that must not wait did")


@dataclass(frozen=True, slots=True)
class Shortlist:
    """Which of the candidates are ranked with their neighbours; what it says is in the terms of `search.ranking`."""

    size: int
    per_document: int | None
    """How many of one document at most; None: all."""
    vector_weight: float
    code_vector_weight: float
    presumed_best: float
    unrelated_cosine: float = 0.0
    speakers: Sequence[str] = ()
    """First names, in lower case, of whom the query may be about: what they said counts `boost` times as much."""
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class CandidateRequest:
    """What a search is going to read of a snapshot: a store behind a network fetches all of it at once."""

    text: str | None
    """The query's text; None where keywords are not part of the answer."""
    vector: Vector | None
    """The query's vector; None where vectors are not part of the answer."""
    limit: int
    """How many hits of each retriever."""
    shortlist: Shortlist
    """Of which the neighbours and passages: where it is not quite what ranking chooses, one more call is made."""
    where: Filter
    chunk_ids: Sequence[str] | None
    """The hits of the keyword search; None where this is a part of the call, if keywords are."""
    standing: tuple[int, Filter] | None = None
    """How many standing instructions are listed at most, and which may be; None where they are not part of the answer.
    They are hits of the vector search, and no candidates."""


class CandidateSource(Protocol):
    """A store that has vectors, terms and documents of an index in one place, and reads them in one call."""

    @property
    def is_remote(self) -> bool:
        """Whether a server reads all of it before `work` runs: its parts have no times of their own, and are called one
        by one where it is late."""

    async def prepare(self, query: str, tenant: documents.Tenant) -> None:
        """Read what the call needs to know of the query's terms in a tenant, while the query is embedded."""

    async def read(self, requested: Callable[[], CandidateRequest], work: Callable[[Snapshot], T]) -> T:
        """Run `work`, which must not block and may run again, where the data is; `requested`: what it will read."""


class MetricsStore(Protocol):
    """Keeps one record per search, the errors, and who changed something or was rejected."""

    async def append(self, searches: Sequence[SearchRecord], errors: Sequence[ErrorRecord]) -> None:
        """Store records. Repeated after a failure with the same last record, it stores none of them twice."""

    async def summarise(self, since: datetime, until: datetime, buckets: int) -> SearchSummary:
        """Sum up the searches of `since <= t < until`; the timeline has `buckets` slices, empty ones too.

        Counts are exact. Percentiles are by nearest rank: exact, or within 1 % where there are many searches.
        Everything is 0 where there was no search.
        """

    async def recent(self, since: datetime, limit: int, until: datetime | None = None) -> list[SearchRecord]:
        """The latest searches since a moment, newest first; up to another one, where it is given."""

    async def accesses(self, limit: int) -> list[ErrorRecord]:
        """The latest records of the level `ACCESS`, newest first."""

    async def prune(self, before: datetime, accesses_before: datetime | None = None) -> int:
        """Delete records of ours that are older than these moments, accesses if there is one; returns how many."""


class Cache(Protocol):
    """A bounded cache of bytes that may drop anything at any time."""

    async def get(self, key: str) -> bytes | None: ...

    async def set(self, key: str, value: bytes, ttl_s: float) -> None: ...

    async def ping(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ForeignRecord:
    """A document of another program, or one passage of it: text, other fields, and ids of its vectors' passages."""

    id: str
    text: str
    fields: Mapping[str, object]
    chunk_ids: frozenset[str] = frozenset()


class ForeignSource(Protocol):
    """A place with records of another program. Reading changes nothing there."""

    @property
    def label(self) -> str:
        """The place, for people, without secrets."""

    def records(self) -> AsyncIterator[ForeignRecord]:
        """All records, in an order that does not change. Raises: BackendError, NotFoundError (no such place)."""
