"""What goes wrong with a PostgreSQL server and has a remedy: it is used, or one sentence says it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from rag_context.domain.documents import DocumentInput
from rag_context.domain.reports import IssueKind, Thoroughness
from rag_context.domain.search import Filter
from rag_context.errors import BackendDataError, BackendError, BackendRejectedError, BackendUnavailableError
from rag_context.memory.index_maintenance import Audit
from rag_context.stores.postgres import PostgresStore, open_postgres
from rag_context.stores.postgres.connection import PostgresDatabase
from rag_context.testing import FakeEmbedder
from tests.servers.postgres import execute, query
from tests.servers.postgres_fixtures import database, empty, server, template
from tests.servers.process import HOST
from tests.stores.builders import axis, document, ids, put
from tests.stores.test_postgres_servers import write_path

__all__ = ["database", "empty", "server", "template"]

EVERYTHING = Filter()
END_ALL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture
def silent() -> Iterator[int]:
    """A port where connections are accepted and nothing is ever said, as of a machine that is gone."""
    with socket.create_server((HOST, 0)) as listener:
        yield listener.getsockname()[1]


@asynccontextmanager
async def late_to_close(url: str) -> AsyncIterator[str]:
    """The address of a proxy to the server of `url`; it closes a connection half a second after the server has."""
    host, _, port = url.partition("@")[2].partition("/")[0].partition(":")

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(host, int(port))
        sent = asyncio.create_task(pump(reader, to_server))
        await pump(from_server, writer)
        await asyncio.sleep(0.5)
        sent.cancel()
        to_server.close()
        writer.close()

    async with await asyncio.start_server(relay, HOST) as proxy:
        yield url.replace(f":{port}/", f":{proxy.sockets[0].getsockname()[1]}/")


@pytest.fixture
def limited(empty: str) -> Iterator[str]:
    """A database whose user may have two connections."""
    name = empty.rpartition("/")[2]
    execute(empty, "CREATE EXTENSION vector", f"CREATE ROLE {name} LOGIN PASSWORD 'x' CONNECTION LIMIT 2")
    execute(empty, f"GRANT CREATE ON DATABASE {name} TO {name}")
    yield empty.replace("postgres:secret%20of%20the%20tests", f"{name}:x")
    execute(empty, "DROP SCHEMA rag_context CASCADE", f"DROP OWNED BY {name}", f"DROP ROLE {name}")


async def test_a_host_that_never_answers_does_not_keep_from_the_next_one(database: str, silent: int) -> None:
    address = database.partition("@")[2]
    async with open_postgres(database.replace(f"@{address}", f"@{HOST}:{silent},{address}")) as store:
        (chunk,) = await put(store, document("a"), vector=axis(0))
        assert ids(await store.vectors.search(axis(0), limit=1, where=EVERYTHING)) == [chunk]


async def test_connections_that_are_open_are_shared_where_the_server_accepts_no_more(limited: str) -> None:
    async with open_postgres(limited) as store:
        (chunk,) = await put(store, document("a"), vector=axis(0))
        for _ in range(3):
            found = await asyncio.gather(*(store.vectors.search(axis(0), limit=1, where=EVERYTHING) for _ in range(20)))
            assert [ids(hits) for hits in found] == [[chunk]] * 20


async def test_where_one_connection_was_ended_the_next_call_uses_none_that_was_open(database: str) -> None:
    connections = PostgresDatabase(database)
    processes = "SELECT pg_backend_pid(), pg_sleep(0.05)"

    async def used() -> set[int]:
        return {row[0] for (row,) in await asyncio.gather(*(connections.fetch(processes) for _ in range(3)))}

    before = await used()
    assert len(before) == 3
    with pytest.raises(BackendUnavailableError):
        await connections.fetch("SELECT pg_terminate_backend(pg_backend_pid())")
    # An administrator, or a restart, ends all: the others may end a moment later, each in the middle of a call.
    assert not before & await used()
    await connections.close()


@pytest.mark.parametrize("begins_transaction", [False, True])
async def test_a_connection_whose_end_was_announced_while_it_was_idle_is_not_used_twice(
    database: str, begins_transaction: bool
) -> None:
    async with late_to_close(database) as url:
        connections = PostgresDatabase(url)
        call = connections.write if begins_transaction else connections.read
        assert await call(lambda each: each.fetchval("SELECT 1")) == 1
        await asyncio.to_thread(execute, database, END_ALL)
        await asyncio.sleep(0.1)
        with suppress(BackendUnavailableError):  # on a stalled machine it may have been closed by now
            await call(lambda each: each.fetchval("SELECT 1"))
        assert await call(lambda each: each.fetchval("SELECT 1")) == 1
        await connections.close()


async def test_a_server_without_pgvector_says_what_to_install(server: str, empty: str) -> None:
    if int(query(server, "SHOW server_version_num")[0][0]) < 180000:
        pytest.skip("before version 18 a server cannot be told to look for extensions elsewhere")
    execute(server, f"ALTER DATABASE {empty.rpartition('/')[2]} SET extension_control_path = '/nowhere'")
    async with open_postgres(empty) as store:
        with pytest.raises(BackendRejectedError, match=r"has no pgvector; install pgvector 0\.8 or later"):
            await store.documents.ping()


@pytest.mark.parametrize("is_reopened", [False, True])
async def test_an_extension_that_is_dropped_leaves_keyword_search_and_says_what_to_do(
    database: str, is_reopened: bool
) -> None:
    async with open_postgres(database) as store:
        (chunk,) = await put(store, document("a", "wolf"), vector=axis(0))
        await asyncio.to_thread(execute, database, "DROP EXTENSION vector CASCADE")
        if is_reopened:
            execute(database, END_ALL)
            while await failure(store.documents.ping()) is not None:
                await asyncio.sleep(0.01)
        assert ids(await store.texts.search("wolf", limit=5, where=EVERYTHING)) == [chunk]
        for failed in (store.vectors.search(axis(0), limit=1, where=EVERYTHING), store.vectors.ping()):
            assert "restore the database from a backup, or run `DROP SCHEMA" in str(await failure(failed))
    async with open_postgres(database) as store:
        error = await failure(store.documents.ping())
        assert isinstance(error, BackendDataError)
        assert "pgvector is gone" in str(error)


async def test_dropped_tables_are_not_created_again_until_a_restart(database: str) -> None:
    async with open_postgres(database) as store:
        await put(store, document("a", "wolf"), vector=axis(0))
        await asyncio.to_thread(execute, database, "DROP SCHEMA rag_context CASCADE")
        for failed in (store.documents.ping(), store.vectors.ping(), store.documents.try_write()):
            assert "The index in" in str(await failure(failed))
        assert query(database, "SELECT to_regnamespace('rag_context')")[0][0] is None
    async with open_postgres(database) as store:
        assert await store.documents.ping() == "0 documents in 0 chunks, 0 pending"


CHUNKS = "chunk IN (SELECT key FROM rag_context.chunks WHERE source = '{source}')"
DAMAGE = {
    IssueKind.BROKEN_CHUNKS: f"DELETE FROM rag_context.passages WHERE {CHUNKS}",
    IssueKind.MISSING_VECTORS: f"DELETE FROM rag_context.vectors_0 WHERE {CHUNKS}",
    IssueKind.BAD_VECTORS: f"UPDATE rag_context.vectors_0 SET embedding = '[1,2,3]' WHERE {CHUNKS}",
    IssueKind.STALE_TERMS: "UPDATE rag_context.chunks SET counts = '{{}}' WHERE source = '{source}'",
    IssueKind.WRONG_TAGS: "UPDATE rag_context.chunks SET tenant = 0 WHERE source = '{source}'",
    IssueKind.CHANGED_CONTENT: "UPDATE rag_context.documents SET content = content || '!' WHERE source = '{source}'",
    IssueKind.LOST_CONTENT: "UPDATE rag_context.documents SET extra = 'no JSON' WHERE source = '{source}'",
}


async def test_damaged_rows_are_left_out_named_and_repaired(database: str) -> None:
    async with open_postgres(database) as store:
        embedder = FakeEmbedder()
        indexer, maintenance = await write_path(store, embedder)
        drafts = [DocumentInput(f"The {kind} wolf sleeps.", "documentation", "s", kind) for kind in DAMAGE]
        for draft in drafts:
            await indexer.index(draft)
        for kind, statement in DAMAGE.items():
            execute(database, statement.format(source=kind))
        found = await store.texts.search("wolf", limit=20, where=EVERYTHING)
        assert set(await sources(store, ids(found))) == {"missing-vectors", "bad-vectors", "changed-content"}
        vector = await embedder.embed_query("wolf")
        error = await failure(store.vectors.search(vector, limit=20, where=EVERYTHING))
        assert "run `rag-context check --repair`" in str(error)
        audit = Audit(store.auditor)
        report = await audit.examine(Thoroughness.FULL)
        assert set(DAMAGE) <= {issue.kind for issue in report.issues}
        await audit.repair(report)
        for id_ in report.broken:
            await indexer.rechunk(id_)
        await maintenance.sweep(lambda _done: None)
        for draft in drafts:
            await indexer.index(draft)
        assert (await audit.examine(Thoroughness.FULL)).issues == ()
        for hits in (
            await store.texts.search("wolf", limit=20, where=EVERYTHING),
            await store.vectors.search(vector, limit=20, where=EVERYTHING),
        ):
            assert await sources(store, ids(hits)) == sorted(DAMAGE)


async def test_where_every_vector_has_a_wrong_dimension_a_repair_is_enough_too(database: str) -> None:
    async with open_postgres(database) as store:
        embedder = FakeEmbedder()
        indexer, _ = await write_path(store, embedder)
        await indexer.index(DocumentInput("The wolf sleeps.", "documentation", "s", "notes"))
        execute(database, "UPDATE rag_context.vectors_0 SET embedding = '[1,2,3]'")
        vector = await embedder.embed_query("wolf")
        error = await failure(store.vectors.search(vector, limit=1, where=EVERYTHING))
        assert "run `rag-context check --repair`" in str(error)
        error = await failure(store.vectors.search(vector[:-1], limit=1, where=EVERYTHING))
        assert "run a reindex" in str(error)


async def sources(store: PostgresStore, chunk_ids: list[str]) -> list[str]:
    """Where the passages are from that can be read."""
    return sorted(passage.source for passage in (await store.documents.passages(chunk_ids)).values())


async def failure(work: Awaitable[object]) -> BackendError | None:
    """Why it failed; None if it did not."""
    try:
        await work
    except BackendError as error:
        return error
    return None
