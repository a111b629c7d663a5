"""Connections: opened when they are used, once, kept by one task, closed in reverse; a dead one is no hang."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rag_context.collections.provider_connections import CollectionRef, Connections, ProviderConnection
from rag_context.domain.documents import Status
from rag_context.errors import (
    BackendTimeoutError,
    BackendUnavailableError,
    ConfigurationError,
    NotFoundError,
    ProviderFailedError,
)
from rag_context.ports.provider import Provider
from rag_context.resilience.dependency import BreakerOpenError
from rag_context.settings import ConnectionSettings, Settings
from rag_context.testing.fakes import Fault, Faulty, FrozenClock
from rag_context.wiring.collection_providers import open_connections
from tests.collections.memory_collections import MemoryCollections

LONG_S = 30.0


@dataclass
class ProviderRecorder:
    """Opens providers and remembers what was done, and by which task."""

    events: list[str] = field(default_factory=list)
    tasks: dict[str, "asyncio.Task[object] | None"] = field(default_factory=dict)
    failure: Exception | None = None
    gate: asyncio.Event | None = None

    def opener(self, name: str) -> AbstractAsyncContextManager[Provider]:
        return self._opened(name)

    @asynccontextmanager
    async def _opened(self, name: str) -> AsyncIterator[Provider]:
        self.events.append(f"open {name}")
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        opener = asyncio.current_task()
        try:
            yield MemoryCollections()
        finally:
            assert asyncio.current_task() is opener
            self.events.append(f"close {name}")

    def connection(self, name: str) -> ProviderConnection:
        return ProviderConnection(name, "memory", lambda: self.opener(name))


async def used(connection: ProviderConnection) -> int:
    return len(await connection.call(lambda provider: provider.collections(), LONG_S))


async def test_a_connection_is_opened_once_and_only_when_it_is_used() -> None:
    recorder = ProviderRecorder()
    async with aclosing(Connections([recorder.connection(name) for name in ("a", "b", "c")])) as connections:
        assert recorder.events == []
        await asyncio.gather(*(used(connections["c"]) for _ in range(5)))
        await used(connections["a"])
        assert recorder.events == ["open c", "open a"]
    assert recorder.events == ["open c", "open a", "close c", "close a"]


async def test_connections_are_closed_in_reverse() -> None:
    recorder = ProviderRecorder()
    async with aclosing(Connections([recorder.connection(name) for name in ("a", "b")])) as connections:
        for connection in connections.values():
            await used(connection)
    assert recorder.events[-2:] == ["close b", "close a"]


async def test_an_opening_that_failed_is_tried_again() -> None:
    recorder = ProviderRecorder(failure=BackendUnavailableError("qdrant", "refused"))
    connection = recorder.connection("a")
    with pytest.raises(BackendUnavailableError):
        await used(connection)
    recorder.failure = None
    assert await used(connection) == 0
    await connection.close()


async def test_a_set_up_that_turns_out_wrong_is_an_unavailable_backend() -> None:
    recorder = ProviderRecorder(failure=ConfigurationError("The folder cannot be written."))
    with pytest.raises(BackendUnavailableError, match="The folder cannot be written"):
        await used(recorder.connection("a"))


async def test_a_caller_that_gives_up_does_not_end_an_opening_that_others_wait_for() -> None:
    recorder = ProviderRecorder(gate=asyncio.Event())
    connection = recorder.connection("a")
    impatient, patient = (asyncio.create_task(used(connection)) for _ in range(2))
    while not recorder.events:
        await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait({impatient})
    assert recorder.gate is not None
    recorder.gate.set()
    assert await patient == 0
    assert recorder.events == ["open a"]
    await connection.close()


async def test_one_that_is_still_opening_can_be_closed() -> None:
    recorder = ProviderRecorder(gate=asyncio.Event())
    connection = recorder.connection("a")
    waiting = asyncio.create_task(used(connection))
    while not recorder.events:
        await asyncio.sleep(0)
    await connection.close()
    waiting.cancel()
    await asyncio.wait({waiting})
    assert recorder.events == ["open a"]


async def test_a_provider_that_hangs_is_given_up_in_time_and_then_skipped_at_once() -> None:
    hanging = Faulty(MemoryCollections())
    hanging.fault = Fault(hang=True)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Provider]:
        yield hanging.port

    clock = FrozenClock()
    connection = ProviderConnection("a", "memory", opened, clock=clock)
    for _ in range(3):
        with pytest.raises(BackendTimeoutError):
            await connection.call(lambda provider: provider.collections(), 0.01)
    calls = hanging.calls
    with pytest.raises(BreakerOpenError) as caught:
        await used(connection)
    assert hanging.calls == calls
    assert caught.value.retry_after_s is not None
    hanging.fault = None
    clock.advance(caught.value.retry_after_s)
    assert await used(connection) == 0
    await connection.close()


async def test_the_health_of_what_cannot_be_opened_is_reported_not_raised() -> None:
    recorder = ProviderRecorder(failure=BackendUnavailableError("qdrant", "refused"))
    before = datetime.now(UTC)
    health = await recorder.connection("a").health()
    assert (health.status, health.error) == (Status.UNAVAILABLE, "refused")
    assert health.checked >= before


def test_a_collection_ref_is_a_name_or_a_name_behind_the_id_of_a_connection() -> None:
    recorder = ProviderRecorder()
    connections = Connections([recorder.connection(name) for name in ("default", "archive")])
    assert connections.ref("a") == CollectionRef("a")
    assert connections.ref("archive:a:b") == CollectionRef("a:b", "archive")
    assert connections.ref("other:a") == CollectionRef("other:a")
    assert connections.ref("default:archive:a") == CollectionRef("archive:a")
    with pytest.raises(NotFoundError, match="known are default, archive"):
        connections.require("other")


class TestSettings:
    """V-6 and M-5: what can never work stops the start with one sentence."""

    async def opened(self, folder: Path, **tables: object) -> list[tuple[str, str]]:
        made = {id_: ConnectionSettings.model_validate(table) for id_, table in tables.items()}
        async with open_connections(Settings(data_dir=folder, connections=made)) as connections:
            return [(one.id, one.provider) for one in connections.values()]

    async def test_the_default_connection_is_the_data_directory(self, tmp_path: Path) -> None:
        folder = tmp_path / "data"
        assert await self.opened(folder) == [("default", "embedded")]
        assert await asyncio.to_thread(folder.exists) is False

    async def test_more_connections_are_named_by_the_settings(self, tmp_path: Path) -> None:
        archive = {"provider": "qdrant", "url": "http://127.0.0.1:1"}
        assert await self.opened(tmp_path, archive=archive, default={"provider": "chroma"}) == [
            ("default", "chroma"),
            ("archive", "qdrant"),
        ]

    @pytest.mark.parametrize(
        ("table", "said"),
        [
            (
                {"provider": "pinecone"},
                "provider is 'pinecone', which is unknown; choose one of chroma, embedded, postgres, qdrant.",
            ),
            ({"provider": "qdrant", "url": "localhost"}, "connections.archive: .*url"),
            ({"provider": "qdrant", "adress": "x"}, "connections.archive: .*adress is unknown; known are"),
            ({"provider": "embedded", "path": "x"}, "connections.archive: .*path is unknown; known are: none"),
        ],
    )
    async def test_what_can_never_work_is_one_sentence(
        self, tmp_path: Path, table: dict[str, object], said: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=said) as caught:
            await self.opened(tmp_path, archive=table)
        assert len(str(caught.value).splitlines()) == 1

    async def test_a_backend_that_is_down_stops_nothing(self, tmp_path: Path) -> None:
        table = ConnectionSettings.model_validate({"provider": "qdrant", "url": "http://127.0.0.1:1"})
        async with open_connections(Settings(data_dir=tmp_path, connections={"archive": table})) as connections:
            health = await connections["archive"].health()
            assert health.status is Status.UNAVAILABLE
            assert await used(connections["default"]) == 0


async def test_opening_a_provider_takes_nothing_of_the_time_of_the_first_work() -> None:
    """What it imports takes seconds, once."""
    recorder = ProviderRecorder(gate=asyncio.Event())
    connection = recorder.connection("slow")
    asked = asyncio.create_task(connection.call(lambda provider: provider.collections(), 0.2))
    await asyncio.sleep(0.6)
    assert not asked.done()
    assert recorder.gate is not None
    recorder.gate.set()
    assert await asked == []
    await connection.close()


async def test_what_a_provider_raises_is_a_failure_of_it_and_its_text_is_kept_back() -> None:
    """V-1: a plug-in may raise anything."""

    async def failing(_: Provider) -> None:
        raise KeyError("password=hunter2")

    connection = ProviderRecorder().connection("a")
    with pytest.raises(ProviderFailedError) as caught:
        await connection.call(failing, LONG_S)
    assert str(caught.value) == "The provider 'memory' of connection 'a' failed with KeyError"
    assert await used(connection) == 0
    await connection.close()


@pytest.mark.parametrize(
    ("stores", "connections", "provider", "noted"),
    [
        ({}, {}, "embedded", set()),
        ({"vectors": "qdrant", "documents": "mongodb"}, {}, "qdrant", set()),
        ({"vectors": "chroma"}, {}, "chroma", set()),
        ({"vectors": "chroma", "chroma_dir": "chroma"}, {}, "embedded", set()),
        ({"documents": "mongodb"}, {}, "embedded", {"default"}),
        ({"vectors": "qdrant"}, {"default": {"provider": "embedded"}}, "embedded", {"default"}),
        ({"vectors": "qdrant"}, {"a": {"provider": "chroma", "folder": "a"}}, "qdrant", {"a"}),
        ({"vectors": "qdrant"}, {"a": {"provider": "chroma", "url": "http://h:1"}}, "qdrant", set()),
    ],
)
async def test_collections_are_where_the_index_is_and_those_of_one_machine_are_noted(
    stores: dict[str, str], connections: dict[str, object], provider: str, noted: set[str], tmp_path: Path
) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path, "stores": stores, "connections": connections})
    async with open_connections(settings) as opened:
        assert opened.require("default").provider == provider
        assert {id_ for id_, connection in opened.items() if connection.note} == noted
