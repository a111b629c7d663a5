"""The connection to one database: a pool of connections that is opened, and a schema that is migrated, on first use."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import asyncpg

from rag_context.errors import BackendDataError, BackendRejectedError, ForeignIndexError
from rag_context.stores.postgres import driver
from rag_context.stores.postgres.rows import PostgresTables
from rag_context.stores.server_stores import log_failure
from rag_context.stores.sql_documents import find_origins

T = TypeVar("T")

Connection: TypeAlias = Any
"""The driver has no types: `asyncpg.Connection`, from the pool or not."""

Row: TypeAlias = Any
"""`asyncpg.Record`."""

OLDEST_SERVER = 16
OLDEST_EXTENSION = (0, 8)

COMMAND_S = 30.0
"""Longest wait for a statement."""

ANSWER_S = 5.0
"""Longest wait for what takes no time: the begin of a transaction, a row by its key. A frozen server does neither."""

COMMIT_S = 10.0
"""Longest wait for a commit, which waits for standbys where the server is configured so."""

RELEASE_S = 2.0
"""A connection whose statement was cancelled is closed if the server does not end it in so many seconds."""

_MIGRATIONS = 0x7261675F_00000001
"""Key of the advisory lock under which the schema is migrated."""

_SETTINGS = {
    "application_name": "rag-context",
    "jit": "off",  # compiles for longer than these statements run
    "plan_cache_mode": driver.Plan.EACH_TIME.value,
    "idle_in_transaction_session_timeout": "60s",  # a process that was stopped keeps its locks no longer
}

_LOCK_TIMEOUT = {"lock_timeout": "5s"}
"""Of the connections in the pool: callers wait for them."""

_NO_TIMEOUTS = {"statement_timeout": "0", "lock_timeout": "0"}
"""Of other connections, whatever their user has: to build an index may take hours, and waits for transactions."""


class PostgresDatabase:
    """One database.

    `url` is `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, several hosts separated by commas. Of the prepared
    statements that each connection keeps (`statement_cache_size`), those of searches take up to 1 MB each on the
    server; 0 behind PgBouncer, whose connections change from transaction to transaction, and which rejects our
    settings.
    """

    def __init__(self, url: str, *, pool_size: int = 10, statement_cache_size: int = 64) -> None:
        parts = urlsplit(url)
        self.address = f"{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._url = url
        self._pool_size = pool_size
        self._statement_cache_size = statement_cache_size
        self.has_sessions = statement_cache_size > 0
        """Whether a connection is one session of the server for as long as it is open: not behind PgBouncer."""
        self._connector = driver.Connector(url)
        self._pool: driver.ConnectionPool | None = None
        self._opening: asyncio.Task[Any] | None = None
        self._vector_schema = "public"
        self._running: set[asyncio.Task[Any]] = set()
        self.is_disk_full = False
        """Whether a write has failed because the disk was full; reset once a test write has found space again."""

    async def fetch(self, statement: str, *values: object, plan: driver.Plan = driver.Plan.EACH_TIME) -> list[Row]:
        return await self.read(lambda connection: connection.fetch(statement, *values), plan)

    async def fetchrow(self, statement: str, *values: object) -> Row | None:
        return await self.read(lambda each: each.fetchrow(statement, *values, timeout=ANSWER_S), driver.Plan.EITHER)

    async def read(self, work: Callable[[Connection], Awaitable[T]], plan: driver.Plan = driver.Plan.EACH_TIME) -> T:
        return await self._detached(self._run(work, plan))

    async def write(self, work: Callable[[Connection], Awaitable[T]], plan: driver.Plan = driver.Plan.EACH_TIME) -> T:
        """Run `work` in one transaction; what it wrote is durable when this returns.

        Raises: BackendError (the server failed; nothing was written, unless the connection was lost during the commit).
        """

        async def transacted(connection: Connection) -> T:
            transaction = connection.transaction()
            try:
                async with asyncio.timeout(ANSWER_S):
                    await transaction.start()
            except BaseException:
                with suppress(asyncpg.InterfaceError):  # closed already
                    connection.terminate()  # whether the transaction has begun is not known
                raise
            try:
                result = await work(connection)
            except BaseException:
                with suppress(OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
                    async with asyncio.timeout(RELEASE_S):
                        await transaction.rollback()
                raise
            async with asyncio.timeout(COMMIT_S):
                await transaction.commit()
            return result

        return await self._detached(self._run(transacted, plan))

    async def outside(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work`, which may take hours, on a connection of its own without a transaction. Raises: BackendError."""
        connection = await self.session()
        with driver.translated(self.address):
            try:
                return await work(connection)
            finally:
                await connection.close(timeout=RELEASE_S)

    async def session(self) -> Connection:
        """A connection beside the pool, which its user closes. Raises: BackendError."""
        await self._opened()
        with driver.translated(self.address):
            return await self._connect()

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        running = set(self._running)
        for task in running:
            if not task.cancelling():  # a second time would end the rollback that the first one has begun
                task.cancel()
        if running:
            _, late = await asyncio.wait(running, timeout=RELEASE_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        if self._pool is not None:
            await self._pool.close(RELEASE_S)

    async def _detached(self, work: "Awaitable[T]") -> T:
        """The result of `work`, which a cancelled caller does not wait for.

        The driver makes the server end the statement, and waits until it has; a frozen server never does.
        """
        task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._forget)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            raise

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # read, so that asyncio does not log what a cancelled caller did not wait for

    async def _run(self, work: Callable[[Connection], Awaitable[T]], plan: driver.Plan) -> T:
        with driver.translated(self.address):
            pool = await self._opened()
            connection = await pool.acquire()
            try:
                if self.has_sessions:
                    await pool.plan(connection, plan)
                return await work(connection)
            except (asyncpg.PostgresError, asyncpg.InternalClientError) as error:
                self.is_disk_full = self.is_disk_full or isinstance(error, asyncpg.DiskFullError)
                if driver.ends_sessions(error):
                    await pool.connections.expire_connections()
                raise
            finally:
                # Given up with its statement still running, the connection is closed.
                with suppress(TimeoutError, OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
                    await pool.connections.release(connection, timeout=RELEASE_S)

    async def _opened(self) -> driver.ConnectionPool:
        """The pool; the first callers wait for it together."""
        if self._pool is not None:
            return self._pool
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open(), name="postgres open")
            self._opening.add_done_callback(log_failure())
        return await asyncio.shield(self._opening)

    async def _open(self) -> driver.ConnectionPool:
        with driver.translated(self.address):
            connection = await self._connect(is_migrated=False)
            try:
                await _migrate(connection, self.address)
                self._vector_schema = await connection.fetchval(_VECTOR_SCHEMA)
            finally:
                await connection.close(timeout=RELEASE_S)
            pool = await asyncpg.create_pool(
                self._url,
                connect=self._connector.connect,
                min_size=0,
                max_size=self._pool_size,
                max_inactive_connection_lifetime=driver.IDLE_S,
                init=self._prepare,
                reset=_nothing_to_reset,
                **self._options(_LOCK_TIMEOUT),
            )
            self._pool = driver.ConnectionPool(pool, self._pool_size)
        return self._pool

    async def _connect(self, *, is_migrated: bool = True) -> Connection:
        connection = await self._connector.connect(
            self._url, **{**self._options(_NO_TIMEOUTS), "command_timeout": None}
        )
        if is_migrated:
            try:
                await self._prepare(connection)
            except BaseException:  # also of a cancelled caller, who could not close it
                connection.terminate()
                raise
        return connection

    def _options(self, more: Mapping[str, str]) -> dict[str, Any]:
        cached = self._statement_cache_size
        settings = {**_SETTINGS, **more} if cached else {"application_name": _SETTINGS["application_name"]}
        return {
            "timeout": driver.CONNECT_S,
            "command_timeout": COMMAND_S,
            "statement_cache_size": cached,
            "server_settings": settings,
        }

    async def _prepare(self, connection: Connection) -> None:
        with suppress(ValueError):  # the type is gone: what needs no vectors still works, the rest says what is missing
            await connection.set_type_codec(
                "vector",
                schema=self._vector_schema,
                encoder=driver.encoded_vector,
                decoder=driver.decoded_vector,
                format="binary",
            )


_OLDEST, _ORIGINS = 4, 8
"""The oldest version that is brought up to date, and the one from which databases have what their predecessors get."""

_VECTOR_SCHEMA = """
SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'vector'
"""


async def _nothing_to_reset(_connection: Connection) -> None:
    """Nothing but `Plan` is changed of a session, so that a round trip for each use of a connection is saved."""


def migrations() -> Sequence[str]:
    """The steps of the schema in order, each as SQL; a database of version n has made the first n."""
    folder = files("rag_context.stores.postgres") / "migrations"
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(folder / name).read_text(encoding="utf-8") for name in found]


async def _migrate(connection: Connection, address: str) -> None:
    """Bring the schema up to date, one process at a time.

    Raises: BackendRejectedError (the server or its extension is too old, or the extension is missing),
    ForeignIndexError (a newer version of this package made the schema).
    """
    server = connection.get_server_version()
    if server.major < OLDEST_SERVER:
        raise BackendRejectedError(
            driver.COMPONENT,
            f"PostgreSQL at {address} is version {server.major}; upgrade it to {OLDEST_SERVER} or later.",
        )
    steps = migrations()
    if await _version(connection) != len(steps):
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATIONS)
            done = await _version(connection)
            if done > len(steps):
                raise ForeignIndexError(
                    driver.COMPONENT,
                    f"The index in the database {address} was made by a newer version of rag-context;"
                    " upgrade this one.",
                )
            if 0 < done < _OLDEST:
                raise ForeignIndexError(
                    driver.COMPONENT,
                    f"The index in the database {address} is in an early form (schema {done}) that is no longer read:"
                    " export it with the version that wrote it, and import that.",
                )
            if done == 0:
                await _check_encoding(connection, address)
                await _create_extension(connection, address)
                await _check_extension(connection, address)
                await connection.execute("CREATE SCHEMA IF NOT EXISTS rag_context")
                await connection.execute("CREATE TABLE rag_context.schema_version (version integer NOT NULL)")
                await connection.execute("INSERT INTO rag_context.schema_version VALUES (0)")
            for step in steps[done:]:
                await connection.execute(step)
            if 0 < done < _ORIGINS:
                await connection.execute("UPDATE rag_context.chunks SET standing = false WHERE standing")
                await find_origins(PostgresTables(connection))
            await connection.execute("UPDATE rag_context.schema_version SET version = $1", len(steps))
    await _check_extension(connection, address)


async def _version(connection: Connection) -> int:
    """How many steps were made; 0 in a database that has no index yet."""
    if await connection.fetchval("SELECT to_regclass('rag_context.schema_version')") is None:
        return 0
    return int(await connection.fetchval("SELECT version FROM rag_context.schema_version"))


async def _check_encoding(connection: Connection, address: str) -> None:
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise BackendRejectedError(
            driver.COMPONENT,
            f"The database {address} has the encoding {encoding}, which cannot hold every text; create one with UTF8"
            " (`createdb -E UTF8 -T template0`).",
        )


async def _create_extension(connection: Connection, address: str) -> None:
    try:
        if await connection.fetchval(_VECTOR_SCHEMA) is None:
            await connection.execute("CREATE EXTENSION vector")
    except (asyncpg.UndefinedFileError, asyncpg.FeatureNotSupportedError) as error:
        raise BackendRejectedError(
            driver.COMPONENT,
            f"PostgreSQL at {address} has no pgvector; install pgvector 0.8 or later on the server"
            " (package postgresql-NN-pgvector), or use an image that has it (pgvector/pgvector).",
        ) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise BackendRejectedError(
            driver.COMPONENT,
            f"Only a superuser can add pgvector to {address}; run `CREATE EXTENSION vector` there as one.",
        ) from error


async def _check_extension(connection: Connection, address: str) -> None:
    version = await connection.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    if version is None:
        raise BackendDataError(driver.COMPONENT, driver.incomplete(address, "pgvector is gone"))
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_EXTENSION:
        raise BackendRejectedError(
            driver.COMPONENT,
            f"pgvector in {address} is version {version}; install 0.8 or later and run"
            " `ALTER EXTENSION vector UPDATE`.",
        )
