"""Servers of collections that are down, hang, or answer something else: a rag-context error in time, then recovery."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from uuid import uuid4

import numpy as np
import pytest

from rag_context.domain.clauses import EVERYTHING
from rag_context.domain.documents import Json, Status
from rag_context.domain.where import MAX_LEVELS, parse
from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendTimeoutError,
    BackendUnavailableError,
    InvalidInputError,
)
from rag_context.ports.provider import Collection, Entry, Provider
from rag_context.stores.chroma.chroma_collections import open_chroma_collections
from rag_context.stores.qdrant.qdrant_collections import open_qdrant_collections
from tests.collections.isolated_providers import drop_all
from tests.servers.faults import (
    EMPTY_OK,
    SERVER_ERROR,
    UNAVAILABLE,
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
from tests.servers.qdrant import Endpoint

SECRET = "correct horse"
AXES = np.eye(3, dtype=np.float32)
NOTES = [Entry(f"{number}", SECRET, {"even": number % 2 == 0}) for number in range(3)]

CALLS: Mapping[str, Callable[[Provider], Awaitable[object]]] = {
    "collections": lambda provider: provider.collections(),
    "collection": lambda provider: provider.collection("docs"),
    "entries": lambda provider: provider.entries("docs", EVERYTHING, limit=5),
    "filtered": lambda provider: provider.entries("docs", parse({"even": {"$contains": "x"}}), limit=5),
    "vectors": lambda provider: provider.vectors("docs", ["1"]),
    "search": lambda provider: provider.search("docs", AXES[0], limit=2, where=EVERYTHING),
    "values": lambda provider: provider.values("docs", ("even",)),
    "create": lambda provider: provider.create(Collection(f"new {uuid4().hex}")),
    "replace": lambda provider: provider.replace_metadata("docs", {"a": 1}),
    "merge": lambda provider: provider.merge_metadata("docs", {"a": 1}),
    "upsert": lambda provider: provider.upsert("docs", NOTES, AXES),
    "delete": lambda provider: provider.delete("docs", "1"),
    "empty": lambda provider: provider.empty("docs"),
    "drop": lambda provider: provider.drop("docs"),
}


@dataclass(frozen=True)
class Behind:
    """Collections of one server, behind a proxy."""

    proxy: FaultProxy
    engine: str
    prefix: str

    def opening(self, timeout_s: float = 30.0) -> AbstractAsyncContextManager[Provider]:
        if self.engine == "qdrant":
            return open_qdrant_collections(self.proxy.url(), prefix=self.prefix, timeout_s=timeout_s)
        return open_chroma_collections(self.proxy.url(), prefix=self.prefix, timeout_s=timeout_s)


@pytest.fixture(params=["qdrant", "chroma"])
async def behind(request: pytest.FixtureRequest) -> AsyncIterator[Behind]:
    if request.param == "qdrant":
        server: Endpoint = request.getfixturevalue("qdrant_server")
        host, port = server.url.removeprefix("http://").split(":")
    else:
        process: ServerProcess = request.getfixturevalue("chroma_collections_server")
        host, port = process.host, str(process.port)
    async with fault_proxy(host, int(port)) as made:
        yield Behind(made, request.param, f"test-{uuid4().hex[:16]}")


@pytest.fixture
async def provider(behind: Behind) -> AsyncIterator[Provider]:
    """With one collection of three documents."""
    async with behind.opening() as opened:
        await opened.create(Collection("docs"))
        await opened.upsert("docs", NOTES, AXES)
        yield opened
        behind.proxy.fault = Pass()
        await drop_all(opened)


async def contents(provider: Provider) -> list[Entry]:
    return list((await provider.entries("docs", EVERYTHING, limit=5)).entries)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Refuse(), BackendUnavailableError),
        (Reset(), BackendUnavailableError),
        (HalfBody(), BackendError),
        (Garbage(), BackendError),
        (SERVER_ERROR, BackendUnavailableError),
        (UNAVAILABLE, BackendUnavailableError),
        (too_many_requests(3), BackendUnavailableError),
        (EMPTY_OK, BackendDataError),
        (HttpAnswer(200, b"null"), BackendDataError),
        (HttpAnswer(200, b"<html>" + SECRET.encode()), BackendDataError),
        (HttpAnswer(200, b'{"result": 7, "status": "ok", "ids": 7}'), BackendDataError),
        (HttpAnswer(400, SECRET.encode()), BackendError),
        (HttpAnswer(401, SECRET.encode()), BackendError),
        (HttpAnswer(409, SECRET.encode()), BackendError),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_every_fault_is_a_rag_context_error_and_heals(
    provider: Provider, behind: Behind, fault: Fault, error: type[BackendError]
) -> None:
    behind.proxy.fault = fault
    for name, work in CALLS.items():
        with pytest.raises(error) as caught:
            await work(provider)
        assert SECRET not in str(caught.value), name
    health = await provider.health()
    assert health.status is Status.UNAVAILABLE
    assert health.error
    assert SECRET not in health.error
    behind.proxy.fault = Pass()
    assert await contents(provider) == NOTES
    assert (await provider.health()).status is Status.HEALTHY


@pytest.mark.parametrize("fault", [HangBefore(), HangAfter()])
async def test_a_server_that_hangs_is_an_error_in_time(provider: Provider, behind: Behind, fault: Fault) -> None:
    behind.proxy.fault = fault
    async with asyncio.timeout(10), behind.opening(timeout_s=0.1) as hasty:
        for name in ("collections", "entries", "search", "upsert"):
            with pytest.raises(BackendTimeoutError):
                await CALLS[name](hasty)
        assert (await hasty.health()).status is Status.UNAVAILABLE
    behind.proxy.fault = Pass()
    assert await contents(provider) == NOTES


async def test_a_write_whose_answer_is_lost_may_be_repeated(provider: Provider, behind: Behind) -> None:
    changed = [Entry(entry.id, "new", {"even": None}) for entry in NOTES]
    behind.proxy.fault = HalfBody()
    with pytest.raises(BackendError):
        await provider.upsert("docs", changed, AXES)
    behind.proxy.fault = Pass()
    await provider.upsert("docs", changed, AXES)
    assert await contents(provider) == changed
    assert (await provider.entries("docs", parse({"even": {"$exists": True}}), limit=5)).total == 0


async def test_opening_sends_no_request_to_a_server_that_is_down(behind: Behind) -> None:
    behind.proxy.fault = Refuse()
    async with behind.opening() as opened:
        with pytest.raises(BackendUnavailableError):
            await opened.collections()
        behind.proxy.fault = Pass()
        assert await opened.collections() == []


async def test_an_id_that_is_given_twice_is_rejected_and_nothing_stored(provider: Provider) -> None:
    twice = [Entry("new", "one"), Entry("new", "two")]
    with pytest.raises(InvalidInputError, match="'new' is given twice"):
        await provider.upsert("docs", twice, AXES[:2])
    assert await contents(provider) == NOTES


async def test_a_filter_as_deep_as_may_be_is_answered(provider: Provider) -> None:
    """Every level costs an engine some levels of its own, and it has limits, too."""
    where: dict[str, Json] = {"even": True}
    for level in range(MAX_LEVELS):
        other: dict[str, Json] = {"n": {"$gt": level}}
        where = {"$and": [where, {"even": {"$ne": f"{level}"}}]} if level % 2 else {"$or": [where, other]}
    assert (await provider.entries("docs", parse(where), limit=5)).total == 2
    assert (await provider.entries("docs", parse({"even": {"$not": {"$eq": True}}}), limit=5)).total == 1


async def test_a_filter_as_wide_as_may_be_is_answered(provider: Provider) -> None:
    parts: list[Json] = [{"even": f"{number}"} for number in range(3000)]
    assert (await provider.entries("docs", parse({"$or": [*parts, {"even": True}]}), limit=5)).total == 2
