"""Qdrant with replicas and several nodes, a busy one, one of another version: its requests, and what answers mean.

About the stub, which has one copy of everything: only a real cluster can show the rest.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import version
from typing import Any

import grpc  # type: ignore[import-untyped]
import numpy as np
import pytest
from qdrant_client import models
from qdrant_client.http.exceptions import UnexpectedResponse

from rag_context.domain.search import Filter
from rag_context.domain.vectors import Calibration, EmbeddingModel
from rag_context.errors import BackendError, BackendRejectedError, BackendTimeoutError, BackendUnavailableError
from rag_context.ports.provider import Collection, Entry
from rag_context.stores.qdrant import CollectionPlan, QdrantVectors, open_qdrant
from rag_context.stores.qdrant.qdrant_api import Transport
from rag_context.stores.qdrant.qdrant_collections import open_qdrant_collections
from rag_context.stores.qdrant.qdrant_errors import NoCollectionError, NoPointError, backend_error
from tests.servers.faults import SERVER_ERROR, Fault, HangBefore, Pass, Refuse, fault_proxy
from tests.servers.qdrant import Running, running
from tests.stores.builders import DIMENSION, axis, chunks_of, document, unit_vectors

MODEL = EmbeddingModel("mini", DIMENSION, "f00d", 254, Calibration(12.1, -4.01))
ACKNOWLEDGED, LATE = models.UpdateStatus.ACKNOWLEDGED, models.UpdateStatus.WAIT_TIMEOUT


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as stub_server:
        yield stub_server


@pytest.fixture
async def vectors(server: Running) -> AsyncIterator[QdrantVectors]:
    plan = CollectionPlan("replicated", shards=2)
    async with open_qdrant(server.url, plan, read_consistency="majority", replicas=3) as opened:
        await opened.prepare(MODEL)
        server.server.parameters.clear()
        server.server.calls.clear()
        yield opened
        server.server.statuses.clear()
        server.server.version = version("qdrant-client")
        await opened.clear()


async def put(vectors: QdrantVectors) -> None:
    await vectors.put(document("a"), chunks_of(document("a")), unit_vectors(1))


def asked(server: Running, ending: str) -> list[dict[str, str]]:
    return [parameters for _, path, parameters in server.server.parameters if path.endswith(ending)]


async def test_writes_are_ordered_and_reads_query_the_configured_number_of_replicas(
    vectors: QdrantVectors, server: Running
) -> None:
    await put(vectors)
    await vectors.search(axis(0), limit=1, where=Filter())
    (chunk,) = chunks_of(document("a"))
    await vectors.passages([chunk.id])
    await vectors.stored_vectors([document("a").id])
    written = [parameters for method, _, parameters in server.server.parameters if method == "PUT"]
    assert [each.get("ordering") for each in written + asked(server, "/delete")] == ["medium"] * 2
    read = [*asked(server, "/query"), *asked(server, "/scroll")]
    assert [each.get("consistency") for each in read] == ["majority"] * 2


@pytest.mark.parametrize(("replicas", "factor"), [(None, None), (1, 1), (2, 1), (3, 2), (5, 3)])
async def test_a_majority_of_three_and_more_replicas_must_have_a_write(
    server: Running, replicas: int | None, factor: int | None
) -> None:
    async with open_qdrant(server.url, CollectionPlan("factor"), replicas=replicas) as opened:
        await opened.prepare(MODEL)
        assert server.server.made["factor"].write_consistency_factor == factor
        await opened.clear()


@pytest.mark.parametrize("status", [ACKNOWLEDGED, LATE])
async def test_a_write_that_was_accepted_and_not_done_is_repeated(
    vectors: QdrantVectors, server: Running, status: models.UpdateStatus
) -> None:
    server.server.statuses = [status, status]
    await put(vectors)
    assert len([path for method, path, _ in server.calls if (method, path[-7:]) == ("PUT", "/points")]) == 3


async def test_a_write_that_is_never_done_is_an_error(vectors: QdrantVectors, server: Running) -> None:
    server.server.statuses = [LATE] * 9
    with pytest.raises(BackendTimeoutError, match="did not confirm it"):
        await put(vectors)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("Not found: Collection `x` doesn't exist!", NoCollectionError),
        ("Not found: No point with id 7 found", NoPointError),
        ("Not found: Shard 3 of collection x", BackendUnavailableError),
        ("Not found: Peer 17", BackendUnavailableError),
    ],
)
def test_only_a_missing_collection_is_an_empty_index(reason: str, kind: type[BackendError]) -> None:
    body = f'{{"status": {{"error": "{reason}"}}}}'.encode()
    over_http = UnexpectedResponse(404, "Not Found", body, None)  # type: ignore[arg-type]
    over_grpc = grpc.aio.AioRpcError(grpc.StatusCode.NOT_FOUND, None, None, details=reason)
    assert [type(backend_error(error, "x")) for error in (over_http, over_grpc)] == [kind] * 2
    assert issubclass(NoCollectionError, BackendRejectedError)


async def test_an_index_of_other_parameters_is_recreated_once(vectors: QdrantVectors, server: Running) -> None:
    plain = models.PayloadIndexInfo(data_type=models.PayloadSchemaType.KEYWORD, params=None, points=0)
    indexes = server.server.indexes["replicated"]
    indexes["project"] = plain
    await vectors.ping()
    made: Any = indexes["project"].params
    assert made.is_tenant is True
    server.calls.clear()
    indexes["project"] = plain  # a server that does not report the parameters of its index
    await vectors.ping()
    assert not [path for _, path, _ in server.calls if path.endswith("/index")]


async def test_a_server_too_far_from_the_client_is_named_in_health_and_once_in_the_log(
    vectors: QdrantVectors, server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    server.server.version = version("qdrant-client")
    assert "client" not in await vectors.ping()
    server.server.version = "1.2.3"
    with caplog.at_level(logging.WARNING):
        said = [await vectors.ping() for _ in range(2)]
    assert all("server 1.2.3 is too far from the client's" in line for line in said)
    assert len([record for record in caplog.records if "1.2.3" in record.getMessage()]) == 1


async def test_collections_and_their_registry_have_the_configured_replicas(server: Running) -> None:
    async with open_qdrant_collections(server.url, prefix="copies", replicas=2) as provider:
        await provider.create(Collection("docs"))
        await provider.upsert("docs", [Entry("1", "text", {})], np.eye(1, 3, dtype=np.float32))
    made = [asked for name, asked in server.server.made.items() if name.startswith("copies")]
    assert [(asked.replication_factor, asked.write_consistency_factor) for asked in made] == [(2, 1)] * 2


async def seconds(vectors: QdrantVectors) -> float:
    """How long it takes to count what is there, which is one call."""
    began = asyncio.get_running_loop().time()
    assert await vectors.count() == 1
    return asyncio.get_running_loop().time() - began


@pytest.mark.parametrize("transport", ["http", "grpc"])
async def test_where_one_node_is_dead_another_one_answers(server: Running, transport: Transport) -> None:
    url = server.url.replace("127.0.0.1", "[::1]") + f",{server.url.removeprefix('http://')}"
    async with open_qdrant(url, CollectionPlan("nodes"), transport=transport, grpc_port=server.grpc_port) as opened:
        await put(opened)
        assert await opened.count() == 1
        await opened.clear()


@pytest.mark.parametrize("fault", [Refuse(), SERVER_ERROR])
async def test_a_node_that_failed_is_called_last(server: Running, fault: Fault) -> None:
    host = server.url.removeprefix("http://")
    async with (
        fault_proxy("127.0.0.1", int(host.rpartition(":")[2])) as proxy,
        open_qdrant(f"{proxy.url()},{host}", CollectionPlan("nodes"), timeout_s=30.0) as opened,
    ):
        await put(opened)
        proxy.fault = fault
        await opened.count()
        proxy.fault = HangBefore()  # which is not noticed: it is not called any more
        assert await seconds(opened) < 15.0
        await opened.clear()


@pytest.mark.parametrize("is_abandoned", [True, False])
async def test_after_a_node_that_is_silent_the_next_call_goes_to_another(server: Running, is_abandoned: bool) -> None:
    host = server.url.removeprefix("http://")
    async with (
        fault_proxy("127.0.0.1", int(host.rpartition(":")[2])) as proxy,
        open_qdrant(
            f"{proxy.url()},{host}", CollectionPlan("nodes"), timeout_s=60.0 if is_abandoned else 1.0
        ) as opened,
    ):
        await put(opened)
        proxy.fault = HangBefore()
        with pytest.raises((TimeoutError, BackendTimeoutError)):
            async with asyncio.timeout(0.5 if is_abandoned else None):
                await opened.count()
        assert await seconds(opened) < 30.0
        proxy.fault = Pass()
        await opened.clear()


async def test_where_all_nodes_are_dead_the_last_error_counts(server: Running) -> None:
    async with open_qdrant("http://127.0.0.1:1,127.0.0.1:2", CollectionPlan("nodes")) as opened:
        with pytest.raises(BackendUnavailableError, match="cannot be reached"):
            await opened.count()
