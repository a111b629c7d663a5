"""Indexing through the service: what is stored, when, and what is reported of it."""

import asyncio

import pytest

from rag_context.api.index import BulkLine
from rag_context.errors import BackendDataError, BackendStartingError, BackendUnavailableError, InvalidInputError
from rag_context.ingest.redaction import RedactionMode
from rag_context.ports.writing import Version
from rag_context.testing import Fault
from tests.memory.harness import ServiceHarness
from tests.memory_stores import MemoryStore

TEXT = "MongoDB connections use retry logic with exponential backoff."


async def test_indexing_twice_changes_nothing(harness: ServiceHarness) -> None:
    first = await harness.index(TEXT)
    embedded = harness.fake.calls
    second = await harness.index(TEXT)
    assert (first.status, second.status) == ("indexed", "unchanged")
    assert second.document_id == first.document_id
    assert second.vector_ids == first.vector_ids
    assert second.chunks_indexed == first.chunks_indexed == 1
    assert harness.fake.calls == embedded
    assert (await harness.store.counts()).documents == 1


async def test_changed_content_replaces(harness: ServiceHarness) -> None:
    first = await harness.index(TEXT)
    second = await harness.index("MongoDB retries were removed.")
    assert second.status == "replaced"
    assert second.document_id == first.document_id
    answer = await harness.search("mongodb", minScore=0)
    assert [result.content for result in answer.results] == ["MongoDB retries were removed."]


async def test_changed_metadata_replaces(harness: ServiceHarness) -> None:
    await harness.index(TEXT, metadata={"tags": ["a"]})
    assert (await harness.index(TEXT, metadata={"tags": ["b"]})).status == "replaced"
    assert (await harness.search("mongodb", tags=["a"])).results == []


@pytest.mark.parametrize("refusal", [BackendUnavailableError, BackendDataError])
async def test_a_store_that_rejects_writes_costs_no_further_embedding(
    harness: ServiceHarness, refusal: type[BackendUnavailableError | BackendDataError]
) -> None:
    harness.writer.fault = Fault(refusal("documents", "disk full"))
    with pytest.raises(refusal):
        await harness.index(TEXT)
    embedded = harness.fake.calls
    for number in range(3):
        with pytest.raises(refusal, match="disk full"):
            await harness.index(f"{TEXT} {number}", source=str(number))
    assert harness.fake.calls == embedded
    harness.writer.fault = None
    assert (await harness.index(TEXT)).status == "indexed"


async def test_one_session_sends_many_chats(harness: ServiceHarness) -> None:
    for text in ("[Ann] the first turn", "[Bob] the second turn"):
        assert (await harness.index(text, contentType="chat")).status == "indexed"
    assert (await harness.store.counts()).documents == 2


async def test_one_source_in_three_sessions_is_three_documents(harness: ServiceHarness) -> None:
    for session in ("a", "b", "c"):
        await harness.index(TEXT, sessionId=session, source="pre-validation")
    assert (await harness.store.counts()).documents == 3


@pytest.mark.parametrize(
    "fault",
    [
        Fault(BackendUnavailableError("embedder", "refused")),
        Fault(BackendStartingError("embedder", "loading")),
        Fault(BackendDataError("embedder", "nonsense")),
    ],
)
async def test_without_vectors_a_document_is_pending_and_found_by_its_text(
    harness: ServiceHarness, fault: Fault
) -> None:
    harness.embedder.fault = fault
    receipt = await harness.index(TEXT)
    assert receipt.success
    assert receipt.status == "pending"
    assert receipt.vector_ids == []
    assert receipt.chunks_indexed == 1
    assert receipt.warning
    answer = await harness.search("mongodb retry")
    assert answer.fallback_level == 2
    assert len(answer.results) == 1
    again = await harness.index(TEXT)
    assert again.status == "unchanged"
    assert again.vector_ids == []


async def test_a_hanging_embedder_makes_it_pending_in_time() -> None:
    harness = ServiceHarness(index_timeout_s=0.05)
    await harness.bound.bind()
    harness.embedder.fault = Fault(hang=True)
    assert (await harness.index(TEXT)).status == "pending"


async def test_a_document_too_long_for_the_time_is_no_fault_of_the_embedder() -> None:
    harness = ServiceHarness(index_timeout_s=1.0)
    await harness.bound.bind()
    harness.embedder.fault = Fault(delay_s=0.3)
    long = "\n\n".join(f"Sentence number {i} says something of its own about topic {i}." for i in range(1200))
    for source in ("a", "b", "c", "d"):
        receipt = await harness.index(long, source=source)
        assert receipt.status == "pending"
        assert "in time" in (receipt.warning or "")
    assert harness.sources.embedding.breaker.closed


async def unfinished(harness: ServiceHarness) -> tuple[str, int]:
    """A document that was not embedded in time; its id, and how many texts were embedded before it."""
    before = harness.fake.calls
    harness.embedder.fault = Fault(delay_s=0.3)
    long = "\n\n".join(f"Sentence number {i} says something of its own about topic {i}." for i in range(1200))
    receipt = await harness.index(long)
    harness.embedder.fault = None
    assert (receipt.status, receipt.vector_ids) == ("pending", [])
    assert before < harness.fake.calls < before + receipt.chunks_indexed
    return receipt.document_id, before


async def test_a_document_that_only_lacked_time_is_gone_on_with_at_once_where_it_ended() -> None:
    harness = ServiceHarness(index_timeout_s=1.0)
    async with harness.maintained():
        await until(harness.maintenance.bound.is_set)
        await asyncio.sleep(0.05)  # the sweep of the start; the next one is ten seconds later
        id_, before = await unfinished(harness)
        async with asyncio.timeout(5):
            while await harness.store.pending(1):
                await asyncio.sleep(0.01)
    assert harness.fake.calls == before + len(await harness.store.chunks(id_))


async def test_what_was_embedded_in_time_is_not_embedded_again_by_a_sweep() -> None:
    harness = ServiceHarness(index_timeout_s=1.0)
    await harness.bound.bind()
    id_, before = await unfinished(harness)
    await harness.indexer.complete(id_)
    assert await harness.indexer.complete(id_)
    assert harness.fake.calls == before + len(await harness.store.chunks(id_))
    assert await harness.store.pending(1) == []


async def test_a_store_that_rejects_unfinished_vectors_is_called_once(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ServiceHarness(index_timeout_s=1.0)
    await harness.bound.bind()
    id_, _ = await unfinished(harness)
    asked = 0

    async def refuse(*_args: object) -> bool:
        nonlocal asked
        asked += 1
        raise BackendUnavailableError("vectors", "no room")

    with monkeypatch.context() as patch:
        patch.setattr(type(harness.store), "attach", refuse)
        with pytest.raises(BackendUnavailableError, match="no room"):
            await harness.indexer.finish(id_)
    assert asked == 1
    assert await harness.indexer.complete(id_)
    assert await harness.store.pending(1) == []


async def test_pending_documents_get_their_vectors_when_the_model_is_back(harness: ServiceHarness) -> None:
    harness.embedder.fault = Fault(BackendStartingError("embedder", "loading"))
    receipt = await harness.index(TEXT)
    harness.embedder.fault = None
    async with harness.maintained():
        await until(lambda: harness.fake.calls > 0)
        await asyncio.sleep(0.05)
    assert await harness.store.pending(10) == []
    answer = await harness.search("mongodb retry")
    assert answer.fallback_level == 1
    assert answer.results[0].document_id == receipt.document_id


async def test_one_document_that_cannot_be_embedded_does_not_delay_the_others(harness: ServiceHarness) -> None:
    harness.embedder.fault = Fault(BackendStartingError("embedder", "loading"))
    for source in ("a", "b", "c"):
        await harness.index(TEXT + source, source=source)
    harness.embedder.fault = None
    poisoned = (await harness.store.pending(1))[0]
    original = await harness.store.get(poisoned)
    assert original is not None
    poison = original.content

    class Picky(type(harness.fake)):  # type: ignore[misc]
        async def embed_documents(self, texts: list[str]) -> object:
            if poison in texts:
                raise BackendDataError("embedder", "cannot embed this one")
            return await super().embed_documents(texts)

    harness.fake.__class__ = Picky
    done = await harness.maintenance.sweep(lambda _done: None)
    assert done == 2
    assert await harness.store.pending(10) == [poisoned]


async def test_what_could_not_be_stored_raises_and_changes_nothing(harness: ServiceHarness) -> None:
    harness.writer.fault = Fault(BackendUnavailableError("documents", "disk full"))
    with pytest.raises(BackendUnavailableError):
        await harness.index(TEXT)
    assert (await harness.store.counts()).documents == 0
    assert harness.writer.calls == 3


async def test_a_rejected_write_is_not_tried_again(harness: ServiceHarness) -> None:
    harness.writer.fault = Fault(BackendDataError("documents", "garbage"))
    with pytest.raises(BackendDataError):
        await harness.index(TEXT)
    assert harness.writer.calls == 1


async def test_secrets_are_blanked_out_and_counted(harness: ServiceHarness) -> None:
    receipt = await harness.index("The key is AKIAIOSFODNN7ABCDEFG, keep it safe.")
    assert receipt.redactions
    assert sum(receipt.redactions.values()) == 1
    (result,) = (await harness.search("key safe", minScore=0)).results
    assert "AKIAIOSFODNN7ABCDEFG" not in result.content


async def test_reject_mode_rejects_secrets_and_stores_nothing() -> None:
    harness = ServiceHarness(redaction=RedactionMode.REJECT)
    await harness.bound.bind()
    with pytest.raises(InvalidInputError, match="secrets"):
        await harness.index("The key is AKIAIOSFODNN7ABCDEFG, keep it safe.")
    assert (await harness.store.counts()).documents == 0


async def test_off_mode_keeps_what_was_written() -> None:
    harness = ServiceHarness(redaction=RedactionMode.OFF)
    await harness.bound.bind()
    receipt = await harness.index("The key is AKIAIOSFODNN7ABCDEFG, keep it safe.")
    assert receipt.redactions is None


async def test_near_duplicates_are_reported_not_dropped(harness: ServiceHarness) -> None:
    words = " ".join(f"word{i}" for i in range(200))
    first = await harness.index(words)
    second = await harness.index(words + " .", source="copy")
    assert second.status == "indexed"
    assert second.duplicates_of == [first.document_id]
    assert first.duplicates_of is None


async def test_the_same_document_from_two_sides_at_once_is_stored_once(harness: ServiceHarness) -> None:
    receipts = await asyncio.gather(*(harness.index(TEXT) for _ in range(8)))
    assert sorted(receipt.status for receipt in receipts) == ["indexed"] + ["unchanged"] * 7


async def test_a_file_is_known_by_its_path_alone(harness: ServiceHarness) -> None:
    line = {
        "content": TEXT,
        "contentType": "documentation",
        "sessionId": "files",
        "source": "/x/a.md",
        "fromFile": True,
    }
    first = await harness.bulk(BulkLine.model_validate(line))
    second = await harness.bulk(BulkLine.model_validate(line | {"sessionId": "other", "contentType": "decision"}))
    assert (first.status, second.status) == ("indexed", "replaced")
    assert first.document_id == second.document_id


async def test_a_rejected_bulk_line_has_a_receipt() -> None:
    harness = ServiceHarness(redaction=RedactionMode.REJECT)
    await harness.bound.bind()
    line = BulkLine(content="key AKIAIOSFODNN7ABCDEFG", content_type="code", session_id="s", source="a.py")
    receipt = await harness.bulk(line)
    assert receipt.status == "rejected"
    assert "secrets" in (receipt.reason or "")


def lines_of(**contents: str) -> list[BulkLine]:
    """A line for each source."""
    return [
        BulkLine(content=content, content_type="code", session_id="s", source=source)
        for source, content in contents.items()
    ]


async def statuses(harness: ServiceHarness, lines: list[BulkLine]) -> list[str]:
    """What became of lines that come together: the status of each receipt, or the error in its place."""
    results = await harness.service.bulk_all(lines, request_id="r")
    return [type(each).__name__ if isinstance(each, Exception) else each.status for each in results]


async def test_lines_that_come_together_each_have_a_result_of_their_own() -> None:
    harness = ServiceHarness(redaction=RedactionMode.REJECT)
    await harness.bound.bind()
    lines = [
        *lines_of(a="how quokkas sleep", secret="key AKIAIOSFODNN7ABCDEFG", b="how voles wake"),
        *lines_of(a="how quokkas wake up"),
        *lines_of(b="how voles wake"),
    ]
    assert await statuses(harness, lines) == ["indexed", "rejected", "indexed", "replaced", "unchanged"]
    answer = await harness.search("quokkas", minScore=0)
    assert [result.content for result in answer.results if result.source == "a"] == ["how quokkas wake up"]
    assert await harness.store.pending(9) == []


async def test_a_text_that_cannot_be_embedded_leaves_no_other_line_pending(harness: ServiceHarness) -> None:
    class Picky(type(harness.fake)):  # type: ignore[misc]
        async def embed_documents(self, texts: list[str]) -> object:
            if any("poison" in text for text in texts):
                raise BackendDataError("embedder", "cannot embed this one")
            return await super().embed_documents(texts)

    harness.fake.__class__ = Picky
    lines = lines_of(a="quokkas", b="poison", c="voles")
    assert await statuses(harness, lines) == ["indexed", "deferred", "indexed"]


async def test_a_line_that_cannot_be_stored_keeps_no_other_from_being_stored(
    harness: ServiceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, tries = type(harness.store).write, 0

    async def refuse_one(store: MemoryStore, version: Version) -> bool:
        nonlocal tries
        if version.document.source == "b":
            tries += 1
            raise BackendUnavailableError("documents", "no room")
        return await write(store, version)

    monkeypatch.setattr(type(harness.store), "write", refuse_one)
    lines = lines_of(a="quokkas", b="voles", c="bats")
    assert await statuses(harness, lines) == ["indexed", "BackendUnavailableError", "indexed"]
    assert tries == 3
    assert (await harness.store.counts()).documents == 2


async def until(condition: object) -> None:
    """Wait for a condition that background work brings about."""
    assert callable(condition)
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)
