"""How the index in memory follows the file: read once when the file is opened, then whatever is newer.

Every search first compares the file's version with the index's, so that it finds all writes that any process had
acknowledged before it began. It reads some new rows by itself; thousands of them are read by the database's watcher. A
search waits a moment for that, then answers from what was in memory before them, and says so.

When the file is opened, chunks with their terms are read first, and keyword search answers from then on; vectors follow
in steps.
"""

import asyncio
import json
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from rag_context.domain.documents import Tenant, counted
from rag_context.domain.search import ChunkRef, Filter, KeywordHit, Neighbours, Passage, RawScores, VectorHit
from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendDataError, BackendError, BackendStartingError
from rag_context.ports.reading import CandidateRequest, Snapshot, completed
from rag_context.stores.sql_documents import read_passages
from rag_context.stores.sqlite.database import Database, reading
from rag_context.stores.sqlite.document_rows import SqliteTables, lenient
from rag_context.stores.sqlite.faults import COMPONENT, is_undecodable
from rag_context.stores.sqlite.memory.chunk_index import Change, MemoryIndex
from rag_context.stores.sqlite.memory.columns import STATED, DocumentFields, StoredChunk, StoredVector
from rag_context.stores.sqlite.memory.vector_scan import matrix_of, vector_of

# CROSS JOIN makes SQLite read the left table first. Its planner has no statistics here, and might choose otherwise.
_DOCUMENTS = f"""
SELECT d.key, d.id, t.project, t.branch, t.path_hash, d.content_type, d.session_id, d.source, d.tags, d.thread,
       d.shelved_at, d.occurred_at, d.origin, {", ".join(f"d.{name}" for name in STATED)}
FROM documents AS d CROSS JOIN tenants AS t ON t.key = d.tenant
WHERE d.key IN (SELECT document FROM chunks WHERE key > ?)
"""  # noqa: S608  (names of our own columns)

# The document is read only for a chunk of an earlier version, which has no time of its own.
_CHUNKS = """
SELECT c.key, c.id, c.document, c.position, c.length, p.terms,
       ifnull(c.occurred_at, (SELECT d.occurred_at FROM documents AS d WHERE d.key = c.document)),
       c.speaker, c.standing, c.origin
FROM chunks AS c CROSS JOIN passages AS p ON p.chunk = c.key
WHERE c.key > ? ORDER BY c.key
"""

_VECTORS = "SELECT chunk, vector, seq FROM vectors WHERE seq > ? ORDER BY seq"

_STORED = "SELECT v.vector FROM json_each(?) AS requested CROSS JOIN vectors AS v ON v.seq = requested.value"

_DELETED = """
SELECT d.chunk, EXISTS (SELECT 1 FROM chunks AS c WHERE c.key = d.chunk) FROM deletions AS d WHERE d.seq > ?
"""

_VERSION_OF_TENANT = "SELECT version FROM tenants WHERE project = ? AND branch = ? AND path_hash = ?"

_POSITION = """
SELECT version, chunks_epoch, vectors_epoch, forgotten,
       (SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'chunks'),
       (SELECT ifnull(max(seq), 0) FROM vectors),
       max(forgotten, (SELECT ifnull(max(seq), 0) FROM deletions)),
       (SELECT json_extract(value, '$.fingerprint') FROM meta WHERE name = 'model')
FROM totals
"""

AT_ONCE = 2048
"""Rows that are read in one step."""

CHUNKS_AT_ONCE = 16_384
"""Chunks that are read in one step when all are: their terms are sorted together."""

STEP_S = 0.02
WAITING_S = 0.2
"""How long a query waits for what is not in memory yet."""

CATCH_UP_S = 0.1
"""How long a search waits for changes of an index that it could also answer from as it was before them."""

FEW_ROWS = 1024
"""No more new rows than this are read by the search that finds them: it takes some 10 ms."""

FEW_CHUNKS = 5000
"""For no more chunks than this a query waits longer: without them there is no answer at all."""

BEHIND = "Documents that were just stored are still being read into memory, and are not part of this answer"

T = TypeVar("T")


class OldSnapshotError(Exception):
    """The index has vectors that the file has not in this snapshot: another thread has read a newer one."""


class _Position(NamedTuple):
    """How far the file is, in one snapshot."""

    version: int
    chunks_epoch: int
    vectors_epoch: int
    forgotten: int
    last_chunk: int
    last_vector: int
    last_deletion: int
    made_by: str | None

    def rows_after(self, earlier: "_Position") -> int:
        """About how many chunks, vectors and deletions came since."""
        return sum(
            max(now - then, 0)
            for now, then in (
                (self.last_chunk, earlier.last_chunk),
                (self.last_vector, earlier.last_vector),
                (self.last_deletion, earlier.last_deletion),
            )
        )


@dataclass(slots=True)
class _Followed:
    """An index and how far it has followed the file. Changed by one thread at a time."""

    generation: int
    at: _Position
    is_loading: bool
    """Whether the vectors are still being read."""
    is_behind: bool = False
    """Whether vectors are to be compared once more: they were read in an older snapshot than the chunks."""
    index: MemoryIndex = field(default_factory=MemoryIndex)


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """`Snapshot`: the index and a connection to the file, neither of which changes, in a reading thread."""

    index: MemoryIndex
    connection: sqlite3.Connection
    behind_from: int | None
    """The version of the file up to which its changes are in memory; None where all are."""

    def is_behind(self, tenant: Tenant) -> bool:
        """Whether changes of this tenant are still being read into memory. Those of others say nothing."""
        if self.behind_from is None:
            return False
        row = self.connection.execute(_VERSION_OF_TENANT, tenant.names).fetchone()
        # Without documents it has no row: then it has changed if there are some in memory.
        return self.index.has_terms_of(tenant) if row is None else row[0] > self.behind_from

    def lag(self, tenant: Tenant) -> BackendStartingError | None:
        return BackendStartingError(COMPONENT, BEHIND) if self.is_behind(tenant) else None

    def vector_hits(self, vector: Vector, limit: int, where: Filter) -> list[VectorHit]:
        return self.index.vector_hits(vector, limit, where, self.stored_vectors)

    def keyword_hits(self, query: str, limit: int, where: Filter) -> list[KeywordHit]:
        return self.index.keyword_hits(query, limit, where)

    def scores(self, query: str, vector: Vector | None, chunk_ids: Sequence[str], tenant: Tenant) -> RawScores:
        return self.index.raw_scores(query, vector, chunk_ids, tenant, self.stored_vectors)

    def neighbours(self, chunk_ids: Sequence[str]) -> Mapping[str, Neighbours]:
        return self.index.neighbours(chunk_ids)

    def conversations(self, query: str, threads: Sequence[str], tenant: Tenant) -> Mapping[str, float]:
        return self.index.conversations(query, threads, tenant)

    def passages(self, chunk_ids: Sequence[str]) -> Mapping[str, Passage]:
        return completed(read_passages(SqliteTables(self.connection), chunk_ids))

    def stored_vectors(self, seqs: Sequence[int]) -> Matrix:
        """`(n, dim) float32`, the vectors with these `seq`; at least one. Raises: OldSnapshotError."""
        rows = self.connection.execute(_STORED, (json.dumps(seqs),)).fetchall()
        if len(rows) < len(seqs):
            raise OldSnapshotError
        return matrix_of([vector for (vector,) in rows], len(rows[0][0]) // 4)


class IndexInMemory:
    """The index in memory of one file."""

    def __init__(self, database: Database, *, has_vectors: bool = True) -> None:
        self._database = database
        self._has_vectors = has_vectors
        self._changing = threading.Lock()
        self._followed: _Followed | None = None
        self._loading = 0
        """Chunks that are being read."""

    @property
    def made_by(self) -> str | None:
        followed = self._followed
        return None if followed is None else followed.at.made_by

    async def read(self, work: Callable[[IndexSnapshot], T], *, needs_vectors: bool, timeout_s: float = math.inf) -> T:
        """Run `work` on the index, in a reading thread and in one snapshot of the file.

        Many changes are waited for so long; then it runs on the index as it was before them, and must say so.

        Raises: BackendStartingError (what it needs is still being read into memory).
        """
        end = time.monotonic() + timeout_s
        while True:
            await self._wait(needs_vectors)
            left_s = end - time.monotonic()
            answer = await self._database.read(partial(self._answer, work, needs_vectors, left_s <= 0.0))
            if answer is not None:
                return answer[0]
            with suppress(TimeoutError):
                async with asyncio.timeout(min(max(left_s, STEP_S), CATCH_UP_S)):
                    await self._database.round()

    async def loaded(self) -> None:
        """Wait until everything is in memory. Raises: BackendError."""
        await self._database.round()
        while not self._is_ready(self._has_vectors):
            await self._database.round()

    async def await_own_rows(self, rows: int) -> None:
        """Wait until rows that this process has just stored are in memory; few of them are read by the next search."""
        if rows > FEW_ROWS:
            with suppress(BackendError):  # they are stored all the same, and searches say what they are without
                for _ in range(2):  # the first round may have begun before they were stored
                    await self._database.round()

    def follow(self, connection: sqlite3.Connection) -> None:
        """Read everything, or what is newer; called by the watcher in a read snapshot."""
        with self._changing:
            followed = self._followed
            if followed is not None and self._can_catch_up(followed, connection):
                self._catch_up(followed, connection)
            else:
                self._followed = None  # drop the old index first, to save memory
                try:
                    followed = self._followed = _tolerantly(self._load, connection)
                finally:
                    self._loading = 0
        if followed.is_loading:
            self._read_vectors(followed, connection)

    def _is_ready(self, needs_vectors: bool) -> bool:
        followed = self._followed
        return followed is not None and not (needs_vectors and followed.is_loading)

    async def _wait(self, needs_vectors: bool) -> None:
        """Wait for a small index; for a large one only a moment, then raise an error that counts as no failure."""
        steps = 0
        while not self._is_ready(needs_vectors):
            try:
                async with asyncio.timeout(STEP_S):  # a round goes on with the vectors after the chunks are there
                    await self._database.round()
            except TimeoutError:
                steps += 1
                has_alternative = self._followed is not None or self._loading > FEW_CHUNKS
                if steps * STEP_S >= WAITING_S and has_alternative and not self._is_ready(needs_vectors):
                    what = "chunks" if self._followed is None else "vectors"
                    raise BackendStartingError(COMPONENT, f"the {what} are still being read into memory") from None

    def _answer(
        self, work: Callable[[IndexSnapshot], T], needs_vectors: bool, may_lag: bool, connection: sqlite3.Connection
    ) -> tuple[T] | None:
        """None if the index must be read again, or the vectors, or many changes."""
        followed = self._followed
        if followed is None:
            return None
        # Without `_changing`: most searches find nothing new, and need not wait for one that applies changes.
        stored: int = connection.execute("SELECT version FROM totals").fetchone()[0]
        is_behind = followed.at.version < stored or followed.is_behind
        is_same = followed.generation == self._database.file.generation
        if is_behind or not is_same:
            if self._catch_up_soon(followed, connection):
                is_behind = False
            elif not (may_lag and is_same):
                return None
        if needs_vectors and followed.is_loading:
            return None
        try:
            with followed.index.reading() as index:
                # Vectors that are to be compared once more may be any tenant's.
                version = -1 if followed.is_behind else followed.at.version
                return (work(IndexSnapshot(index, connection, version if is_behind else None)),)
        except OldSnapshotError:
            with self._changing:
                if followed.at.version <= stored and not is_behind:  # not an older snapshot: the file has lost them
                    self._drop(followed)
            return None

    def _catch_up_soon(self, followed: _Followed, connection: sqlite3.Connection) -> bool:
        """Apply what is new; False if it is much, or if another thread applies much."""
        if _position(connection).rows_after(followed.at) > FEW_ROWS or not self._changing.acquire(timeout=STEP_S):
            return False
        try:
            if not self._can_catch_up(followed, connection):
                self._drop(followed)
                return False
            self._catch_up(followed, connection)
        finally:
            self._changing.release()
        return True

    def _can_catch_up(self, followed: _Followed, connection: sqlite3.Connection) -> bool:
        epoch, forgotten = connection.execute("SELECT chunks_epoch, forgotten FROM totals").fetchone()
        return (
            followed.generation == self._database.file.generation
            and epoch <= followed.at.chunks_epoch
            # The list of deletions is shortened: who has missed some of them cannot know which rows to drop.
            and forgotten <= followed.at.last_deletion
        )

    def _catch_up(self, followed: _Followed, connection: sqlite3.Connection) -> None:
        try:
            _tolerantly(partial(_catch_up, followed), connection)
        except BackendDataError:  # a change that was applied in part: all is read again
            self._drop(followed)
            raise

    def _drop(self, followed: _Followed) -> None:
        if self._followed is followed:
            self._followed = None

    def _load(self, connection: sqlite3.Connection) -> _Followed:
        """All chunks; vectors are read after it."""
        (self._loading,) = connection.execute("SELECT chunks FROM totals").fetchone()
        followed = _Followed(self._database.file.generation, _position(connection), self._has_vectors)
        for documents in _batches(connection.execute(_DOCUMENTS, (0,))):
            followed.index.apply(Change(documents=list(map(DocumentFields.read, documents))))
        for chunks in _batches(connection.execute(_CHUNKS, (0,)), CHUNKS_AT_ONCE):
            followed.index.apply(Change(chunks=[StoredChunk(*row) for row in chunks]))
        return followed

    def _read_vectors(self, followed: _Followed, connection: sqlite3.Connection) -> None:
        """All vectors of the snapshot, in steps between which searches catch up with newer chunks."""
        then = _position(connection)

        def is_current() -> bool:
            return self._followed is followed and followed.at.vectors_epoch == then.vectors_epoch

        for batch in _batches(connection.execute(_VECTORS, (0,))):
            # One batch at a time under the lock, so that searches of new chunks go on between two batches.
            with self._changing:
                if not is_current():
                    return  # the next round reads those that took their place
                followed.index.apply(Change(vectors=[StoredVector(*row) for row in batch]))
        with self._changing:
            if is_current():
                # Vectors up to `then` are in memory, chunks may be further: the next search reads what came between.
                followed.at = followed.at._replace(last_vector=then.last_vector, last_deletion=then.last_deletion)
                followed.is_loading, followed.is_behind = False, True


def _tolerantly(read: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> T:
    """Read with invalid UTF-8 as replacement characters if there is any: reading so takes longer."""
    try:
        return read(connection)
    except sqlite3.OperationalError as error:
        if not is_undecodable(error):
            raise
        with lenient(connection):
            return read(connection)


def _catch_up(followed: _Followed, connection: sqlite3.Connection) -> None:
    """Read everything first, so that an interrupted reader leaves the index unchanged."""
    at, was = _position(connection), followed.at
    if at.version <= was.version and not followed.is_behind:
        return
    deleted = connection.execute(_DELETED, (was.last_deletion,)).fetchall()
    are_replaced = at.vectors_epoch > was.vectors_epoch
    is_loading = followed.is_loading or are_replaced
    vectors = [] if is_loading else connection.execute(_VECTORS, (was.last_vector,)).fetchall()
    change = Change(
        deleted=[key for key, is_there in deleted if not is_there],
        without_vector=[key for key, is_there in deleted if is_there],
        documents=list(map(DocumentFields.read, connection.execute(_DOCUMENTS, (was.last_chunk,)))),
        chunks=[StoredChunk(*row) for row in connection.execute(_CHUNKS, (was.last_chunk,))],
        vectors=[StoredVector(*row) for row in vectors],
    )
    # The vectors were swapped for those of another model. `_read_vectors` reads the new ones. Searches that need
    # vectors wait for them, so that no query of the new model meets a vector of the old one.
    if are_replaced:
        followed.index.drop_vectors()
    for step in _steps(change):
        followed.index.apply(step)
    followed.is_loading = is_loading
    followed.is_behind = followed.is_behind and at.version < was.version
    # Last, because searches read it without the lock: it must not run ahead of the index.
    followed.at = _later(was, at)


def _steps(change: Change) -> Iterator[Change]:
    """A large change in steps, vectors after all chunks. Searches between two of them say that they are behind."""
    size = max(len(change.chunks), len(change.vectors))
    if size <= AT_ONCE:
        yield change
        return
    yield replace(change, chunks=(), vectors=())
    for start in range(0, len(change.chunks), AT_ONCE):
        yield Change(chunks=change.chunks[start : start + AT_ONCE])
    for start in range(0, len(change.vectors), AT_ONCE):
        yield Change(vectors=change.vectors[start : start + AT_ONCE])


def _later(one: _Position, other: _Position) -> _Position:
    """The newer of two, with the furthest of each number: a snapshot may be older than what was read in another."""
    newer = max(one, other, key=lambda position: position.version)
    return newer._replace(
        last_chunk=max(one.last_chunk, other.last_chunk),
        # Not the greater: after a swap the numbers start again, and applying a vector twice does no harm.
        last_vector=other.last_vector,
        last_deletion=max(one.last_deletion, other.last_deletion),
    )


def _position(connection: sqlite3.Connection) -> _Position:
    return _Position(*connection.execute(_POSITION).fetchone())


def _batches(cursor: sqlite3.Cursor, size: int = AT_ONCE) -> Iterator[list[tuple[Any, ...]]]:
    while batch := cursor.fetchmany(size):
        yield batch


_VECTORS_OF_CHUNKS = """
SELECT c.id, v.vector FROM json_each(?) AS requested
CROSS JOIN chunks AS c ON c.id = requested.value
CROSS JOIN vectors AS v ON v.chunk = c.key
"""


class SqliteVectors:
    """`VectorStore` over the embedded file."""

    def __init__(self, database: Database, memory: IndexInMemory) -> None:
        self._database = database
        self._memory = memory

    @property
    def made_by(self) -> str | None:
        return self._memory.made_by

    async def search(self, vector: Vector, *, limit: int, where: Filter) -> list[VectorHit]:
        return await self._memory.read(lambda at: at.vector_hits(vector, limit, where), needs_vectors=True)

    async def score(self, vector: Vector, chunk_ids: Sequence[str]) -> dict[str, float]:
        if not chunk_ids:
            return {}
        return await self._memory.read(
            lambda at: at.index.cosines(vector, chunk_ids, at.stored_vectors), needs_vectors=True
        )

    @reading
    def passages(self, connection: sqlite3.Connection, chunk_ids: Sequence[str]) -> dict[str, Passage]:
        return completed(read_passages(SqliteTables(connection), chunk_ids))

    @reading
    def vectors(self, connection: sqlite3.Connection, chunk_ids: Sequence[str]) -> dict[str, Vector]:
        rows = connection.execute(_VECTORS_OF_CHUNKS, (json.dumps(list(chunk_ids)),))
        return {id_: vector_of(blob) for id_, blob in rows}

    async def ping(self) -> str:
        await self._memory.loaded()
        return await self._memory.read(
            lambda at: f"{counted(at.index.vectors, 'vector')} of dimension {at.index.dimension or '?'} in memory",
            needs_vectors=True,
        )


class SqliteTexts:
    """`KeywordIndex` over the embedded file."""

    def __init__(self, memory: IndexInMemory) -> None:
        self._memory = memory

    async def search(self, query: str, *, limit: int, where: Filter) -> list[KeywordHit]:
        return await self._memory.read(lambda at: at.keyword_hits(query, limit, where), needs_vectors=False)

    async def score(self, query: str, chunks: Sequence[ChunkRef], *, tenant: Tenant) -> dict[str, KeywordHit]:
        if not chunks:
            return {}
        ids = [chunk.id for chunk in chunks]
        return await self._memory.read(lambda at: at.index.keyword_scores(query, ids, tenant), needs_vectors=False)

    async def conversations(self, query: str, threads: Sequence[str], *, tenant: Tenant) -> Mapping[str, float]:
        return await self._memory.read(lambda at: at.conversations(query, threads, tenant), needs_vectors=False)


class SqliteCandidates:
    """`CandidateSource` over the embedded file."""

    def __init__(self, memory: IndexInMemory, *, needs_vectors: bool) -> None:
        self._memory = memory
        self._needs_vectors = needs_vectors

    @property
    def is_remote(self) -> bool:
        return False

    async def prepare(self, query: str, tenant: Tenant) -> None:
        """There is nothing to prepare."""

    async def read(self, _requested: Callable[[], CandidateRequest], work: Callable[[Snapshot], T]) -> T:
        return await self._memory.read(work, needs_vectors=self._needs_vectors, timeout_s=CATCH_UP_S)
