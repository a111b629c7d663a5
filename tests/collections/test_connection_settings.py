"""`connections.<id>`: from the file and from variables, checked, and shown without secrets (M-4, V-6)."""

import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest

from rag_context.errors import ConfigurationError
from rag_context.server.app import create_app
from rag_context.server.options import ServerOptions
from rag_context.settings import ConnectionSettings, Loaded, Settings, load_settings, shown
from rag_context.wiring.opening import open_service
from tests.servers.embedding_stub import embedding_stub

FILE = """
[connections.archive]
provider = "qdrant"
url = "http://user:hidden@qdrant:6333"
api_key = "from-the-file"
tls = true

[connections.archive.embedder]
kind = "openai_compatible"
url = "http://localhost:8080"
api_key = "also-hidden"
"""


def load(folder: Path, text: str = "", environ: Mapping[str, str] | None = None) -> Loaded:
    (folder / "rag-context.toml").write_text(text)
    return load_settings(flags={}, environ=environ or {}, cwd=folder)


def test_there_are_none_by_default(tmp_path: Path) -> None:
    assert load(tmp_path).settings.connections == {}


def test_a_table_names_the_provider_and_its_configuration(tmp_path: Path) -> None:
    archive = load(tmp_path, FILE).settings.connections["archive"]
    assert archive.provider == "qdrant"
    assert archive.configuration == {"url": "http://user:hidden@qdrant:6333", "api_key": "from-the-file", "tls": True}
    assert archive.embedder is not None
    assert (archive.embedder.kind, archive.embedder.model) == ("openai_compatible", "nomic-embed-text-v1.5")


def test_variables_go_over_the_file_key_by_key(tmp_path: Path) -> None:
    environ = {
        "RAG_CONTEXT_CONNECTIONS": json.dumps(
            {"archive": {"url": "http://other:1"}, "second": {"provider": "embedded"}}
        ),
        "RAG_CONTEXT_CONNECTIONS__ARCHIVE__API_KEY": "from-a-variable",
        "RAG_CONTEXT_CONNECTIONS__ARCHIVE__EMBEDDER__MODEL": "bge-m3",
        "RAG_CONTEXT_CONNECTIONS__ARCHIVE__TLS": " ",
    }
    loaded = load(tmp_path, FILE, environ)
    archive = loaded.settings.connections["archive"]
    assert archive.configuration == {"url": "http://other:1", "api_key": "from-a-variable", "tls": True}
    assert archive.embedder is not None
    assert (archive.embedder.model, archive.embedder.url) == ("bge-m3", "http://localhost:8080")
    assert loaded.settings.connections["second"].provider == "embedded"
    assert loaded.sources["connections"] == (
        "file rag-context.toml and environment RAG_CONTEXT_CONNECTIONS and environment RAG_CONTEXT_CONNECTIONS__*"
    )


def test_no_secret_is_shown(tmp_path: Path) -> None:
    text = json.dumps(shown(load(tmp_path, FILE).settings)["connections"])
    assert "hidden" not in text
    assert "from-the-file" not in text
    assert '"provider": "qdrant"' in text
    assert "@qdrant:6333" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[connections.My]\nprovider = "qdrant"',
            (
                "connections.My (file rag-context.toml): an id must have 1 to 64 of a-z, 0-9, _ and -, and begin "
                "with a letter."
            ),
        ),
        ("[connections.archive]\nurl = 'x'", "connections.archive.provider (file rag-context.toml) is missing."),
        (
            "[connections.archive]\nprovider = 5",
            "connections.archive.provider (file rag-context.toml) must be a text of 1 to 200 characters.",
        ),
        ("[connections]\narchive = 5", "connections.archive (file rag-context.toml) must be a table with provider."),
        (
            "connections = 5",
            "connections (file rag-context.toml) must be tables with provider, and what that provider asks for.",
        ),
        (
            "[connections.a]\nprovider='qdrant'\nembedder = 5",
            "connections.a.embedder (file rag-context.toml) must be a table.",
        ),
        (
            "[connections.a]\nprovider='qdrant'\n[connections.a.embedder]\nworkers = -1",
            "connections.a.embedder.workers (file rag-context.toml) must be a whole number from 0 to 256.",
        ),
    ],
)
def test_what_is_malformed_is_one_sentence_without_values(tmp_path: Path, text: str, said: str) -> None:
    """M-5."""
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text)
    assert str(caught.value) == said


def test_an_unknown_key_of_an_embedder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"connections\.a\.embedder\.modle .* is not a setting; known are kind"
    ):
        load(tmp_path, "[connections.a]\nprovider='qdrant'\n[connections.a.embedder]\nmodle = 'x'")


@pytest.mark.parametrize("text", ["[]", "x", "{"])
def test_a_variable_with_all_of_them_is_a_json_object(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"connections \(environment RAG_CONTEXT_CONNECTIONS\) must be a JSON"):
        load(tmp_path, environ={"RAG_CONTEXT_CONNECTIONS": text})


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
