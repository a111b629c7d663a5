"""What a server forgets or becomes behind the memory's back: noticed, labelled, and repaired where it can be."""

import asyncio
from typing import Any

import httpx2
import pymongo

from tests.end_to_end.process import command, wait_until
from tests.faults import probes
from tests.faults.backends import COLLECTION, DATABASE, MODEL, Role
from tests.faults.fault_cases import OF, UNAFFECTED
from tests.faults.harness import FaultHarness, component
from tests.faults.load import examined
from tests.servers.embedding_stub import embedding_stub
from tests.servers.faults import Refuse
from tests.servers.process import HOST


def test_a_wiped_vector_store_is_noticed_and_filled_again(memory: FaultHarness) -> None:
    server = f"http://{HOST}:{memory.backends[Role.VECTORS].process.port}"
    assert httpx2.delete(f"{server}/collections/{COLLECTION}").status_code == 200
    assert probes.search(memory, OF[Role.VECTORS]).complaints == ()
    report = memory.memory.health()
    assert component(report, Role.VECTORS)["status"] == "unavailable"
    assert not report["healthy"]
    memory.wait_healthy()
    assert probes.search(memory, UNAFFECTED).complaints == ()
    assert memory.losses() == []
    assert examined(memory) == []


def test_a_dropped_text_index_is_recreated(memory: FaultHarness) -> None:
    process = memory.backends[Role.DOCUMENTS].process
    with pymongo.MongoClient[dict[str, Any]](process.host, process.port) as client:
        documents = client[DATABASE]["C0N7EXT"]
        documents.drop_index("content_text_index")
        assert probes.search(memory, UNAFFECTED).complaints == ()
        wait_until(lambda: "content_text_index" in documents.index_information())
    assert probes.search(memory, UNAFFECTED).complaints == ()


async def test_vectors_of_another_model_are_rejected_until_the_index_is_rebuilt(memory: FaultHarness) -> None:
    embedder = memory.backends[Role.EMBEDDER].process
    embedder.kill()
    assert probes.search(memory, OF[Role.EMBEDDER]).complaints == ()
    try:
        async with embedding_stub(port=embedder.port, dimension=384, seed="another", name=MODEL):
            await asyncio.to_thread(another_model, memory)
    finally:
        embedder.restart()
    await asyncio.to_thread(wait_until, lambda: is_met(memory))
    assert await asyncio.to_thread(reindexed, memory) == 0
    memory.wait_healthy()
    assert memory.losses() == []


def is_met(memory: FaultHarness) -> bool:
    """Whether the embedder answers the memory, with whichever model."""
    embedder = component(memory.memory.health(), Role.EMBEDDER)
    return embedder["status"] == "healthy" or "rag-context reindex" in embedder["detail"]


def another_model(memory: FaultHarness) -> None:
    wait_until(lambda: "rag-context reindex" in component(memory.memory.health(), Role.EMBEDDER)["detail"])
    assert probes.search(memory, OF[Role.EMBEDDER]).complaints == ()
    report = memory.memory.health()
    assert (report["healthy"], report["lmStudioStatus"]) == (False, "unavailable")
    _, reply = memory.write("anothermodelq")
    assert (reply.status_code, reply.json()["status"]) == (200, "pending")
    wait_until(lambda: memory.memory.health()["pendingDocuments"] == 1)
    assert reindexed(memory) == 0
    memory.wait_healthy()
    assert probes.search(memory, UNAFFECTED).complaints == ()
    memory.backends[Role.EMBEDDER].proxy.fault = Refuse()
    assert probes.search(memory, OF[Role.EMBEDDER]).complaints == ()
    memory.backends.lift()


def reindexed(memory: FaultHarness) -> int:
    """Exit status of `rag-context reindex` beside the running server."""
    return command("reindex", data_dir=memory.data_dir, **memory.backends.settings).returncode
