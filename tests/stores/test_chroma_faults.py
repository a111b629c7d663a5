"""Chroma that is down, hangs, or answers something else."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rag_context.domain.search import Filter
from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendRejectedError,
    BackendTimeoutError,
    BackendUnavailableError,
    ConfigurationError,
)
from rag_context.resilience.dependency import Dependency
from rag_context.stores.chroma import ChromaVectors, open_chroma
from rag_context.testing import FakeEmbedder
from tests.servers.chroma import chroma_server
from tests.servers.faults import (
    EMPTY_OK,
    SERVER_ERROR,
    UNAVAILABLE,
    Drip,
    Fault,
    FaultProxy,
    Garbage,
    HalfBody,
    HangAfter,
    HangBefore,
    HttpAnswer,
    Pass,
    Refuse,
    Reset,
    fault_proxy,
    too_many_requests,
)
from tests.servers.process import ServerProcess
from tests.stores.builders import DIMENSION, axis, chunks_of, document, ids

EVERYTHING = Filter()
MODEL = FakeEmbedder(dimension=DIMENSION).model
SECRET = "correct horse"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with chroma_server() as made:
        yield made


@pytest.fixture
async def proxy(server: ServerProcess) -> AsyncIterator[FaultProxy]:
    async with fault_proxy(server.host, server.port) as made:
        yield made


@pytest.fixture
async def vectors(proxy: FaultProxy) -> AsyncIterator[ChromaVectors]:
    """A collection with one document, behind the proxy."""
    async with open_chroma(proxy.url(), "faults") as opened:
        await put(opened)
        yield opened


async def put(vectors: ChromaVectors) -> None:
    written = document("a", SECRET)
    await vectors.put(written, chunks_of(written), axis(0)[None])


async def search(vectors: ChromaVectors) -> list[str]:
    hits = await vectors.search(axis(0), limit=5, where=Filter(session_id="session"))
    return ids(hits)


def odd(body: bytes) -> HttpAnswer:
    """200 with something else."""
    return HttpAnswer(200, body)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Refuse(), BackendUnavailableError),
        (Reset(), BackendUnavailableError),
        (HalfBody(), BackendUnavailableError),
        (Garbage(), BackendUnavailableError),
        (SERVER_ERROR, BackendUnavailableError),
        (UNAVAILABLE, BackendUnavailableError),
        (too_many_requests(3), BackendUnavailableError),
        (HttpAnswer(400, SECRET.encode()), BackendRejectedError),
        (HttpAnswer(401), BackendRejectedError),
        (HttpAnswer(403), BackendRejectedError),
        (HttpAnswer(404), BackendDataError),
        (HttpAnswer(302, headers={"Location": "http://127.0.0.1:1/"}), BackendRejectedError),
        (EMPTY_OK, BackendDataError),
        (odd(b"null"), BackendDataError),
        (odd(b"{}"), BackendDataError),
        (odd(b"7"), BackendDataError),
        (odd(b'{"ids": [["a"]], "metadatas": [[]], "embeddings": [[[1.0]]]}'), BackendDataError),
        (odd(b'{"ids": [["a"]], "metadatas": [[{}]], "embeddings": [[[1.0, NaN]]]}'), BackendDataError),
        (odd(b'{"ids": [["a", "b"]], "metadatas": [[{}, {}]], "embeddings": [[[1.0], [1.0, 2.0]]]}'), BackendDataError),
        (odd(b'{"ids": [["a"]], "metadatas": [[{}]], "embeddings": [[[1.0, 2.0]]]}'), BackendDataError),
        (odd(b'{"ids": [], "metadatas": [], "embeddings": []}'), BackendDataError),
        (odd(b"<html>" + SECRET.encode()), BackendDataError),
        (HttpAnswer(200, b"\x00" * 10, {"Content-Encoding": "gzip"}), BackendDataError),
    ],
    ids=lambda value: repr(value)[:60],
)
async def test_every_fault_is_a_rag_context_error_and_heals(
    vectors: ChromaVectors, proxy: FaultProxy, fault: Fault, error: type[BackendError]
) -> None:
    before = await search(vectors)
    proxy.fault = fault
    with pytest.raises(error) as caught:
        await search(vectors)
    assert caught.value.component == "vectors"
    assert SECRET not in str(caught.value)
    for work in (
        vectors.score(axis(0), before),
        vectors.ping(),
        vectors.count(),
        vectors.discard(before),
        put(vectors),
    ):
        if isinstance(fault, HttpAnswer) and fault.status == 200:
            work.close()
            continue
        with pytest.raises(BackendError):
            await work
    proxy.fault = Pass()
    assert await search(vectors) == before


async def test_the_servers_retry_delay_is_passed_on(vectors: ChromaVectors, proxy: FaultProxy) -> None:
    proxy.fault = too_many_requests(3)
    with pytest.raises(BackendUnavailableError) as caught:
        await search(vectors)
    assert caught.value.retry_after_s == 3.0


@pytest.mark.parametrize("fault", [HangBefore(), HangAfter(), Drip(1, 5.0)])
async def test_a_server_that_hangs_keeps_no_caller_beyond_its_deadline(
    vectors: ChromaVectors, proxy: FaultProxy, fault: Fault
) -> None:
    before = await search(vectors)
    guard = Dependency("vectors", vectors.ping)
    proxy.fault = fault
    for _ in range(3):
        with pytest.raises(BackendTimeoutError):
            await guard.call(lambda: search(vectors), 0.05)
    assert not guard.breaker.closed
    proxy.fault = Pass()
    assert await search(vectors) == before


async def test_searches_given_up_halfway_leave_no_connection_behind(vectors: ChromaVectors, proxy: FaultProxy) -> None:
    before = await search(vectors)
    proxy.fault = HangAfter()
    waiting = [asyncio.create_task(search(vectors)) for _ in range(50)]
    await asyncio.wait(waiting, timeout=0.1)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    proxy.fault = Pass()
    assert await asyncio.gather(*(search(vectors) for _ in range(50))) == [before] * 50


async def test_a_write_cut_off_anywhere_is_completed_by_writing_again(
    vectors: ChromaVectors, proxy: FaultProxy
) -> None:
    old = document("b", "old")
    await vectors.put(old, chunks_of(old, "kept", "gone"), axis(1)[None].repeat(2, axis=0))
    new = document("b", "new")
    proxy.fault = HangAfter()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await vectors.put(new, chunks_of(new, "kept", "new"), axis(1)[None].repeat(2, axis=0))
    proxy.fault = Pass()
    await vectors.put(new, chunks_of(new, "kept", "new"), axis(1)[None].repeat(2, axis=0))
    held = (await vectors.stored_vectors([new.id]))[new.id]
    assert held.chunk_ids == {chunk.id for chunk in chunks_of(new, "kept", "new")}
    assert held.revisions == {new.content_hash}


async def test_opening_needs_no_server_and_what_was_acknowledged_outlives_a_kill(tmp_path: Path) -> None:
    with chroma_server(folder=tmp_path) as server:
        server.kill()
        async with open_chroma(f"http://{server.host}:{server.port}", "later") as vectors:
            for work in (vectors.prepare(MODEL), search(vectors), vectors.ping(), vectors.clear()):
                with pytest.raises(BackendUnavailableError):
                    await work
            server.start()
            await vectors.prepare(MODEL)
            await put(vectors)
            server.restart()
            assert len(await search(vectors)) == 1


async def test_a_password_in_the_address_is_in_no_message() -> None:
    async with open_chroma("http://user:p4ss@127.0.0.1:1/chroma", "faults") as vectors:
        with pytest.raises(BackendUnavailableError) as caught:
            await search(vectors)
    assert "p4ss" not in str(caught.value)
    assert "http://127.0.0.1:1" in str(caught.value)


async def test_what_is_no_address_cannot_work() -> None:
    for wrong in ("http://[::1", "http://host:port"):
        with pytest.raises(ConfigurationError, match=r"stores\.chroma_url"):
            async with open_chroma(wrong, "faults"):
                raise AssertionError(wrong)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
async def test_text_that_no_encoding_can_carry_is_rejected(server: ServerProcess, text: str) -> None:
    async with open_chroma(f"http://{server.host}:{server.port}", "faults") as vectors:
        written = document("a", session_id=text)
        with pytest.raises(BackendRejectedError):
            await vectors.put(written, chunks_of(written), axis(0)[None])
        with pytest.raises(BackendRejectedError):
            await vectors.search(axis(0), limit=5, where=Filter(session_id=text))


async def test_a_folder_that_is_broken_opens_and_works_once_it_is_repaired(tmp_path: Path) -> None:
    broken = tmp_path / "chroma.sqlite3"
    broken.write_bytes(b"not a database" * 500)
    async with open_chroma(tmp_path, "folder") as vectors:
        for work in (search(vectors), put(vectors), vectors.ping()):
            with pytest.raises(BackendUnavailableError):
                await work
        broken.unlink()
        await put(vectors)
        assert len(await search(vectors)) == 1


async def test_a_folder_that_can_never_be_one_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    async with open_chroma(tmp_path / "file", "folder") as vectors:
        with pytest.raises(BackendUnavailableError):
            await vectors.count()


async def test_text_that_no_encoding_can_carry_is_rejected_by_a_folder(tmp_path: Path) -> None:
    async with open_chroma(tmp_path, "folder") as vectors:
        written = document("a", session_id="\ud800")
        with pytest.raises(BackendRejectedError):
            await vectors.put(written, chunks_of(written), axis(0)[None])
        await put(vectors)
        with pytest.raises(BackendRejectedError):
            await vectors.search(axis(0), limit=5, where=Filter(session_id="\ud800"))
