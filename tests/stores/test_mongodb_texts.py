"""Keyword search in MongoDB: the same scores as in the embedded store, whatever is typed."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from rag_context.domain.documents import DEFAULT_TENANT, Document, Metadata, Tenant
from rag_context.domain.search import ChunkRef, Filter, KeywordHit
from rag_context.stores.mongodb import MongoStore, keyword_search
from rag_context.stores.mongodb.keyword_search import MongoTexts
from rag_context.stores.server_stores import TermStatistics
from rag_context.stores.sqlite.embedded import open_documents
from tests.servers.mongodb_fixtures import Raw, database, kept, mongodb, raw, server
from tests.stores.builders import NOON, chunks_of, document, minutes
from tests.stores.filters import MOST_DOCUMENTS, corpora, filters
from tests.stores.test_text_index import words

__all__ = ["database", "kept", "mongodb", "raw", "server"]


EVERYTHING = Filter()


@pytest.fixture(autouse=True)
def _without_disk_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a busy machine does not do in time is no finding."""
    monkeypatch.setattr(keyword_search, "TEXT_SEARCH_MS", 10_000)


async def put(store: MongoStore, written: Document, *pieces: str) -> list[str]:
    chunks = chunks_of(written, *pieces)
    await store.documents.put(written, chunks)
    return [chunk.id for chunk in chunks]


async def found(store: MongoStore, query: str, where: Filter = EVERYTHING) -> list[str]:
    return [hit.chunk.id for hit in await store.texts.search(query, limit=20, where=where)]


async def has_text_index(raw: Raw) -> None:
    """Wait until it is there."""
    while "content_text_index" not in [index["name"] async for index in await raw["C0N7EXT"].list_indexes()]:
        await asyncio.sleep(0.01)


def pieces(written: Document) -> list[str]:
    """A document's content in chunks of three words."""
    split = written.content.split()
    return [" ".join(split[start : start + 3]) for start in range(0, len(split), 3)]


def scores(hits: Sequence[KeywordHit]) -> dict[str, Any]:
    return {hit.chunk.id: (pytest.approx(hit.bm25, abs=1e-9), pytest.approx(hit.share, abs=1e-9)) for hit in hits}


def best_first(hit: KeywordHit) -> tuple[float, str]:
    return -hit.bm25, hit.chunk.id


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=corpora(words), query=words, where=filters)
async def test_every_search_finds_and_scores_what_the_embedded_store_does(
    mongodb: MongoStore, tmp_path: Path, documents: list[Document], query: str, where: Filter
) -> None:
    for number in range(MOST_DOCUMENTS):
        await mongodb.documents.delete(document(f"document {number}").id)
    async with open_documents(Path(mkdtemp(dir=tmp_path)) / "embedded.db") as embedded:
        for each in documents:
            chunks = chunks_of(each, *pieces(each))
            await mongodb.documents.put(each, chunks)
            await embedded.documents.put(each, chunks)
        for asked in (where, EVERYTHING):
            here = await mongodb.texts.search(query, limit=200, where=asked)
            there = await embedded.texts.search(query, limit=200, where=asked)
            assert {hit.chunk.id: (hit.bm25, hit.share) for hit in here} == scores(there)
            assert [hit.chunk for hit in here] == [hit.chunk for hit in sorted(here, key=best_first)]


async def test_the_server_of_these_tests_reads_phrases_and_negations(mongodb: MongoStore, raw: Raw) -> None:
    """Else nothing would be proved by searches that do not use them."""
    await put(mongodb, document("a", "the wolf sleeps"))
    await put(mongodb, document("b", "a wolf and a sheep"))
    await found(mongodb, "wolf")

    async def asked(search: str) -> int:
        return await raw["C0N7EXT"].count_documents({"$text": {"$search": search}})

    await has_text_index(raw)
    assert [await asked(search) for search in ("wolf", "wolf -sheep", '"wolf sleeps"', '"sleeps wolf"')] == [2, 1, 1, 0]


@pytest.mark.parametrize(
    "query", ["wolf -sheep", 'wolf "no such phrase"', '"sheep wolf"', "-wolf", "wolf\t-sheep", '"wolf']
)
async def test_quotes_and_minus_signs_are_not_syntax(mongodb: MongoStore, raw: Raw, query: str) -> None:
    """About a document of another program, which the text index alone finds."""
    await raw["C0N7EXT"].insert_one({"content": "a wolf and a sheep", "contentType": "chat", "sessionId": "s"})
    ours = await put(mongodb, document("b", "wolf sheep"))
    hits = await found(mongodb, query)
    assert len(hits) == 2
    assert set(ours) < set(hits)


async def test_words_are_never_operators_of_the_query_language(mongodb: MongoStore) -> None:
    chunk_ids = await put(mongodb, document("a", "$where $text {$ne: 1} $terms"))
    assert await found(mongodb, "$text") == chunk_ids
    assert await found(mongodb, "{$ne: ''}") == chunk_ids
    assert await found(mongodb, "ne", Filter(session_id="$ne")) == []
    assert await found(mongodb, "ne", Filter(session_id="{'$ne': ''}")) == []


async def test_documents_that_a_filter_leaves_out_are_not_found(mongodb: MongoStore) -> None:
    left_out = document("a", "wolf")
    await put(mongodb, left_out)
    kept = await put(mongodb, document("b", "wolf and sheep"))
    assert await found(mongodb, "wolf", Filter(without_documents=(left_out.id,))) == kept


async def test_codes_identifiers_and_scripts_without_spaces_are_found(mongodb: MongoStore) -> None:
    code = await put(mongodb, document("code", "It failed with ERR-4107 again"))
    half = await put(mongodb, document("half", "ERR 12 and port 4107"))
    name = await put(mongodb, document("name", "call fetchUserProfile(id)"))
    cjk = await put(mongodb, document("cjk", "東京都に行きました"))
    assert (await found(mongodb, "ERR-4107"))[0] == code[0]
    assert set(await found(mongodb, "ERR-4107")) == {*code, *half}
    assert await found(mongodb, "user profile") == name
    assert await found(mongodb, "東京") == cjk


async def test_a_chunk_of_a_long_document_is_found_and_the_others_are_not(mongodb: MongoStore) -> None:
    texts_ = [f"paragraph {number} about nothing" for number in range(300)]
    texts_[217] = "here stands a zugzwang"
    chunk_ids = await put(mongodb, document("long"), *texts_)
    (hit,) = await mongodb.texts.search("zugzwang", limit=5, where=EVERYTHING)
    assert (hit.chunk.id, hit.chunk.position) == (chunk_ids[217], 217)


async def test_a_search_that_found_every_match_has_their_scores_and_reads_no_more(
    mongodb: MongoStore, raw: Raw
) -> None:
    wolf, sheep = await put(mongodb, document("a", "a wolf sleeps"), "a wolf", "sleeps"), document("b", "a sheep")
    other = await put(mongodb, sheep)
    refs = [ChunkRef(id_, "document", 0, "documentation") for id_ in (*wolf, *other)]
    fresh = MongoTexts(mongodb.texts._mongo, mongodb.texts._state, mongodb.texts._indexes)
    await mongodb.texts.search("wolf", limit=5, where=EVERYTHING)
    asked, known = (
        await fresh.score("wolf", refs, tenant=DEFAULT_TENANT),
        await mongodb.texts.score("wolf", refs, tenant=DEFAULT_TENANT),
    )
    assert known == {id_: hit for id_, hit in asked.items() if hit.bm25 > 0.0}
    assert list(known) == [wolf[0]]
    await raw["C0N7EXT_chunks"].delete_many({})
    assert await mongodb.texts.score("wolf", refs, tenant=DEFAULT_TENANT) == known


async def test_one_tenants_query_reveals_nothing_of_anothers_chunks(mongodb: MongoStore) -> None:
    other = Tenant("other", "main", "0123456789abcdef")
    (mine,) = await put(mongodb, document("a", "a wolf"))
    (theirs,) = await put(mongodb, document("b", "a wolf", tenant=other))
    await mongodb.texts.search("wolf", limit=5, where=EVERYTHING)
    await mongodb.texts.search("wolf", limit=5, where=Filter(other))
    refs = [ChunkRef(id_, "document", 0, "documentation") for id_ in (mine, theirs)]
    assert list(await mongodb.texts.score("wolf", refs, tenant=DEFAULT_TENANT)) == [mine]
    assert list(await mongodb.texts.score("wolf", refs, tenant=other)) == [theirs]


@pytest.mark.parametrize("where", [Filter(session_id="s"), Filter(source="s.md")])
async def test_a_filtered_search_has_no_scores_of_what_the_filter_excluded(mongodb: MongoStore, where: Filter) -> None:
    await put(mongodb, document("a", "a wolf", session_id="s", source="s.md"))
    (outside,) = await put(mongodb, document("b", "a wolf", session_id="t", source="t.md"))
    await mongodb.texts.search("wolf", limit=5, where=where)
    assert outside in await mongodb.texts.score(
        "wolf", [ChunkRef(outside, "b", 0, "documentation")], tenant=DEFAULT_TENANT
    )


async def test_the_rarest_terms_drive_a_search_and_the_others_follow_where_too_little_was_found(
    mongodb: MongoStore,
) -> None:
    frugal = MongoTexts(mongodb.texts._mongo, mongodb.texts._state, mongodb.texts._indexes, budget=2)
    for number in range(6):
        await put(mongodb, document(str(number), "common", session_id="theirs"))
    mine = await put(mongodb, document("mine", "common", session_id="mine"))
    rare = await put(mongodb, document("rare", "common zugzwang", session_id="theirs"))
    (first, *others) = await frugal.search("common zugzwang", limit=5, where=EVERYTHING)
    assert first.chunk.id == rare[0]
    assert len(others) >= 2
    hits = await frugal.search("common zugzwang", limit=5, where=Filter(session_id="mine"))
    assert [hit.chunk.id for hit in hits] == mine


def test_the_rarest_terms_are_read_first_in_groups_of_bounded_size() -> None:
    frequencies = [1500, 3, 90_000, 400, 0, 700]
    question = keyword_search._Question(list("abcdef"), TermStatistics.of([1] * 6, frequencies, 100_000, 1.0))
    assert list(keyword_search._rounds(question, 2000)) == [["b", "d", "f"], ["a"], ["c"]]
    assert keyword_search._selective(question, 2000) == {"b", "d", "f", "e"}


async def test_the_chunks_that_contain_a_term_are_counted(mongodb: MongoStore) -> None:
    for number in range(4):
        await put(mongodb, document(str(number), "wolf"), "wolf", "wolf again", "sheep")
        await put(mongodb, document(f"{number} of another", "wolf", tenant=Tenant("other")), "wolf")
    seen = await mongodb.documents._state.of_tenant(DEFAULT_TENANT)
    counted = await mongodb.texts._frequencies_of(["wolf", "dragon", "sheep"], DEFAULT_TENANT, seen)
    assert counted == [8, 0, 4]


async def test_a_filter_sees_microseconds(mongodb: MongoStore) -> None:
    moments = [NOON + minutes(0).resolution * step for step in (-1, 0, 1, 999, 1000, 1001)]
    written = [document(str(number), "wolf", timestamp=at) for number, at in enumerate(moments)]
    for each in written:
        await put(mongodb, each)
    for number, at in enumerate(moments):
        since = await mongodb.documents.matching(Filter(since=at), 10)
        until = await mongodb.documents.matching(Filter(until=at), 10)
        assert (since, until) == ([each.id for each in written[number:]], [each.id for each in written[:number]])


async def test_no_tenant_finds_another_tenants_text_or_documents_of_other_programs(
    mongodb: MongoStore, raw: Raw
) -> None:
    await raw["C0N7EXT"].insert_one({"content": "wolf", "contentType": "chat"})
    mine = await put(mongodb, document("mine", "wolf", tenant=Tenant("p", "b", "h")))
    assert await found(mongodb, "wolf", Filter(Tenant("p", "b", "h"))) == mine
    assert await found(mongodb, "wolf", Filter(Tenant("p", "b"))) == []
    assert len(await found(mongodb, "wolf")) == 1


async def test_a_field_called_language_does_not_change_how_a_document_is_read(mongodb: MongoStore) -> None:
    """MongoDB takes the language of a text index from such a field, and rejects documents of one it does not know."""
    written = document("a", "wolf", metadata=Metadata(extra={"language": "klingon", "$set": {"a.b": 2**80}}))
    chunk_ids = await put(mongodb, written)
    assert await found(mongodb, "wolf") == chunk_ids
    assert await mongodb.documents.get(written.id) == written


async def test_a_text_index_dropped_while_running_is_recreated(mongodb: MongoStore, raw: Raw) -> None:
    chunk_ids = await put(mongodb, document("a", "wolf"))
    await mongodb.documents.ping()
    await has_text_index(raw)
    await raw["C0N7EXT"].drop_index("content_text_index")
    assert await found(mongodb, "wolf") == chunk_ids
    await has_text_index(raw)
