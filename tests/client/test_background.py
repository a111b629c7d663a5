"""Documents submitted are kept behind the program's back, and none is lost without a word."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from rag_context.client import AsyncClient, BackgroundIndexer, Client, Failure, QueueFullError, Retries, open_context
from rag_context.client.background import BACKGROUND_RETRIES
from rag_context.errors import BackendUnavailableError, InvalidInputError
from rag_context.settings import Settings
from tests.end_to_end.process import Served

QUICK = Retries(tries=4, base_s=0.0, cap_s=0.0)


@dataclass
class GatedContext:
    """A context that lets documents through one by one, and fails as often as a test says."""

    failures: list[Exception] = field(default_factory=list)
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1000))
    kept: list[tuple[str, str]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    inside: int = 0
    most: int = 0
    entered: asyncio.Event = field(default_factory=asyncio.Event)

    async def index(self, content: str, **named: Any) -> None:
        self.calls.append({"content": content, **named})
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.entered.set()
        try:
            await asyncio.sleep(0)
            await self.gate.acquire()
            if self.failures:
                raise self.failures.pop()
            self.kept.append((named["session_id"], content))
        finally:
            self.inside -= 1


def indexer(gated_context: GatedContext, **options: Any) -> BackgroundIndexer:
    return BackgroundIndexer(cast("AsyncClient", gated_context), **{"retries": QUICK, **options})


@pytest.mark.parametrize("client_kind", ["server", "in process"])
async def test_all_three_kinds_are_found_afterwards(client_kind: str, server: Served, tmp_path: Path) -> None:
    where = (
        AsyncClient(server.url, api_key="") if client_kind == "server" else open_context(Settings(data_dir=tmp_path))
    )
    async with where as context:
        async with BackgroundIndexer(context) as behind:
            behind.queue_chat_session("talk-1", "[Ann] Use the blue valve.", "scout")
            behind.queue_decision("ADR-7", "We keep the blue valve closed.", "architecture")
            behind.queue_decision("ADR-7", "We keep the blue valve open.", "architecture")
            behind.queue_code_documentation("src/valve.py", "def valve(): opens the blue valve")
        assert (behind.indexed, behind.failed, behind.left, behind.waiting) == (4, 0, (), 0)
        found = {document.source: document async for document in context.list_all()}
        chat, decision, code = (
            found[source] for source in ("h0und://chat/talk-1", "h0und://decision/ADR-7", "src/valve.py")
        )
        assert (chat.content_type, chat.session_id, chat.metadata) == ("chat", "talk-1", {"agent": "scout"})
        assert decision.metadata == {"category": "architecture", "decisionId": "ADR-7"}
        assert (await context.get(decision.document_id)).content == "We keep the blue valve open."
        async with BackgroundIndexer(context) as behind:
            behind.queue_code_documentation("src/valve.py", "def valve(): shuts the blue valve")
        (again,) = [document async for document in context.list_all(source="src/valve.py")]
        assert (again.document_id, again.session_id) == (code.document_id, code.session_id)


async def test_five_at_once_and_no_more() -> None:
    gated_context = GatedContext()
    async with indexer(gated_context) as behind:
        for n in range(50):
            behind.queue_chat_session(f"s{n}", "text")
    assert gated_context.most == 5
    assert len(gated_context.kept) == 50


async def test_texts_of_one_session_keep_their_order_while_others_overtake() -> None:
    gated_context = GatedContext(gate=asyncio.Semaphore(0))
    async with indexer(gated_context) as behind:
        for n in range(20):
            behind.queue_decision("ADR-1", f"version {n}")
        behind.queue_decision("ADR-2", "another")
        await gated_context.entered.wait()
        while gated_context.inside < 2:
            await asyncio.sleep(0)
        assert {call["session_id"] for call in gated_context.calls} == {"ADR-1", "ADR-2"}
        for _ in range(21):
            gated_context.gate.release()
    assert [text for session, text in gated_context.kept if session == "ADR-1"] == [f"version {n}" for n in range(20)]


async def test_a_server_that_comes_back_is_all_that_is_needed() -> None:
    gated_context = GatedContext(failures=[BackendUnavailableError("server", "away") for _ in range(3)])
    async with indexer(gated_context) as behind:
        behind.queue_chat_session("s", "text")
    assert (behind.indexed, behind.failed) == (1, 0)
    assert len(gated_context.calls) == 4


@pytest.mark.parametrize(
    ("errors", "tries"),
    [
        ([BackendUnavailableError("server", "away") for _ in range(4)], 4),
        ([InvalidInputError("contentType must be one of ...")], 1),
        ([ZeroDivisionError()], 1),
    ],
)
async def test_what_cannot_be_kept_is_reported_and_the_rest_goes_on(errors: list[Exception], tries: int) -> None:
    reported: list[Failure] = []
    gated_context = GatedContext(failures=list(errors))
    async with indexer(gated_context, on_failure=reported.append, concurrency=1) as behind:
        behind.queue_decision("D-1", "lost")
        behind.queue_decision("D-2", "kept")
    assert (behind.indexed, behind.failed, behind.left) == (1, 1, ())
    assert [(failure.document.session_id, failure.document.content) for failure in reported] == [("D-1", "lost")]
    assert reported[0].error is errors[0]
    assert len(gated_context.calls) == tries + 1
    assert gated_context.kept == [("D-2", "kept")]


async def test_a_listener_that_fails_does_not_stop_the_rest() -> None:
    def broken(_: Failure) -> None:
        raise ZeroDivisionError

    gated_context = GatedContext(failures=[InvalidInputError("no")])
    async with indexer(gated_context, on_failure=broken, concurrency=1) as behind:
        behind.queue_decision("D-1", "lost")
        behind.queue_decision("D-2", "kept")
    assert (behind.indexed, behind.failed) == (1, 1)


async def test_an_invalid_document_is_rejected_at_once() -> None:
    async with indexer(GatedContext()) as behind:
        with pytest.raises(InvalidInputError, match="Content cannot be empty"):
            behind.queue_chat_session("s", " ")
        with pytest.raises(InvalidInputError, match="Session ID required"):
            behind.queue_decision("", "text")
        assert behind.waiting == 0


async def test_a_full_queue_rejects_and_says_when_there_is_room() -> None:
    gated_context = GatedContext(gate=asyncio.Semaphore(0))
    async with indexer(gated_context, capacity=2, concurrency=1) as behind:
        behind.queue_chat_session("s1", "text")
        await gated_context.entered.wait()
        behind.queue_chat_session("s2", "text")
        behind.queue_chat_session("s3", "text")
        with pytest.raises(QueueFullError, match="2 documents wait already"):
            behind.queue_chat_session("s4", "text")
        waiting = asyncio.create_task(behind.wait_for_room())
        await asyncio.sleep(0)
        assert not waiting.done()
        gated_context.gate.release()
        await waiting
        behind.queue_chat_session("s4", "text")
        for _ in range(3):
            gated_context.gate.release()
        await behind.wait_until_done()
        assert behind.indexed == 4


async def test_the_end_says_what_is_left_when_time_is_up() -> None:
    reported: list[Failure] = []
    gated_context = GatedContext(gate=asyncio.Semaphore(1))
    async with indexer(gated_context, concurrency=1, drain_s=0.05, on_failure=reported.append) as behind:
        for n in range(4):
            behind.queue_chat_session(f"s{n}", "text")
    assert behind.indexed == 1
    assert [document.session_id for document in behind.left] == ["s1", "s2", "s3"]
    assert [failure.error for failure in reported] == [None, None, None]
    with pytest.raises(RuntimeError, match="inside its"):
        behind.queue_chat_session("s9", "text")
    with pytest.raises(RuntimeError, match="inside its"):
        indexer(gated_context).queue_chat_session("s9", "text")


def test_a_client_without_coroutines_is_rejected_at_once() -> None:
    with Client("http://localhost:3000", api_key="") as client, pytest.raises(TypeError, match="AsyncClient"):
        BackgroundIndexer(cast("AsyncClient", client))


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"capacity": 0}])
def test_a_queue_that_could_keep_nothing_is_rejected_at_once(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        indexer(GatedContext(), **options)


async def test_an_error_in_the_block_loses_nothing() -> None:
    gated_context = GatedContext()
    with pytest.raises(ZeroDivisionError):
        async with indexer(gated_context) as behind:
            behind.queue_chat_session("s", "text")
            raise ZeroDivisionError
    assert gated_context.kept == [("s", "text")]


async def test_any_thread_may_submit() -> None:
    gated_context = GatedContext()
    async with indexer(gated_context) as behind:
        await asyncio.gather(*(asyncio.to_thread(behind.queue_chat_session, f"s{n}", "text") for n in range(40)))
    assert sorted(gated_context.kept) == sorted((f"s{n}", "text") for n in range(40))


async def test_who_waits_when_the_end_comes_is_not_left_waiting() -> None:
    gated_context = GatedContext(gate=asyncio.Semaphore(0))
    async with indexer(gated_context, capacity=1, concurrency=1, drain_s=0.05) as behind:
        behind.queue_chat_session("s1", "text")
        await gated_context.entered.wait()
        behind.queue_chat_session("s2", "text")
        waiting = [asyncio.create_task(wait()) for wait in (behind.wait_for_room, behind.wait_until_done)]
        await asyncio.sleep(0)
    done, _ = await asyncio.wait(waiting, timeout=10)
    assert done == set(waiting)
    assert [document.session_id for document in behind.left] == ["s1", "s2"]


async def test_what_a_thread_submits_at_the_end_is_accepted_or_rejected_but_never_lost() -> None:
    gated_context, accepted = GatedContext(), 0

    def submit() -> None:
        nonlocal accepted
        with pytest.raises(RuntimeError, match="inside its"):
            while True:
                try:
                    behind.queue_chat_session("s", "text")
                except QueueFullError:
                    continue
                accepted += 1

    async with indexer(gated_context, capacity=3, drain_s=10.0) as behind:
        submitting = asyncio.create_task(asyncio.to_thread(submit))
        await behind.wait_for_room()
        await gated_context.entered.wait()
    await submitting
    assert len(gated_context.kept) + len(behind.left) == accepted > 0


def test_an_absent_server_is_tried_for_about_a_minute() -> None:
    bounds = [
        min(BACKGROUND_RETRIES.base_s * 2**n, BACKGROUND_RETRIES.cap_s) for n in range(BACKGROUND_RETRIES.tries - 1)
    ]
    assert 50 <= sum(bounds) / 2 <= 70  # each wait is anything from 0 to its bound
