"""The embedder over llama.cpp's own server, with the weights that the bundled model is made from."""

from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest

from rag_context.embedders.onnx import OnnxEmbedder
from rag_context.embedders.openai_embedder import OpenAIEmbedder
from rag_context.errors import BackendRejectedError, BackendUnavailableError
from tests.embedders.remote_embedder import TIMEOUT_S, embedder_over
from tests.servers.llama import NAME, Llama, llama_server

KEY = "sesame"
TEXTS = [
    "MongoDB connections use retry logic with exponential backoff.",
    "Grand",
    "Grüße aus Köln, 東京 and 🎰",
    "def retry(attempts: int) -> None:\n    for attempt in range(attempts):\n        connect()",
    *(f"spin {n} " * (n + 1) for n in range(36)),
]


@pytest.fixture(scope="session")
def llama() -> Iterator[Llama]:
    with llama_server(KEY) as server:
        yield server


@pytest.fixture
async def embedder(llama: Llama) -> AsyncIterator[OpenAIEmbedder]:
    async with embedder_over(llama.url, model=NAME, api_key=KEY) as embedder:
        yield embedder


@pytest.fixture
async def bundled() -> AsyncIterator[OnnxEmbedder]:
    embedder = OnnxEmbedder(workers=1)
    await embedder.start()
    await embedder.ready(TIMEOUT_S)
    yield embedder
    await embedder.close()


async def test_its_vectors_are_those_of_the_bundled_model(embedder: OpenAIEmbedder, bundled: OnnxEmbedder) -> None:
    assert (embedder.model.name, embedder.model.dimension, embedder.model.window) == (NAME, 384, 254)
    assert embedder.model.calibration == bundled.model.calibration
    served, own = await embedder.embed_documents(TEXTS), await bundled.embed_documents(TEXTS)
    assert served.shape == (40, 384)
    assert np.sum(served * own, axis=1).min() >= 0.98
    assert (served @ own.T).argmax(axis=1).tolist() == list(range(40))
    query = await embedder.embed_query(TEXTS[0])
    assert query @ served[0] > 0.9999


async def test_base64_gives_the_same_vectors(llama: Llama, embedder: OpenAIEmbedder) -> None:
    async with embedder_over(llama.url, model=NAME, api_key=KEY, encoding_format="base64") as other:
        np.testing.assert_allclose(await other.embed_documents(TEXTS), await embedder.embed_documents(TEXTS), atol=1e-4)


async def test_a_text_that_is_too_long_is_cut_and_does_not_keep_the_others_from_their_vectors(
    embedder: OpenAIEmbedder,
) -> None:
    rows = await embedder.embed_documents(["first", "word " * 2000, "last"])
    cut = await embedder.embed_query("word " * 254)
    assert rows[1] @ cut > 0.9999
    assert rows[0] @ await embedder.embed_query("first") > 0.9999
    assert rows[2] @ await embedder.embed_query("last") > 0.9999


async def test_a_wrong_key_is_rejected_by_naming_the_setting(llama: Llama) -> None:
    async with embedder_over(llama.url, model=NAME, api_key="guessed") as embedder:
        with pytest.raises(BackendUnavailableError, match=r"rejects the key in embedder\.api_key"):
            _ = embedder.model
        with pytest.raises(BackendRejectedError, match=r"rejects the key in embedder\.api_key") as caught:
            await embedder.ping()
        assert "guessed" not in str(caught.value)


async def test_a_restarted_server_is_the_same_model(embedder: OpenAIEmbedder) -> None:
    """D-10: a restart of the same server never looks like another model."""
    with llama_server() as again:
        async with embedder_over(again.url, model=NAME) as other:
            assert other.model == embedder.model
