"""What goes into the chain, what comes out of it, and answers that are kept.

Only complete answers of level 1 are kept, once the query's vector is confirmed, and only while the index is unchanged.
`FORMAT` changes with the fields of an answer, because processes share them as bytes.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import IntEnum, StrEnum
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from cachetools import LRUCache, TTLCache

from rag_context._version import __version__
from rag_context.domain.documents import Chunk, Metadata, Origin, Span, Tenant, TenantState
from rag_context.domain.ranking_rules import Rule
from rag_context.domain.search import ChunkRef, Filter, Passage
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendError
from rag_context.ports.models import CONFIRMED, Proof, Provenance
from rag_context.ports.reading import DocumentStore
from rag_context.resilience.shared_cache import SecondLevel
from rag_context.search.question_times import Window
from rag_context.search.ranking import Candidate, Ranked


class Mode(StrEnum):
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

    A `min_score` is a real minimum. Without one the model's threshold applies, from which passages that hold the
    question's rare terms are exempt. `per_document` bounds how many passages of one document are returned. With its own
    `vector`, nothing is embedded; without text too, only vector search is possible. `windows` are the times that the
    text names; `without` leaves rules of ranking out, so that their effect can be measured.
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

    @property
    def has_text(self) -> bool:
        """Whether there is text for a keyword search."""
        return self.vector is None or bool(self.text.strip())


@dataclass(frozen=True, slots=True)
class RetrieverReport:
    """How one part of a search ended, and how many milliseconds it took."""

    status: RetrieverStatus
    latency_ms: float
    detail: str | None = None


def latencies_of_parts(legs: Mapping[str, RetrieverReport]) -> dict[str, float]:
    """How long the parts took that an answer is made of, in milliseconds."""
    return {name: leg.latency_ms for name, leg in legs.items() if leg.status is RetrieverStatus.OK}


@dataclass(frozen=True, slots=True)
class Result:
    """A passage with its rank in each retriever (from 1; None where that did not find it); a message's neighbours."""

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
    other_speaker: str | None = None
    """Who probably said what the question is about, where it names another person."""
    standing: tuple[Standing, ...] = ()
    cached: bool = False
    retry_after_s: float | None = None
    error: str | None = None


REMEMBERED_TENANTS = 10_000


@dataclass(frozen=True, slots=True)
class KnownState:
    """A tenant's state, and the version of the index at which this process first saw it."""

    state: TenantState
    version: int
    """Grows with every change of the tenant that this process notices."""


class TenantStates:
    """Reads the states of tenants again once the index has changed; what others store makes no difference to them."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents
        self._known: LRUCache[Tenant, KnownState] = LRUCache(REMEMBERED_TENANTS)
        self._read_at: LRUCache[Tenant, int] = LRUCache(REMEMBERED_TENANTS)

    def last(self, tenant: Tenant) -> KnownState | None:
        """What was read last; None before that. No I/O."""
        return self._known.get(tenant)

    def current(self, tenant: Tenant) -> KnownState | None:
        """What was read of the index as it is now, as far as this process knows; None if it must be read. No I/O."""
        return self._known.get(tenant) if self._read_at.get(tenant) == self._documents.version else None

    async def read(self, tenant: Tenant) -> KnownState:
        """The current state. Raises: BackendError."""
        known = self.current(tenant)
        if known is not None:
            return known
        version = self._documents.version  # before reading: what changes meanwhile is read again
        state = await self._documents.tenant_state(tenant)
        last = self._known.get(tenant)
        # An index that was replaced by an older copy passes through its states again, under greater versions.
        is_same = last is not None and last.state.stamp == state.stamp
        known = KnownState(state, last.version if last is not None and is_same else version)
        self._known[tenant], self._read_at[tenant] = known, version
        return known


FORMAT = 7
"""Changes with what is written, so that no release reads what another one wrote in another format."""

SHARED_ANSWER_TTL_S = 60.0
"""Longest life of an answer in the shared level: it holds passages, which must be gone soon after they are deleted."""

_Key: TypeAlias = tuple[Query, bytes | None, int]


class ResultCache:
    """The least recently used answers go first; each lives for `ttl_s` seconds at most.

    A second level may be shared with other processes, for a minute at most: `get` reads this process's memory alone,
    `fetch` the shared level, and keeps what it finds there in memory too.
    """

    def __init__(self, size: int, ttl_s: float, clock: Callable[[], float], shared: SecondLevel | None = None) -> None:
        self._answers: TTLCache[_Key, tuple[Answer, Proof]] = TTLCache(size, ttl_s, timer=clock)
        self._ttl_s = ttl_s
        self._shared = shared
        self.hits = 0
        """Answers found in either level."""
        self.misses = 0
        """Answers found in neither."""

    async def answered(
        self,
        query: Query,
        known: Callable[[], Awaitable[KnownState | None]],
        search: Callable[[], Awaitable[Answer]],
        look: Callable[[], Awaitable[None]] | None = None,
        provenance: Provenance = CONFIRMED,
    ) -> Answer:
        """The answer of one of the levels, or that of a `search`, which is remembered.

        `known` is the state of the tenant, if known; `look` reads the version of the index where others write it too.
        """
        # Before the search: what changes during it belongs to a later version.
        now = await known()
        if now is None:
            return await search()
        key = _key(query, now.version)
        if key in self._answers and not await self._answers[key][1].holds():
            self._answers.pop(key, None)
        answer = self.get(query, now.version)
        if answer is not None and look is not None:
            # The index may have been changed by another process, which this one has not noticed yet.
            with suppress(BackendError):  # as without a look: the version that was known last
                await look()
            later = await known()
            if later is None:
                return await search()
            answer, now = answer if later.version == now.version else None, later
        stamp = now.state.stamp if self._shared is not None else None
        if answer is None and self._shared is not None:
            answer = await self.fetch(query, now.version, stamp)
        if answer is None:
            answer = await search()
            self.put(query, now.version, answer, stamp, provenance.proof())
        return answer

    def get(self, query: Query, version: int) -> Answer | None:
        """The answer to this query on this version of its tenant that the memory holds, marked as cached."""
        answer, proof = self._answers.get(_key(query, version), (None, CONFIRMED.proof()))
        if answer is not None and proof.is_known:
            self.hits += 1
            return replace(answer, cached=True)
        # With a second level, `fetch` finds out whether it is a miss.
        if self._shared is None:
            self.misses += 1
        return None

    async def fetch(self, query: Query, version: int, stamp: str | None) -> Answer | None:
        """The answer in the shared level, marked as cached; call it when `get` returned None.

        `version` is the tenant's in this process, `stamp` what all call this state; without it nothing is shared.
        """
        sealed = None if self._shared is None or stamp is None else await self._shared.get(_shared_key(query, stamp))
        answer = None if sealed is None else decoded(sealed)
        if answer is None:
            self.misses += 1
            return None
        self.hits += 1
        self._remember(query, version, answer, CONFIRMED.proof())
        return replace(answer, cached=True)

    def put(
        self, query: Query, version: int, answer: Answer, stamp: str | None = None, proof: Proof | None = None
    ) -> None:
        """Remember an answer if it is a whole one, once `proof` holds; for other processes too, with a `stamp`."""
        proof = proof or CONFIRMED.proof()
        is_complete = answer.level is Level.PRIMARY and all(
            leg.status is RetrieverStatus.OK for leg in answer.legs.values()
        )
        # An answer that misses something would be repeated after the failure has ended.
        if not is_complete or answer.breaker_open or answer.warning is not None:
            return
        self._remember(query, version, answer, proof)
        if self._shared is not None and stamp is not None and self._ttl_s > 0:
            ttl_s = min(self._ttl_s, SHARED_ANSWER_TTL_S)
            self._shared.put(_shared_key(query, stamp), partial(encoded, answer), ttl_s, proof)

    def _remember(self, query: Query, version: int, answer: Answer, proof: Proof) -> None:
        if self._answers.maxsize > 0:
            self._answers[_key(query, version)] = answer, proof


def _key(query: Query, version: int) -> _Key:
    """All that an answer depends on: query, filters, tenant and the tenant's version."""
    if query.vector is None:
        return query, None, version
    # An array has no hash, its bytes have.
    return replace(query, vector=None), query.vector.tobytes(), version


def _shared_key(query: Query, stamp: str) -> str:
    """As `_key`, for all processes: with the tenant's stamp, and the version and format of what is stored."""
    text = json.dumps((asdict(query), stamp, FORMAT, __version__), default=_json_default, sort_keys=True)
    return f"answer:{hashlib.sha256(text.encode()).hexdigest()}"


def _json_default(value: object) -> str:
    """An array as its bytes in hexadecimal: `str` would abbreviate it."""
    return value.tobytes().hex() if isinstance(value, np.ndarray) else str(value)


def encoded(answer: Answer) -> bytes:
    """The answer as JSON; every number comes back as it was."""
    return json.dumps(asdict(answer), default=datetime.isoformat, separators=(",", ":")).encode()


def decoded(value: bytes) -> Answer | None:
    """The answer that was encoded; None if the bytes are not a valid answer."""
    # Another process wrote the bytes: whatever is wrong with them is a miss.
    try:
        return _answer(json.loads(value))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _answer(fields: dict[str, Any]) -> Answer:
    legs = {
        name: RetrieverReport(RetrieverStatus(leg["status"]), leg["latency_ms"], leg["detail"])
        for name, leg in fields["legs"].items()
    }
    results = tuple(_result(result) for result in fields["results"])
    standing = tuple(Standing(_passage(each["passage"]), each["score"]) for each in fields["standing"])
    return Answer(**{**fields, "results": results, "standing": standing, "level": Level(fields["level"]), "legs": legs})


def _result(fields: dict[str, Any]) -> Result:
    ranked = fields["ranked"]
    candidate = Candidate(**{**ranked["candidate"], "chunk": ChunkRef(**ranked["candidate"]["chunk"])})
    around = {
        side: _passage(fields[side]) if fields[side] is not None else None for side in ("before", "after", "newer")
    }
    passage = _passage(fields["passage"])
    return Result(**{**fields, **around, "passage": passage, "ranked": Ranked(**{**ranked, "candidate": candidate})})


def _passage(fields: dict[str, Any]) -> Passage:
    occurred_at = datetime.fromisoformat(fields["chunk"]["occurred_at"])
    values = fields["chunk"]
    span, origin = Span(**values["span"]), Origin.stored(values["origin"])
    chunk = Chunk(**{**values, "span": span, "occurred_at": occurred_at, "origin": origin})
    metadata = Metadata(**{**fields["metadata"], "tags": tuple(fields["metadata"]["tags"])})
    timestamp = datetime.fromisoformat(fields["timestamp"])
    return Passage(**{**fields, "chunk": chunk, "timestamp": timestamp, "metadata": metadata})
