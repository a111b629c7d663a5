"""Two stores compared: what is missing, stale or orphaned is found and repaired; what is in progress is left alone."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from rag_context.domain.documents import Document, Stored, StoredVectors
from rag_context.domain.reports import IssueKind, Thoroughness
from rag_context.errors import BackendUnavailableError
from rag_context.ingest.split_stores import PAGE, Divergence, Reconciler, TwoStoreAuditor
from rag_context.memory.index_maintenance import Audit, report
from rag_context.ports.reading import DocumentStore
from rag_context.ports.writing import IndexAuditor, VectorWriter, Version
from rag_context.stores.sqlite.embedded import open_auditor
from rag_context.testing import Fault, Faulty
from tests.ingest.split_stores import SplitStores, chunks_of, document, opened

ONE = document("one", "The wolf sleeps", "Nobody stirs")
TWO = document("two", "A dragon wakes")


@pytest.fixture
async def split(tmp_path: Path) -> AsyncIterator[SplitStores]:
    async with opened(tmp_path) as made:
        await made.write(ONE)
        await made.write(TWO)
        yield made


async def put_vectors(split: SplitStores, version: Document) -> None:
    """In the vector store alone."""
    await split.vectors.put(version, chunks_of(version), await split.embedded(chunks_of(version)))


async def test_stores_that_agree_have_no_issues(split: SplitStores) -> None:
    assert not await split.reconciler.differ()
    assert await split.reconciler.compare() == Divergence()
    assert await split.reconciler.compare_some() == Divergence()


async def test_a_document_without_its_vectors_is_missing_them(split: SplitStores) -> None:
    await split.vectors.discard([ONE.id])
    assert await split.reconciler.differ()
    found = await split.reconciler.compare()
    assert found == Divergence(missing=(ONE.id,))
    assert await split.reconciler.compare_some() == found
    await split.reconciler.repair(found)
    assert await split.home.documents.pending(10) == [ONE.id]
    await split.sweep()
    assert await split.reconciler.compare() == Divergence()
    assert not await split.reconciler.differ()


async def test_a_lost_vector_of_many_is_missing(split: SplitStores) -> None:
    only_first = chunks_of(ONE)[:1]
    await split.vectors.put(ONE, only_first, await split.embedded(only_first))
    assert await split.reconciler.compare() == Divergence(missing=(ONE.id,))


@pytest.mark.parametrize(
    "other",
    [document("one", "Another wolf"), document("one", "The wolf sleeps", "Nobody stirs", tags=("new",))],
    ids=["another text", "other tags"],
)
async def test_vectors_of_another_version_are_found_though_the_numbers_may_be_equal(
    split: SplitStores, other: Document
) -> None:
    await put_vectors(split, other)
    found = await split.reconciler.compare()
    assert {*found.missing, *found.stale} == {ONE.id}
    await split.recover()
    assert await split.reconciler.compare() == Divergence()
    assert await split.by_vector("another wolf", "new") == []


async def test_a_vector_too_many_is_stale(split: SplitStores) -> None:
    chunks = [*chunks_of(ONE), *chunks_of(document("one", "More"))]
    await split.vectors.put(ONE, chunks, await split.embedded(chunks))
    assert await split.reconciler.compare() == Divergence(stale=(ONE.id,))


async def test_vectors_of_a_document_that_is_not_there_are_orphans(split: SplitStores) -> None:
    other_program = document("stranger", "Who am I", "Where am I")
    await put_vectors(split, other_program)
    assert await split.reconciler.differ()
    found = await split.reconciler.compare()
    assert found == Divergence(orphans=(other_program.id,))
    assert not await split.reconciler.differ()
    await split.vectors.discard([TWO.id])
    assert await split.reconciler.differ()
    await split.reconciler.repair(found)
    assert other_program.id in await split.vectors.stored_vectors([other_program.id])
    await split.reconciler.purge(found)
    assert await split.vectors.stored_vectors([other_program.id]) == {}


async def test_a_document_that_came_in_since_is_not_purged(split: SplitStores) -> None:
    other_program = document("stranger", "Who am I")
    await put_vectors(split, other_program)
    found = await split.reconciler.compare()
    await split.write(other_program)
    await split.reconciler.purge(found)
    assert await split.reconciler.compare() == Divergence()
    assert await split.home.documents.pending(10) == []


async def test_pending_documents_are_no_difference(split: SplitStores) -> None:
    await split.writer.write(Version(document("three", "Not yet"), chunks_of(document("three", "Not yet"))))
    await split.writer.write(Version(document("one", "Replaced"), chunks_of(document("one", "Replaced"))))
    assert not await split.reconciler.differ()
    assert await split.reconciler.compare() == Divergence()


async def test_lost_vectors_show_although_something_is_pending(split: SplitStores) -> None:
    """One document that can never be embedded must not hide that all others lost their vectors."""
    await split.writer.write(Version(document("three", "Not yet"), chunks_of(document("three", "Not yet"))))
    await split.vectors.clear()
    assert await split.reconciler.differ()


async def test_a_document_without_text_is_no_difference(split: SplitStores) -> None:
    empty = document("empty", "x")
    assert await split.writer.write(Version(empty, [], np.zeros((0, 16), np.float32), split.maker))
    assert await split.reconciler.compare() == Divergence()


async def test_every_document_is_compared_however_many_there_are(tmp_path: Path) -> None:
    async with opened(tmp_path) as split:
        many = [document(str(number), f"Text {number}") for number in range(2 * PAGE + 1)]
        await asyncio.gather(*(split.home.documents.put(each, chunks_of(each)) for each in many))
        await asyncio.gather(*(split.home.documents.mark_indexed(each.id, each.content_hash) for each in many))
        found = await split.reconciler.compare()
        assert sorted(found.missing) == sorted(each.id for each in many)
        pages = [await split.reconciler.compare_some() for _ in range(4)]
        assert [len(page.missing) for page in pages] == [PAGE, PAGE, 1, PAGE]
        await split.reconciler.repair(found)
        assert (await split.home.documents.counts()).pending == len(many)
        await split.vectors.clear()
        await split.sweep()
        assert await split.reconciler.compare() == Divergence()


async def test_writes_in_progress_are_not_reported_as_differences(split: SplitStores) -> None:
    done = False
    seen: list[Divergence] = []

    async def look() -> None:
        while not done:
            seen.append(await split.reconciler.compare())

    async def churn(name: str) -> None:
        for number in range(15):
            await split.write(document(name, f"Version {number}", "Same"))
            if number % 5 == 4:
                await split.writer.delete(document(name).id)

    watching = asyncio.create_task(look())
    await asyncio.gather(*(churn(name) for name in ("one", "two", "three")))
    done = True
    await watching
    assert len(seen) > 1
    assert set(seen) == {Divergence()}


class Between:
    """A document store in which a document is replaced between two looks at it."""

    def __init__(self, split: SplitStores) -> None:
        self._split = split
        self.version = document("one", "Version 1")

    async def inventory(self, after: str, limit: int) -> dict[str, Stored]:
        return await self._split.home.documents.inventory(after, limit)

    async def stored(self, document_id: str) -> Stored | None:
        stored = await self._split.home.documents.stored(document_id)
        if document_id == self.version.id:
            await self._split.write(self.version)
        return stored


async def test_a_document_replaced_between_two_looks_is_not_reported(split: SplitStores) -> None:
    await split.vectors.discard([ONE.id])
    between: DocumentStore = Between(split)  # type: ignore[assignment]
    reconciler = Reconciler(between, split.home.documents, split.vectors)
    assert await reconciler.compare() == Divergence()


async def test_a_suspected_difference_is_checked_more_than_once(split: SplitStores) -> None:
    """Another process that writes it may overwrite the vectors after the first check."""
    reconciler = Reconciler(split.home.documents, split.home.documents, split.vectors)
    fillers = [document(f"filler {number}", "Text") for number in range(2 * PAGE + 1)]
    await asyncio.gather(*(split.home.documents.put(each, chunks_of(each)) for each in fillers))
    last = max([*await split.home.documents.inventory("", 1000)])
    reconciler.suspect(last)
    assert await reconciler.compare_some() == Divergence()
    stored = await split.home.documents.stored(last)
    assert stored is not None
    await split.home.documents.mark_indexed(last, stored.content_hash)
    assert (await reconciler.compare_some()).missing == (last,)
    assert (await reconciler.compare_some()).missing == (last,)
    assert (await reconciler.compare_some()).missing == ()


async def test_a_dead_store_is_an_error_and_changes_nothing(split: SplitStores) -> None:
    vectors: Faulty[VectorWriter] = Faulty(split.vectors)
    vectors.fault = Fault(BackendUnavailableError("v", "gone"))
    reconciler = Reconciler(split.home.documents, split.home.documents, vectors.port)
    for work in (reconciler.differ, reconciler.compare, reconciler.compare_some):
        with pytest.raises(BackendUnavailableError):
            await work()
    assert await split.home.documents.pending(10) == []


class TestAuditor:
    """`check` over two stores: one report, and one repair."""

    @pytest.fixture
    async def auditor(self, tmp_path: Path, split: SplitStores) -> AsyncIterator[IndexAuditor]:
        async with open_auditor(tmp_path / "documents.db") as documents:
            yield TwoStoreAuditor(documents, split.reconciler)

    async def found(self, auditor: IndexAuditor) -> dict[IssueKind, tuple[int, Sequence[str]]]:
        examined = await Audit(auditor).examine(Thoroughness.FULL)
        kinds = {flaw.kind: (flaw.count, flaw.examples) for flaw in examined.issues}
        return {kind: what for kind, what in kinds.items() if kind not in NOT_OURS}

    async def test_stores_that_agree_are_sound(self, auditor: IndexAuditor) -> None:
        assert await self.found(auditor) == {}
        examined = await Audit(auditor).examine(Thoroughness.QUICK)
        assert (examined.counts.documents, examined.counts.chunks, examined.counts.vectors) == (2, 3, 3)

    async def test_every_difference_is_an_issue_that_says_what_a_repair_does(
        self, auditor: IndexAuditor, split: SplitStores
    ) -> None:
        await split.vectors.discard([ONE.id])
        await put_vectors(split, document("two", "A dragon wakes", tags=("new",)))
        other_program = document("stranger", "Who am I")
        await put_vectors(split, other_program)
        assert await self.found(auditor) == {
            IssueKind.MISSING_VECTORS: (1, (ONE.id,)),
            IssueKind.STALE_VECTORS: (1, (TWO.id,)),
            IssueKind.ORPHANS: (1, (other_program.id,)),
        }
        examined = await Audit(auditor).examine(Thoroughness.FULL)
        reported = {flaw.kind: flaw for flaw in report(examined, Thoroughness.FULL).flaws}
        assert reported["stale-vectors"].says == "vectors of another version of their document"
        assert reported["missing-vectors"].repair == "embeds them again"
        await Audit(auditor).repair(examined)
        assert sorted(await split.home.documents.pending(10)) == sorted([ONE.id, TWO.id])
        await split.sweep()
        assert await self.found(auditor) == {}

    async def test_a_dead_vector_store_is_an_error_not_soundness(
        self, auditor: IndexAuditor, split: SplitStores
    ) -> None:
        vectors: Faulty[VectorWriter] = Faulty(split.vectors)
        vectors.fault = Fault(BackendUnavailableError("v", "gone"))
        documents = auditor._documents  # type: ignore[attr-defined]
        blind = TwoStoreAuditor(documents, Reconciler(split.home.documents, split.home.documents, vectors.port))
        with pytest.raises(BackendUnavailableError):
            await Audit(blind).examine(Thoroughness.QUICK)


NOT_OURS = {IssueKind.CHANGED_CONTENT, IssueKind.WRONG_ID, IssueKind.BROKEN_CHUNKS}
"""The documents of these tests are not made by the indexer."""


async def test_stored_vectors_name_chunks_and_versions(split: SplitStores) -> None:
    held = await split.vectors.stored_vectors([ONE.id, "nobody"])
    assert held == {ONE.id: StoredVectors(frozenset(ids(ONE)), frozenset({ONE.content_hash}))}
    assert sorted([id_ async for id_ in split.vectors.stored_documents()]) == sorted([ONE.id, TWO.id])


def ids(version: Document) -> list[str]:
    return [chunk.id for chunk in chunks_of(version)]
