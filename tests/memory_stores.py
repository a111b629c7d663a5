"""All stores in one object in memory, the simplest implementation of the ports."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import fmean

import numpy as np

from rag_context.domain import reports, text
from rag_context.domain.documents import (
    FILTERED,
    Chunk,
    Counts,
    Cursor,
    Document,
    Listing,
    Missing,
    Retrievals,
    Stored,
    Tenant,
    TenantState,
    microseconds,
    origins_of,
)
from rag_context.domain.reports import DAY_US, DocumentGroup, FieldCounts
from rag_context.domain.search import ChunkRef, Filter, KeywordHit, Neighbours, Passage, VectorHit
from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector
from rag_context.ports.writing import Version, require_model, written_in_turn


@dataclass(slots=True)
class _StoredEntry:
    document: Document
    chunks: tuple[Chunk, ...]
    vectors: Matrix | None
    retrievals: Retrievals = field(default_factory=Retrievals)


@dataclass(slots=True)
class MemoryStore:
    """Implements every store port."""

    version: int = 0
    searches: list[reports.SearchRecord] = field(default_factory=list)
    errors: list[reports.ErrorRecord] = field(default_factory=list)
    _entries: dict[str, _StoredEntry] = field(default_factory=dict)
    _versions: Counter[Tenant] = field(default_factory=Counter)
    """How often each tenant's documents were changed."""
    model: EmbeddingModel | None = None

    async def write(self, version: Version) -> bool:
        if version.vectors is not None:
            self._check_model(version.made_by)
        document = version.document
        self._entries.pop(document.id, None)
        self._entries[document.id] = _StoredEntry(document, tuple(version.chunks), version.vectors)
        self._changed(document.tenant)
        return version.vectors is not None

    async def write_all(self, versions: Sequence[Version]) -> list[bool | Exception]:
        return await written_in_turn(versions, self)

    async def attach(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str | None = None) -> bool:
        entry = self._entries.get(document_id)
        if entry is None or entry.document.content_hash != content_hash:
            return False
        self._check_model(made_by)
        entry.vectors = vectors
        self._changed(entry.document.tenant)
        return True

    async def rechunk(self, version: Version) -> bool:
        entry = self._entries.get(version.document.id)
        if entry is None or entry.document.content_hash != version.document.content_hash:
            return False
        await self.write(version)
        return True

    async def delete(self, document_id: str) -> bool:
        entry = self._entries.pop(document_id, None)
        if entry is not None:
            self._changed(entry.document.tenant)
        return entry is not None

    async def stored(self, document_id: str) -> Stored | None:
        entry = self._entries.get(document_id)
        if entry is None:
            return None
        ids = tuple(chunk.id for chunk in entry.chunks)
        return Stored(
            entry.document.content_hash,
            entry.vectors is not None,
            ids,
            entry.document.occurred_at,
            entry.document.origin,
        )

    async def states(self, document_ids: Sequence[str]) -> dict[str, Stored]:
        return {id_: state for id_ in document_ids if (state := await self.stored(id_)) is not None}

    async def get(self, document_id: str) -> Document | None:
        return self._entries[document_id].document if document_id in self._entries else None

    async def chunks(self, document_id: str) -> list[Chunk]:
        return list(self._entries[document_id].chunks) if document_id in self._entries else []

    async def pending(self, limit: int) -> list[str]:
        return [id_ for id_, entry in self._entries.items() if entry.vectors is None][:limit]

    async def matching(self, where: Filter, limit: int) -> list[str]:
        return [id_ for id_, entry in self._entries.items() if _passes(entry.document, where)][:limit]

    async def similar(self, documents: Sequence[Document]) -> list[list[str]]:
        others = [entry.document for entry in self._entries.values()]
        return [[other.id for other in others if _similar(document, other)] for document in documents]

    async def passages(self, chunk_ids: Sequence[str]) -> dict[str, Passage]:
        requested = set(chunk_ids)
        return {
            chunk.id: Passage(chunk, of.id, **of.described())
            for of, chunks in ((entry.document, entry.chunks) for entry in self._entries.values())
            for chunk in chunks
            if chunk.id in requested
        }

    async def neighbours(self, chunk_ids: Sequence[str]) -> dict[str, Neighbours]:
        requested = set(chunk_ids)
        found: dict[str, Neighbours] = {}
        for line in self._lines():
            for i, ref in enumerate(line):
                if ref.id in requested:
                    before = line[i - 1] if i > 0 else None
                    after = line[i + 1] if i + 1 < len(line) else None
                    found[ref.id] = Neighbours(before, after)
        return found

    async def listing(self, where: Filter, *, limit: int, after: Cursor | None = None) -> list[Listing]:
        found = [_listing(entry) for entry in self._entries.values() if _passes(entry.document, where)]
        found.sort(key=lambda listing: (-listing.timestamp.timestamp(), listing.id))
        if after is not None:
            behind = (-after.timestamp.timestamp(), after.id)
            found = [listing for listing in found if (-listing.timestamp.timestamp(), listing.id) > behind]
        return found[:limit]

    async def field_counts(self, where: Filter, most: int) -> FieldCounts:
        entries = [entry for entry in self._entries.values() if _passes(entry.document, where)]
        groups = [
            DocumentGroup(
                each.content_type, each.metadata.agent, each.session_id, each.metadata.tags, at // DAY_US, 1, at
            )
            for each in [entry.document for entry in entries]
            for at in [microseconds(each.occurred_at)]
        ]

        origins = origins_of((chunk.origin, 1) for entry in entries for chunk in entry.chunks)
        return FieldCounts.of(groups, origins, most)

    async def inventory(self, after: str, limit: int) -> dict[str, Stored]:
        ids = sorted(id_ for id_ in self._entries if id_ > after)[:limit]
        return await self.states(ids)

    async def content_hashes(self, document_ids: Sequence[str]) -> dict[str, str]:
        return {id_: self._entries[id_].document.content_hash for id_ in document_ids if id_ in self._entries}

    async def tenants(self) -> list[Tenant]:
        return list(dict.fromkeys(entry.document.tenant for entry in self._entries.values()))

    async def record_retrievals(self, document_ids: Sequence[str], at: datetime) -> None:
        for id_ in document_ids:
            if id_ in self._entries:
                self._entries[id_].retrievals = Retrievals(self._entries[id_].retrievals.count + 1, at)

    async def retrievals(self, document_id: str) -> Retrievals:
        entry = self._entries.get(document_id)
        return entry.retrievals if entry else Retrievals()

    async def periods(self) -> reports.Periods | None:
        documents = [entry.document for entry in self._entries.values()]
        occurred, indexed = [each.occurred_at for each in documents], [each.timestamp for each in documents]
        if not documents:
            return None
        return reports.Periods(reports.Period(min(occurred), max(occurred)), reports.Period(min(indexed), max(indexed)))

    async def counts(self) -> Counts:
        entries = self._entries.values()
        return Counts(
            documents=len(self._entries),
            pending=sum(entry.vectors is None for entry in entries),
            chunks=sum(len(entry.chunks) for entry in entries),
            vectors=sum(len(entry.chunks) for entry in entries if entry.vectors is not None),
        )

    async def tenant_state(self, tenant: Tenant) -> TenantState:
        documents = sum(entry.document.tenant == tenant for entry in self._entries.values())
        return TenantState(f"memory-{id(self)}:{self._versions[tenant]}", documents)

    async def missing_vectors(self, where: Filter) -> Missing:
        visible = self.visible(where)
        missing = sum(vector is None for _, _, vector in visible)
        return Missing(missing, len(visible)) if missing else Missing()

    async def has_all_vectors(self) -> bool:
        return all(entry.vectors is not None for entry in self._entries.values())

    async def ping(self) -> str:
        return f"{len(self._entries)} documents in memory"

    async def recorded_model(self) -> EmbeddingModel | None:
        return self.model

    async def adopt_model(self, model: EmbeddingModel) -> None:
        self.model = self.model or model

    async def drop_vectors(self) -> int:
        self.model = None
        for entry in self._entries.values():
            entry.vectors = None
            self._changed(entry.document.tenant)
        return len(self._entries)

    async def append(self, searches: Sequence[reports.SearchRecord], errors: Sequence[reports.ErrorRecord]) -> None:
        self.searches.extend(searches)
        self.errors.extend(errors)

    async def recent(self, since: datetime, limit: int, until: datetime | None = None) -> list[reports.SearchRecord]:
        found = [each for each in self.searches if since <= each.timestamp <= (until or each.timestamp)]
        return sorted(found, key=lambda record: record.timestamp, reverse=True)[:limit]

    async def accesses(self, limit: int) -> list[reports.ErrorRecord]:
        return [record for record in reversed(self.errors) if record.level == reports.ACCESS][:limit]

    async def prune(self, before: datetime, accesses_before: datetime | None = None) -> int:
        kept = [record for record in self.searches if record.timestamp >= before]
        removed = len(self.searches) - len(kept)
        self.searches[:] = kept
        return removed

    async def summarise(self, since: datetime, until: datetime, buckets: int) -> reports.SearchSummary:
        slices = reports.Slices(microseconds(since), microseconds(until), buckets)
        sums: defaultdict[int, reports.Sums] = defaultdict(reports.Sums)
        counts: dict[str, Counter[str | int]] = {name: Counter() for name in reports.COUNTED}
        for record in self.searches:
            if since <= record.timestamp < until:
                part = sums[slices.of(record.timestamp)]
                part.add(1, record.latency_ms, record.level > 1, record.cache_hit)
                part.latencies[record.latency_ms] += 1
                for name, count in counts.items():
                    if (value := getattr(record, name)) is not None:
                        count[value] += 1
        return reports.summary(sums, counts, slices, buckets)

    @property
    def vectors(self) -> "MemoryVectors":
        """The vector store over these documents."""
        return MemoryVectors(self)

    @property
    def texts(self) -> "MemoryTexts":
        """The text index over these documents."""
        return MemoryTexts(self)

    def _changed(self, tenant: Tenant) -> None:
        self.version += 1
        self._versions[tenant] += 1

    def _check_model(self, made_by: str | None) -> None:
        require_model("documents", self.vectors.made_by, made_by)

    def _lines(self) -> list[list[ChunkRef]]:
        """Chunks in reading order: one sequence per document, or per conversation."""
        lines: dict[tuple[object, ...], list[ChunkRef]] = {}
        for entry in self._entries.values():
            document = entry.document
            is_conversation = document.thread is not None
            key = (document.tenant, document.thread) if is_conversation else (document.id,)
            lines.setdefault(key, []).extend(_ref(entry, chunk) for chunk in entry.chunks)
        return list(lines.values())

    def visible(self, where: Filter) -> list[tuple[ChunkRef, Chunk, Vector | None]]:
        """Every chunk that matches a filter, with its vector if it has one."""
        return [
            (_ref(entry, chunk), chunk, None if entry.vectors is None else entry.vectors[i])
            for entry in self._entries.values()
            for i, chunk in enumerate(entry.chunks)
            if _passes(entry.document, replace(where, origins=()), chunk.occurred_at)
            and (not where.standing or chunk.is_standing)
            and (not where.origins or chunk.origin in where.origins)
        ]

    def everything(self) -> list[tuple[ChunkRef, Chunk, Vector | None]]:
        """Every chunk of every tenant."""
        tenants = {entry.document.tenant for entry in self._entries.values()}
        return [found for tenant in tenants for found in self.visible(Filter(tenant))]


@dataclass(frozen=True, slots=True)
class MemoryVectors:
    """Implements `ports.IndexVectors`."""

    store: MemoryStore

    @property
    def made_by(self) -> str | None:
        return None if self.store.model is None else self.store.model.fingerprint

    async def search(self, vector: Vector, *, limit: int, where: Filter) -> list[VectorHit]:
        hits = [VectorHit(ref, float(row @ vector)) for ref, _, row in self.store.visible(where) if row is not None]
        return sorted(hits, key=lambda hit: (-hit.cosine, hit.chunk.id))[:limit]

    async def score(self, vector: Vector, chunk_ids: Sequence[str]) -> dict[str, float]:
        return {id_: float(row @ vector) for id_, row in (await self.vectors(chunk_ids)).items()}

    async def passages(self, chunk_ids: Sequence[str]) -> dict[str, Passage]:
        return await self.store.passages(chunk_ids)

    async def vectors(self, chunk_ids: Sequence[str]) -> dict[str, Vector]:
        requested = set(chunk_ids)
        return {ref.id: row for ref, _, row in self.store.everything() if row is not None and ref.id in requested}

    async def ping(self) -> str:
        return await self.store.ping()


@dataclass(frozen=True, slots=True)
class MemoryTexts:
    """Implements `KeywordIndex`."""

    store: MemoryStore

    async def search(self, query: str, *, limit: int, where: Filter) -> list[KeywordHit]:
        hits = [hit for hit in self._scored(query, self.store.visible(where), where.tenant) if hit.bm25 > 0]
        return sorted(hits, key=lambda hit: (-hit.bm25, hit.chunk.id))[:limit]

    async def score(self, query: str, chunks: Sequence[ChunkRef], *, tenant: Tenant) -> dict[str, KeywordHit]:
        requested = {chunk.id for chunk in chunks}
        found = [item for item in self.store.visible(Filter(tenant)) if item[0].id in requested]
        return {hit.chunk.id: hit for hit in self._scored(query, found, tenant)}

    async def conversations(self, query: str, threads: Sequence[str], *, tenant: Tenant) -> Mapping[str, float]:
        query_terms, visible = Counter(text.terms(query)), self.store.visible(Filter(tenant))
        bags = [(ref.thread, Counter(text.terms(chunk.searchable))) for ref, chunk, _ in visible]
        frequencies = [sum(term in bag for _, bag in bags) for term in query_terms]
        weights = [
            text.inverse_document_frequency(len(bags), frequency) * times
            for frequency, times in zip(frequencies, query_terms.values(), strict=True)
        ]
        said = {thread: sum((bag for each, bag in bags if each == thread), Counter[str]()) for thread in threads}
        counts = np.array([[float(bag[term]) for term in query_terms] for bag in said.values()])
        lengths = np.array([float(bag.total()) for bag in said.values()])
        return dict(zip(said, text.conversation_bm25(counts, lengths, np.array(weights)).tolist(), strict=True))

    def _scored(
        self, query: str, found: Sequence[tuple[ChunkRef, Chunk, Vector | None]], tenant: Tenant
    ) -> list[KeywordHit]:
        query_terms = Counter(text.terms(query))
        if not found:
            return []
        index = [Counter(text.terms(chunk.searchable)) for _, chunk, _ in self.store.visible(Filter(tenant))]
        holders = [sum(term in chunk_terms for chunk_terms in index) for term in query_terms]
        idf = np.array([text.inverse_document_frequency(len(index), count) for count in holders])
        counters = [Counter(text.terms(chunk.searchable)) for _, chunk, _ in found]
        counts = np.array([[float(each[term]) for term in query_terms] for each in counters])
        average_length = fmean([float(each.total()) for each in index] or [0.0])
        profiles = [text.profile_for(ref.content_type, average_length) for ref, _, _ in found]
        scores = text.bm25(
            counts,
            np.array([float(each.total()) for each in counters]),
            idf * np.array([float(count) for count in query_terms.values()]),
            np.array([profile.k1 for profile in profiles]),
            np.array([profile.b for profile in profiles]),
            average_length,
        )
        shares = text.idf_share(counts, idf)
        return [
            KeywordHit(ref, float(score), float(share))
            for (ref, _, _), score, share in zip(found, scores, shares, strict=True)
        ]


def _ref(entry: _StoredEntry, chunk: Chunk) -> ChunkRef:
    document, at = entry.document, microseconds(chunk.occurred_at)
    kind, thread = document.content_type, document.thread
    return ChunkRef(chunk.id, document.id, chunk.position, kind, thread, chunk.speaker, at)


def _listing(entry: _StoredEntry) -> Listing:
    document = entry.document
    described = document.described()
    return Listing(document.id, document.occurred_at, entry.vectors is not None, document.origin, **described)


def _similar(one: Document, other: Document) -> bool:
    are_two = one.id != other.id and one.tenant == other.tenant
    return are_two and text.are_similar(one.similarity_hash, other.similarity_hash)


def _passes(document: Document, where: Filter, at: datetime | None = None) -> bool:
    at = at or document.occurred_at
    metadata = document.metadata
    return (
        document.tenant == where.tenant
        and (not where.agents or metadata.agent in where.agents)
        and all(value == getattr(metadata if name in FILTERED else document, name) for name, value in where.equal())
        and document.source.startswith(where.source_prefix or "")
        and set(where.tags) <= set(metadata.tags)
        and all(set(group) & set(metadata.tags) for group in where.any_tags)
        and document.id not in where.without_documents
        and (not where.origins or document.origin in where.origins)
        and (where.since is None or at >= where.since)
        and (where.until is None or at < where.until)
    )
