"""`rag-context embed-server` as a process: OpenAI's API over the bundled model, for clients and for our embedder."""

import asyncio
import base64
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import numpy as np
import pytest

from rag_context.embedders.onnx import OnnxEmbedder
from tests.cli.run_command import Commands, Ended, Served, ended
from tests.embedders.remote_embedder import TIMEOUT_S, embedder_over
from tests.end_to_end.process import wait_until

EMBEDDINGS = "/v1/embeddings"
TEXTS = ["MongoDB connections use retry logic.", "", "Grüße aus Köln, 東京 and 🎰"]


@contextmanager
def embedding(commands: Commands, *words: str) -> Iterator[Served]:
    """A server on a free port, for the time of the block; what it says on stderr names the port."""
    process = commands.start("embed-server", "--port", "0", "--log-level", "warning", *words)
    stuck = threading.Timer(TIMEOUT_S, process.kill)
    stuck.start()
    try:
        assert process.stderr is not None
        line = next((line for line in process.stderr if " embeds at " in line), "")
        stuck.cancel()
        assert line, f"the server did not start: {process.poll()}"
        url = line.partition(" embeds at ")[2].partition(EMBEDDINGS)[0]
        yield Served(process, url)
    finally:
        stuck.cancel()
        if process.poll() is None:
            process.terminate()
            ended(process)


def wait_ready(url: str) -> None:
    """Wait until the model is loaded."""
    wait_until(lambda: httpx2.get(f"{url}/ready", trust_env=False).status_code == 200)


@dataclass(frozen=True)
class Open:
    """A running server with a client for it."""

    url: str
    client: httpx2.Client

    def embed(self, **fields: object) -> httpx2.Response:
        return self.client.post(EMBEDDINGS, json=fields)


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    folder: Path = tmp_path_factory.mktemp("embed-server")
    return Commands(folder)


@pytest.fixture(scope="session")
def server(commands: Commands) -> Iterator[Open]:
    with (
        embedding(commands) as served,
        httpx2.Client(base_url=served.url, trust_env=False, timeout=TIMEOUT_S) as client,
    ):
        wait_ready(served.url)
        yield Open(served.url, client)


async def own_vectors(texts: list[str]) -> np.ndarray:
    embedder = OnnxEmbedder(workers=1)
    await embedder.start()
    await embedder.ready(TIMEOUT_S)
    rows = await embedder.embed_documents(texts)
    await embedder.close()
    return rows


async def test_our_embedder_over_it_gives_the_bundled_models_vectors(server: Open) -> None:
    """Replicas share one model."""
    own = await own_vectors(TEXTS[:1] + TEXTS[2:])
    async with embedder_over(server.url, model="all-MiniLM-L6-v2") as embedder:
        assert (embedder.model.dimension, embedder.model.window) == (384, 254)
        np.testing.assert_allclose(await embedder.embed_documents(TEXTS[:1] + TEXTS[2:]), own, atol=1e-6)
        np.testing.assert_allclose(await embedder.embed_query(TEXTS[0]), own[0], atol=1e-6)
        rows = await embedder.embed_documents([f"text {n}" for n in range(100)] + ["word " * 3000])
        assert rows.shape == (101, 384)


def test_a_list_of_texts_is_answered_in_openais_shape(server: Open) -> None:
    body = server.embed(input=["red fox", "blue whale sings"], model="sentence-transformers/all-MiniLM-L6-v2").json()
    assert (body["object"], body["model"]) == ("list", "all-MiniLM-L6-v2")
    assert body["usage"] == {"prompt_tokens": 5, "total_tokens": 5}
    assert [(row["object"], row["index"], len(row["embedding"])) for row in body["data"]] == [
        ("embedding", 0, 384),
        ("embedding", 1, 384),
    ]


def test_base64_and_a_single_text_work(server: Open) -> None:
    (row,) = server.embed(input="red fox", encoding_format="base64").json()["data"]
    numbers = np.frombuffer(base64.b64decode(row["embedding"]), "<f4")
    np.testing.assert_allclose(numbers, server.embed(input=["red fox"]).json()["data"][0]["embedding"], atol=1e-7)


def test_as_many_texts_as_openai_accepts_are_accepted(server: Open) -> None:
    assert len(server.embed(input=["fox"] * 2048).json()["data"]) == 2048


def test_a_body_above_the_limit_of_the_whole_server_is_accepted(server: Open) -> None:
    assert server.embed(input=" " * 1_100_000 + "fox").status_code == 200


@pytest.mark.parametrize("tokens", [[1, 2, 3], [[1, 2, 3]]])
def test_token_ids_are_rejected_by_field(server: Open, tokens: list[object]) -> None:
    reply = server.embed(input=tokens)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == "input[0]"
    assert error["message"].startswith("input[0] must be a string")


def test_it_reports_its_model_and_its_health(server: Open) -> None:
    assert [model["id"] for model in server.client.get("/v1/models").json()["data"]] == ["all-MiniLM-L6-v2"]
    assert server.client.get("/health").json() == {"healthy": True}
    assert server.client.get("/live").json()["status"] == "ok"


def test_nothing_else_is_served_and_errors_have_the_one_shape(server: Open) -> None:
    for path in ("/tools", "/", "/metrics"):
        reply = server.client.get(path)
        assert (reply.status_code, reply.json()["code"]) == (404, "NOT_FOUND")
    reply = server.client.get("/v1/chat/completions")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
    assert server.client.get(EMBEDDINGS).status_code == 405
    assert server.client.post(EMBEDDINGS, content=b"x", headers={"Content-Type": "text/plain"}).status_code == 415
    assert server.client.get("/v1/models", headers={"Host": "evil.example"}).status_code == 403


async def test_with_a_key_only_its_holders_may_embed_and_sigterm_ends_it_cleanly(commands: Commands) -> None:
    with embedding(commands, "--api-key", "sesame", "--workers", "1") as served:
        wait_ready(served.url)
        async with embedder_over(served.url, model="all-MiniLM-L6-v2", api_key="sesame") as embedder:
            await embedder.embed_query("open")
        async with httpx2.AsyncClient(base_url=served.url, trust_env=False) as other_program:
            assert (await other_program.post(EMBEDDINGS, json={"input": "a"})).status_code == 401
            assert (await other_program.get("/v1/models")).status_code == 401
            assert (await other_program.get("/health")).status_code == 200
        end: Ended = await asyncio.to_thread(served.stop, signal.SIGTERM)
        assert end.status == 0
        assert "sesame" not in end.err
        assert "Traceback" not in end.err


def test_it_does_not_listen_on_the_network_without_a_key(commands: Commands) -> None:
    end = commands("embed-server", "--host", "0.0.0.0", "--port", "0")
    assert end.status == 78
    assert "without an API key" in end.err
    assert end.err.count("\n") == 1


def test_a_port_in_use_is_one_sentence(commands: Commands, server: Open) -> None:
    end = commands("embed-server", "--port", server.url.rpartition(":")[2])
    assert end.status == 78
    assert "is in use" in end.err
    assert end.err.count("\n") == 1


def test_another_embedder_in_the_environment_does_not_keep_it_from_serving_its_own_model(commands: Commands) -> None:
    elsewhere = commands.with_variables(LM_STUDIO_URL="http://127.0.0.1:9", QDRANT_URL="http://127.0.0.1:9")
    with embedding(elsewhere) as served:
        wait_ready(served.url)
