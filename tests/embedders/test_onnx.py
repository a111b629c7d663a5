"""The bundled model, embedded in this process, and what happens when its files are not as they should be."""

import asyncio
import hashlib
import json
import logging
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rag_context.embedders.model_tokenizer import ModelTokenizer
from rag_context.embedders.onnx import BUNDLED, OnnxEmbedder
from rag_context.errors import BackendDataError, BackendRejectedError, BackendStartingError, BackendUnavailableError
from rag_context.ports.models import Embedder

TIMEOUT_S = 30.0
TEXTS = [
    "MongoDB connections use retry logic with exponential backoff.",
    "Grand",
    "Grüße aus Köln, 東京 and 🎰 " * 30,
    "def retry(attempts: int) -> None:\n    for attempt in range(attempts):\n        connect()",
    "",
    *(f"spin {n} " * (n % 40 + 1) for n in range(60)),
]


async def opened(directory: Path = BUNDLED, *, workers: int = 2) -> OnnxEmbedder:
    """An embedder that has loaded its model, or failed to."""
    embedder = OnnxEmbedder(directory, workers=workers)
    await embedder.start()
    await embedder.ready(TIMEOUT_S)
    return embedder


@pytest.fixture
async def embedder() -> AsyncIterator[OnnxEmbedder]:
    embedder = await opened()
    yield embedder
    await embedder.close()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the bundled model that a test may damage."""
    directory = tmp_path / "my-model"
    directory.mkdir()
    for name in ("model.onnx", "tokenizer.json", "manifest.json"):
        shutil.copyfile(BUNDLED / name, directory / name)
    return directory


def write_table_model(directory: Path, table: np.ndarray, *, outputs: int = 2, name: str = "input_ids") -> None:
    """A model that answers the mean of its tokens' rows in a table; `outputs` is the rank of what it answers."""
    last = "mean" if outputs == 2 else "rows"
    nodes = [
        helper.make_node("Gather", ["table", name], ["rows"]),
        helper.make_node("ReduceMean", ["rows", "axis"], ["mean"], keepdims=0),
    ]
    shape = ["batch", "tokens", table.shape[1]] if outputs == 3 else ["batch", table.shape[1]]
    graph = helper.make_graph(
        nodes[: 2 if outputs == 2 else 1],
        "table",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)],
        [
            numpy_helper.from_array(table.astype(np.float32), "table"),
            numpy_helper.from_array(np.array([1], np.int64), "axis"),
        ],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), directory / "model.onnx"
    )
    (directory / "manifest.json").unlink()


async def failure(directory: Path) -> str:
    """Why the model in a directory cannot be used, as every call says it."""
    embedder = await opened(directory)
    assert not await embedder.ready(0)
    messages = set()
    for call in (embedder.embed_query("text"), embedder.embed_documents(["text"]), embedder.ping()):
        with pytest.raises(BackendUnavailableError) as caught:
            await call
        assert not isinstance(caught.value, BackendStartingError)
        assert caught.value.component == "embedder"
        messages.add(str(caught.value))
    with pytest.raises(BackendUnavailableError):
        _ = embedder.model
    await embedder.close()
    (message,) = messages
    return message


# --- the vectors


async def test_it_fits_the_port_and_describes_the_bundled_model(embedder: OnnxEmbedder) -> None:
    port: Embedder = embedder
    manifest = json.loads((BUNDLED / "manifest.json").read_text())
    assert port.model.name == "all-MiniLM-L6-v2"
    assert (port.model.dimension, port.model.window) == (384, 254)
    assert port.model.fingerprint == manifest["sha256"]["model.onnx"]
    assert port.model.calibration.threshold == 0.3


def test_the_bundled_files_are_those_of_the_manifest() -> None:
    manifest = json.loads((BUNDLED / "manifest.json").read_text())
    found = {name: hashlib.sha256((BUNDLED / name).read_bytes()).hexdigest() for name in manifest["sha256"]}
    assert found == manifest["sha256"]
    assert found["tokenizer.json"] == manifest["source"]["sha256"]["tokenizer.json"]
    assert "Apache License" in (BUNDLED / "LICENSE").read_text()


async def test_a_paraphrase_is_nearer_than_another_subject(embedder: OnnxEmbedder) -> None:
    query = await embedder.embed_query("How do we reconnect to the database?")
    same, other = await embedder.embed_documents(
        ["Connections to MongoDB are retried with backoff.", "The grand jackpot pays five hundred dollars."]
    )
    assert query @ same > 0.4
    assert query @ other < 0.2


async def test_the_same_text_gives_the_same_bits_whatever_runs_beside_it(embedder: OnnxEmbedder) -> None:
    alone = [await embedder.embed_query(text) for text in TEXTS]
    together = await asyncio.gather(
        embedder.embed_documents(TEXTS),
        embedder.embed_documents(TEXTS[::-1]),
        *(embedder.embed_documents([text, text * 2]) for text in TEXTS),
        *(embedder.embed_query(text) for text in TEXTS),
    )
    count = len(TEXTS)
    assert together[0].dtype == np.float32
    assert together[0].shape == (count, 384)
    assert np.array_equal(together[0], alone)
    assert np.array_equal(together[1][::-1], alone)
    assert np.array_equal([rows[0] for rows in together[2 : 2 + count]], alone)
    assert np.array_equal(together[2 + count :], alone)


async def test_another_instance_gives_the_same_bits(embedder: OnnxEmbedder) -> None:
    other = await opened(workers=1)
    assert np.array_equal(await other.embed_documents(TEXTS), await embedder.embed_documents(TEXTS))
    await other.close()


async def test_every_vector_has_norm_one(embedder: OnnxEmbedder) -> None:
    rows = await embedder.embed_documents(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)


async def test_no_documents_give_no_rows(embedder: OnnxEmbedder) -> None:
    assert (await embedder.embed_documents([])).shape == (0, 384)


async def test_a_query_does_not_wait_for_queued_documents() -> None:
    embedder = await opened(workers=1)
    documents = asyncio.create_task(embedder.embed_documents([f"{n} " + "long text " * 100 for n in range(50)]))
    await asyncio.sleep(0)
    await embedder.embed_query("urgent")
    assert not documents.done()
    assert len(await documents) == 50
    await embedder.close()


async def test_cancelled_documents_make_way() -> None:
    embedder = await opened(workers=1)
    given_up = asyncio.create_task(embedder.embed_documents([f"{n} " + "long text " * 100 for n in range(50)]))
    kept = asyncio.create_task(embedder.embed_documents([f"{n} " + "long text " * 100 for n in range(40, 45)]))
    await asyncio.sleep(0)
    given_up.cancel()
    rows = await kept
    assert given_up.cancelled()
    assert np.array_equal(rows[0], await embedder.embed_query("40 " + "long text " * 100))
    await embedder.close()


async def test_a_text_longer_than_the_window_is_cut_with_one_warning(
    embedder: OnnxEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        fits = await embedder.embed_query("word " * 254)
        assert not caplog.records
        longer = await embedder.embed_query("word " * 255)
        longest = await embedder.embed_query("word " * 2000)
    assert np.array_equal(fits, longer)
    assert np.array_equal(fits, longest)
    assert [record.getMessage() for record in caplog.records] == [
        "a text of 1275 characters was cut to the 254 tokens that all-MiniLM-L6-v2 reads; further cuts are not reported"
    ]


async def test_a_lone_surrogate_is_read_as_an_unknown_character(embedder: OnnxEmbedder) -> None:
    broken = await embedder.embed_query("retry \ud800 logic")
    assert np.array_equal(broken, await embedder.embed_query("retry \ufffd logic"))


# --- loading and closing


async def test_while_the_model_loads_every_call_says_so() -> None:
    embedder = OnnxEmbedder(workers=1)
    await embedder.start()
    with pytest.raises(BackendStartingError, match="still loading") as caught:
        _ = embedder.model
    assert caught.value.component == "embedder"
    for call in (embedder.embed_query("text"), embedder.embed_documents(["text"]), embedder.ping()):
        with pytest.raises(BackendStartingError):
            await call
    assert not await embedder.ready(0)
    assert await embedder.ready(TIMEOUT_S)
    assert embedder.model.dimension == 384
    assert await embedder.ping() == "all-MiniLM-L6-v2, 384 dimensions, 1 workers"
    await embedder.close()


async def test_the_event_loop_runs_while_the_model_loads() -> None:
    embedder = OnnxEmbedder(workers=1)
    await embedder.start()
    turns = 0
    while not await embedder.ready(0):
        turns += 1
    assert turns > 10
    await embedder.close()


async def test_closing_rejects_the_texts_that_wait() -> None:
    embedder = await opened(workers=1)
    task = asyncio.create_task(embedder.embed_documents([f"{n} " + "long text " * 100 for n in range(50)]))
    await asyncio.sleep(0)
    await embedder.close()
    with pytest.raises(BackendUnavailableError, match="closed"):
        await task
    with pytest.raises(BackendUnavailableError, match="closed"):
        await embedder.embed_query("text")
    await embedder.close()


async def test_closing_while_it_loads_leaves_nothing_running() -> None:
    embedder = OnnxEmbedder(workers=1)
    await embedder.start()
    await embedder.close()
    assert not await embedder.ready(0)
    with pytest.raises(BackendUnavailableError, match="closed"):
        await embedder.ping()


async def test_closing_before_the_start_is_fine() -> None:
    await OnnxEmbedder(workers=1).close()


# --- files that are not as they should be


async def test_a_missing_model_says_what_to_do(copy: Path) -> None:
    (copy / "model.onnx").unlink()
    message = await failure(copy)
    assert "model.onnx cannot be read (No such file or directory)" in message
    assert "back" in message


async def test_a_changed_model_is_rejected_by_its_hash(copy: Path) -> None:
    data = bytearray((copy / "model.onnx").read_bytes())
    data[len(data) // 2] ^= 1
    (copy / "model.onnx").write_bytes(data)
    assert "model.onnx has the hash" in await failure(copy)


async def test_a_changed_tokenizer_is_rejected_by_its_hash(copy: Path) -> None:
    (copy / "tokenizer.json").write_text("{}")
    assert "tokenizer.json has the hash" in await failure(copy)


@pytest.mark.parametrize("garbage", [b"", b"garbage", b"\x08\x07" * 1000])
async def test_garbage_is_no_model(copy: Path, garbage: bytes) -> None:
    (copy / "manifest.json").unlink()
    (copy / "model.onnx").write_bytes(garbage)
    assert "model.onnx is not a model" in await failure(copy)


@pytest.mark.parametrize("garbage", ["{", "[]", '{"sha256": 1}', '{"window": "wide"}'])
async def test_garbage_is_no_manifest(copy: Path, garbage: str) -> None:
    (copy / "manifest.json").write_text(garbage)
    assert "manifest.json" in await failure(copy)


async def test_a_model_without_pooling_is_rejected(copy: Path) -> None:
    write_table_model(copy, np.ones((40000, 4)), outputs=3)
    assert "no output of shape (batch, dimension)" in await failure(copy)


async def test_a_model_of_other_inputs_is_rejected(copy: Path) -> None:
    write_table_model(copy, np.ones((40000, 4)), name="pixels")
    assert "wants ['pixels']" in await failure(copy)


async def test_a_model_that_cannot_compute_the_probe_is_rejected(copy: Path) -> None:
    write_table_model(copy, np.ones((3, 4)))
    assert "cannot be run" in await failure(copy)


async def test_a_text_that_the_model_cannot_compute_is_rejected_alone(copy: Path) -> None:
    ids, _ = ModelTokenizer(BUNDLED / "tokenizer.json").encode("probe", 254)
    write_table_model(copy, np.ones((max(ids) + 1, 4)))
    embedder = await opened(copy)
    with pytest.raises(BackendRejectedError, match="cannot embed a text of 12 characters"):
        await embedder.embed_documents(["probe", "unbelievable"])
    assert (await embedder.embed_query("probe")).shape == (4,)
    await embedder.close()


async def test_vectors_of_another_norm_are_normalised_with_one_warning(
    copy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_table_model(copy, np.full((40000, 4), 3.0))
    embedder = await opened(copy)
    with caplog.at_level(logging.WARNING):
        np.testing.assert_allclose(await embedder.embed_query("text"), np.full(4, 0.5))
        np.testing.assert_allclose(await embedder.embed_documents(["text", "texts"]), np.full((2, 4), 0.5))
    assert len(caplog.records) == 1
    await embedder.close()


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
async def test_vectors_that_cannot_be_right_are_rejected(copy: Path, value: float) -> None:
    write_table_model(copy, np.full((40000, 4), value))
    embedder = await opened(copy)
    for call in (embedder.embed_query("text"), embedder.embed_documents(["text"]), embedder.ping()):
        with pytest.raises(BackendDataError):
            await call
    await embedder.close()


async def test_a_model_that_comes_back_is_loaded_by_a_ping(copy: Path, tmp_path: Path) -> None:
    (copy / "model.onnx").rename(tmp_path / "elsewhere")
    embedder = await opened(copy)
    with pytest.raises(BackendUnavailableError):
        await embedder.ping()
    (tmp_path / "elsewhere").rename(copy / "model.onnx")
    lines = await asyncio.gather(*(embedder.ping() for _ in range(3)))
    assert lines == ["all-MiniLM-L6-v2, 384 dimensions, 2 workers"] * 3
    assert await embedder.ready(0)
    assert len(await embedder.embed_query("text")) == 384
    await embedder.close()


async def test_a_healed_model_is_not_loaded_again(copy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (copy / "model.onnx").rename(tmp_path / "elsewhere")
    embedder = await opened(copy)
    (tmp_path / "elsewhere").rename(copy / "model.onnx")
    await embedder.ping()
    caplog.clear()
    (copy / "model.onnx").unlink()
    await embedder.ping()
    assert not caplog.records
    await embedder.close()


async def test_a_directory_without_a_manifest_takes_its_own_name(copy: Path) -> None:
    (copy / "manifest.json").unlink()
    embedder = await opened(copy)
    assert (embedder.model.name, embedder.model.dimension, embedder.model.window) == ("my-model", 384, 254)
    assert embedder.model.calibration.threshold == 0.0
    await embedder.close()


async def test_prefixes_and_window_of_the_manifest_apply(copy: Path, embedder: OnnxEmbedder) -> None:
    manifest = {"name": "mine", "window": 3, "query_prefix": "ask ", "document_prefix": "say "}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    custom = await opened(copy)
    assert (custom.model.name, custom.model.query_prefix, custom.model.window) == ("mine", "ask ", 3)
    assert np.array_equal(await custom.embed_query("one two three"), await embedder.embed_query("ask one two"))
    (row,) = await custom.embed_documents(["one two three"])
    assert np.array_equal(row, await embedder.embed_query("say one two"))
    await custom.close()


async def test_without_a_tokenizer_texts_are_cut_with_the_bundled_one_but_not_embedded(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    (copy / "manifest.json").unlink()
    assert OnnxEmbedder(copy, workers=1).tokenizer.offsets("two words") == [(0, 3), (4, 9)]
    assert "tokenizer.json cannot be read" in await failure(copy)
    (copy / "tokenizer.json").write_text("{}")
    assert OnnxEmbedder(copy, workers=1).tokenizer.offsets("two words") == [(0, 3), (4, 9)]
    assert "tokenizer.json" in await failure(copy)
