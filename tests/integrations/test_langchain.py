"""The retriever and the vector store, as LangChain's own classes use them."""

import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from pydantic import ValidationError

from rag_context.client import AsyncClient, Client, NotFoundError, open_context
from rag_context.errors import InvalidInputError
from rag_context.integrations.langchain import RagContextRetriever, RagContextVectorStore
from rag_context.server.options import ServerOptions
from rag_context.settings import Settings
from tests.end_to_end.process import Served
from tests.server.server_thread import running
from tests.server.stub_service import WARNINGS, StubService

QUESTION = "what does the owl hunt?"


def check(documents: list[Document]) -> None:
    (document,) = documents
    assert "voles" in document.page_content
    said = document.metadata
    assert (said["source"], said["agent"], said["tags"], said["game"]) == ("owls.md", "scout", ["birds"], "Owls")
    assert isinstance(said["score"], float)  # ours, and not what the writer called so
    assert said["fallback_level"] == 1
    assert "warning" not in said
    assert document.id == said["chunk_id"]


async def test_passages_come_as_documents_with_and_without_coroutines(server: Served) -> None:
    with Client(server.url, api_key="") as client:
        retriever = RagContextRetriever(client=client, options={"limit": 1, "tags": ["birds"]})
        check(retriever.invoke(QUESTION))
        check(await retriever.ainvoke(QUESTION))
        assert [len(found) for found in retriever.batch([QUESTION, QUESTION])] == [1, 1]
    async with AsyncClient(server.url, api_key="") as async_client:
        retriever = RagContextRetriever(client=async_client, options={"limit": 1})
        check(await retriever.ainvoke(QUESTION))
        with pytest.raises(TypeError, match="use ainvoke"):
            retriever.invoke(QUESTION)


async def test_k_is_the_number_of_passages_of_a_retriever_or_of_one_call(server: Served) -> None:
    with Client(server.url, api_key="") as client:
        retriever = RagContextRetriever(client=client, k=2, options={"limit": 1, "min_score": 0.0})
        assert len(retriever.invoke("what do animals do?")) == 2
        assert len(retriever.invoke("what do animals do?", k=1)) == 1
        assert len(await retriever.ainvoke("what do animals do?", k=1)) == 1
        with pytest.raises(InvalidInputError, match="limit"):
            RagContextRetriever(client=client, k=0)
    async with AsyncClient(server.url, api_key="") as async_client:
        retriever = RagContextRetriever(client=async_client, k=2, options={"min_score": 0.0})
        assert [len(await retriever.ainvoke("what do animals do?", k=k)) for k in (None, 1)] == [2, 1]


async def test_a_memory_in_this_process_is_retrieved_from(tmp_path: Path) -> None:
    async with open_context(Settings(data_dir=tmp_path)) as context:
        await context.index("Voles sleep.", content_type="chat", session_id="s", source="talk")
        documents = await RagContextRetriever(client=context).ainvoke("voles")
    assert [document.page_content for document in documents] == ["Voles sleep."]


def test_it_is_a_link_of_a_chain(server: Served) -> None:
    with Client(server.url, api_key="") as client:
        texts = RunnableLambda[list[Document], list[str]](lambda found: [document.page_content for document in found])
        chain = RagContextRetriever(client=client, options={"source": "foxes*"}) | texts
        assert chain.invoke("where do foxes live?") == ["Red foxes dig their dens in sandy slopes."]


def test_a_filter_that_does_not_exist_is_rejected_when_it_is_given(server: Served) -> None:
    with Client(server.url, api_key="") as client, pytest.raises(InvalidInputError, match="contenttype"):
        RagContextRetriever(client=client, options={"contenttype": "chat"})  # type: ignore[typeddict-unknown-key]


def test_a_filter_beside_the_options_is_rejected_instead_of_ignored(server: Served) -> None:
    with Client(server.url, api_key="") as client, pytest.raises(ValidationError, match="session_id"):
        RagContextRetriever(client=client, session_id="s-1")  # type: ignore[call-arg]


def test_a_degraded_answer_carries_its_level_and_its_warning() -> None:
    with (
        running(StubService(level=2), ServerOptions(port=0)) as http_server,
        Client(http_server.url, api_key="") as client,
    ):
        documents = RagContextRetriever(client=client, options={"limit": 2}).invoke("anything")
        assert len(documents) == 2
        for document in documents:
            assert document.metadata["fallback_level"] == 2
            assert document.metadata["warning"] == WARNINGS[2]


def test_the_run_of_a_chain_is_found_in_the_servers_log() -> None:
    stub = StubService()
    with running(stub, ServerOptions(port=0)) as http_server, Client(http_server.url, api_key="") as client:
        RagContextRetriever(client=client).invoke("anything", run_id=UUID(int=7))
    assert stub.request_ids == [str(UUID(int=7))]


ANIMALS = ["The barn owl hunts voles at night.", "Owls of the barn eat voles at night.", "Foxes dig dens in sand."]


def test_a_vector_store_creates_its_collection_and_the_server_embeds(server: Served) -> None:
    with Client(server.url, api_key="") as client:
        missing = RagContextVectorStore(client, "misspelt")
        with pytest.raises(NotFoundError):
            missing.similarity_search("owls")
        store = RagContextVectorStore.from_texts(
            ANIMALS, None, [{"kind": "owl"}, {"kind": "owl"}, {"kind": "fox"}], client=client, collection="animals"
        )
        assert client.collections.get("animals").embedding_provider == "rag-context"
        assert [each.metadata["kind"] for each in store.similarity_search("where do foxes live?", k=1)] == ["fox"]
        assert len(store.similarity_search("where do foxes live?", filter={"kind": "owl"})) == 2
        ((_, relevance),) = store.similarity_search_with_relevance_scores("where do foxes live?", k=1)
        assert 0.0 < relevance <= 1.0
        assert [each.page_content for each in store.similarity_search("sand", mode="text")] == ANIMALS[2:]
        hybrid = RagContextVectorStore(client, "animals", mode="hybrid").as_retriever(search_kwargs={"k": 1})
        assert hybrid.invoke("what lies in sand?")[0].page_content == ANIMALS[2]
        with pytest.raises(TypeError, match="filters"):
            store.similarity_search("owls", filters={"kind": "fox"})


def test_diverse_results_leave_out_what_says_the_same(server: Served) -> None:
    with Client(server.url, api_key="") as client:
        store = RagContextVectorStore(client, "diverse")
        store.add_texts(ANIMALS)
        query = "what do owls of the barn hunt at night?"
        assert {each.page_content for each in store.similarity_search(query, k=2)} == set(ANIMALS[:2])
        diverse = store.max_marginal_relevance_search(query, k=2, fetch_k=3, lambda_mult=0.2)
        assert {each.page_content for each in diverse} > {ANIMALS[2]}


def test_many_texts_are_stored_in_batches_and_all_are_deleted(server: Served) -> None:
    with Client(server.url, api_key="") as client:
        store = RagContextVectorStore(client, "many")
        ids = store.add_texts((f"Owl number {number}." for number in range(120)), ids=[f"{n}" for n in range(120)])
        assert [each.id for each in store.get_by_ids([*reversed(ids), "unknown"])] == list(reversed(ids))
        with pytest.raises(ValueError, match="2 texts need as many ids, not 1"):
            store.add_texts(["a", "b"], ids=["1"])
        store.delete()
        assert store.similarity_search("owl") == []


@pytest.mark.parametrize(
    ("module", "framework", "extra"),
    [("langchain", "langchain_core", "langchain"), ("llama_index", "llama_index", "llama-index")],
)
def test_without_the_framework_the_error_names_the_extra(module: str, framework: str, extra: str) -> None:
    code = f"import sys; sys.modules[{framework!r}] = None; import rag_context.integrations.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"pip install 'rag-context[{extra}]'" in done.stderr.splitlines()[-1]
