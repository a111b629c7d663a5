"""What every text index does: BM25 over the analyser's terms, whatever is typed."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.domain.documents import DEFAULT_TENANT, Document, Metadata, Tenant, microseconds
from rag_context.domain.search import Filter
from rag_context.domain.text import bm25, conversation_bm25, idf_share, inverse_document_frequency, profile_for, terms
from tests.stores.builders import NOON, Stores, axis, chunks_of, document, ids, minutes, put, refs
from tests.stores.filters import corpora, filters, passes, remove_examples

EVERYTHING = Filter()

HOSTILE = [
    "c++",
    "-x",
    "col:x",
    "terms:x",
    "(",
    '"',
    '"unbalanced',
    "AND",
    "a AND NOT b",
    "NEAR(a b, 2)",
    "x*",
    "^x",
    "{terms} : x",
    "\x00",
    "null\x00byte",
    "🦊🦊",
    "'; DROP TABLE documents; --",
    "!?*+-(){}[]^~:\"'\\/" * 52,
    "日" * 1000,
    " ".join(f"word{number}" for number in range(200)),
]


def plain_scores(query: str, documents: list[Document]) -> dict[str, tuple[float, float]]:
    """BM25 and share by chunk id, from nothing but the definition; every document is one chunk."""
    counted = Counter(terms(query))
    bags = [Counter(terms(chunks_of(each)[0].searchable)) for each in documents]
    frequencies = [sum(term in bag for bag in bags) for term in counted]
    idf = np.array([inverse_document_frequency(len(bags), frequency) for frequency in frequencies])
    lengths = np.array([bag.total() for bag in bags], dtype=float)
    counts = np.array([[bag[term] for term in counted] for bag in bags], dtype=float).reshape(len(bags), len(counted))
    profiles = [profile_for(each.content_type, float(lengths.mean())) for each in documents]
    weights = idf * np.array(list(counted.values()))
    k1, b = np.array([profile.k1 for profile in profiles]), np.array([profile.b for profile in profiles])
    scores = bm25(counts, lengths, weights, k1, b, float(lengths.mean()))
    shares = idf_share(counts, idf)
    chunk_ids = [chunks_of(each)[0].id for each in documents]
    return {id_: (float(s), float(share)) for id_, s, share in zip(chunk_ids, scores, shares, strict=True)}


@pytest.fixture(params=["sqlite", "postgres", "mongodb"])
def store_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def test_a_question_finds_the_passage_that_contains_its_words(store: Stores) -> None:
    fox = await put(store, document("a", "The quick brown foxes jumped over the lazy dog."))
    await put(store, document("b", "Nothing to see here."))
    assert ids(await store.texts.search("Which fox jumps?", limit=5, where=EVERYTHING)) == fox


async def test_a_hit_names_its_chunk_as_ranking_needs_it(store: Stores) -> None:
    written = document("a", content_type="chat", thread="talk")
    _, second = await put(store, written, "one", "wolverine")
    (hit,) = await store.texts.search("wolverine", limit=5, where=EVERYTHING)
    assert (hit.chunk.id, hit.chunk.document_id, hit.chunk.position) == (second, written.id, 1)
    assert (hit.chunk.content_type, hit.chunk.thread) == ("chat", "talk")
    assert hit.share == 1.0


@pytest.mark.parametrize("query", HOSTILE)
async def test_no_query_is_syntax(store: Stores, query: str) -> None:
    exact = await put(store, document("first", query))
    await put(store, document("second", "something else entirely"))
    found = ids(await store.texts.search(query, limit=5, where=EVERYTHING))
    assert found == (exact if terms(query) else [])
    assert list(await store.texts.score(query, refs(*exact), tenant=DEFAULT_TENANT)) == exact


@pytest.mark.parametrize("query", ["", "   ", "the of and what", "?!"])
async def test_a_query_without_content_finds_nothing(store: Stores, query: str) -> None:
    chunk_ids = await put(store, document("a", "the of and what ?!"))
    assert await store.texts.search(query, limit=5, where=EVERYTHING) == []
    scored = await store.texts.score(query, refs(*chunk_ids), tenant=DEFAULT_TENANT)
    assert [(hit.bm25, hit.share) for hit in scored.values()] == [(0.0, 0.0)]


async def test_a_word_that_no_chunk_has_counts_in_the_share(store: Stores) -> None:
    await put(store, document("a", "wolf"))
    await put(store, document("b", "sheep"))
    (alone,) = await store.texts.search("wolf", limit=5, where=EVERYTHING)
    (beside,) = await store.texts.search("wolf frobnicator", limit=5, where=EVERYTHING)
    assert alone.share == 1.0
    assert 0.0 < beside.share < 0.5


async def test_a_title_above_a_passage_is_matched_with_it(store: Stores) -> None:
    chunk_ids = await put(store, document("zugzwang", "It is your move."))
    assert ids(await store.texts.search("zugzwang", limit=5, where=EVERYTHING)) == chunk_ids


async def test_equal_scores_come_by_chunk_id(store: Stores) -> None:
    written = [
        (await put(store, document(str(number), "same words", metadata=Metadata(agent=str(number)))))[0]
        for number in range(20)
    ]
    hits = await store.texts.search("words", limit=8, where=EVERYTHING)
    assert ids(hits) == sorted(written)[:8]


async def test_scores_are_those_of_the_search(store: Stores) -> None:
    for number in range(12):
        await put(store, document(str(number), "wolf " * number + "sheep and more words " * (12 - number)))
    hits = await store.texts.search("wolf sheep dragon", limit=100, where=EVERYTHING)
    scored = await store.texts.score(
        "wolf sheep dragon", [*(hit.chunk for hit in reversed(hits)), *refs("nobody")], tenant=DEFAULT_TENANT
    )
    assert scored == {hit.chunk.id: hit for hit in hits}


async def test_given_chunks_are_scored_whether_they_match_or_not(store: Stores) -> None:
    match = await put(store, document("a", "wolf"))
    other = await put(store, document("b", "sheep"))
    scored = await store.texts.score("wolf", refs(*other, *match), tenant=DEFAULT_TENANT)
    assert scored[match[0]].bm25 > 0.0
    assert (scored[other[0]].bm25, scored[other[0]].share) == (0.0, 0.0)


async def test_a_selective_filter_still_finds_what_only_common_terms_match(store: Stores) -> None:
    for number in range(60):
        await put(store, document(str(number), f"common word rare{number}"))
    wanted = await put(store, document("wanted", "common word", session_id="mine"))
    assert ids(await store.texts.search("common rare7", limit=5, where=Filter(session_id="mine"))) == wanted


async def test_no_tenant_finds_another_tenants_text(store: Stores) -> None:
    mine = Tenant("mine")
    own = await put(store, document("own", "wolf", tenant=mine))
    others = await put(store, document("default", "wolf"))
    assert ids(await store.texts.search("wolf", limit=5, where=Filter(tenant=mine))) == own
    assert ids(await store.texts.search("wolf", limit=5, where=EVERYTHING)) == others


async def test_terms_written_later_are_found_and_deleted_ones_are_not(store: Stores) -> None:
    """What a store remembers of a word must follow the index."""
    for number in range(5):
        await put(store, document(str(number), "wolf"))
        assert len(await store.texts.search("wolf", limit=50, where=EVERYTHING)) == number + 1
    for number in range(5):
        await store.documents.delete(document(str(number)).id)
        assert len(await store.texts.search("wolf", limit=50, where=EVERYTHING)) == 4 - number
    again = await put(store, document("again", "wolf"))
    assert ids(await store.texts.search("wolf", limit=50, where=EVERYTHING)) == again


words = st.lists(
    st.sampled_from(["wolf", "sheep", "dragon", "fooBar", "snake_case", "über", "日本語", "x1", "the", "Wolves", "¶"]),
    min_size=1,
    max_size=30,
).map(" ".join)


# Slow on MongoDB: `test_mongodb_texts` tests it there by fewer examples.
@pytest.mark.parametrize("store_name", ["sqlite", "postgres"], indirect=True)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=corpora(words), queries=st.lists(words, min_size=1, max_size=3), where=filters)
async def test_every_search_gives_what_scoring_every_chunk_gives(
    store: Stores, documents: list[Document], queries: list[str], where: Filter
) -> None:
    await remove_examples(store)
    for each in documents:
        await put(store, each)
    for query in queries:
        for asked in (where, Filter()):
            # As if there were no other tenants.
            own = [each for each in documents if each.tenant == asked.tenant]
            expected = plain_scores(query, own) if own else {}
            allowed = {chunks_of(each)[0].id for each in documents if passes(each, asked)}
            ranked = sorted((-score, id_) for id_, (score, _) in expected.items() if score > 0.0 and id_ in allowed)
            hits = await store.texts.search(query, limit=10, where=asked)
            assert [hit.bm25 for hit in hits] == pytest.approx([-score for score, _ in ranked[:10]], abs=1e-9)
            for hit in hits:
                assert (hit.bm25, hit.share) == pytest.approx(expected[hit.chunk.id], abs=1e-9)
                assert hit.chunk.id in allowed


async def test_every_passage_of_a_conversation_is_matched_by_its_own_time(store: Stores) -> None:
    times = [NOON, NOON + minutes(1), NOON + minutes(2)]
    talk = document("talk", content_type="chat", timestamp=NOON + minutes(9), occurred_at=NOON)
    first, second, third = await put(store, talk, "one fox", "two foxes", "three foxes", times=times)
    hits = await store.texts.search("fox", limit=9, where=Filter())
    said = {hit.chunk.id: hit.chunk.occurred_us for hit in hits}
    assert [said[id_] for id_ in (first, second, third)] == [microseconds(at) for at in times]

    async def found(where: Filter) -> set[str]:
        return set(ids(await store.texts.search("fox", limit=9, where=where)))

    assert await found(Filter(until=NOON + minutes(1))) == {first}
    assert await found(Filter(since=NOON + minutes(1), until=NOON + minutes(2))) == {second}
    assert await found(Filter(since=NOON + minutes(3))) == set()


async def test_a_match_has_the_speaker_of_its_chunk(store: Stores) -> None:
    said = ("User", None, "Zoë\0 B")
    talk = document("talk", content_type="chat")
    talked = await put(store, talk, "one fox", "two foxes", "three foxes", vector=axis(0), speakers=said)
    hits = await store.texts.search("fox", limit=9, where=Filter())
    assert {hit.chunk.id: hit.chunk.speaker for hit in hits} == dict(zip(talked, said, strict=True))
    stored = await store.documents.chunks(talk.id)
    assert stored == chunks_of(talk, "one fox", "two foxes", "three foxes", speakers=said)


@pytest.mark.parametrize("store_name", ["sqlite", "postgres"], indirect=True)  # MongoDB has no index for it
async def test_a_conversation_is_scored_as_one_text(store: Stores) -> None:
    for name, thread, text in (
        ("a", "boat", "paint the boat"),
        ("b", "boat", "the boat is dry"),
        ("c", "cat", "the cat sleeps beside the boat today"),
        ("d", None, "boat boat boat"),
    ):
        await put(store, document(name, content_type="chat", thread=thread), text)
    scores = await store.texts.conversations("paint a boat", ["boat", "cat", "none"], tenant=DEFAULT_TENANT)
    idf = [inverse_document_frequency(4, frequency) for frequency in (1, 4)]
    counts, lengths = np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([4.0, 4.0])
    expected = conversation_bm25(counts, lengths, np.array(idf))
    assert [scores["boat"], scores["cat"]] == pytest.approx(expected.tolist())
    assert scores.get("none", 0.0) == 0.0
