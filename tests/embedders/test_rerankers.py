"""The cross-encoder in this process, on a real graph and tokenizer, and both forms of `/rerank` over real sockets."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rag_context.embedders.model_tokenizer import ModelTokenizer
from rag_context.embedders.onnx_model import BUNDLED
from rag_context.embedders.rerankers import PROBE, CrossEncoder, RerankServer
from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendRejectedError,
    BackendStartingError,
    BackendTimeoutError,
    BackendUnavailableError,
    ConfigurationError,
)
from rag_context.ports.models import Reranker
from rag_context.settings import Settings
from rag_context.wiring.model_adapters import open_reranking
from tests.servers.embedding_stub import Behaviour, EmbeddingStub, Wire, embedding_stub, reply

TIMEOUT_S = 30.0
PASSAGES = ["The gate opens at nine.", "Bread is baked at night.", "At the gate"]


def write_cross_encoder(folder: Path, *, classes: int = 1, window: int | None = None) -> Path:
    """A model whose score is the number of tokens "gate" in the passage, weighed by its token types.

    With a `window` it fails on more tokens than that, as models with positions do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(BUNDLED / "tokenizer.json", folder / "tokenizer.json")
    tokenizer = ModelTokenizer(BUNDLED / "tokenizer.json")
    gate = tokenizer.encode("gate", 10)[0][1]
    weights = np.zeros((1, classes), np.float32)
    weights[0, -1] = 1.0
    constants: dict[str, np.ndarray] = {
        "gate": np.array(gate, np.int64),
        "axis": np.array([1], np.int64),
        "weights": weights,
        "positions": np.zeros((1, window or 1 << 15), np.float32),
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "step": np.array([1], np.int64),
    }
    nodes = [
        helper.make_node("Equal", ["input_ids", "gate"], ["is_gate"]),
        helper.make_node("Cast", ["is_gate"], ["gates"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["gates", "types"], ["said"]),
        helper.make_node("Shape", ["input_ids"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Slice", ["positions", "zero", "length", "axis", "step"], ["places"]),
        helper.make_node("Add", ["said", "places"], ["placed"]),
        helper.make_node("ReduceSum", ["placed", "axis"], ["sum"], keepdims=1),
        helper.make_node("MatMul", ["sum", "weights"], ["logits"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
        for name in ("input_ids", "token_type_ids")
    ]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "cross-encoder", inputs, [output], tensors)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "model.onnx"
    )
    return folder


async def loaded(encoder: CrossEncoder) -> None:
    """Wait until the model is loaded, or has failed to load."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                await encoder.scores(*PROBE)
            except BackendStartingError:
                await asyncio.sleep(0.005)
            except BackendError:
                return
            else:
                return


@asynccontextmanager
async def cross_encoder(folder: Path) -> AsyncIterator[CrossEncoder]:
    """The model of a folder, once its loading has ended."""
    encoder = CrossEncoder(folder, workers=2)
    await encoder.start()
    try:
        await loaded(encoder)
        yield encoder
    finally:
        await encoder.close()


@pytest.mark.parametrize("classes", [1, 2])
async def test_a_cross_encoder_reads_question_and_passage_together(tmp_path: Path, classes: int) -> None:
    async with cross_encoder(write_cross_encoder(tmp_path / "model", classes=classes)) as encoder:
        port: Reranker = encoder
        assert await port.scores("Which gate?", PASSAGES) == [1.0, 0.0, 1.0]
        assert await encoder.scores("", []) == []
        assert await encoder.scores("a lone \ud800 surrogate", ["gate \udfff gate"]) == [2.0]


async def test_what_is_longer_than_the_window_is_cut(tmp_path: Path) -> None:
    async with cross_encoder(write_cross_encoder(tmp_path / "model", window=512)) as encoder:
        (score,) = await encoder.scores("Which gate?", ["gate " * 5000])
        assert 400 < score < 512
        (score,) = await encoder.scores("gate " * 5000, ["gate " * 5000])
        assert 200 < score < 512


async def test_until_the_model_is_loaded_it_is_starting(tmp_path: Path) -> None:
    encoder = CrossEncoder(write_cross_encoder(tmp_path / "model"), workers=1)
    with pytest.raises(BackendStartingError, match="still loading"):
        await encoder.scores("a", ["b"])
    await encoder.close()


@pytest.mark.parametrize("damage", ["model.onnx", "tokenizer.json", "bundled"])
async def test_a_folder_without_a_usable_model_says_what_to_put_there(tmp_path: Path, damage: str) -> None:
    folder = write_cross_encoder(tmp_path / "model")
    if damage == "bundled":  # a sentence model, not a cross-encoder
        shutil.copyfile(BUNDLED / "model.onnx", folder / "model.onnx")
    else:
        (folder / damage).write_bytes(b"nothing of the kind")
    async with cross_encoder(folder) as encoder:
        with pytest.raises(BackendUnavailableError, match=r"cannot rerank: .*; put the model\.onnx"):
            await encoder.scores("a", ["b"])
        write_cross_encoder(folder)
        with pytest.raises(BackendStartingError):
            await encoder.ping()
        await loaded(encoder)
        assert await encoder.scores("Which gate?", PASSAGES) == [1.0, 0.0, 1.0]


async def test_a_caller_that_gives_up_leaves_the_queue_empty(tmp_path: Path) -> None:
    async with cross_encoder(write_cross_encoder(tmp_path / "model")) as encoder:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await encoder.scores("Which gate?", ["gate " * 5000] * 5000)
        assert await encoder.scores("Which gate?", PASSAGES[:1]) == [1.0]


def server(stub: EmbeddingStub, **fields: Any) -> RerankServer:
    chosen: dict[str, Any] = {"model": "stub", "api_key": None, "api": "cohere", "timeout_s": TIMEOUT_S, **fields}
    return RerankServer(stub.url, **chosen)


COHERE = {"id": "1", "results": [{"index": 2, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.5}]}
ALL_OF_COHERE = {**COHERE, "results": [*COHERE["results"], {"index": 1, "relevance_score": -3.5, "document": None}]}
ALL_OF_TEI = [{"index": 2, "score": 0.9}, {"index": 0, "score": 0.5}, {"index": 1, "score": -3.5, "text": None}]


@pytest.mark.parametrize("answer", [ALL_OF_COHERE, ALL_OF_TEI], ids=["cohere", "tei"])
async def test_requests_in_the_form_of_cohere(answer: object) -> None:
    async with embedding_stub(reranking=reply(answer)) as stub:
        reranker = server(stub, api_key="secret")
        assert await reranker.scores("Which gate?", PASSAGES) == [0.5, -3.5, 0.9]
        (request,) = stub.requests
        assert (request.method, request.path) == ("POST", "/v1/rerank")
        assert request.headers["authorization"] == "Bearer secret"
        assert request.fields == {
            "model": "stub",
            "query": "Which gate?",
            "documents": PASSAGES,
            "top_n": 3,
            "return_documents": False,
        }
        await reranker.close()


async def test_requests_in_the_form_of_tei() -> None:
    async with embedding_stub(reranking=reply(ALL_OF_TEI)) as stub:
        reranker = server(stub, api="tei")
        assert await reranker.scores("Which gate?", PASSAGES) == [0.5, -3.5, 0.9]
        (request,) = stub.requests
        assert request.path == "/rerank", "TEI has no version in its path"
        assert request.fields == {"model": "stub", "query": "Which gate?", "texts": PASSAGES, "truncate": True}
        await reranker.close()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reply(COHERE), BackendDataError),
        (reply([*ALL_OF_TEI, {"index": 3, "score": 0.1}]), BackendDataError),
        (reply({"results": [{"index": -1, "relevance_score": 1.0}]}), BackendDataError),
        (reply(b'[{"index": 0, "score": NaN}]'), BackendDataError),
        (reply({"results": "none"}), BackendDataError),
        (reply(b"<html>"), BackendDataError),
        (reply({"error": "no such key"}, 401), BackendRejectedError),
        (reply({"error": "slow down"}, 429), BackendUnavailableError),
        (reply({"error": "broken"}, 500), BackendUnavailableError),
        (reply({"detail": "Not Found"}, 404), BackendRejectedError),
    ],
)
async def test_other_replies_are_errors_of_the_reranker(answer: Behaviour, error: type[BackendError]) -> None:
    async with embedding_stub(reranking=answer) as stub:
        reranker = server(stub)
        with pytest.raises(error) as caught:
            await reranker.scores("Which gate?", PASSAGES)
        assert caught.value.component == "reranker"
        assert "gate" not in str(caught.value), "texts of users are not repeated"
        await reranker.close()


async def test_a_server_that_hangs_is_not_waited_for() -> None:
    gate = asyncio.Event()
    async with embedding_stub() as stub:
        stub.reranking = lambda request: Wire(reply(ALL_OF_TEI)(request).data, until=gate)
        reranker = server(stub, timeout_s=0.05)
        with pytest.raises(BackendTimeoutError):
            await reranker.scores("Which gate?", PASSAGES)
        gate.set()
        await reranker.close()


async def test_a_server_that_is_not_there_cannot_be_reached() -> None:
    async with embedding_stub() as stub:
        reranker = server(stub)
        await stub.stop()
        with pytest.raises(BackendUnavailableError, match="cannot be reached"):
            await reranker.ping()
        await reranker.close()


async def test_a_ping_scores_a_probe() -> None:
    scores = json.dumps([{"index": 0, "score": 1.0}, {"index": 1, "score": 0.0}]).encode()
    async with embedding_stub(reranking=reply(scores)) as stub:
        reranker = server(stub)
        assert await reranker.ping() == f"the reranking server at {stub.url}"
        await reranker.close()


def test_an_address_that_cannot_work_names_the_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"reranker\.url"):
        RerankServer("ftp://localhost", model="m", api_key=None, api="cohere", timeout_s=1.0)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"model_dir": "nowhere"}, "model_dir has no model.onnx"),
        ({"model_dir": "nowhere", "url": "http://127.0.0.1:9"}, "are both set"),
        ({"url": "http://127.0.0.1:9"}, "is set, but no model"),
    ],
)
async def test_settings_that_cannot_work_stop_the_start(tmp_path: Path, fields: dict[str, str], says: str) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path, "reranker": fields})
    with pytest.raises(ConfigurationError, match=says):
        async with open_reranking(settings):
            pass


async def test_without_settings_nothing_is_reranked(tmp_path: Path) -> None:
    async with open_reranking(Settings(data_dir=tmp_path)) as reranking:
        assert reranking is None
