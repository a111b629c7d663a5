"""What is PostgreSQL's own: opening it, several servers on one database, failures, and search by index."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import asyncpg
import numpy as np
import pytest

from rag_context.domain.documents import DEFAULT_TENANT, Counts, Metadata, Tenant
from rag_context.domain.search import Filter, VectorHit
from rag_context.domain.text import terms
from rag_context.domain.vectors import Vector
from rag_context.errors import (
    BackendError,
    BackendRejectedError,
    BackendTimeoutError,
    BackendUnavailableError,
    ForeignIndexError,
)
from rag_context.ports.reading import (
    CandidateRequest,
    DocumentStore,
    KeywordIndex,
    MetricsStore,
    Shortlist,
    VectorStore,
)
from rag_context.ports.writing import IndexWriter, ModelRegistry, VectorRebuilder, Version
from rag_context.stores.postgres import PostgresStore, open_postgres
from rag_context.stores.postgres.connection import PostgresDatabase, migrations
from rag_context.stores.postgres.driver import Plan, backend_error
from rag_context.stores.postgres.state import WRITERS
from rag_context.stores.postgres.vector_search import PostgresVectors
from tests.servers.postgres import FAST, execute, postgres_process, postgres_standby, query, url_of, with_database
from tests.servers.postgres_fixtures import database, empty, postgres, server, template
from tests.servers.process import free_port
from tests.stores.builders import Stores, axis, chunks_of, document, ids, put, unit_vectors

__all__ = ["database", "empty", "postgres", "server", "template"]

EVERYTHING = Filter()


def test_it_fits_every_port(postgres: PostgresStore) -> None:
    documents: DocumentStore = postgres.documents
    writer: IndexWriter = postgres.documents
    models: ModelRegistry = postgres.documents
    vectors: VectorStore = postgres.vectors
    texts: KeywordIndex = postgres.texts
    metrics: MetricsStore = postgres.metrics
    rebuilder: VectorRebuilder = postgres.rebuilder
    whole: Stores = postgres
    assert len({id(port) for port in (documents, vectors, texts, metrics, rebuilder)}) == 5
    assert {id(writer), id(models)} == {id(whole.documents)}


async def failure(url: str) -> BackendError:
    """Why the database at `url` cannot be used."""
    async with open_postgres(url) as store:
        with pytest.raises(BackendError) as caught:
            await store.documents.ping()
    return caught.value


async def test_a_server_that_is_down_is_unavailable_until_it_is_there() -> None:
    port = free_port()
    async with open_postgres(url_of(port)) as store:
        with pytest.raises(BackendUnavailableError, match=rf"127.0.0.1:{port}/postgres cannot be reached"):
            await store.documents.ping()
        with postgres_process(*FAST, port=port):
            assert await store.documents.ping() == "0 documents in 0 chunks, 0 pending"


async def test_a_wrong_password_says_what_to_correct_and_not_what_it_was(empty: str) -> None:
    wrong = empty.replace("secret%20of%20the%20tests", "hunter2")
    error = await failure(wrong)
    assert isinstance(error, BackendRejectedError)
    assert "rejected the user or the password; correct the address" in str(error)
    assert "hunter2" not in str(error)


async def test_a_database_that_does_not_exist_is_named(server: str) -> None:
    error = await failure(with_database(server, "nowhere"))
    assert isinstance(error, BackendRejectedError)
    assert "nowhere; create it" in str(error)


async def test_a_user_who_may_not_add_the_extension_learns_who_can(empty: str) -> None:
    name = "plain_user"
    execute(empty, f"DROP ROLE IF EXISTS {name}", f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    execute(empty, f'ALTER DATABASE "{empty.rpartition("/")[2]}" OWNER TO {name}')
    error = await failure(empty.replace("postgres:secret%20of%20the%20tests", f"{name}:x"))
    assert isinstance(error, BackendRejectedError)
    assert "run `CREATE EXTENSION vector` there as one" in str(error)
    execute(empty, "CREATE EXTENSION vector")
    async with open_postgres(empty.replace("postgres:secret%20of%20the%20tests", f"{name}:x")) as store:
        assert await put(store, document("a"), vector=axis(0))


async def test_an_extension_that_is_too_old_is_rejected_and_nothing_is_created(empty: str) -> None:
    execute(empty, "CREATE EXTENSION vector")
    # As after an upgrade of the server's packages without one of the database.
    execute(empty, "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")
    error = await failure(empty)
    assert isinstance(error, BackendRejectedError)
    assert "0.7.4; install 0.8 or later and run `ALTER EXTENSION vector UPDATE`" in str(error)
    (row,) = query(empty, "SELECT to_regnamespace('rag_context')")
    assert row[0] is None


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_that_cannot_hold_every_text_is_rejected(server: str, encoding: str) -> None:
    name = f"test_{encoding.lower()}"
    execute(server, f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    try:
        error = await failure(with_database(server, name))
        assert isinstance(error, BackendRejectedError)
        assert f"has the encoding {encoding}, which cannot hold every text; create one with UTF8" in str(error)
        assert query(with_database(server, name), "SELECT to_regnamespace('rag_context')")[0][0] is None
    finally:
        execute(server, f"DROP DATABASE {name} WITH (FORCE)")


async def test_long_work_is_not_ended_by_the_timeouts_of_a_user(database: str) -> None:
    name = database.rpartition("/")[2]
    execute(
        database,
        f"ALTER DATABASE {name} SET statement_timeout = '4s'",
        f"ALTER DATABASE {name} SET lock_timeout = '3s'",
    )
    opened = PostgresDatabase(database)
    session = await opened.session()
    assert [await session.fetchval(f"SHOW {each}_timeout") for each in ("statement", "lock")] == ["0", "0"]
    await session.close()
    rows = await opened.fetch("SHOW statement_timeout")
    assert rows[0][0] == "4s", "a search is ended as the administrator wants"
    await opened.close()


async def test_a_schema_of_a_newer_version_is_not_touched(database: str) -> None:
    execute(database, "UPDATE rag_context.schema_version SET version = 99")
    error = await failure(database)
    assert isinstance(error, ForeignIndexError)
    assert "made by a newer version of rag-context; upgrade this one" in str(error)


async def test_a_schema_in_an_early_form_is_rejected_and_left_as_it_is(database: str) -> None:
    execute(database, "UPDATE rag_context.schema_version SET version = 3")
    error = await failure(database)
    assert isinstance(error, ForeignIndexError)
    assert "early form (schema 3)" in str(error)
    assert query(database, "SELECT version FROM rag_context.schema_version")[0][0] == 3


async def test_servers_that_start_at_once_make_one_schema(empty: str) -> None:
    async with open_postgres(empty) as one, open_postgres(empty) as two, open_postgres(empty) as three:
        stores = (one, two, three)
        await asyncio.gather(*(store.documents.ping() for store in stores))
        await asyncio.gather(*(put(store, document(str(n)), vector=axis(n)) for n, store in enumerate(stores)))
        assert await one.documents.counts() == Counts(3, 0, 3, 3)


async def test_without_prepared_statements_everything_is_the_same(database: str) -> None:
    """As behind PgBouncer."""
    async with open_postgres(database, statement_cache_size=0) as store:
        (chunk,) = await put(store, document("a", "wolf"), vector=axis(0))
        assert ids(await store.texts.search("wolf", limit=5, where=EVERYTHING)) == [chunk]
        assert ids(await store.vectors.search(axis(0), limit=5, where=EVERYTHING)) == [chunk]
        assert await store.documents.get(document("a", "wolf").id) == document("a", "wolf")
        assert [hit.chunk.id for hit in await nearest(store, axis(0), EVERYTHING)] == [chunk]
        assert await store.database.fetchrow("SHOW plan_cache_mode") == ("auto",), "another client would get it"


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (asyncpg.ProtocolViolationError("unsupported startup parameter: jit"), BackendRejectedError, "cache_size to 0"),
        (asyncpg.InvalidSQLStatementNameError("no such statement"), BackendRejectedError, "cache_size to 0"),
        (asyncpg.DuplicatePreparedStatementError("exists"), BackendRejectedError, "cache_size to 0"),
        (asyncpg.ProtocolViolationError("pgbouncer cannot connect to server"), BackendUnavailableError, "now"),
    ],
)
def test_pgbouncer_is_distinguished_from_a_database_that_is_down(
    error: asyncpg.PostgresError, kind: type[BackendError], message: str
) -> None:
    """As PgBouncer 1.18 says it."""
    found = backend_error(error, "one:6432/memory")

    assert type(found) is kind
    assert message in str(found)


async def test_a_nul_in_any_field_comes_back_and_is_filtered_by(postgres: PostgresStore) -> None:
    odd = "a\0b\ufdd0\ufdd00"
    tenant = Tenant(odd, odd, odd)
    metadata = Metadata(odd, (odd, "t"), odd, {odd: [odd]}, category=odd, game=odd)
    written = document("a", odd, tenant=tenant, session_id=odd, source=odd, metadata=metadata, thread=odd)
    (chunk,) = await put(postgres, written, vector=axis(0))
    assert await postgres.documents.get(written.id) == written
    passing = Filter(tenant, session_id=odd, category=odd, game=odd, source=odd, source_prefix=odd[:4], tags=(odd,))
    assert ids(await postgres.vectors.search(axis(0), limit=5, where=passing)) == [chunk]
    assert await postgres.vectors.search(axis(0), limit=5, where=replace(passing, source_prefix="a\ufdd0")) == []
    assert await postgres.documents.tenants() == [tenant]


async def test_the_longest_source_is_stored_and_filtered_by(postgres: PostgresStore) -> None:
    """It has more bytes than an entry of an index can have, and no compression makes it shorter."""
    random = np.random.default_rng(1)
    one, other = ("".join(map(chr, random.integers(0x20000, 0x2A000, 1024))) for _ in range(2))
    (chunk,) = await put(postgres, document("a", source=one), vector=axis(0))
    await put(postgres, document("b", source=other), vector=axis(0))
    await put(postgres, document("c", source=one[:-1] + "c"), vector=axis(0))
    for where in (Filter(source=one), Filter(source_prefix=one)):
        assert ids(await postgres.vectors.search(axis(0), limit=5, where=where)) == [chunk]
    for prefix, found in ((one[:1000], 2), (one[:10], 2), (other[:257], 1), (one[:10] + other[:10], 0)):
        hits = await postgres.vectors.search(axis(0), limit=5, where=Filter(source_prefix=prefix))
        assert len(hits) == found


async def test_a_text_that_no_text_can_hold_is_rejected(postgres: PostgresStore) -> None:
    with pytest.raises(BackendRejectedError, match="cannot store"):
        await put(postgres, replace(document("a"), title="half a character: \ud800"))
    assert await postgres.documents.counts() == Counts(0, 0, 0, 0)


async def test_what_one_server_writes_another_one_notices(database: str) -> None:
    async with open_postgres(database) as one, open_postgres(database) as other:
        await put(one, document("a", "wolf"))
        await other.documents.ping()
        version = other.documents.version
        assert await one.documents.tenant_state(DEFAULT_TENANT) == await other.documents.tenant_state(DEFAULT_TENANT)
        await put(one, document("b", "wolf"))
        while other.documents.version == version:
            await asyncio.sleep(0.01)
        assert await one.documents.tenant_state(DEFAULT_TENANT) == await other.documents.tenant_state(DEFAULT_TENANT)
        assert len(await other.texts.search("wolf", limit=5, where=EVERYTHING)) == 2


async def test_many_writers_leave_one_of_each_document_and_true_counters(database: str) -> None:
    texts = [["one"], ["one", "two"], ["one", "two", "three"]]
    async with open_postgres(database) as one, open_postgres(database) as other:

        async def work(store: PostgresStore, number: int) -> None:
            written = document(f"document {number % 4}", str(number % 3))
            await put(store, written, *texts[number % 3], vector=axis(0) if number % 2 else None)
            if number % 5 == 0:
                await store.documents.delete(written.id)

        await asyncio.gather(*(work(store, number) for number in range(30) for store in (one, other)))
        await asyncio.gather(one.documents._state.fold(), other.documents._state.fold())
        counted = await one.database.fetch(
            """SELECT (SELECT count(*) FROM rag_context.documents),
                      (SELECT count(*) FROM rag_context.documents WHERE status = 'pending'),
                      (SELECT count(*) FROM rag_context.chunks), (SELECT count(*) FROM rag_context.vectors_0)"""
        )
        assert await other.documents.counts() == Counts(*counted[0])
        (left,) = await one.database.fetch("SELECT count(*) FROM rag_context.changes")
        assert left[0] == 0
        await one.documents.ping()
        assert await one.documents.tenant_state(DEFAULT_TENANT) == await other.documents.tenant_state(DEFAULT_TENANT)


async def test_a_killed_server_keeps_what_it_acknowledged_and_is_used_again() -> None:
    """With fsync as in production; no call hangs, and none needs a restart of ours."""
    with postgres_process() as process:
        async with open_postgres(url_of(process.port)) as store:
            await put(store, document("before", "wolf"), vector=axis(0))
            await asyncio.to_thread(process.kill)
            with pytest.raises(BackendUnavailableError):
                await put(store, document("meanwhile"))
            await asyncio.to_thread(process.start)
            await put(store, document("after", "wolf"), vector=axis(1))
            assert len(await store.texts.search("wolf", limit=5, where=EVERYTHING)) == 2
            assert await store.documents.counts() == Counts(2, 0, 2, 2)


async def test_a_promoted_standby_has_all_that_was_acknowledged_and_is_written_to() -> None:
    """The primary is killed under load; it had waited for the standby with each commit. A server on the standby only
    reads."""
    with postgres_process(version="18") as primary, postgres_standby(primary) as standby:
        execute(url_of(primary.port), "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        while not query(url_of(primary.port), "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"):
            await asyncio.sleep(0.01)
        url = with_hosts(primary.port, standby.port)
        acknowledged: list[str] = []
        async with open_postgres(url) as store:

            async def write(name: str) -> None:
                written = document(name)
                while written.id not in acknowledged:
                    try:
                        await put(store, written, vector=axis(0))
                        acknowledged.append(written.id)
                    except BackendUnavailableError:
                        await asyncio.sleep(0.02)

            await write("first")
            async with open_postgres(url_of(standby.port)) as reader:
                while not await found_there(reader):
                    await asyncio.sleep(0.01)
                with pytest.raises(BackendUnavailableError, match="read-only, as a standby is"):
                    await put(reader, document("elsewhere"), vector=axis(0))
            await assert_hosts_are_tried_in_turn(primary.port, standby.port)
            writers = [asyncio.create_task(write(str(number))) for number in range(40)]
            while len(acknowledged) < 10:
                await asyncio.sleep(0.005)
            primary.kill()
            before = list(acknowledged)
            await asyncio.sleep(0.1)
            execute(url_of(standby.port), "SELECT pg_promote()")
            known = await store.documents.content_hashes(before)
            assert sorted(known) == sorted(before)
            await asyncio.gather(*writers)
            assert await store.documents.counts() == Counts(41, 0, 41, 41)


async def assert_hosts_are_tried_in_turn(primary: int, standby: int) -> None:
    """A host that is not as the address demands is followed by the next one; where none is, the error says so."""
    on_standby = f"{with_hosts(primary, standby)}?target_session_attrs=standby"
    async with open_postgres(on_standby) as reader, open_postgres(with_hosts(standby, primary)) as writer:
        await writer.documents.try_write()
        with pytest.raises(BackendUnavailableError, match="read-only, as a standby is"):
            await reader.documents.try_write()
    preferring = "?target_session_attrs=prefer-standby"
    async with open_postgres(with_hosts(primary, standby) + preferring) as reader:
        with pytest.raises(BackendUnavailableError, match="read-only, as a standby is"):
            await reader.documents.try_write()
    async with open_postgres(with_hosts(primary, primary) + preferring) as writer:
        await writer.documents.try_write()
    assert "is a standby." in str(await failure(f"{url_of(primary)}?target_session_attrs=standby"))
    assert "accepts writes; promote a standby" in str(await failure(with_hosts(standby, standby)))


def with_hosts(first: int, second: int) -> str:
    return url_of(first).replace(f":{first}", f":{first},127.0.0.1:{second}")


async def found_there(reader: PostgresStore) -> bool:
    """Whether a standby has come so far; it has the primary's schema some time after the primary."""
    with suppress(BackendUnavailableError):
        return bool(await reader.vectors.search(axis(0), limit=5, where=EVERYTHING))
    return False


async def test_a_frozen_server_holds_no_caller_longer_than_it_waits() -> None:
    with postgres_process(*FAST) as process:
        async with open_postgres(url_of(process.port)) as store:
            await put(store, document("a"), vector=axis(0))
            process.freeze()
            try:
                loop = asyncio.get_running_loop()
                started = loop.time()
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(store.vectors.search(axis(0), limit=1, where=EVERYTHING), 0.1)
                waited_s = loop.time() - started
            finally:
                process.thaw()
            assert waited_s < 2.0, "given up, it waited for the server all the same"
            assert len(await store.vectors.search(axis(0), limit=1, where=EVERYTHING)) == 1


async def test_a_read_only_server_answers_searches_and_says_that_it_takes_no_writes(database: str) -> None:
    async with open_postgres(database) as store:
        (chunk,) = await put(store, document("a"), vector=axis(0))
        await store.documents.try_write()
        name = database.rpartition("/")[2]
        execute(database, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    async with open_postgres(database) as store:
        assert ids(await store.vectors.search(axis(0), limit=1, where=EVERYTHING)) == [chunk]
        with pytest.raises(BackendUnavailableError, match="read-only"):
            await store.documents.try_write()
        with pytest.raises(BackendUnavailableError, match="read-only"):
            await put(store, document("b"))


class NeverPrepared(PostgresDatabase):
    """A database whose connections are open and never ready."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.opened: list[asyncpg.Connection] = []

    async def _prepare(self, connection: asyncpg.Connection) -> None:
        self.opened.append(connection)
        await asyncio.Event().wait()


async def test_a_connection_that_is_given_up_before_it_is_ready_is_closed(database: str) -> None:
    opening = NeverPrepared(database)
    waiting = asyncio.create_task(opening.session())
    while not opening.opened:
        await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert [connection.is_closed() for connection in opening.opened] == [True]
    await opening.close()


async def test_a_statement_that_takes_too_long_is_ended(database: str) -> None:
    opened = PostgresDatabase(database)
    try:
        with pytest.raises(BackendTimeoutError):
            await opened.read(lambda connection: connection.fetch("SELECT pg_sleep(60)", timeout=0.05))
        assert (await opened.fetch("SELECT 1"))[0][0] == 1
    finally:
        await opened.close()


async def test_every_filter_is_applied_inside_a_search_by_index(database: str) -> None:
    """A quarter passes: without filtering inside, the nearest 200 would leave some fifty of the hundred."""
    async with open_postgres(database, exact_rows=100) as store:
        vectors = unit_vectors(1200)
        for number in range(0, 1200, 100):
            written = document(str(number), metadata=Metadata(tags=("red",) if number % 400 == 0 else ()))
            chunks = chunks_of(written, *(str(position) for position in range(100)))
            await store.documents.write(Version(written, chunks, vectors[number : number + 100]))
        exact = PostgresVectors(store.database, store.documents._state, store.documents)
        assert await store.vectors.build_index(0)
        for where in (EVERYTHING, Filter(tags=("red",)), Filter(source=document("0").source)):
            shared = 0
            for vector in vectors[:20]:
                hits = await store.vectors.search(vector, limit=100, where=where)
                assert len(hits) == 100
                assert [hit.cosine for hit in hits] == sorted((hit.cosine for hit in hits), reverse=True)
                nearest = await exact.search(vector, limit=10, where=where)
                shared += len(set(ids(nearest)) & set(ids(hits[:10])))
            assert shared / 200 >= 0.99
        few = await store.vectors.search(vectors[7], limit=5, where=Filter(source="nowhere"))
        assert few == []


async def test_a_search_is_planned_once_unless_it_has_a_filter(database: str) -> None:
    """Both kinds in turn, on one connection. The first of each learns that the index over the vectors is to be used."""
    async with open_postgres(database, exact_rows=10, pool_size=1) as store:
        written = document("a", metadata=Metadata(tags=("red",)))
        vectors = unit_vectors(30)
        await store.documents.write(
            Version(written, chunks_of(written, *(f"wolf {each}" for each in range(30))), vectors)
        )
        assert await store.vectors.build_index(0)
        for vector in vectors[:4]:
            for where in (EVERYTHING, Filter(tags=("red",))):
                assert len(await nearest(store, vector, where)) == 5
        plans = await store.database.read(
            lambda connection: connection.fetch(
                """SELECT statement LIKE '%few AS%', statement LIKE '%tags @>%', generic_plans, custom_plans
                   FROM pg_prepared_statements WHERE statement LIKE 'WITH /*%' ORDER BY 1, 2"""
            ),
            Plan.EITHER,
        )
    assert [tuple(each) for each in plans] == [
        (False, False, 3, 0),
        (False, True, 0, 3),
        (True, False, 0, 1),
        (True, True, 0, 1),
    ]


async def nearest(store: PostgresStore, vector: Vector, where: Filter) -> Sequence[VectorHit]:
    """As a hybrid search finds them, by its one statement."""
    request = CandidateRequest("wolf", vector, 5, Shortlist(5, None, 0.5, 0.8, 0.0), where, None)
    return await store.candidates.read(lambda: request, lambda snapshot: snapshot.vector_hits(vector, 5, where))


async def test_an_index_is_built_once_the_vectors_are_many_and_stay(database: str) -> None:
    async with open_postgres(database, exact_rows=10) as store:
        written = document("a")
        texts = [str(position) for position in range(30)]
        await store.documents.write(Version(written, chunks_of(written, *texts), unit_vectors(30)))
        assert await store.vectors.build_index(0)
        assert "by index" in await store.vectors.ping()
        assert await store.vectors.build_index(0), "another server finds it"
    async with open_postgres(database, exact_rows=10) as store:
        while "by index" not in await store.vectors.ping():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("first_round", [1, 3, 1000])
async def test_rounds_of_terms_find_what_one_round_finds(postgres: PostgresStore, first_round: int) -> None:
    rng = np.random.default_rng(3)
    words = [f"word{number}" for number in range(40)]
    shares = 1.0 / np.arange(1, 41)
    for number in range(60):
        text = " ".join(rng.choice(words, size=12, p=shares / shares.sum()))
        await put(postgres, document(str(number), text))
    texts = postgres.texts
    for asked in ("word0 word39", "word0 word1 word2", "word5 word17 word30 word0"):
        assert terms(asked)
        texts._first_round = 1_000_000
        whole = await texts.search(asked, limit=8, where=EVERYTHING)
        texts._first_round = first_round
        assert await texts.search(asked, limit=8, where=EVERYTHING) == whole


async def test_standing_instructions_of_older_conversations_are_found(empty: str) -> None:
    said = ["Always use metric units.", "The valve is open.", "> Always close the valve."]
    values = ", ".join(f"({number}, {_quoted(text)})" for number, text in enumerate(said))
    recorded = "/home/ana/.codex/sessions/2026/1.jsonl"
    execute(
        empty,
        "CREATE EXTENSION vector",
        "CREATE SCHEMA rag_context",
        "CREATE TABLE rag_context.schema_version (version integer NOT NULL)",
        "INSERT INTO rag_context.schema_version VALUES (5)",
        *migrations()[:5],
        "INSERT INTO rag_context.tenants (project, branch, path_hash) VALUES ('', '', '')",
        f"""INSERT INTO rag_context.documents (id, tenant, content_type, session_id, source, title, content,
               content_hash, timestamp, tags, extra, similarity_hash, status, thread)
           SELECT name || number, 1, kind, 's', source, 'T', text, 'h', 0, '{{}}', '{{}}', 0, 'indexed', thread
           FROM (VALUES {values}) AS t (number, text) CROSS JOIN (VALUES
               ('told', 'chat', 'a', 's'), ('file', 'chat', '/talks/a.chat', NULL),
               ('session', 'chat', '{recorded}', NULL),
               ('page', 'documentation', 'https://valves.example', NULL)) AS v (name, kind, source, thread)""",
        """INSERT INTO rag_context.chunks (id, document, sequence, position, start_char, end_char, start_line,
                end_line, heading, tenant, content_type, session_id, source, tags, timestamp, speaker, length, terms,
                counts)
            SELECT id, id, sequence, 0, 0, length(content), 1, 1, '', 1, content_type, 's', source, '{}',
                0, CASE content_type WHEN 'chat' THEN 'User' END, 1, '{}', '{}' FROM rag_context.documents""",
        """INSERT INTO rag_context.passages (chunk, text, context)
            SELECT key, content, '' FROM rag_context.chunks JOIN rag_context.documents AS d ON d.id = document""",
    )
    async with open_postgres(empty) as store:
        await store.documents.ping()
        found = {id_ for (id_,) in query(empty, "SELECT id FROM rag_context.chunks WHERE standing")}
        assert found == {"told0", "session0"}
        whose = [await store.documents.get(id_) for id_ in ("told0", "file0", "session0", "page0")]
        assert [each.origin.value for each in whose if each] == ["owner", "unknown", "owner", "web"]
        passages = await store.documents.passages(["told0", "page0"])
        assert [passages[id_].chunk.origin.value for id_ in ("told0", "page0")] == ["owner", "web"]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


async def test_tenants_of_an_older_database_are_counted_when_it_is_opened(database: str) -> None:
    tenants = [Tenant(), Tenant("shop", "main", "aa")]
    async with open_postgres(database) as store:
        for number, tenant in enumerate((tenants[0], tenants[0], tenants[1])):
            await put(store, document(str(number), tenant=tenant), "wolf", f"sheep {number}")
        hits = [await store.texts.search("wolf 1", limit=9, where=Filter(each)) for each in tenants]
    execute(
        database,
        "ALTER TABLE rag_context.tenants DROP COLUMN version, DROP COLUMN documents, DROP COLUMN chunks,"
        " DROP COLUMN terms, DROP COLUMN turnover",
        "ALTER TABLE rag_context.changes DROP COLUMN tenant",
        "ALTER TABLE rag_context.state DROP COLUMN epoch",
        migrations()[6],
    )
    async with open_postgres(database) as store:
        assert [(await store.documents.tenant_state(each)).documents for each in tenants] == [2, 1]
        assert [await store.texts.search("wolf 1", limit=9, where=Filter(each)) for each in tenants] == hits


async def test_the_names_of_tenants_go_that_nothing_refers_to(postgres: PostgresStore, database: str) -> None:
    await put(postgres, document("1", tenant=Tenant("other")), "a wolf")
    names = "SELECT project FROM rag_context.tenants ORDER BY project"
    writer = await asyncpg.connect(database)  # it may have read the number of the tenant
    await writer.execute(f"SELECT pg_advisory_lock_shared({WRITERS})")
    execute(database, "INSERT INTO rag_context.tenants (project, branch, path_hash) VALUES ('zugzwang', '', '')")
    await postgres.documents._state.fold()
    assert [name for (name,) in query(database, names)] == ["other", "zugzwang"]
    await writer.close()
    await postgres.documents._state.fold()
    assert [name for (name,) in query(database, names)] == ["other"]


async def test_vectors_of_a_small_tenant_are_compared_one_by_one_however_few_share_the_database(database: str) -> None:
    """The index finds most of the nearest; compared one by one, all are, and no other's vectors matter."""
    small = Tenant("small")
    async with open_postgres(database, exact_rows=20) as store:
        for number, tenant in enumerate((small, Tenant("large"))):
            written = document(str(number), tenant=tenant)
            chunks = chunks_of(written, *(f"wolf {each}" for each in range(15 if tenant == small else 30)))
            await store.documents.write(Version(written, chunks, unit_vectors(len(chunks), seed=number)))
        assert await store.vectors.build_index(0)
        seen = await store.documents._state.current()
        await nearest(store, axis(0), Filter(small))
        assert store.vectors._narrow(seen, small) == 20
        assert store.vectors._narrow(seen, Tenant("large")) == 11
        assert Filter(small) not in store.vectors._broad
