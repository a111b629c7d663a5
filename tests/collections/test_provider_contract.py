"""What every provider promises, whatever keeps its collections."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.collections.provider_connections import bulk
from rag_context.collections.searching import keyword_scores
from rag_context.domain.clauses import EVERYTHING, Clause, Comparison, Conjunction, Operator
from rag_context.domain.documents import Json, Status
from rag_context.domain.vectors import Matrix, Vector
from rag_context.domain.where import matches, parse
from rag_context.errors import InvalidInputError, NotFoundError
from rag_context.ports.provider import Collection, Entry, Provider
from tests.collections.memory_collections import MemoryCollections
from tests.collections.strategies import clauses, documents

NAME = "notes"
LARGE = 2**63 + 1


def axis(number: int, dimension: int = 4) -> Vector:
    vector = np.zeros(dimension, np.float32)
    vector[number] = 1.0
    return vector


def rows(*vectors: Vector) -> Matrix:
    return np.stack(vectors)


async def filled(provider: Provider, metadata: Sequence[dict[str, Json]], name: str = NAME) -> list[Entry]:
    """A new collection of entries `0000`, `0001`, ..., with vectors along the axes in turn."""
    await provider.create(Collection(name))
    entries = [Entry(f"{number:04d}", f"text {number}", values) for number, values in enumerate(metadata)]
    if entries:
        await provider.upsert(name, entries, rows(*(axis(number % 4) for number in range(len(entries)))))
    return entries


async def ids(provider: Provider, where: Clause, *, limit: int = 1000, offset: int = 0) -> list[str]:
    page = await provider.entries(NAME, where, limit=limit, offset=offset)
    return [entry.id for entry in page.entries]


async def test_a_collection_is_created_once_and_keeps_its_whole_description(provider: Provider) -> None:
    said: dict[str, Json] = {"owner": "ä", "nested": {"deep": [1, 2.5, None, True]}, "large": LARGE}
    created = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    collection = Collection(NAME, said, "somewhere", "some-model", created=created)
    assert await provider.create(collection)
    assert not await provider.create(Collection(NAME, {"other": 1}))
    assert await provider.collection(NAME) == collection
    assert await provider.collections() == [collection]


async def test_collections_are_listed_by_name_with_their_counts(provider: Provider) -> None:
    names = ["b", "a", "日本語", "with/slash and space", "Z", "x" * 300, "%41", "a.b", "ä"]
    for name in names:
        await provider.create(Collection(name))
    await provider.upsert("b", [Entry("1", "one"), Entry("2", "two")], rows(axis(0), axis(1)))
    listed = await provider.collections()
    assert [collection.name for collection in listed] == sorted(names)
    assert {collection.name: collection.count for collection in listed if collection.count} == {"b": 2}
    assert all(collection.created is not None for collection in listed)


async def test_names_that_look_alike_are_different_collections(provider: Provider) -> None:
    names = ["a", "A", "a ", "ä", "a\u0308", "a/b", "a%2Fb", "a_b"]
    for name in names:
        assert await provider.create(Collection(name))
    for number, name in enumerate(names):
        await provider.upsert(name, [Entry("1", f"text {number}")], rows(axis(0)))
    for number, name in enumerate(names):
        page = await provider.entries(name, EVERYTHING, limit=10)
        assert [entry.text for entry in page.entries] == [f"text {number}"]


async def test_an_unknown_collection_is_reported_as_unknown(provider: Provider) -> None:
    assert await provider.collection("nobody's") is None
    calls = (
        lambda: provider.drop("nobody's"),
        lambda: provider.replace_metadata("nobody's", {}),
        lambda: provider.merge_metadata("nobody's", {}),
        lambda: provider.upsert("nobody's", [Entry("1", "one")], rows(axis(0))),
        lambda: provider.entries("nobody's", EVERYTHING, limit=1),
        lambda: provider.entries("nobody's", parse({"a": 1}), limit=1),
        lambda: provider.vectors("nobody's", ["1"]),
        lambda: provider.search("nobody's", axis(0), limit=1, where=EVERYTHING),
        lambda: provider.delete("nobody's", "1"),
        lambda: provider.empty("nobody's"),
        lambda: provider.values("nobody's", ("a",)),
    )
    for call in calls:
        with pytest.raises(NotFoundError, match=r"^Collection 'nobody's' not found$"):
            await call()


async def test_metadata_is_replaced_or_merged_and_the_labels_stay(provider: Provider) -> None:
    await provider.create(Collection(NAME, {"a": 1, "b": {"c": 1}}, "somewhere", "some-model"))
    merged = await provider.merge_metadata(NAME, {"b": 2, "d": None})
    assert merged.metadata == {"a": 1, "b": 2, "d": None}
    replaced = await provider.replace_metadata(NAME, {"only": "this"})
    assert (replaced.metadata, replaced.embedding_provider, replaced.embedding_model) == (
        {"only": "this"},
        "somewhere",
        "some-model",
    )
    assert await provider.collection(NAME) == replaced


async def test_entries_come_back_exactly_as_they_were_stored(provider: Provider) -> None:
    metadata: dict[str, Json] = {
        "text": "é \u0000 🙂 \" ' \\",
        "true": True,
        "one": 1,
        "float": 1.0,
        "large": LARGE,
        "tiny": 5e-324,
        "null": None,
        "list": [1, "1", None, [True, {"a": 1}]],
        "nested": {"a": {"b": []}, "empty": {}},
    }
    entry = Entry("an id / with ünusual \u0000 things", "text \u0000 with\nlines é", metadata)
    await provider.create(Collection(NAME))
    await provider.upsert(NAME, [entry], rows(axis(2)))
    page = await provider.entries(NAME, EVERYTHING, limit=10)
    assert page.entries == (entry,)
    assert repr(dict(page.entries[0].metadata)) == repr(metadata)
    (hit,) = await provider.search(NAME, axis(2), limit=10, where=parse({"large": LARGE, "true": True}))
    assert hit.entry == entry
    assert hit.cosine == pytest.approx(1.0)
    assert (await provider.vectors(NAME, [entry.id, "unknown"]))[entry.id].tolist() == axis(2).tolist()


async def test_a_known_id_is_replaced_completely(provider: Provider) -> None:
    await filled(provider, [{"a": 1, "b": 1}, {"a": 1}])
    await provider.upsert(NAME, [Entry("0000", "new", {"a": 2})], rows(axis(3)))
    assert await ids(provider, parse({"a": 1})) == ["0001"]
    assert await ids(provider, parse({"b": {"$exists": True}})) == []
    page = await provider.entries(NAME, parse({"a": 2}), limit=10)
    assert page.entries == (Entry("0000", "new", {"a": 2}),)
    (hit,) = await provider.search(NAME, axis(3), limit=1, where=EVERYTHING)
    assert hit.entry.id == "0000"
    assert (await provider.vectors(NAME, ["0000"]))["0000"].tolist() == axis(3).tolist()
    found = await provider.collection(NAME)
    assert found is not None
    assert found.count == 2


async def test_the_first_vectors_bind_the_dimension(provider: Provider) -> None:
    await provider.create(Collection(NAME))
    assert await provider.search(NAME, axis(0, 7), limit=1, where=EVERYTHING) == []
    await provider.upsert(NAME, [Entry("1", "one")], rows(axis(0)))
    found = await provider.collection(NAME)
    assert found is not None
    assert found.dimension == 4
    said = f"^Collection '{NAME}' holds vectors of 4 dimensions, not of 5$"
    with pytest.raises(InvalidInputError, match=said):
        await provider.upsert(NAME, [Entry("1", "changed"), Entry("2", "two")], rows(axis(0, 5), axis(1, 5)))
    with pytest.raises(InvalidInputError, match=said):
        await provider.search(NAME, axis(0, 5), limit=1, where=EVERYTHING)
    page = await provider.entries(NAME, EVERYTHING, limit=10)
    assert page.entries == (Entry("1", "one"),)


async def test_nothing_to_store_is_nothing_stored(provider: Provider) -> None:
    await provider.create(Collection(NAME))
    await provider.upsert(NAME, [], np.zeros((0, 3), np.float32))
    found = await provider.collection(NAME)
    assert found is not None
    assert (found.dimension, found.count) == (None, 0)


async def test_pages_are_in_the_order_of_the_ids_and_totals_are_real(provider: Provider) -> None:
    names = ["b", "a", "B", "10", "9", "é", "z", "", "🙂", "\uffff", "aa"]
    await provider.create(Collection(NAME))
    for place, name in enumerate(names):
        await provider.upsert(NAME, [Entry(name, name, {"even": place % 2 == 0})], rows(axis(place % 4)))
    for where, expected in (
        (EVERYTHING, sorted(names)),
        (parse({"even": True}), sorted(names[::2])),
        (parse({"even": {"$exists": False}}), []),
    ):
        paged: list[str] = []
        for offset in range(0, len(names) + 2, 2):
            page = await provider.entries(NAME, where, limit=2, offset=offset)
            assert page.total == len(expected)
            paged += [entry.id for entry in page.entries]
        assert paged == expected


async def test_the_nearest_come_first_and_equal_ones_by_id(provider: Provider) -> None:
    await provider.create(Collection(NAME))
    near = np.array([0.8, 0.6, 0, 0], np.float32)
    entries = [Entry(name, name, {"kind": name[0]}) for name in ("b2", "a1", "b1", "far")]
    await provider.upsert(NAME, entries, rows(near, axis(0), near, axis(3)))
    hits = await provider.search(NAME, axis(0), limit=3, where=EVERYTHING)
    assert [hit.entry.id for hit in hits] == ["a1", "b1", "b2"]
    assert [hit.cosine for hit in hits] == pytest.approx([1.0, 0.8, 0.8], abs=1e-5)
    hits = await provider.search(NAME, axis(0), limit=1, where=parse({"kind": {"$ne": "a"}}))
    assert [hit.entry for hit in hits] == [entries[2]]
    hits = await provider.search(NAME, -axis(0), limit=10, where=EVERYTHING)
    assert [hit.entry.id for hit in hits] == ["far", "b1", "b2", "a1"]
    assert await provider.search(NAME, axis(0), limit=5, where=parse({"kind": "none"})) == []


async def test_an_entry_is_deleted_once(provider: Provider) -> None:
    await filled(provider, [{"a": 1}, {"a": 1}, {"a": 1}])
    assert await ids(provider, parse({"a": 1})) == ["0000", "0001", "0002"]
    assert await provider.delete(NAME, "0001")
    assert not await provider.delete(NAME, "0001")
    assert not await provider.delete(NAME, "never there")
    assert await ids(provider, parse({"a": 1})) == ["0000", "0002"]
    assert await ids(provider, EVERYTHING) == ["0000", "0002"]
    hits = await provider.search(NAME, axis(1), limit=10, where=EVERYTHING)
    assert [hit.entry.id for hit in hits] == ["0000", "0002"]
    assert await provider.vectors(NAME, ["0001"]) == {}


async def test_emptying_leaves_the_collection_as_it_was_but_for_its_entries(provider: Provider) -> None:
    await provider.create(Collection(NAME, {"kept": True}, "somewhere", "some-model"))
    await provider.upsert(NAME, [Entry("1", "one", {"a": 1}), Entry("2", "two")], rows(axis(0), axis(1)))
    before = await provider.collection(NAME)
    assert before is not None
    assert await ids(provider, parse({"a": 1})) == ["1"]
    assert await provider.empty(NAME) == 2
    assert await provider.empty(NAME) == 0
    after = await provider.collection(NAME)
    assert after is not None
    assert (after.metadata, after.embedding_provider, after.embedding_model, after.dimension, after.created) == (
        before.metadata,
        before.embedding_provider,
        before.embedding_model,
        before.dimension,
        before.created,
    )
    assert after.count == 0
    assert await ids(provider, parse({"a": 1})) == []
    assert await provider.search(NAME, axis(0), limit=5, where=EVERYTHING) == []
    await provider.upsert(NAME, [Entry("1", "again")], rows(axis(0)))
    assert await ids(provider, EVERYTHING) == ["1"]


async def test_a_dropped_collection_is_gone_and_its_name_is_free(provider: Provider) -> None:
    await filled(provider, [{"a": 1}])
    await filled(provider, [{"a": 1}], "other")
    assert await ids(provider, parse({"a": 1})) == ["0000"]
    await provider.drop(NAME)
    assert await provider.collection(NAME) is None
    assert await provider.create(Collection(NAME))
    await provider.upsert(NAME, [Entry("new", "new")], rows(axis(0, 2)))
    assert await ids(provider, EVERYTHING) == ["new"]
    assert await ids(provider, parse({"a": 1})) == []
    assert (await provider.entries("other", EVERYTHING, limit=1)).total == 1


async def test_the_values_of_a_field_are_distinct_and_those_of_lists_count_one_by_one(provider: Provider) -> None:
    await filled(
        provider,
        [
            {"a": "x", "n": {"b": 1}},
            {"a": "x", "n": {"b": 1.0}},
            {"a": ["x", "y", None, 1, ["deep"]]},
            {"a": True},
            {"a": 1},
            {"a": None},
            {"a": {"b": 5}},
            {"a": "1"},
            {"a": LARGE},
            {},
        ],
    )
    found = await provider.values(NAME, ("a",))
    assert sorted(map(repr, found)) == sorted(map(repr, ["x", "y", 1, True, "1", LARGE]))
    assert await provider.values(NAME, ("n", "b")) == [1]
    assert await provider.values(NAME, ("a", "b")) == [5]
    assert await provider.values(NAME, ("none",)) == []


async def test_a_group_is_gathered_by_the_section_of_a_hit(provider: Provider) -> None:
    kinds = ["heading", "paragraph", "paragraph", "code"]
    await filled(
        provider, [{"section_id": f"section-{number // 4}", "doc_type": kinds[number % 4]} for number in range(40)]
    )
    (hit,) = await provider.search(NAME, axis(2), limit=1, where=parse({"section_id": "section-3"}))
    page = await provider.entries(NAME, parse({"section_id": hit.entry.metadata["section_id"]}), limit=100)
    assert [entry.metadata["doc_type"] for entry in page.entries] == kinds
    assert page.total == 4


async def test_it_says_how_it_is(provider: Provider) -> None:
    await filled(provider, [{}])
    health = await provider.health()
    assert (health.status, health.error) == (Status.HEALTHY, None)
    assert health.collections in (1, None)
    assert health.latency_ms >= 0
    assert health.checked.tzinfo is not None
    assert provider.capabilities.collections
    assert provider.capabilities.metadata_filtering


CONFUSED: list[Json] = [
    True, False, 1, 0, 1.0, "1", "true", "", None, [], [1], [True], ["1"], {}, {"b": 1},
    2**53, 2**53 + 1, float(2**53), LARGE, float(LARGE), -LARGE, 1e30, 10**30, 0.1, -0.0,
]  # fmt: skip


@pytest.mark.parametrize("operator", list(Operator))
async def test_no_operator_confuses_types(provider: Provider, operator: Operator) -> None:
    entries = await filled(provider, [{"a": value} for value in CONFUSED] + [{}])
    asked = (True, False) if operator is Operator.EXISTS else (True, 0, 1, 1.0, "1", "", 2**53 + 1, float(LARGE), LARGE)
    for value in asked:
        where = Comparison(("a",), operator, value)
        expected = [entry.id for entry in entries if matches(where, entry.metadata)]
        assert await ids(provider, where) == expected, where


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(metadata=documents(), wheres=st.lists(clauses(), min_size=1, max_size=8))
async def test_every_filter_lets_through_what_the_evaluator_does(
    provider: Provider, metadata: list[dict[str, Json]], wheres: list[Clause]
) -> None:
    if await provider.collection(NAME) is not None:
        await provider.drop(NAME)
    entries = await filled(provider, metadata)
    for where in [*wheres, Conjunction(tuple(wheres))]:
        expected = [entry.id for entry in entries if matches(where, entry.metadata)]
        page = await provider.entries(NAME, where, limit=5, offset=1)
        assert ([entry.id for entry in page.entries], page.total) == (expected[1:6], len(expected)), where
        hits = await provider.search(NAME, axis(0), limit=100, where=where)
        assert sorted(hit.entry.id for hit in hits) == expected, where


async def test_keyword_scores_are_the_same_on_every_provider(provider: Provider) -> None:
    """V-7: an index of its own or not, also after changes, and of those that a filter lets through."""
    texts = [
        "Logs are kept for 31 days.",
        "The nightly backup is kept for nine days, and the backup of the backup for two.",
        "Granite is hard.",
        "Error ERR-4107: the session has expired",
        "日本語のログ",
    ]
    await provider.create(Collection(NAME))
    entries = [Entry(f"{number}", text, {"number": number}) for number, text in enumerate(texts)]
    await provider.upsert(NAME, entries, rows(*(axis(number % 4) for number in range(len(entries)))))

    async def asked(text: str, where: Clause = EVERYTHING, limit: int = 10) -> dict[str, tuple[float, float]]:
        found = await keyword_scores(provider, NAME, text, where, limit=limit, also=["2"])
        return {id_: (round(score.bm25, 6), round(score.share, 6)) for id_, score in found.items()}

    reference = MemoryCollections()
    await reference.create(Collection(NAME))
    await reference.upsert(NAME, entries, rows(*(axis(number % 4) for number in range(len(entries)))))

    async def expected(text: str, where: Clause = EVERYTHING, limit: int = 10) -> dict[str, tuple[float, float]]:
        found = await keyword_scores(reference, NAME, text, where, limit=limit, also=["2"])
        return {id_: (round(score.bm25, 6), round(score.share, 6)) for id_, score in found.items()}

    for text in ("how long are backups kept?", "err-4107 granite", "ログ", "nothing of this zebra", "the of", ""):
        assert await asked(text) == await expected(text)
        assert await asked(text, limit=1) == await expected(text, limit=1)
    later = Comparison(("number",), Operator.AT_LEAST, 1)
    assert await asked("days kept backup", later) == await expected("days kept backup", later)
    assert set(await asked("days kept", limit=1)) == {"0"}
    changed = [Entry("0", "Backup and backup", {"number": 0}), Entry("9", "Granite days", {"number": 9})]
    for each in (provider, reference):
        await each.upsert(NAME, changed, rows(axis(0), axis(1)))
        await each.delete(NAME, "1")
    for text in ("backup", "granite days", "how long are backups kept?"):
        assert await asked(text) == await expected(text)


async def test_many_are_listed_read_and_removed_at_once(provider: Provider) -> None:
    """V-7: by the provider's own calls, or page by page where it has none."""
    await filled(provider, [{"number": number, "even": number % 2 == 0} for number in range(30)])
    even = Comparison(("even",), Operator.EQUAL, True)
    many = bulk(provider)
    assert await many.ids(NAME, even) == [f"{number:04d}" for number in range(0, 30, 2)]
    there = await many.get(NAME, ["0003", "nobody", "0004", "0003"])
    assert {id_: entry.text for id_, entry in there.items()} == {"0003": "text 3", "0004": "text 4"}
    assert await many.delete_many(NAME, ["0003", "0004", "nobody"], even) == 1
    assert await many.delete_many(NAME, await many.ids(NAME, even), even) == 14
    assert len(await many.ids(NAME, EVERYTHING)) == 15
