"""What the servers of one database agree on: version, counters, model and generation of the index; and their locks.

A transaction that changes the index adds a row of differences to `changes`, which are added to the row of `state` from
time to time. The sum of both, in one snapshot, is exact, and no writer waits for another one.
"""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass, field
from functools import lru_cache
from typing import TypeVar

from cachetools import LRUCache

from rag_context.domain.documents import Tenant
from rag_context.domain.vectors import EmbeddingModel
from rag_context.errors import BackendDataError, BackendError
from rag_context.stores.postgres.connection import ANSWER_S, Connection, PostgresDatabase
from rag_context.stores.postgres.driver import COMPONENT, Plan, translated
from rag_context.stores.postgres.rows import TENANT, stored
from rag_context.stores.server_stores import log_failure

T = TypeVar("T")

WRITERS = 0x7261675F_00000002
"""Key of the advisory lock that writers share; a replacement of the vectors in use holds it exclusively."""

_FOLDING = 0x7261675F_00000003

_CORRECTING = 0x7261675F_00000005

FOLDED_FROM = 100
"""So many rows of differences may be left."""

SUMS = """
count(*) AS number, coalesce(sum(documents), 0)::bigint AS documents, coalesce(sum(chunks), 0)::bigint AS chunks,
coalesce(sum(terms), 0)::bigint AS terms, coalesce(sum(turnover), 0)::bigint AS turnover
"""

_READ = f"""
SELECT s.name::text, s.version + c.number AS version, s.documents + c.documents AS documents,
       s.pending + c.pending AS pending, s.chunks + c.chunks AS chunks, s.vectors + c.vectors AS vectors,
       s.terms + c.terms AS terms,
       s.generation, s.model, s.next_generation, s.next_model, s.next_touched, c.number AS unfolded
FROM rag_context.state AS s, (
    SELECT {SUMS}, coalesce(sum(pending), 0)::bigint AS pending, coalesce(sum(vectors), 0)::bigint AS vectors
    FROM rag_context.changes
) AS c
"""  # noqa: S608  (sums of our own)

_WRONG_VECTORS = """
SELECT (SELECT count(*) FROM rag_context.vectors_{generation})
       - (s.vectors + (SELECT coalesce(sum(vectors), 0)::bigint FROM rag_context.changes))
FROM rag_context.state AS s
"""
"""One statement, so that rows and counters are of one moment."""

_READ_TENANT = f"""
SELECT t.key, concat_ws(':', s.name, s.generation, s.epoch, t.key, t.version + c.number) AS stamp,
       coalesce(t.documents + c.documents, 0) AS documents, coalesce(t.chunks + c.chunks, 0) AS chunks,
       coalesce(t.terms + c.terms, 0) AS terms, coalesce(t.turnover + c.turnover, 0) AS turnover
FROM rag_context.state AS s
LEFT JOIN rag_context.tenants AS t ON t.key = ({TENANT.format("$1", "$2", "$3")})
LEFT JOIN LATERAL (SELECT {SUMS} FROM rag_context.changes WHERE tenant = t.key) AS c ON true
"""  # noqa: S608

_FOLD = f"""
WITH folded AS (DELETE FROM rag_context.changes RETURNING *),
each AS (SELECT tenant, {SUMS} FROM folded WHERE tenant IS NOT NULL GROUP BY tenant),
added AS (
    UPDATE rag_context.tenants AS t
    SET version = t.version + n.number, documents = t.documents + n.documents, chunks = t.chunks + n.chunks,
        terms = t.terms + n.terms, turnover = t.turnover + n.turnover
    FROM each AS n WHERE t.key = n.tenant
),
sums AS (
    SELECT count(*) AS number, sum(documents) AS documents, sum(pending) AS pending, sum(chunks) AS chunks,
           sum(vectors) AS vectors, sum(terms) AS terms, sum(turnover) AS turnover
    FROM folded
)
UPDATE rag_context.state AS s
SET version = s.version + n.number, documents = s.documents + n.documents, pending = s.pending + n.pending,
    chunks = s.chunks + n.chunks, vectors = s.vectors + n.vectors, terms = s.terms + n.terms,
    turnover = s.turnover + n.turnover
FROM sums AS n WHERE n.number > 0
"""  # noqa: S608

_HAS_EMPTY_TENANT = "SELECT EXISTS (SELECT 1 FROM rag_context.tenants WHERE documents = 0)"

_FORGET_TENANTS = """
DELETE FROM rag_context.tenants AS t
WHERE NOT EXISTS (SELECT 1 FROM rag_context.documents WHERE tenant = t.key)
AND NOT EXISTS (SELECT 1 FROM rag_context.changes WHERE tenant = t.key)
AND NOT EXISTS (SELECT 1 FROM rag_context.journal WHERE tenant = t.key)
"""

_NOTE = """
INSERT INTO rag_context.changes (tenant, documents, pending, chunks, vectors, terms, turnover)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""

_NOTE_EPOCH = "UPDATE rag_context.state SET epoch = epoch + 1"
"""So that what was known of any tenant counts no longer; writers may wait for each other, as these changes are rare."""

TENANTS = 1000

_ALONE = "SELECT set_config('lock_timeout', '0', true), pg_advisory_xact_lock($1)"
"""It waits for all writers under way, which may take longer than a single lock."""

_TRY_ALONE = "SELECT pg_try_advisory_xact_lock($1)"

_BESIDE_OTHERS = "SELECT pg_advisory_xact_lock_shared($1)"

_CLAIM = "SELECT pg_try_advisory_lock(hashtextextended($1, 1))"
"""Not the key of writers of a document, which must not wait until it is embedded."""

_RELEASE = "SELECT pg_advisory_unlock(hashtextextended($1, 1))"

FIRST_ROWS = """
SELECT (SELECT min(id) FROM rag_context.documents), (SELECT min(key) FROM rag_context.chunks),
       (SELECT min(chunk) FROM rag_context.passages), (SELECT min(key) FROM rag_context.tenants)
"""

FIRST_VECTOR = "SELECT vector_dims(embedding) FROM rag_context.vectors_{generation} ORDER BY chunk LIMIT 1"

_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '400ms'"
"""Three attempts are made within the time of a health report, which says what is locked and not that it was late."""

_NO_LOCKS = """
LOCK TABLE rag_context.documents, rag_context.chunks, rag_context.passages, rag_context.changes IN ROW EXCLUSIVE MODE
"""

_WRITE = """
INSERT INTO rag_context.trial VALUES (1, 1) ON CONFLICT (one) DO UPDATE SET writes = trial.writes + 1
"""

_TWO_MEBIBYTES = """
CREATE TABLE rag_context.free_space AS SELECT gen_random_uuid() AS one, gen_random_uuid() AS two
FROM generate_series(1, 32768)
"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PostgresSnapshot:
    """The index at one moment. Models are JSON."""

    name: str
    version: int
    documents: int
    pending: int
    chunks: int
    vectors: int
    terms: int
    generation: int
    model: str | None
    next_generation: int | None
    next_model: str | None
    next_touched: float | None
    unfolded: int


@dataclass(frozen=True, slots=True)
class TenantCounters:
    """A tenant at one moment: its key, None where it has none yet; `turnover` counts chunks added and removed.

    `stamp` differs after each change that its answers can show.
    """

    key: int | None
    stamp: str
    documents: int
    chunks: int
    terms: int
    turnover: int


@dataclass(slots=True)
class Difference:
    """What a transaction adds to the counters."""

    documents: int = 0
    pending: int = 0
    chunks: int = 0
    vectors: int = 0
    terms: int = 0
    turnover: int = 0


@dataclass(slots=True)
class PostgresChange:
    """What a transaction changes, and the generation that it writes vectors to."""

    generation: int
    model: str | None
    next_generation: int | None
    is_empty: bool = False
    """Whether nothing was changed after all."""
    differences: defaultdict[int | None, Difference] = field(default_factory=lambda: defaultdict(Difference))
    """By key of the tenant; None: of the whole index."""

    def of(self, tenant: int | None = None) -> Difference:
        return self.differences[tenant]

    @property
    def fingerprint(self) -> str | None:
        return fingerprint_of(self.model)


async def read_snapshot(connection: Connection) -> PostgresSnapshot:
    """Read the state in one snapshot. Raises: BackendDataError where it is missing."""
    row = await connection.fetchrow(_READ)
    if row is None:
        raise _without_state()
    return PostgresSnapshot(*row)


def _without_state() -> BackendDataError:
    return BackendDataError(COMPONENT, "The index has no state; restore the database from a backup.")


@lru_cache(maxsize=8)
def fingerprint_of(model: str | None) -> str | None:
    return None if model is None else str(json.loads(model)["fingerprint"])


def model_of(recorded: str | None) -> EmbeddingModel | None:
    return None if recorded is None else EmbeddingModel.from_record(json.loads(recorded))


class IndexState:
    """The state that this process knows of, and the frame of every change."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self.snapshot: PostgresSnapshot | None = None
        """The state as it was read last; None before that."""
        self._tenants: LRUCache[Tenant, tuple[int, TenantCounters]] = LRUCache(TENANTS)
        self.version = 0
        """Grows with each change that this process knows of."""
        self._reading: asyncio.Task[PostgresSnapshot] | None = None
        self._next_read: asyncio.Task[PostgresSnapshot] | None = None

    async def current(self) -> PostgresSnapshot:
        """The state as it was read last, at most some hundred milliseconds ago. Raises: BackendError."""
        return self.snapshot or await self.refresh()

    async def of_tenant(self, tenant: Tenant) -> TenantCounters:
        """The counters of a tenant, read again once this process knows of a change. Raises: BackendError."""
        await self.current()
        version = self.version  # read before the query: a later change must not count as seen
        known = self._tenants.get(tenant)
        if known is None or known[0] != version:
            row = await self._database.fetchrow(_READ_TENANT, *map(stored, tenant.names))
            if row is None:
                raise _without_state()
            known = self._tenants[tenant] = version, TenantCounters(*row)
        return known[1]

    def chunks_of(self, tenant: Tenant) -> int | None:
        """How many chunks a tenant had when its counters were read last; None before that. No I/O."""
        known = self._tenants.get(tenant)
        return None if known is None else known[1].chunks

    async def refresh(self) -> PostgresSnapshot:
        """Read the state. A read that began earlier does not count, but all that wait share the next one."""
        # A read under way may have begun before the caller's own commit, and does not show it: callers that come
        # meanwhile share the next one.
        if self._reading is None or self._reading.done():
            self._reading = _started(self._read())
            return await asyncio.shield(self._reading)
        if self._next_read is None or self._next_read.done() or self._next_read is self._reading:
            self._next_read = _started(self._read_after(self._reading))
        return await asyncio.shield(self._next_read)

    async def change(self, work: Callable[[Connection, PostgresChange], Awaitable[T]]) -> T:
        """Run `work` in a transaction beside other writers, and record what it notes in its `PostgresChange`.

        Raises: BackendError (nothing was changed, unless the connection was lost during the commit).
        """
        return await self._change(work, _BESIDE_OTHERS)

    async def change_alone(self, work: Callable[[Connection, PostgresChange], Awaitable[T]]) -> T:
        """As `change`, while no one else writes."""
        return await self._change(work, _ALONE)

    async def correct_vectors(self) -> None:
        """Count the vectors in use, and correct their counter where another program has changed them."""
        statement = _WRONG_VECTORS.format(generation=(await self.current()).generation)
        if not await self._database.read(lambda connection: connection.fetchval(statement)):
            return

        async def corrected(connection: Connection, change: PostgresChange) -> None:
            # Of two that correct at once, the second would correct again what the first did.
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _CORRECTING)
            change.of().vectors = await connection.fetchval(_WRONG_VECTORS.format(generation=change.generation))
            change.is_empty = not change.of().vectors

        await self.change(corrected)

    async def fold(self) -> None:
        """Add the differences to the counters, unless another process does, and forget names that nothing refers to."""

        async def folded(connection: Connection) -> None:
            # Of two that fold at once, the second would wait for rows that the first deletes, to find none left.
            if not await connection.fetchval(_TRY_ALONE, _FOLDING):
                return
            await connection.execute(_FOLD)
            # A writer that has just read the number of such a tenant would store a document of none.
            if await connection.fetchval(_HAS_EMPTY_TENANT) and await connection.fetchval(_TRY_ALONE, WRITERS):
                await connection.execute(_FORGET_TENANTS)

        await self._database.write(folded)

    async def _change(self, work: Callable[[Connection, PostgresChange], Awaitable[T]], lock: str) -> T:
        async def changed(connection: Connection) -> tuple[T, bool]:
            # By a statement of its own: the next one sees what was committed before the lock was granted.
            await connection.execute(lock, WRITERS)
            row = await connection.fetchrow("SELECT generation, model, next_generation FROM rag_context.state")
            change = PostgresChange(*row)
            result = await work(connection, change)
            if change.is_empty:
                return result, False
            differences = change.differences or {None: Difference()}
            # Rows of its own: an update of the one row of `state` would make all writers wait for each other.
            for tenant, difference in differences.items():
                await connection.execute(_NOTE, tenant, *astuple(difference))
            if None in differences:
                await connection.execute(_NOTE_EPOCH)
            return result, True

        result, is_changed = await self._database.write(changed)
        if not is_changed:
            return result
        try:
            await self.refresh()
        except BackendError:  # the change is made; the next read, some time, shows it
            self.version += 1
        return result

    async def _read_after(self, earlier: "asyncio.Task[PostgresSnapshot]") -> PostgresSnapshot:
        # Whether the earlier read fails concerns those that wait for it; this one only needs its end.
        await asyncio.wait({earlier})
        self._reading = asyncio.current_task()
        return await self._read()

    async def _read(self) -> PostgresSnapshot:
        seen = await self._database.read(read_snapshot, Plan.EITHER)
        last = self.snapshot
        if last is None or (last.name, last.version) != (seen.name, seen.version):
            # A server that was set back has a smaller version than before; it is another state all the same.
            self.version += max(seen.version - last.version, 1) if last is not None else 1
        self.snapshot = seen
        return seen


def _started(work: Coroutine[None, None, T]) -> "asyncio.Task[T]":
    """A task whose failure is no news where all that waited for it were cancelled."""
    task = asyncio.create_task(work, name="read the state of the index")
    task.add_done_callback(log_failure())
    return task


class Claims:
    """`PendingClaims` of one database: locks of one session, which the server releases when the session ends.

    A claim only saves work: the vectors of a document are the same from every server. Where there can be no
    session (behind PgBouncer, or where the server accepts no more), every claim is granted.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._session: Connection | None = None
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def claimed(self, document_id: str) -> AsyncIterator[bool]:
        if not self._database.has_sessions:
            yield True
        elif await self._call(_CLAIM, document_id):
            try:
                yield True
            finally:
                await self._call(_RELEASE, document_id)
        else:
            yield False

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.terminate()

    async def _call(self, statement: str, document_id: str) -> bool:
        """The server's answer; True if it is unavailable."""
        # A connection runs one statement at a time.
        async with self._turn:
            try:
                if self._session is None:
                    self._session = await self._database.session()
                with translated(self._database.address):
                    answer: bool = await self._session.fetchval(statement, stored(document_id), timeout=ANSWER_S)
            except BackendError as error:
                logger.debug("document %s is completed without a claim: %s", document_id, error)
                await self.close()
                return True
            except asyncio.CancelledError:  # the lock may have been granted, and nothing would release it
                await self.close()
                raise
            return answer


async def try_read(database: PostgresDatabase, statement: str) -> None:
    """Run a query that reads little. Raises: BackendError (why searches would fail)."""

    async def attempt(connection: Connection) -> None:
        await connection.execute(_LOCK_TIMEOUT)
        await connection.execute(statement)

    await database.write(attempt)


async def try_write(database: PostgresDatabase) -> None:
    """Write what changes nothing of the index. Raises: BackendError (why a write would fail).

    After a write that found the disk full, there has to be space for 2 MiB: less may fit where a document does not.
    """

    async def attempt(connection: Connection) -> None:
        await connection.execute(_LOCK_TIMEOUT)
        # Waits as a write would while the vectors in use are replaced.
        await connection.execute(_BESIDE_OTHERS, WRITERS)
        # The lock that every insert takes: it waits where another session has locked a table.
        await connection.execute(_NO_LOCKS)
        await connection.execute(_WRITE)

    if database.is_disk_full:
        await database.read(_fill_two_mebibytes)
        database.is_disk_full = False
    await database.write(attempt)


async def _fill_two_mebibytes(connection: Connection) -> None:
    """Write 2 MiB, and nothing of it: the file is gone with the transaction."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(_TWO_MEBIBYTES)
    finally:
        await transaction.rollback()
