"""Which text is searched for in a conversation, and how often it is embedded (V-6)."""

import logging

import httpx2
import pytest

from rag_context.api.collection_operations import AddDocumentsRequest, NewCollectionRequest
from rag_context.collections.collection_service import CollectionService
from rag_context.collections.collections import Collections
from rag_context.collections.provider_connections import CollectionRef
from rag_context.collections.searching import ConversationQuery, Conversations, Strategy, choose
from rag_context.errors import BackendUnavailableError, NotFoundError
from rag_context.testing.fakes import FakeEmbedder, Fault, Faulty
from tests.collections.memory_collections import MemoryCollections

from .asgi_client import asgi_client
from .services import connections_to, service_over

OPENSHIFT = "InstructLab can be run on OpenShift AI."
RETENTION = "Logs are kept for 31 days."


async def filled(
    service: CollectionService, name: str, *texts: str, connection: str = "default", model: str = "m"
) -> None:
    request = NewCollectionRequest(
        name=name, connection=connection, embedding_provider="rag-context", embedding_model=model
    )
    await service.create(request)
    documents = [{"text": text} for text in texts]
    await service.add(AddDocumentsRequest(name=name, connection=connection, documents=documents))


class TestSelection:
    @pytest.mark.parametrize("topic", [None, "", "   ", "\n\t "])
    def test_a_first_message_is_queried_as_it_is(self, topic: str | None) -> None:
        assert choose("  What is  InstructLab? ", topic) == ConversationQuery(
            "  What is  InstructLab? ", Strategy.FIRST_MESSAGE
        )

    def test_a_follow_up_is_queried_by_the_normalised_topic(self) -> None:
        question = choose("Does it integrate with that?", "  InstructLab\n and  OpenShift AI\tintegration ")
        assert question == ConversationQuery("InstructLab and OpenShift AI integration", Strategy.FOLLOW_UP)

    def test_the_strategies_are_called_as_specified(self) -> None:
        assert [strategy.value for strategy in Strategy] == [
            "first message (raw query)",
            "follow-up (contextualized topic)",
        ]


class TestEmbeddings:
    async def test_one_embedding_serves_all_collections_of_one_connection_and_model(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "rag_context.collections.searching")
        embedder = FakeEmbedder()
        service = service_over({"default": MemoryCollections()}, embedder)
        names = ("a", "b", "c")
        for name in names:
            await filled(service, name, f"{name} {OPENSHIFT}")
        counting = Faulty(embedder, "embed_query")
        providers = {id_: await one.opened() for id_, one in service._collections.connections.items()}
        conversations = Conversations(Collections(connections_to(providers, counting.port)))

        found = await conversations.search(choose("OpenShift", None), [CollectionRef(name) for name in names], limit=5)

        assert counting.calls == 1
        assert (found.embeddings, found.cache_hits, conversations.reused) == (1, 2, 2)
        assert {result.collection for result in found.results} == set(names)
        said = [record.getMessage() for record in caplog.records]
        assert said == ["query strategy: first message (raw query)", *["embedding cache hit: default:m"] * 2]

    async def test_another_connection_or_model_is_embedded_by_itself(self) -> None:
        service = service_over({"default": MemoryCollections(), "archive": MemoryCollections()})
        await filled(service, "a", OPENSHIFT)
        await filled(service, "b", OPENSHIFT, model="other")
        await filled(service, "a", OPENSHIFT, connection="archive")
        conversations = Conversations(service._collections)

        places = [CollectionRef("a"), CollectionRef("b"), CollectionRef("a", "archive"), CollectionRef("a")]
        found = await conversations.search(choose("OpenShift", None), places, limit=5)

        assert (found.embeddings, found.cache_hits, len(found.results)) == (3, 0, 3)


class TestLeavingOut:
    async def test_what_cannot_be_queried_is_reported_and_the_rest_answers(self) -> None:
        dead = Faulty(MemoryCollections())
        dead.fault = Fault(BackendUnavailableError("qdrant", "refused"))
        service = service_over({"default": MemoryCollections(), "dead": dead.port})
        await filled(service, "a", OPENSHIFT)
        await service.create(NewCollectionRequest(name="foreign", embedding_provider="openai"))
        conversations = Conversations(service._collections)

        places = [CollectionRef("a"), CollectionRef("none"), CollectionRef("foreign"), CollectionRef("a", "dead")]
        found = await conversations.search(choose("OpenShift", None), places, limit=5)

        assert [(result.collection, result.connection) for result in found.results] == [("a", "default")]
        assert [(each.collection, each.connection, each.error.split()[0]) for each in found.omitted] == [
            ("none", "default", "Collection"),
            ("foreign", "default", "Collection"),
            ("a", "dead", "refused"),
        ]

    async def test_where_no_backend_can_be_queried_the_first_failure_is_raised(self) -> None:
        conversations = Conversations(service_over({"default": MemoryCollections()})._collections)
        with pytest.raises(NotFoundError, match="Collection 'none' not found"):
            await conversations.search(choose("x", None), [CollectionRef("none"), CollectionRef("neither")], limit=5)


class TestTool:
    async def asked(self, service: CollectionService, **body: object) -> httpx2.Response:
        async with asgi_client(service) as client:
            return await client.post("/tools/rag_context_converse", json=body)

    async def test_a_pronoun_is_resolved_by_the_topic(self) -> None:
        service = service_over({"default": MemoryCollections(), "archive": MemoryCollections()})
        await filled(service, "talks", OPENSHIFT, RETENTION)
        await filled(service, "old:talks", OPENSHIFT, connection="archive")

        reply = await self.asked(
            service,
            userMessage="Does it integrate with that?",
            currentTopic="InstructLab and OpenShift AI integration",
            collections=["talks", "archive:old:talks", "default:none"],
            topK=2,
        )

        body = reply.json()
        assert (body["query"], body["strategy"]) == (
            "InstructLab and OpenShift AI integration",
            "follow-up (contextualized topic)",
        )
        assert [(hit["connection"], hit["collection"], hit["text"]) for hit in body["results"]] == [
            ("default", "talks", OPENSHIFT),
            ("archive", "old:talks", OPENSHIFT),
        ]
        assert body["embeddings"] == 2
        assert body["omitted"] == [
            {"collection": "none", "connection": "default", "error": "Collection 'none' not found"}
        ]

    async def test_a_wrong_request_is_rejected(self) -> None:
        reply = await self.asked(service_over({"default": MemoryCollections()}), userMessage=" ", collections=[])
        assert reply.status_code == 400
        assert [detail["field"] for detail in reply.json()["details"]] == ["userMessage", "collections"]

    async def test_a_collection_that_is_not_there_is_404(self) -> None:
        service = service_over({"default": MemoryCollections()})
        reply = await self.asked(service, userMessage="x", collections=["none"])
        assert (reply.status_code, reply.json()["error"]) == (404, "Collection 'none' not found")
