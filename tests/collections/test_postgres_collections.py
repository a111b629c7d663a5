"""The provider on PostgreSQL: on a real server, shared by servers, whole writes only, and exact for every text."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.collections.provider_connections import DEFAULT
from rag_context.domain.clauses import EVERYTHING, Clause, Comparison, Membership, Negation, Operator
from rag_context.domain.documents import Status
from rag_context.domain.vectors import Matrix
from rag_context.domain.where import matches
from rag_context.errors import BackendUnavailableError, InvalidInputError
from rag_context.ports.provider import Collection, Entry
from rag_context.settings import Settings, StoreSettings
from rag_context.stores.postgres.collection_entries import escaped, unescaped
from rag_context.stores.postgres.collections import PostgresCollections, open_postgres_collections
from rag_context.stores.postgres.keywords import MOST_COLUMNS
from rag_context.wiring.collection_providers import open_connections, provider_registry
from tests.collections.isolated_providers import drop_all
from tests.servers.postgres import execute, query
from tests.servers.process import HOST, free_port

NAME = "notes"
ODD = st.text(st.sampled_from("\x00\x01\x02\x03a\ufdd0"), max_size=6)
"""Texts of what is escaped, and of its neighbours."""


@pytest.fixture
async def collections(collections_database: str) -> AsyncIterator[PostgresCollections]:
    async with open_postgres_collections(collections_database) as provider:
        await provider.create(Collection(NAME))
        yield provider
        await drop_all(provider)


def vectors(count: int, dimension: int = 2) -> Matrix:
    return np.tile(np.eye(1, dimension, dtype=np.float32), (count, 1))


def numbered(count: int, text: str = "text") -> list[Entry]:
    return [Entry(f"{number:04d}", text, {"number": number}) for number in range(count)]


async def rows_left(url: str) -> int:
    """Rows of collections that do not exist any more, after a moment for those who remove them."""
    for _ in range(100):
        left = query(
            url,
            """SELECT (SELECT count(*) FROM rag_context.discarded_collections)
                      + (SELECT count(*) FROM rag_context.entries
                         WHERE collection NOT IN (SELECT key FROM rag_context.collections))""",
        )[0][0]
        if not left:
            return 0
        await asyncio.sleep(0.05)
    return int(left)


async def test_it_touches_nothing_before_the_first_call_and_says_when_the_server_is_down() -> None:
    async with open_postgres_collections(f"postgresql://nobody@{HOST}:{free_port()}/none") as provider:
        with pytest.raises(BackendUnavailableError, match="cannot be reached"):
            await provider.collections()
        health = await provider.health()
    assert (health.status, health.collections) == (Status.UNAVAILABLE, None)
    assert health.error is not None
    assert "cannot be reached" in health.error


async def test_servers_see_what_another_one_has_acknowledged(
    collections: PostgresCollections, collections_database: str
) -> None:
    async with open_postgres_collections(collections_database) as other:
        await collections.upsert(NAME, numbered(3), vectors(3))
        assert await other.ids(NAME, EVERYTHING) == ["0000", "0001", "0002"]
        await other.delete(NAME, "0001")
        assert await collections.ids(NAME, EVERYTHING) == ["0000", "0002"]
        assert not await other.create(Collection(NAME))
        await other.merge_metadata(NAME, {"a": 1})
        await collections.merge_metadata(NAME, {"b": 2})
        found = await other.collection(NAME)
    assert found is not None
    assert (found.metadata, found.count) == ({"a": 1, "b": 2}, 2)


async def test_all_of_an_upsert_is_seen_or_nothing_of_it(
    collections: PostgresCollections, collections_database: str
) -> None:
    seen: list[tuple[int, int, set[str]]] = []
    async with open_postgres_collections(collections_database) as other:

        async def watch() -> None:
            while not seen or seen[-1][2] != {"version 7"}:
                page = await other.entries(NAME, EVERYTHING, limit=1000)
                seen.append((page.total, len(page.entries), {entry.text for entry in page.entries}))

        watching = asyncio.create_task(watch())
        for version in range(8):
            await collections.upsert(NAME, numbered(200, f"version {version}"), vectors(200))
        await watching
    assert {(total, count) for total, count, _ in seen} <= {(0, 0), (200, 200)}
    assert all(len(texts) <= 1 for _, _, texts in seen)


async def test_writers_of_one_collection_take_turns(
    collections: PostgresCollections, collections_database: str
) -> None:
    async with open_postgres_collections(collections_database) as other:
        await asyncio.gather(
            *(
                one.upsert(NAME, numbered(20, f"{number}"), vectors(20))
                for number in range(5)
                for one in (collections, other)
            ),
            *(one.delete(NAME, f"{number:04d}") for number in range(20) for one in (collections, other)),
        )
        found = await other.collection(NAME)
        assert found is not None
        assert (
            found.count
            == len(await other.ids(NAME, EVERYTHING))
            == (await other.entries(NAME, EVERYTHING, limit=0)).total
        )


async def test_what_is_rejected_changes_nothing(collections: PostgresCollections) -> None:
    await collections.upsert(NAME, numbered(1), vectors(1))
    with pytest.raises(InvalidInputError, match="at most 16000 dimensions, not of 16001"):
        await collections.upsert(NAME, numbered(2), vectors(2, 16_001))
    with pytest.raises(InvalidInputError, match="The id 'twice' is given twice"):
        await collections.upsert(NAME, [Entry("twice", ""), Entry("twice", "")], vectors(2))
    with pytest.raises(InvalidInputError, match="holds vectors of 2 dimensions, not of 3"):
        await collections.upsert(NAME, numbered(2), vectors(2, 3))
    assert await collections.ids(NAME, EVERYTHING) == ["0000"]


async def test_what_is_dropped_emptied_or_replaced_leaves_no_row_behind(
    collections: PostgresCollections, collections_database: str
) -> None:
    for name in ("emptied", "dropped", "old", "new"):
        await collections.create(Collection(name))
        await collections.upsert(name, numbered(50), vectors(50))
    assert await collections.empty("emptied") == 50
    await collections.drop("dropped")
    assert await collections.switch("old", "new")
    assert await rows_left(collections_database) == 0
    assert await collections.ids("old", EVERYTHING) == [entry.id for entry in numbered(50)]
    assert await collections.collection("new") is None


async def test_what_a_process_has_left_behind_is_removed_by_the_next_one(
    collections: PostgresCollections, collections_database: str
) -> None:
    await collections.upsert(NAME, numbered(50), vectors(50))
    execute(
        collections_database,
        "INSERT INTO rag_context.discarded_collections SELECT key FROM rag_context.collections",
        "DELETE FROM rag_context.collections",
    )
    async with open_postgres_collections(collections_database) as other:
        await other.create(Collection(NAME))
        await other.upsert(NAME, numbered(1), vectors(1))
        assert await rows_left(collections_database) == 0
        assert await other.ids(NAME, EVERYTHING) == ["0000"]


async def test_a_switch_is_rejected_where_the_documents_differ(collections: PostgresCollections) -> None:
    await collections.upsert(NAME, numbered(2, "old"), vectors(2))
    await collections.create(Collection("built"))
    await collections.upsert("built", numbered(2, "other"), vectors(2, 3))
    assert not await collections.switch(NAME, "built")
    await collections.upsert("built", numbered(2, "old"), vectors(2, 3))
    assert await collections.switch(NAME, "built")
    found = await collections.collection(NAME)
    assert found is not None
    assert found.dimension == 3


@given(st.lists(ODD, min_size=2, max_size=6), ODD)
def test_escaping_changes_neither_order_nor_parts(texts: list[str], part: str) -> None:
    assert [unescaped(escaped(text)) for text in texts] == texts
    assert not any("\x00" in escaped(text) for text in texts)
    assert sorted(texts) == sorted(texts, key=escaped)
    assert [part in text for text in texts] == [escaped(part) in escaped(text) for text in texts]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(ODD, min_size=1, max_size=8, unique=True), asked=ODD)
async def test_texts_with_a_nul_are_ordered_and_filtered_as_all_others(
    collections: PostgresCollections, texts: list[str], asked: str
) -> None:
    await collections.empty(NAME)
    entries = [Entry(text, text, {"a": text, "in": [text], text or "empty": 1}) for text in texts]
    await collections.upsert(NAME, entries, vectors(len(texts)))
    page = await collections.entries(NAME, EVERYTHING, limit=100)
    assert page.entries == tuple(sorted(entries, key=lambda entry: entry.id))
    operators = (Operator.GREATER, Operator.AT_MOST, Operator.CONTAINS, Operator.EQUAL)
    wheres: list[Clause] = [Comparison(("a",), operator, asked) for operator in operators]
    wheres += [Comparison(("in",), Operator.CONTAINS, asked), Comparison((asked or "empty",), Operator.EXISTS, True)]
    for where in wheres:
        expected = sorted(entry.id for entry in entries if matches(where, entry.metadata))
        assert await collections.ids(NAME, where) == expected, where


async def test_the_largest_filters_are_answered(collections: PostgresCollections) -> None:
    """V-5: 10 000 conditions, and 32 levels."""
    await collections.upsert(NAME, numbered(5), vectors(5))
    many: Clause = Membership(("number",), (3, *(f"{number}" for number in range(10_000))))
    assert await collections.ids(NAME, many) == ["0003"]
    deep: Clause = Comparison(("number",), Operator.EQUAL, 3)
    for _ in range(32):
        deep = Negation(deep)
    assert await collections.ids(NAME, deep) == ["0003"]


def test_its_addresses_are_all_that_it_connects_to(tmp_path: Path) -> None:
    """X-3."""
    kind = provider_registry(Settings(data_dir=tmp_path)).get("postgres")
    assert kind is not None

    def addresses(url: str) -> list[str]:
        return list(kind.addresses(kind.validated({"url": url})))

    assert addresses("postgresql://user:p%40ss@one,two:5433/memory?sslmode=require") == ["one:5432", "two:5433"]
    assert addresses("postgresql://a@b@[::1]/memory") == ["[::1]:5432"]
    assert addresses("postgresql:///memory?host=elsewhere") == [":5432"]
    assert kind.connection_schema()["properties"]["url"]["writeOnly"]


async def test_a_query_of_more_terms_than_columns_is_scored_as_any_other(collections: PostgresCollections) -> None:
    words = ["wolf", "sheep", "owl", "hare", "fox", "stoat", "pike"]
    entries = [Entry(f"{number}", " ".join(words[number : number + 3]), {}) for number in range(len(words))]
    await collections.upsert(NAME, entries, vectors(len(entries)))
    unknown = [f"zyx{number}" for number in range(MOST_COLUMNS)]
    few, many = [
        {id_: score.bm25 for id_, score in scores.items()}
        for query in (words, [*words[:3], *unknown, *words[3:]])
        if (scores := await collections.keyword_scores(NAME, " ".join(query), EVERYTHING, limit=5))
    ]
    assert many == few
    assert len(few) == 5


async def test_collections_are_where_the_documents_are(tmp_path: Path, collections_database: str) -> None:
    """M-3, V-6: unless the connection `default` is configured."""
    stores = StoreSettings(documents="postgres", vectors="postgres", postgres_url=collections_database)
    async with open_connections(Settings(data_dir=tmp_path, stores=stores)) as connections:
        assert connections.require(DEFAULT).provider == "postgres"
    configured = {DEFAULT: {"provider": "embedded"}}
    chosen = Settings.model_validate({"data_dir": tmp_path, "stores": stores, "connections": configured})
    async with open_connections(chosen) as connections:
        assert connections.require(DEFAULT).provider == "embedded"
