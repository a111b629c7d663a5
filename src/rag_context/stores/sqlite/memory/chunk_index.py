"""The index in memory: one row per chunk, with its document's fields, its vector and its terms.

Rows are in the order in which the file numbered the chunks, so that the chunks of a document stand side by side. A
deleted chunk leaves its row dead; when as many are dead as live, all rows move together.

A read-write lock protects it: no search sees a partial change.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from rag_context.domain.documents import CHAT, Origin, Tenant
from rag_context.domain.reports import FieldCounts
from rag_context.domain.search import ChunkRef, Filter, Floats, KeywordHit, Neighbours, RawScores, VectorHit
from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendDataError
from rag_context.stores.sqlite.database import ReadWriteLock
from rag_context.stores.sqlite.faults import COMPONENT
from rag_context.stores.sqlite.memory import columns, terms
from rag_context.stores.sqlite.memory.vector_scan import Mask, ReadVectors, Rows, Vectors, best, in_order, matrix_of

LEAST_DEAD = 1024
"""Fewer dead rows than this are left where they are."""

SCORED = 8
"""Queries whose scores are kept, 16 bytes a chunk each: one search reads them several times."""

REMEMBERED = 20_000
"""Chunks whose names are kept together, of some 200 bytes each."""

TenantName = tuple[str, str, str]
"""`Tenant.names`."""


@dataclass(frozen=True, slots=True)
class Change:
    """What came and went. All of it is applied at once."""

    deleted: Sequence[int] = ()
    """Keys of chunks that were deleted."""
    without_vector: Sequence[int] = ()
    """Keys of chunks that lost their vector."""
    documents: Sequence[columns.DocumentFields] = ()
    chunks: Sequence[columns.StoredChunk] = ()
    """New ones, by ascending key."""
    vectors: Sequence[columns.StoredVector] = ()


class MemoryIndex:
    """Chunks, changed by one thread at a time and read by several, each of them inside `reading()`."""

    def __init__(self) -> None:
        self._lock = ReadWriteLock()
        self._documents = columns.DocumentColumns()
        self._rows = columns.ChunkColumns()
        self._ids: list[str] = []
        self._speakers: columns.Codes[str | None] = columns.Codes()
        self._by_id: dict[str, int] = {}
        self._vectors = Vectors()
        self._dimension: int | None = None
        self._embedded = 0
        self._misfits: set[int] = set()
        """Keys of chunks whose stored vector is of another dimension: no answer is whole without them."""
        self._terms: dict[TenantName, terms.TenantTerms] = {}
        self._live = 0
        self._statistics: dict[TenantName, terms.Statistics] = {}
        """Those of this state of the chunks that a search needed."""
        self._refs: dict[int, ChunkRef] = {}
        self._scored: LRUCache[tuple[TenantName, str], terms.KeywordScores] = LRUCache(SCORED)
        """Of this state of the chunks; used under a lock of its own, because readers run side by side."""
        self._scored_lock = threading.Lock()

    @contextmanager
    def reading(self) -> Iterator["MemoryIndex"]:
        """The index, which does not change inside the block. Blocks do not nest."""
        with self._lock.reading():
            yield self

    @property
    def chunks(self) -> int:
        return self._live

    @property
    def vectors(self) -> int:
        return self._embedded

    @property
    def dimension(self) -> int | None:
        return self._dimension if self._embedded else None

    def apply(self, change: Change) -> None:
        """Apply `change`, atomically for every reader. The owner ensures one at a time. Raises: BackendDataError."""
        with self._lock.writing():
            self._statistics.clear()
            self._scored.clear()
            try:
                # Deletions first: a document written again may have chunks of the same ids, which then get new rows.
                self._remove(self._rows_of(change.deleted))
                self._clear_vectors(self._rows_of(change.without_vector))
                self._documents.put(change.documents)
                self._append(change.chunks)
                self._put_vectors(change.vectors)
            except (TypeError, ValueError, OverflowError):  # the message may contain stored data
                raise BackendDataError(COMPONENT, "A stored document is damaged; run `rag-context check`.") from None
            if len(self._ids) - self._live > max(LEAST_DEAD, self._live):
                self._move_together()

    def drop_vectors(self) -> None:
        with self._lock.writing():
            # The scored queries stay: keywords do not depend on the model.
            self._vectors, self._dimension, self._embedded = Vectors(), None, 0
            self._misfits.clear()
            self._rows.embedded[:] = False

    def vector_hits(self, vector: Vector, limit: int, where: Filter, read: ReadVectors) -> list[VectorHit]:
        """The `limit` chunks of highest cosine to `vector` (`(dim,) float32`), equal ones by chunk id.

        `read` is for vectors that are not in memory.

        Raises: BackendDataError (`vector` has another dimension than the index).
        """
        if limit < 1 or not (self._embedded or self._misfits) or (where.standing and not self._rows.standing.any()):
            return []
        query = self._checked(vector)
        mask = self._matching(where, self._rows.embedded)
        scores, rows = self._vectors.nearest(query, limit, mask, partial(self._stored, read))
        return [VectorHit(self._ref(row), cosine) for cosine, row in in_order(scores, rows, self._ids, limit)]

    def cosines(self, vector: Vector, ids: Sequence[str], read: ReadVectors) -> dict[str, float]:
        """Cosines of chunks to `vector` (`(dim,) float32`); those without a vector are left out.

        Raises: BackendDataError (`vector` has another dimension than the index).
        """
        if not (self._embedded or self._misfits):
            return {}
        query = self._checked(vector)
        rows = np.array(sorted(self._by_id[id_] for id_ in ids if id_ in self._by_id), dtype=np.intp)
        rows = rows[self._rows.embedded[rows]]
        scores = self._vectors.scores_of(query, rows, partial(self._stored, read))
        return {self._ids[row]: score for row, score in zip(rows.tolist(), scores.tolist(), strict=True)}

    def has_terms_of(self, tenant: Tenant) -> bool:
        """Whether there are rows of this tenant, or were until a moment ago."""
        return tenant.names in self._terms

    def keyword_hits(self, query: str, limit: int, where: Filter) -> list[KeywordHit]:
        tenant = where.tenant.names
        of_tenant = self._terms.get(tenant)
        if limit < 1 or of_tenant is None:
            return []
        scores, mask = self._scores_of(query, tenant, of_tenant), self._matching(where, None)
        if mask is not None and len(of_tenant) < len(mask):
            mask = mask[of_tenant.rows]
        found = scores.bm25 if mask is None else np.where(mask, scores.bm25, 0.0)
        places = np.flatnonzero(found)
        places = places[best(found[places], limit)]  # and all that equal the last of them, of which the ids decide
        rows = of_tenant.rows[places].astype(np.intp)
        share_of = dict(zip(rows.tolist(), scores.shares[places].tolist(), strict=True))
        return [
            KeywordHit(self._ref(row), bm25, share_of[row])
            for bm25, row in in_order(found[places], rows, self._ids, limit)
        ]

    def keyword_scores(self, query: str, ids: Sequence[str], tenant: Tenant) -> dict[str, KeywordHit]:
        """The scores of these chunks among those of their tenant; unknown ones and others' are left out."""
        rows, bm25, shares = self._text_scores(query, ids, tenant)
        return {
            id_: KeywordHit(self._ref(row), score, share)
            for id_, row, score, share in zip(ids, rows.tolist(), bm25.tolist(), shares.tolist(), strict=True)
            if row >= 0
        }

    def raw_scores(
        self, query: str, vector: Vector | None, ids: Sequence[str], tenant: Tenant, read: ReadVectors
    ) -> RawScores:
        """Both scores of these chunks of a tenant; NaN for unknown and others', and cosines where there is no vector.

        Raises: BackendDataError (`vector` (`(dim,) float32`) has another dimension than the index).
        """
        rows, bm25, shares = self._text_scores(query, ids, tenant)
        cosines = np.full(len(ids), np.nan)
        known = rows >= 0
        if vector is not None and known.any() and (self._embedded or self._misfits):
            order = np.argsort(rows)  # ascending, so that each block of the matrix is read once
            order = order[(known & self._rows.embedded[rows])[order]]
            stored = partial(self._stored, read)
            cosines[order] = self._vectors.scores_of(self._checked(vector), rows[order], stored)
        return RawScores(cosines, bm25, shares)

    def _text_scores(self, query: str, ids: Sequence[str], tenant: Tenant) -> tuple[Rows, Floats, Floats]:
        """`(len(ids),)` each: rows, BM25 and shares; -1 and NaN for unknown chunks and those of others."""
        rows, nothing = np.array([self._by_id.get(id_, -1) for id_ in ids], dtype=np.intp), np.full(len(ids), np.nan)
        of_tenant = self._terms.get(tenant.names)
        if of_tenant is None:
            return np.full_like(rows, -1), nothing, nothing
        places = np.minimum(np.searchsorted(of_tenant.rows, rows.astype(np.int32)), len(of_tenant) - 1)
        known = of_tenant.rows[places] == rows
        scores = self._scores_of(query, tenant.names, of_tenant)
        bm25, shares = (np.where(known, of_all[places], np.nan) for of_all in (scores.bm25, scores.shares))
        return np.where(known, rows, -1), bm25, shares

    def conversations(self, query: str, threads: Sequence[str], tenant: Tenant) -> dict[str, float]:
        """BM25 of all that was said in each of these conversations of a tenant, as `ports.KeywordIndex` explains it."""
        name = tenant.names
        numbers = {thread: self._documents.conversation(name, thread) for thread in threads}
        known = {thread: number for thread, number in numbers.items() if number is not None}
        of_tenant = self._terms.get(name)
        if of_tenant is None or not known:
            return {}
        rows = of_tenant.rows
        group_of = np.zeros(max(*known.values(), int(self._documents.conversations().max())) + 1, dtype=np.intp)
        group_of[list(known.values())] = range(1, len(known) + 1)
        groups = group_of[self._documents.conversations()[self._rows.documents[rows]]]
        lengths = np.where(self._rows.live[rows], self._rows.lengths[rows], 0)
        chunks = self._statistics_of(name, rows).chunks
        return dict(
            zip(known, terms.scores_of_groups(query, of_tenant.postings, chunks, groups, lengths).tolist(), strict=True)
        )

    def field_counts(self, where: Filter, most: int) -> FieldCounts:
        size = len(self._ids)
        documents, live = self._rows.documents[:size], self._rows.live[:size]
        present = np.bincount(documents[live], minlength=len(self._documents)) > 0
        counts, passing = self._documents.counted(where, present, most)
        by_origin = np.bincount(self._rows.origins[:size][live & passing[documents]], minlength=len(Origin)).tolist()
        counts.origins = {origin: count for origin, count in zip(Origin, by_origin, strict=True) if count}
        return counts

    def neighbours(self, ids: Sequence[str]) -> dict[str, Neighbours]:
        known = [(id_, self._by_id[id_]) for id_ in ids if id_ in self._by_id]
        rows = np.array([row for _, row in known], dtype=np.intp)
        before, after = self._beside(rows, -1), self._beside(rows, 1)
        ends = np.flatnonzero((before < 0) | (after < 0))
        documents = self._rows.documents[rows[ends]].tolist()
        at_an_end = ends[[self._documents.thread(document) is not None for document in documents]]
        if len(at_an_end):
            size = len(self._ids)
            turns = columns.turns_around(
                rows[at_an_end], self._documents, self._rows.documents[:size], self._rows.positions, self._rows.live
            )
            before[at_an_end] = np.where(before[at_an_end] < 0, turns[0], before[at_an_end])
            after[at_an_end] = np.where(after[at_an_end] < 0, turns[1], after[at_an_end])
        return {
            id_: Neighbours(self._ref(one) if one >= 0 else None, self._ref(other) if other >= 0 else None)
            for (id_, _), one, other in zip(known, before.tolist(), after.tolist(), strict=True)
        }

    def _stored(self, read: ReadVectors, rows: Rows) -> Matrix:
        """`(len(rows), dim) float32`, read from the file."""
        return read(self._rows.seqs[rows].tolist())

    def _beside(self, rows: Rows, step: int) -> Rows:
        """For each row that of the chunk so many positions further in its document; -1 if there is none."""
        size, numbers = len(self._ids), self._rows
        near = rows + step
        inside = (near >= 0) & (near < size)
        near = np.where(inside, near, 0)
        follows = (
            inside
            & numbers.live[near]
            & (numbers.documents[near] == numbers.documents[rows])
            & (numbers.positions[near] == numbers.positions[rows] + step)
        )
        return np.where(follows, near, -1)

    def _ref(self, row: int) -> ChunkRef:
        """The chunk of a row. Making one takes longer than scoring it, and a row keeps its chunk until rows move."""
        known = self._refs.get(row)
        if known is not None:
            return known
        document, documents = int(self._rows.documents[row]), self._documents
        ref = ChunkRef(
            self._ids[row],
            documents.id(document),
            int(self._rows.positions[row]),
            documents.content_type(document),
            documents.thread(document),
            self._speakers.values[self._rows.speakers[row]],
            int(self._rows.times[row]),
        )
        if len(self._refs) >= REMEMBERED:
            self._refs = {}
        self._refs[row] = ref
        return ref

    def _matching(self, where: Filter, further: Mask | None) -> Mask | None:
        """`(n,)`, the live rows that `where` and the mask `further` let through; None if they let all rows through."""
        size = len(self._ids)
        # Few masks, and none that lets all rows through: a pass over all rows takes longer than looking up a hit.
        masks = self._rows.passing(where, size)
        of_documents = self._documents.matching(where)
        if of_documents is not None:
            masks.append(of_documents.take(self._rows.documents[:size]))
        if self._live < size:
            masks.append(self._rows.live[:size])
        if further is not None and self._embedded < size:
            masks.append(further[:size])
        matching: Mask | None = np.logical_and.reduce(masks) if masks else None
        return matching

    def _scores_of(self, query: str, tenant: TenantName, of_tenant: terms.TenantTerms) -> terms.KeywordScores:
        """The exact scores of every chunk of a tenant, by place."""
        with self._scored_lock:
            scores = self._scored.get((tenant, query))
        if scores is None:
            # Outside the lock: at worst two searches score one query at once, and no other query waits for it. The
            # chunks stay as they are meanwhile, because both read them.
            scores = terms.scores_of_all(query, of_tenant.postings, self._statistics_of(tenant, of_tenant.rows))
            with self._scored_lock:
                self._scored[tenant, query] = scores
        return scores

    def _statistics_of(self, tenant: TenantName, rows: NDArray[np.int32]) -> terms.Statistics:
        statistics = self._statistics.get(tenant)
        if statistics is None:
            live, lengths = self._rows.live[rows], self._rows.lengths[rows]
            chunks = int(live.sum())
            statistics = self._statistics[tenant] = terms.Statistics.of(
                lengths=lengths,
                live=live if chunks < len(rows) else None,
                is_conversation=self._documents.of_type(CHAT)[self._rows.documents[rows]],
                chunks=chunks,
                average_length=int(lengths[live].sum()) / max(chunks, 1),
            )
        return statistics

    def _checked(self, vector: Vector) -> Vector:
        if self._misfits:
            raise BackendDataError(COMPONENT, "Stored vectors are of different dimensions; run `rag-context check`.")
        if vector.shape != (self._dimension,):
            raise BackendDataError(
                COMPONENT, f"The query's vector has shape {vector.shape}, the index has dimension {self._dimension}."
            )
        return np.ascontiguousarray(vector, dtype=np.float32)

    def _rows_of(self, keys: Sequence[int]) -> Rows:
        """The rows of the chunks with these keys; those of unknown and deleted ones are left out."""
        if not keys or not self._ids:
            return np.empty(0, dtype=np.intp)
        requested = np.unique(np.array(keys, dtype=np.int64))
        stored = self._rows.keys[: len(self._ids)]
        # Keys ascend with the rows, because the file numbers chunks as they come and rows are only appended.
        rows = np.minimum(np.searchsorted(stored, requested), len(stored) - 1)
        live: Rows = rows[(stored[rows] == requested) & self._rows.live[rows]]
        return live

    def _remove(self, rows: Rows) -> None:
        # A tenant's terms keep dead rows until all rows move: scoring leaves them out by `live`.
        for row in rows.tolist():
            self._by_id.pop(self._ids[row], None)
        self._rows.live[rows] = False
        self._live -= len(rows)
        self._clear_vectors(rows)

    def _clear_vectors(self, rows: Rows) -> None:
        self._misfits.difference_update(self._rows.keys[rows].tolist())
        self._embedded -= int(self._rows.embedded[rows].sum())
        self._rows.embedded[rows] = False
        # With the last vector goes the dimension: the next ones may be another model's.
        if not self._embedded:
            self._vectors, self._dimension = Vectors(), None

    def _append(self, chunks: Sequence[columns.StoredChunk]) -> None:
        owners = [(chunk, self._documents.row(chunk.document)) for chunk in chunks if chunk.is_readable]
        chunks = [chunk for chunk, document in owners if document is not None]
        if not chunks:
            return
        start = len(self._ids)
        end = start + len(chunks)
        numbers = self._rows
        numbers.reserve(end)
        numbers.keys[start:end] = [chunk.key for chunk in chunks]
        numbers.documents[start:end] = [document for _, document in owners if document is not None]
        numbers.positions[start:end] = [chunk.position for chunk in chunks]
        numbers.lengths[start:end] = [chunk.length for chunk in chunks]
        numbers.times[start:end] = [chunk.occurred_at for chunk in chunks]
        numbers.speakers[start:end] = [self._speakers.number(chunk.speaker) for chunk in chunks]
        numbers.standing[start:end] = [chunk.standing == 1 for chunk in chunks]
        numbers.origins[start:end] = [columns.ORIGINS[Origin.stored(chunk.origin)] for chunk in chunks]
        numbers.live[start:end] = True
        tenants = self._documents.tenants()[numbers.documents[start:end]]
        for number in np.unique(tenants).tolist():
            places = np.flatnonzero(tenants == number)
            of_tenant = self._terms.setdefault(self._documents.tenant(number), terms.TenantTerms())
            of_tenant.append((start + places).astype(np.int32), [chunks[place].terms for place in places.tolist()])
        self._ids.extend([chunk.id for chunk in chunks])
        self._by_id.update(zip((chunk.id for chunk in chunks), range(start, end), strict=True))
        self._live += len(chunks)

    def _put_vectors(self, vectors: Sequence[columns.StoredVector]) -> None:
        """Those of chunks that were deleted since are left out."""
        rows = {int(self._rows.keys[row]): row for row in self._rows_of([each.chunk for each in vectors]).tolist()}
        vectors = [each for each in vectors if each.chunk in rows]
        if not vectors:
            return
        dimension = len(vectors[0].vector) // 4 if self._dimension is None else self._dimension
        self._misfits.update(each.chunk for each in vectors if len(each.vector) != 4 * dimension)
        vectors = [each for each in vectors if len(each.vector) == 4 * dimension]
        targets = np.array([rows[each.chunk] for each in vectors], dtype=np.intp)
        self._dimension = dimension
        self._vectors.reserve(len(self._ids), dimension)
        self._vectors.put(targets, matrix_of([each.vector for each in vectors], dimension))
        self._rows.seqs[targets] = [each.seq for each in vectors]
        # A vector may come twice, of two overlapping snapshots, and a row counts once.
        self._embedded += len(np.unique(targets[~self._rows.embedded[targets]]))
        self._rows.embedded[targets] = True

    def _move_together(self) -> None:
        """Give the memory of dead rows back."""
        size = len(self._ids)
        rows = np.flatnonzero(self._rows.live[:size])
        new_rows = np.full(size, -1, dtype=np.int32)
        new_rows[rows] = np.arange(len(rows), dtype=np.int32)
        for of_tenant in self._terms.values():
            of_tenant.renumber(new_rows)
        self._terms = {tenant: of_tenant for tenant, of_tenant in self._terms.items() if len(of_tenant)}
        self._refs = {}
        self._rows = self._rows.only(rows)
        documents, numbers = np.unique(self._rows.documents, return_inverse=True)
        self._documents = self._documents.only(documents.astype(np.intp))
        self._rows.documents = numbers.astype(np.int32)
        self._ids = [self._ids[row] for row in rows.tolist()]
        self._by_id = {id_: row for row, id_ in enumerate(self._ids)}
        if self._embedded:  # chunks that came after the last vector have no row in the matrix yet
            self._vectors.reserve(size, self._dimension or 0)
            self._vectors = self._vectors.only(rows)
