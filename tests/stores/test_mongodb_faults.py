"""A MongoDB that is dead, dies, hangs, lies or rejects; and what is left of what it acknowledged."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pymongo
import pytest
from bson.errors import InvalidBSON
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    ConnectionFailure,
    ExecutionTimeout,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
    WTimeoutError,
)
from secantus import SecantusDBServer  # type: ignore[import-untyped]

from rag_context.domain.documents import DEFAULT_TENANT
from rag_context.domain.reports import Thoroughness
from rag_context.domain.search import Filter
from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendRejectedError,
    BackendTimeoutError,
    BackendUnavailableError,
)
from rag_context.resilience.deadline import Deadline
from rag_context.stores.mongodb import MongoStore, open_mongodb
from rag_context.stores.mongodb.mongo import backend_error
from tests.servers.faults import (
    Drip,
    FaultProxy,
    Garbage,
    HalfBody,
    HangAfter,
    HangBefore,
    Pass,
    Refuse,
    Reset,
    fault_proxy,
)
from tests.servers.mongodb import mongodb_process, uri_of
from tests.servers.process import ServerProcess, free_port
from tests.stores.builders import NOON, chunks_of, document, minutes, refs

PLACE = "db.example:27017"
TIMEOUT_S = 30.0

Call = Callable[[MongoStore], Awaitable[object]]


async def put(store: MongoStore, name: str, text: str = "wolf") -> None:
    written = document(name, text)
    await store.documents.put(written, chunks_of(written))


async def search(store: MongoStore) -> int:
    return len(await store.texts.search("wolf", limit=50, where=Filter()))


async def eventually(store: MongoStore, call: Call) -> None:
    """Wait until a call succeeds: the driver finds a server that is back by itself."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                await call(store)
            except BackendError:
                await asyncio.sleep(0.02)
            else:
                return


CALLS: dict[str, Call] = {
    "search": search,
    "score": lambda store: store.texts.score("wolf", refs("x"), tenant=DEFAULT_TENANT),
    "put": lambda store: put(store, "x"),
    "get": lambda store: store.documents.get("x"),
    "passages": lambda store: store.documents.passages(["x"]),
    "neighbours": lambda store: store.documents.neighbours(["x"]),
    "listing": lambda store: store.documents.listing(Filter(), limit=1),
    "inventory": lambda store: store.documents.inventory("", 1),
    "content_hashes": lambda store: store.documents.content_hashes(["x"]),
    "mark_indexed": lambda store: store.documents.mark_indexed("x", "hash"),
    "delete": lambda store: store.documents.delete("x"),
    "ping": lambda store: store.documents.ping(),
    "recorded_model": lambda store: store.documents.recorded_model(),
    "summarise": lambda store: store.metrics.summarise(NOON, NOON + minutes(1), 1),
    "prune": lambda store: store.metrics.prune(NOON),
    "examine": lambda store: store.auditor.examine(lambda *_: (), Thoroughness.QUICK),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with mongodb_process(tmp_path_factory.mktemp("mongodb") / "data") as process:
        yield process


@pytest.fixture
async def proxy(server: ServerProcess) -> AsyncIterator[FaultProxy]:
    async with fault_proxy(server.host, server.port) as opened:
        yield opened


@pytest.fixture
async def store(proxy: FaultProxy) -> AsyncIterator[MongoStore]:
    async with open_mongodb(f"{proxy.url('mongodb')}/faults?directConnection=true") as opened:
        await put(opened, "first")
        yield opened


@pytest.mark.parametrize("name", CALLS)
async def test_a_server_that_was_never_there_is_unavailable_and_named(name: str) -> None:
    port = free_port()
    async with open_mongodb(f"mongodb://user:s3cret@127.0.0.1:{port}/x?directConnection=true") as store:
        with pytest.raises(BackendUnavailableError, match=f"127.0.0.1:{port} cannot be reached") as raised:
            await CALLS[name](store)
        assert "s3cret" not in str(raised.value)
        assert raised.value.component == "mongodb"


async def test_a_dead_server_is_known_to_be_dead_within_the_deadline_of_a_search() -> None:
    async with open_mongodb(uri_of(free_port())) as store:
        with pytest.raises(BackendUnavailableError) as raised:
            await Deadline.after(0.45, asyncio.get_running_loop().time).bound("documents", search(store))
        assert not isinstance(raised.value, BackendTimeoutError)


async def test_a_server_that_comes_later_is_used_and_prepared(tmp_path: Path) -> None:
    with mongodb_process(tmp_path / "data") as server:
        server.kill()
        async with open_mongodb(uri_of(server.port, "late")) as store:
            with pytest.raises(BackendUnavailableError):
                await put(store, "a")
            with pytest.raises(BackendUnavailableError):
                await store.documents.tenant_state(DEFAULT_TENANT)
            await asyncio.to_thread(server.start)
            await eventually(store, lambda opened: put(opened, "a"))
            await eventually(store, search)  # searches have a client of their own, which finds it by itself
            assert await search(store) == 1
            assert (await store.documents.tenant_state(DEFAULT_TENANT)).documents == 1


async def test_what_was_acknowledged_is_found_after_kill_9(tmp_path: Path) -> None:
    acknowledged: list[str] = []

    async def write(store: MongoStore, lane: int) -> None:
        for number in range(1000):
            await put(store, f"{lane}-{number}")
            acknowledged.append(document(f"{lane}-{number}").id)

    with mongodb_process(tmp_path / "data") as server:
        async with open_mongodb(uri_of(server.port, "killed")) as store:
            writing = [asyncio.create_task(write(store, lane)) for lane in range(4)]
            while len(acknowledged) < 60:
                await asyncio.sleep(0.005)
            await asyncio.to_thread(server.kill)
            ends = await asyncio.gather(*writing, return_exceptions=True)
            assert all(isinstance(end, BackendUnavailableError) for end in ends)
            await asyncio.to_thread(server.start)
            await eventually(store, lambda opened: opened.documents.ping())
            there = {id_: await store.documents.stored(id_) for id_ in acknowledged}
            assert [id_ for id_, stored in there.items() if stored is None] == []
            hits = await store.texts.search("wolf", limit=len(acknowledged), where=Filter())
            assert len(hits) == len(acknowledged)


@pytest.mark.parametrize("fault", [Refuse(), Reset(), Garbage(), HalfBody()])
async def test_a_fault_is_a_rag_context_error_and_passes(
    store: MongoStore, proxy: FaultProxy, fault: Refuse | Reset | Garbage | HalfBody
) -> None:
    assert await search(store) == 1
    proxy.fault = fault
    for call in (search, lambda opened: opened.documents.ping()):
        with pytest.raises(BackendError):
            await asyncio.wait_for(call(store), TIMEOUT_S)
    proxy.fault = Pass()
    await eventually(store, search)
    assert await search(store) == 1


@pytest.mark.parametrize("fault", [HangBefore(), HangAfter(), Drip(1, 0.5)])
async def test_a_server_that_hangs_is_cut_off_by_its_callers_and_used_again_when_it_is_back(
    store: MongoStore, proxy: FaultProxy, fault: HangBefore | HangAfter | Drip
) -> None:
    proxy.fault = fault
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(search(store), 0.05)
    proxy.fault = Pass()
    await eventually(store, search)
    assert await search(store) == 1
    await eventually(store, lambda opened: put(opened, "first"))


@pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning"
)  # the driver leaves a socket it connects to the collector
async def test_searches_cancelled_at_any_moment_leave_a_store_that_works(store: MongoStore) -> None:
    for number in range(60):
        searching = asyncio.create_task(search(store))
        await asyncio.sleep(0.0002 * number)
        searching.cancel()
        await asyncio.wait({searching})
    assert await asyncio.gather(*(search(store) for _ in range(60))) == [1] * 60


async def test_more_searches_than_connections_wait_for_their_turn(proxy: FaultProxy) -> None:
    uri = f"{proxy.url('mongodb')}/faults?directConnection=true&maxPoolSize=2"
    async with open_mongodb(uri) as store:
        await eventually(store, lambda opened: put(opened, "first"))
        assert await asyncio.gather(*(search(store) for _ in range(30))) == [1] * 30


async def test_closing_does_not_wait_for_a_server_that_hangs(proxy: FaultProxy) -> None:
    async with open_mongodb(f"{proxy.url('mongodb')}/faults?directConnection=true") as store:
        await put(store, "first")
        proxy.fault = HangBefore()
        writing = asyncio.create_task(put(store, "first", "never acknowledged"))
        await asyncio.sleep(0.01)
        writing.cancel()
        await asyncio.wait({writing})
    proxy.fault = Pass()


async def test_a_wrong_password_is_reported_without_it(tmp_path: Path) -> None:
    def served(**options: bool) -> SecantusDBServer:
        return SecantusDBServer(port=0, storage_path=str(tmp_path), replica_set_name=None, **options)

    first = served()
    first.start()
    with pymongo.MongoClient[dict[str, object]](first.uri) as client:
        client["admin"].command("createUser", "writer", pwd="s3cret", roles=["root"])
    first.stop()
    guarded = served(require_auth=True)
    guarded.start()
    try:
        address = f"127.0.0.1:{guarded.port}/x?directConnection=true&authSource=admin"
        async with open_mongodb(f"mongodb://writer:wr0ng@{address}") as store:
            with pytest.raises(BackendRejectedError, match=r"stores\.mongodb_uri") as raised:
                await search(store)
            assert "wr0ng" not in str(raised.value)
        async with open_mongodb(f"mongodb://writer:s3cret@{address}") as store:
            assert await store.documents.stored("nobody") is None
    finally:
        guarded.stop()


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (ServerSelectionTimeoutError("no servers"), BackendUnavailableError, "cannot be reached"),
        (AutoReconnect("gone"), BackendUnavailableError, "cannot be reached"),
        (NotPrimaryError("stepped down"), BackendUnavailableError, "cannot be reached"),
        (ConnectionFailure("refused"), BackendUnavailableError, "cannot be reached"),
        (NetworkTimeout("slow"), BackendTimeoutError, "in time"),
        (WaitQueueTimeoutError("full"), BackendTimeoutError, "in time"),
        (ExecutionTimeout("slow", 50), BackendTimeoutError, "in time"),
        (WTimeoutError("slow", 64), BackendTimeoutError, "in time"),
        (OperationFailure("secret text", 18), BackendRejectedError, "password of stores.mongodb_uri"),
        (OperationFailure("secret text", 13), BackendRejectedError, "password of stores.mongodb_uri"),
        (OperationFailure("secret text", 14031), BackendUnavailableError, "No space left"),
        (OperationFailure("secret text", 17420), BackendRejectedError, "16 MB"),
        (OperationFailure("secret text", 11600), BackendUnavailableError, "cannot serve this now"),
        (OperationFailure("secret text", 112), BackendUnavailableError, "cannot serve this now"),
        (OperationFailure("secret text", 9), BackendRejectedError, "rejected the operation (code 9)"),
        (
            BulkWriteError({"writeErrors": [{"code": 14031, "errmsg": "secret text"}], "writeConcernErrors": []}),
            BackendUnavailableError,
            "No space left",
        ),
        (InvalidBSON("secret text"), BackendDataError, "returned an invalid response"),
        (OverflowError("too big"), BackendRejectedError, "cannot store"),
        (PyMongoError("secret text"), BackendUnavailableError, "PyMongoError"),
    ],
)
def test_each_failure_of_the_driver_becomes_a_rag_context_error(
    error: Exception, kind: type[BackendError], says: str
) -> None:
    ours = backend_error(error, PLACE)
    assert type(ours) is kind
    assert says in str(ours)
    assert "secret text" not in str(ours)
    assert ours.component == "mongodb"
