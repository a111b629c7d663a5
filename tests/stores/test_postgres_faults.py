"""What goes wrong with a PostgreSQL server and has a remedy: it is used, or one sentence says it."""

import asyncio
import socket
from collections.abc import Awaitable, Iterator

import pytest

from rag_context.domain.search import Filter
from rag_context.errors import BackendDataError, BackendError, BackendRejectedError
from rag_context.stores.postgres import open_postgres
from tests.servers.postgres import execute, query
from tests.servers.postgres_fixtures import database, empty, server, template
from tests.servers.process import HOST
from tests.stores.builders import axis, document, ids, put

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
        execute(database, "DROP EXTENSION vector CASCADE")
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


async def test_tables_that_are_dropped_are_not_made_again_and_a_restart_begins_anew(database: str) -> None:
    async with open_postgres(database) as store:
        await put(store, document("a", "wolf"), vector=axis(0))
        execute(database, "DROP SCHEMA rag_context CASCADE")
        for failed in (store.documents.ping(), store.vectors.ping(), store.documents.try_write()):
            assert "The index in" in str(await failure(failed))
        assert query(database, "SELECT to_regnamespace('rag_context')")[0][0] is None
    async with open_postgres(database) as store:
        assert await store.documents.ping() == "0 documents in 0 chunks, 0 pending"


async def failure(work: Awaitable[object]) -> BackendError | None:
    """Why it failed; None if it did not."""
    try:
        await work
    except BackendError as error:
        return error
    return None
