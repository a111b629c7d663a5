"""The retriever, as LlamaIndex's own classes use it."""

from pathlib import Path

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, NodeWithScore

from rag_context.client import AsyncClient, Client, open_context
from rag_context.errors import InvalidInputError
from rag_context.integrations.llama_index import RagContextRetriever
from rag_context.server.options import ServerOptions
from rag_context.settings import Settings
from tests.end_to_end.process import Served
from tests.server.server_thread import running
from tests.server.stub_service import WARNINGS, StubService

QUESTION = "what does the owl hunt?"


def check(nodes: list[NodeWithScore]) -> None:
    (found,) = nodes
    assert "voles" in found.node.get_content()
    assert found.score is not None
    assert 0 < found.score <= 1
    said = found.node.metadata
    assert (said["source"], said["agent"], said["fallback_level"]) == ("owls.md", "scout", 1)
    assert found.node.node_id == said["chunk_id"]
    assert found.node.source_node is not None
    assert found.node.source_node.node_id == said["document_id"]


async def test_passages_come_as_nodes_with_and_without_coroutines(server: Served) -> None:
    with Client(server.url, api_key="") as client:
        retriever = RagContextRetriever(client, limit=1, tags=["birds"])
        check(retriever.retrieve(QUESTION))
        check(await retriever.aretrieve(QUESTION))
    async with AsyncClient(server.url, api_key="") as async_client:
        check(await RagContextRetriever(async_client, limit=1).aretrieve(QUESTION))
        with pytest.raises(TypeError, match="use aretrieve"):
            RagContextRetriever(async_client).retrieve(QUESTION)


async def test_a_memory_in_this_process_is_retrieved_from(tmp_path: Path) -> None:
    async with open_context(Settings(data_dir=tmp_path)) as context:
        await context.index("Voles sleep.", content_type="chat", session_id="s", source="talk")
        nodes = await RagContextRetriever(context).aretrieve("voles")
    assert [node.node.get_content() for node in nodes] == ["Voles sleep."]


def test_a_query_engine_puts_the_passages_before_its_model(server: Served) -> None:
    with Client(server.url, api_key="") as client:
        engine = RetrieverQueryEngine.from_args(RagContextRetriever(client, limit=1), llm=MockLLM())
        answer = engine.query(QUESTION)
    check(answer.source_nodes)
    assert "hunts voles at night" in str(answer)
    assert "source: owls.md" in str(answer)
    assert "chunk_id" not in str(answer)  # what is for programs is not shown to a model
    assert "chunk_id" not in answer.source_nodes[0].node.get_content(MetadataMode.EMBED)


def test_a_filter_that_does_not_exist_is_rejected_when_it_is_given(server: Served) -> None:
    with Client(server.url, api_key="") as client, pytest.raises(InvalidInputError, match="contenttype"):
        RagContextRetriever(client, contenttype="chat")  # type: ignore[call-arg]


def test_a_degraded_answer_carries_its_level_and_its_warning() -> None:
    with (
        running(StubService(level=2), ServerOptions(port=0)) as http_server,
        Client(http_server.url, api_key="") as client,
    ):
        (node,) = RagContextRetriever(client, limit=1).retrieve("anything")
        assert node.node.metadata["fallback_level"] == 2
        assert node.node.metadata["warning"] == WARNINGS[2]
