"""A collection is copied completely, or the answer names what is not."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest

from rag_context.collections.copying import CopyProgress, Located, OnDifference, Stage, copy_collection
from rag_context.domain.clauses import EVERYTHING
from rag_context.domain.documents import Json
from rag_context.domain.vectors import Matrix
from rag_context.errors import (
    BackendDataError,
    BackendUnavailableError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
)
from rag_context.ports.provider import Collection, Entry, Provider
from rag_context.testing import Fault, Faulty
from tests.collections.memory_collections import MemoryCollections

SAID: dict[str, Json] = {"owner": "ä", "large": 2**63 + 1, "nested": {"deep": [1, 1.0, True, None]}}


def vectors(count: int) -> Matrix:
    drawn = np.random.default_rng(7).normal(size=(count, 8)).astype(np.float32)
    normalised: Matrix = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return normalised


def entries(count: int) -> list[Entry]:
    return [Entry(f"id {number}", f"text {number} é", {"n": number, **SAID}) for number in range(count)]


async def filled(count: int, name: str = "a") -> MemoryCollections:
    provider = MemoryCollections()
    await provider.create(Collection(name, SAID, "somewhere", "some-model"))
    if count:
        await provider.upsert(name, entries(count), vectors(count))
    return provider


async def contents(provider: Provider, name: str) -> dict[str, Entry]:
    return {entry.id: entry for entry in (await provider.entries(name, EVERYTHING, limit=10_000)).entries}


async def test_a_copy_has_the_documents_the_vectors_the_metadata_and_the_labels(provider: Provider) -> None:
    source, back = await filled(700), MemoryCollections()
    there = await copy_collection(Located(source, "a"), Located(provider, "b / ü"))
    again = await copy_collection(Located(provider, "b / ü"), Located(back, "c"))
    assert (there.documents, there.copied, there.skipped, there.removed) == (700, 700, 0, 0)
    assert again == there
    assert repr(await contents(back, "c")) == repr(await contents(source, "a"))
    wanted = await source.vectors("a", [f"id {number}" for number in range(700)])
    found = await back.vectors("c", list(wanted))
    assert found.keys() == wanted.keys()
    assert all(np.allclose(found[id_], wanted[id_], atol=1e-6) for id_ in wanted)
    described = await back.collection("c")
    assert described is not None
    assert (described.metadata, described.embedding_provider, described.embedding_model) == (
        SAID,
        "somewhere",
        "some-model",
    )


async def test_the_time_of_creation_goes_with_the_name(provider: Provider) -> None:
    source, long_ago = MemoryCollections(), datetime(2020, 2, 29, tzinfo=UTC)
    await source.create(Collection("a", created=long_ago))
    for name, is_kept in (("a", True), ("b", False)):
        await copy_collection(Located(source, "a"), Located(provider, name))
        copy = await provider.collection(name)
        assert copy is not None
        assert (copy.created == long_ago) is is_kept


async def test_progress_is_reported_to_the_end() -> None:
    source, target = await filled(1200), MemoryCollections()
    reported: list[CopyProgress] = []
    await copy_collection(Located(source, "a"), Located(target, "b"), progress=reported.append)
    assert reported == [
        CopyProgress(stage, done, 1200) for stage in (Stage.COPY, Stage.VERIFY) for done in (500, 1000, 1200)
    ]


async def test_a_copy_that_was_cut_off_goes_on_where_it_was() -> None:
    source, target = await filled(1200), MemoryCollections()
    failing = Faulty[Provider](target, "upsert")

    def fail_later(progress: CopyProgress) -> None:
        if progress.done == 1000:
            failing.fault = Fault(BackendUnavailableError("target", "gone"))

    with pytest.raises(BackendUnavailableError):
        await copy_collection(Located(source, "a"), Located(failing.port, "b"), progress=fail_later)
    assert len(await contents(target, "b")) == 1000
    failing.fault = None
    report = await copy_collection(Located(source, "a"), Located(failing.port, "b"))
    assert (report.documents, report.copied, report.skipped) == (1200, 200, 1000)
    assert await contents(target, "b") == await contents(source, "a")


async def test_a_repeat_copies_nothing() -> None:
    source, target = await filled(30), MemoryCollections()
    first = await copy_collection(Located(source, "a"), Located(target, "b"))
    again = await copy_collection(Located(source, "a"), Located(target, "b"))
    assert (again.copied, again.skipped, again.digest) == (0, 30, first.digest)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (Entry("id 1", "another text", {"n": 1, **SAID}), r"holds another version of 1 document \('id 1'\)"),
        (Entry("id 1", "text 1 é", {"n": 1.0, **SAID}), r"holds another version of 1 document \('id 1'\)"),
        (Entry("own", "text"), r"holds 1 document \('own'\) that the source does not"),
    ],
)
async def test_a_target_with_other_content_is_left_as_it_is_unless_overwriting_is_requested(
    changed: Entry, said: str
) -> None:
    source, target = await filled(5), await filled(3, "b")
    await target.upsert("b", [changed], vectors(1))
    before = await contents(target, "b")
    with pytest.raises(ConflictError, match=said):
        await copy_collection(Located(source, "a"), Located(target, "b"))
    assert await contents(target, "b") == before
    report = await copy_collection(Located(source, "a"), Located(target, "b"), on_difference=OnDifference.OVERWRITE)
    assert report.removed == (changed.id == "own")
    assert report.copied + report.skipped == report.documents == 5
    assert await contents(target, "b") == await contents(source, "a")


async def test_another_vector_is_a_difference() -> None:
    source, target = await filled(3), await filled(3, "b")
    await target.upsert("b", entries(1), -vectors(1))
    with pytest.raises(ConflictError, match="'id 0'"):
        await copy_collection(Located(source, "a"), Located(target, "b"))


@pytest.mark.parametrize(
    ("existing", "dimension", "said"),
    [
        (Collection("b", SAID, "elsewhere", "some-model"), None, "another embedding provider"),
        (Collection("b", {"mine": 1}, "somewhere", "some-model"), None, "other metadata"),
        (Collection("b", SAID, "somewhere", "some-model"), 3, "bound to dimension 3, not 8"),
    ],
)
async def test_the_description_of_a_target_is_not_lost_by_accident(
    existing: Collection, dimension: int | None, said: str
) -> None:
    source, target = await filled(5), MemoryCollections()
    await target.create(existing)
    if dimension is not None:
        await target.upsert("b", [Entry("x", "x")], np.eye(1, dimension, dtype=np.float32))
        await target.empty("b")
    before = await target.collection("b")
    with pytest.raises(ConflictError, match=said):
        await copy_collection(Located(source, "a"), Located(target, "b"))
    assert await target.collection("b") == before
    await copy_collection(Located(source, "a"), Located(target, "b"), on_difference=OnDifference.OVERWRITE)
    after, original = await target.collection("b"), await source.collection("a")
    assert after is not None
    assert original is not None
    assert (after.metadata, after.embedding_provider, after.dimension, after.count) == (
        original.metadata,
        original.embedding_provider,
        original.dimension,
        original.count,
    )


async def test_an_empty_target_without_a_description_inherits_everything() -> None:
    source, target = await filled(5), MemoryCollections()
    await target.create(Collection("b"))
    await copy_collection(Located(source, "a"), Located(target, "b"))
    described = await target.collection("b")
    assert described is not None
    assert (described.metadata, described.embedding_model, described.count) == (SAID, "some-model", 5)


async def test_an_empty_collection_is_copied_too() -> None:
    source, target = await filled(0), MemoryCollections()
    report = await copy_collection(Located(source, "a"), Located(target, "b"))
    described = await target.collection("b")
    assert report.documents == 0
    assert described is not None
    assert described.metadata == SAID


class Lossy(MemoryCollections):
    """Says that it stored what it did not."""

    async def upsert(self, name: str, entries: Sequence[Entry], vectors: Matrix) -> None:
        kept = [entry.id != "id 2" for entry in entries]
        await super().upsert(name, [entry for entry in entries if entry.id != "id 2"], vectors[kept])


async def test_what_a_target_lost_is_found_out() -> None:
    with pytest.raises(BackendDataError, match="'b' lacks 1 document \\('id 2'\\)"):
        await copy_collection(Located(await filled(5), "a"), Located(Lossy(), "b"))


async def test_there_must_be_a_source_and_another_target() -> None:
    source = await filled(1)
    with pytest.raises(NotFoundError, match="Collection 'none' not found"):
        await copy_collection(Located(source, "none"), Located(source, "b"))
    with pytest.raises(InvalidInputError, match="onto itself"):
        await copy_collection(Located(source, "a"), Located(source, "a"))
    await copy_collection(Located(source, "a"), Located(source, "b"))
    assert await contents(source, "b") == await contents(source, "a")
