"""The whole service as it is wired: the real model, the data directory, a connection with an embedder of its own."""

from pathlib import Path
from urllib.parse import quote

import httpx2

from rag_context.server.app import create_app
from rag_context.server.options import ServerOptions
from rag_context.settings import ConnectionSettings, Settings
from rag_context.wiring import open_service
from tests.servers.embedding_stub import embedding_stub

TEXTS = ["The pump in the cellar is blue.", "Valve seven opens at nine bar."]


async def test_texts_are_embedded_by_the_model_of_their_connection(tmp_path: Path) -> None:
    """V-4, V-6."""
    async with embedding_stub() as stub:
        own = ConnectionSettings.model_validate(
            {"provider": "embedded", "embedder": {"kind": "openai_compatible", "url": stub.url, "model": "custom"}}
        )
        async with open_service(Settings(data_dir=tmp_path, connections={"own": own})) as service:
            assert await service.wait_ready(30)
            transport = httpx2.ASGITransport(create_app(service, ServerOptions()))
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
                for name, connection, dimension in (("a/b", "default", 384), ("c", "own", stub.dimension)):
                    at = f"/collections/{quote(name, safe='')}"
                    fields = {"connection": connection}
                    made = {"name": name, "embedding_provider": "rag-context"}
                    await client.post("/collections", json=made, params=fields)
                    documents = {"documents": [{"text": text} for text in TEXTS]}
                    assert (await client.post(f"{at}/documents", json=documents, params=fields)).is_success
                    assert (await client.get(at, params=fields)).json()["dimension"] == dimension
                    asked = {"text": TEXTS[1], "top_k": 1}
                    found = (await client.post(f"{at}/query", json=asked, params=fields)).json()["results"]
                    assert [hit["text"] for hit in found] == [TEXTS[1]]
                message = {"userMessage": "which colour has the pump", "collections": ["a/b", "default:a/b"]}
                body = (await client.post("/tools/rag_context_converse", json=message)).json()
                assert body["results"][0]["text"] == TEXTS[0]
                tested = (await client.post("/providers/embedded/test", json={"connection": "own"})).json()
                assert (tested["status"], tested["collections"]) == ("healthy", 2)
