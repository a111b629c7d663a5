"""Two stores compared: what is missing, stale or of nobody is found and mended, and what is under way is left alone."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from rag_context.domain.documents import Document, Stored, StoredVectors
from rag_context.domain.integrity import IssueKind, Thoroughness
from rag_context.errors import BackendUnavailableError
from rag_context.ingest.reconciliation import PAGE, Divergence, Reconciler, TwoStoreAuditor
from rag_context.ports.maintenance import IndexAuditor
from rag_context.ports.reading import DocumentStore
from rag_context.ports.writing import VectorWriter
from rag_context.service.audit import Audit, report
from rag_context.stores.sqlite import open_auditor
from rag_context.testing import Fault, Faulty
from tests.ingest.split_stores import Apart, chunks_of, document, opened

ONE = document("one", "The wolf sleeps", "Nobody stirs")
TWO = document("two", "A dragon wakes")


@pytest.fixture
async def apart(tmp_path: Path) -> AsyncIterator[Apart]:
    async with opened(tmp_path) as made:
        await made.write(ONE)
        await made.write(TWO)
        yield made


async def put_vectors(apart: Apart, version: Document) -> None:
    """In the vector store alone."""
    await apart.vectors.put(version, chunks_of(version), await apart.embedded(chunks_of(version)))


async def test_stores_that_agree_have_no_issues(apart: Apart) -> None:
    assert not await apart.reconciler.differ()
    assert await apart.reconciler.compare() == Divergence()
    assert await apart.reconciler.compare_some() == Divergence()


async def test_a_document_without_its_vectors_is_missing_them(apart: Apart) -> None:
    await apart.vectors.discard([ONE.id])
    assert await apart.reconciler.differ()
    found = await apart.reconciler.compare()
    assert found == Divergence(missing=(ONE.id,))
    assert await apart.reconciler.compare_some() == found
    await apart.reconciler.repair(found)
    assert await apart.home.documents.pending(10) == [ONE.id]
    await apart.sweep()
    assert await apart.reconciler.compare() == Divergence()
    assert not await apart.reconciler.differ()


async def test_a_lost_vector_of_many_is_missing(apart: Apart) -> None:
    only_first = chunks_of(ONE)[:1]
    await apart.vectors.put(ONE, only_first, await apart.embedded(only_first))
    assert await apart.reconciler.compare() == Divergence(missing=(ONE.id,))


@pytest.mark.parametrize(
    "other",
    [document("one", "Another wolf"), document("one", "The wolf sleeps", "Nobody stirs", tags=("new",))],
    ids=["another text", "other tags"],
)
async def test_vectors_of_another_version_are_found_though_the_numbers_may_be_equal(
    apart: Apart, other: Document
) -> None:
    await put_vectors(apart, other)
    found = await apart.reconciler.compare()
    assert {*found.missing, *found.stale} == {ONE.id}
    await apart.settle()
    assert await apart.reconciler.compare() == Divergence()
    assert await apart.by_vector("another wolf", "new") == []


async def test_a_vector_too_many_is_stale(apart: Apart) -> None:
    chunks = [*chunks_of(ONE), *chunks_of(document("one", "More"))]
    await apart.vectors.put(ONE, chunks, await apart.embedded(chunks))
    assert await apart.reconciler.compare() == Divergence(stale=(ONE.id,))


async def test_vectors_of_a_document_that_is_not_there_are_orphans(apart: Apart) -> None:
    stranger = document("stranger", "Who am I", "Where am I")
    await put_vectors(apart, stranger)
    assert await apart.reconciler.differ()
    found = await apart.reconciler.compare()
    assert found == Divergence(orphans=(stranger.id,))
    assert not await apart.reconciler.differ()
    await apart.vectors.discard([TWO.id])
    assert await apart.reconciler.differ()
    await apart.reconciler.repair(found)
    assert stranger.id in await apart.vectors.stored_vectors([stranger.id])
    await apart.reconciler.purge(found)
    assert await apart.vectors.stored_vectors([stranger.id]) == {}


async def test_a_document_that_came_in_since_is_not_purged(apart: Apart) -> None:
    stranger = document("stranger", "Who am I")
    await put_vectors(apart, stranger)
    found = await apart.reconciler.compare()
    await apart.write(stranger)
    await apart.reconciler.purge(found)
    assert await apart.reconciler.compare() == Divergence()
    assert await apart.home.documents.pending(10) == []


async def test_pending_documents_are_no_difference(apart: Apart) -> None:
    await apart.writer.write(document("three", "Not yet"), chunks_of(document("three", "Not yet")), None)
    await apart.writer.write(document("one", "Replaced"), chunks_of(document("one", "Replaced")), None)
    assert not await apart.reconciler.differ()
    assert await apart.reconciler.compare() == Divergence()


async def test_lost_vectors_show_although_something_is_pending(apart: Apart) -> None:
    """One document that can never be embedded must not hide that all others lost their vectors."""
    await apart.writer.write(document("three", "Not yet"), chunks_of(document("three", "Not yet")), None)
    await apart.vectors.clear()
    assert await apart.reconciler.differ()


async def test_a_document_without_text_is_no_difference(apart: Apart) -> None:
    empty = document("empty", "x")
    assert await apart.writer.write(empty, [], np.zeros((0, 16), np.float32), apart.maker)
    assert await apart.reconciler.compare() == Divergence()


async def test_every_document_is_compared_however_many_there_are(tmp_path: Path) -> None:
    async with opened(tmp_path) as apart:
        many = [document(str(number), f"Text {number}") for number in range(2 * PAGE + 1)]
        await asyncio.gather(*(apart.home.writer.put(each, chunks_of(each)) for each in many))
        await asyncio.gather(*(apart.home.writer.mark_indexed(each.id, each.content_hash) for each in many))
        found = await apart.reconciler.compare()
        assert sorted(found.missing) == sorted(each.id for each in many)
        pages = [await apart.reconciler.compare_some() for _ in range(4)]
        assert [len(page.missing) for page in pages] == [PAGE, PAGE, 1, PAGE]
        await apart.reconciler.repair(found)
        assert (await apart.home.documents.counts()).pending == len(many)
        await apart.vectors.clear()
        await apart.sweep()
        assert await apart.reconciler.compare() == Divergence()


async def test_writes_in_progress_are_not_reported_as_differences(apart: Apart) -> None:
    done = False
    seen: list[Divergence] = []

    async def look() -> None:
        while not done:
            seen.append(await apart.reconciler.compare())

    async def churn(name: str) -> None:
        for number in range(15):
            await apart.write(document(name, f"Version {number}", "Same"))
            if number % 5 == 4:
                await apart.writer.delete(document(name).id)

    watching = asyncio.create_task(look())
    await asyncio.gather(*(churn(name) for name in ("one", "two", "three")))
    done = True
    await watching
    assert len(seen) > 1
    assert set(seen) == {Divergence()}


class Between:
    """A document store in which a document is replaced between two looks at it."""

    def __init__(self, apart: Apart) -> None:
        self._apart = apart
        self.version = document("one", "Version 1")

    async def inventory(self, after: str, limit: int) -> dict[str, Stored]:
        return await self._apart.home.documents.inventory(after, limit)

    async def stored(self, document_id: str) -> Stored | None:
        stored = await self._apart.home.documents.stored(document_id)
        if document_id == self.version.id:
            await self._apart.write(self.version)
        return stored


async def test_a_document_replaced_between_two_looks_is_not_reported(apart: Apart) -> None:
    await apart.vectors.discard([ONE.id])
    between: DocumentStore = Between(apart)  # type: ignore[assignment]
    reconciler = Reconciler(between, apart.home.writer, apart.vectors)
    assert await reconciler.compare() == Divergence()


async def test_a_suspected_difference_is_checked_more_than_once(apart: Apart) -> None:
    """Whoever else writes it may overwrite the vectors after the first look."""
    reconciler = Reconciler(apart.home.documents, apart.home.writer, apart.vectors)
    fillers = [document(f"filler {number}", "Text") for number in range(2 * PAGE + 1)]
    await asyncio.gather(*(apart.home.writer.put(each, chunks_of(each)) for each in fillers))
    last = max([*await apart.home.documents.inventory("", 1000)])
    reconciler.suspect(last)
    assert await reconciler.compare_some() == Divergence()
    stored = await apart.home.documents.stored(last)
    assert stored is not None
    await apart.home.writer.mark_indexed(last, stored.content_hash)
    assert (await reconciler.compare_some()).missing == (last,)
    assert (await reconciler.compare_some()).missing == (last,)
    assert (await reconciler.compare_some()).missing == ()


async def test_a_dead_store_is_an_error_and_changes_nothing(apart: Apart) -> None:
    vectors: Faulty[VectorWriter] = Faulty(apart.vectors)
    vectors.fault = Fault(BackendUnavailableError("v", "gone"))
    reconciler = Reconciler(apart.home.documents, apart.home.writer, vectors.port)
    for work in (reconciler.differ, reconciler.compare, reconciler.compare_some):
        with pytest.raises(BackendUnavailableError):
            await work()
    assert await apart.home.documents.pending(10) == []


class TestAuditor:
    """`check` over two stores: one report, and one repair."""

    @pytest.fixture
    async def auditor(self, tmp_path: Path, apart: Apart) -> AsyncIterator[IndexAuditor]:
        async with open_auditor(tmp_path / "documents.db") as documents:
            yield TwoStoreAuditor(documents, apart.reconciler)

    async def found(self, auditor: IndexAuditor) -> dict[IssueKind, tuple[int, Sequence[str]]]:
        examined = await Audit(auditor).examine(Thoroughness.FULL)
        kinds = {flaw.kind: (flaw.count, flaw.examples) for flaw in examined.issues}
        return {kind: what for kind, what in kinds.items() if kind not in NOT_OURS}

    async def test_stores_that_agree_are_sound(self, auditor: IndexAuditor) -> None:
        assert await self.found(auditor) == {}
        examined = await Audit(auditor).examine(Thoroughness.QUICK)
        assert (examined.counts.documents, examined.counts.chunks, examined.counts.vectors) == (2, 3, 3)

    async def test_every_difference_is_an_issue_that_says_what_a_repair_does(
        self, auditor: IndexAuditor, apart: Apart
    ) -> None:
        await apart.vectors.discard([ONE.id])
        await put_vectors(apart, document("two", "A dragon wakes", tags=("new",)))
        stranger = document("stranger", "Who am I")
        await put_vectors(apart, stranger)
        assert await self.found(auditor) == {
            IssueKind.MISSING_VECTORS: (1, (ONE.id,)),
            IssueKind.STALE_VECTORS: (1, (TWO.id,)),
            IssueKind.ORPHANS: (1, (stranger.id,)),
        }
        examined = await Audit(auditor).examine(Thoroughness.FULL)
        told = {flaw.kind: flaw for flaw in report(examined, Thoroughness.FULL).flaws}
        assert told["stale-vectors"].says == "vectors of another version of their document"
        assert told["missing-vectors"].repair == "embeds them again"
        await Audit(auditor).mend(examined)
        assert sorted(await apart.home.documents.pending(10)) == sorted([ONE.id, TWO.id])
        await apart.sweep()
        assert await self.found(auditor) == {}

    async def test_a_dead_vector_store_is_an_error_not_a_clean_bill(self, auditor: IndexAuditor, apart: Apart) -> None:
        vectors: Faulty[VectorWriter] = Faulty(apart.vectors)
        vectors.fault = Fault(BackendUnavailableError("v", "gone"))
        documents = auditor._documents  # type: ignore[attr-defined]
        blind = TwoStoreAuditor(documents, Reconciler(apart.home.documents, apart.home.writer, vectors.port))
        with pytest.raises(BackendUnavailableError):
            await Audit(blind).examine(Thoroughness.QUICK)


NOT_OURS = {IssueKind.CHANGED_CONTENT, IssueKind.WRONG_ID, IssueKind.BROKEN_CHUNKS}
"""The documents of these tests are not made by the indexer."""


async def test_stored_vectors_name_chunks_and_versions(apart: Apart) -> None:
    held = await apart.vectors.stored_vectors([ONE.id, "nobody"])
    assert held == {ONE.id: StoredVectors(frozenset(ids(ONE)), frozenset({ONE.content_hash}))}
    assert sorted([id_ async for id_ in apart.vectors.stored_documents()]) == sorted([ONE.id, TWO.id])


def ids(version: Document) -> list[str]:
    return [chunk.id for chunk in chunks_of(version)]
