"""Which model is behind an address: a restart is the same one, another one never passes for it (D-10)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from rag_context.domain.vectors import PROBE, Vector, fingerprint, same_model
from rag_context.errors import BackendDataError, BackendRejectedError, BackendUnavailableError
from rag_context.memory.bound_embedder import BoundEmbedder
from rag_context.ports.writing import Version
from rag_context.stores.sqlite.embedded import SqliteStore, open_database
from tests.embedders.remote_embedder import embedder_over
from tests.servers.embedding_stub import Behaviour, EmbeddingStub, Wire, embedding_stub, reply, vector
from tests.stores.builders import chunks_of, document

NOISE = 1e-3
"""Ten times what half precision leaves; the cosine to the exact vector is still 0.9999995."""

EARLIER = (
    "afb67e70b5c7:1z2hQFg708BaqgmyD7c7vWrCrEBOP6BANz1Bw6o9/DvZQCG56jgLOVm1eLn5NWy42LndvT23zT+iOjc5BSOwL/kxyL2vnhs9XrpEPdy1"
    "VLFlwRc4ab6XPPCrD0EKRAu6z7xwPLQ1HT0ouNI9cLPKQAG8riRKOt3AQ7hPuEy2H7s="
)
"""What the first version made of 384 numbers from -1 to 1; indexes hold its like."""


def turned(exact: Vector, cosine: float) -> Vector:
    """A unit vector at this cosine to another."""
    aside = vector("aside", len(exact), "turn")
    aside = aside - (aside @ exact) * exact
    unit: Vector = (cosine * exact + np.sqrt(1 - cosine**2) * aside / np.linalg.norm(aside)).astype(np.float32)
    return unit


# --- the fingerprint


@pytest.mark.parametrize("dimension", [1, 3, 384, 768, 1024, 3072])
def test_a_fingerprint_survives_noise_and_distinguishes_models(dimension: int) -> None:
    for seed in map(str, range(20)):
        exact = vector(PROBE, dimension, seed)
        noisy = (exact + 1e-3 * vector("noise", dimension, seed)).astype(np.float32)
        assert same_model(fingerprint(exact), fingerprint(noisy))
        assert same_model(fingerprint(exact), fingerprint(exact))
        if dimension > 100:
            assert not same_model(fingerprint(exact), fingerprint(turned(exact, 0.99)))
            assert not same_model(fingerprint(exact), fingerprint(vector(PROBE, dimension, "other")))


@pytest.mark.parametrize("cosine", [0.99999, 0.9998])
def test_vectors_nearer_than_the_bound_are_of_one_model(cosine: float) -> None:
    for seed in map(str, range(50)):
        exact = vector(PROBE, 768, seed)
        assert same_model(fingerprint(exact), fingerprint(turned(exact, cosine)))


@pytest.mark.parametrize("cosine", [0.995, 0.98, 0.0, -1.0])
def test_vectors_further_than_the_bound_are_of_two(cosine: float) -> None:
    for seed in map(str, range(50)):
        exact = vector(PROBE, 768, seed)
        assert not same_model(fingerprint(exact), fingerprint(turned(exact, cosine)))


def test_fingerprints_of_earlier_versions_stay_valid() -> None:
    made = fingerprint(np.linspace(-1, 1, 384, dtype=np.float32))
    assert same_model(made, EARLIER)
    assert len(made) == len(EARLIER)


@pytest.mark.parametrize("other", ["", "5f" * 32, "abc:", "abc:!!!", "abc:AAAA"])
def test_the_hash_of_a_file_is_compared_as_it_is(other: str) -> None:
    probe = fingerprint(vector(PROBE, 8, "one"))
    assert not same_model(probe, other)
    assert not same_model(other, probe)
    assert same_model(other, other)


# --- the server behind the address


async def test_a_restarted_server_with_float_noise_is_the_same_model(caplog: pytest.LogCaptureFixture) -> None:
    async with embedding_stub(dimension=384) as stub, embedder_over(stub.url) as embedder:
        before = embedder.model
        await stub.stop()
        stub.noise = NOISE
        await stub.start()
        await embedder.ping()
        await embedder.embed_documents(["a"])
        assert embedder.model is before
        assert not caplog.records


async def test_documents_embedded_by_another_model_are_rejected_even_if_no_one_noticed_the_change() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        await embedder.embed_documents(["a"])
        before = embedder.model
        stub.seed = "another"
        with pytest.raises(BackendRejectedError, match="has another model than before"):
            await embedder.embed_documents(["a"])
        assert not same_model(embedder.model.fingerprint, before.fingerprint)
        np.testing.assert_allclose((await embedder.embed_documents(["a"]))[0], stub.vector("a"), atol=1e-6)


async def test_the_model_is_checked_again_from_time_to_time(caplog: pytest.LogCaptureFixture) -> None:
    async with embedding_stub() as stub, embedder_over(stub.url, check_every_s=0.01) as embedder:
        before = embedder.model
        stub.seed = "another"
        while embedder.model is before:
            stub.arrived.clear()
            await stub.arrived.wait()
            await asyncio.sleep(0)
        assert "has another model than before" in caplog.text


async def test_a_query_after_an_outage_is_rejected_where_the_model_changed_meanwhile() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        await stub.stop()
        with pytest.raises(BackendUnavailableError):
            await embedder.embed_query("a")
        stub.seed = "another"
        await stub.start()
        with pytest.raises(BackendRejectedError, match="another model"):
            await embedder.embed_query("a")


async def test_an_outage_that_only_the_probe_noticed_makes_the_model_unverified_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with embedding_stub() as stub, embedder_over(stub.url, check_every_s=0.01, first_retry_s=3600.0) as embedder:
        await stub.stop()
        while "cannot be reached" not in caplog.text:
            await asyncio.sleep(0.005)
        stub.seed = "another"
        await stub.start()
        with pytest.raises(BackendRejectedError, match="another model"):
            await embedder.embed_query("a")


async def test_a_query_is_rejected_where_the_server_gives_its_model_another_name_and_it_is_another() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        await embedder.embed_query("a")
        stub.name = "renamed"
        await embedder.embed_query("the same model under another name")
        stub.seed, stub.name = "another", "another"
        with pytest.raises(BackendRejectedError, match="another model"):
            await embedder.embed_query("b")


async def test_with_a_verified_model_a_query_costs_one_request() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        for text in "abc":
            await embedder.embed_query(text)
        assert stub.texts == [[PROBE], ["a"], ["b"], ["c"]]


async def test_a_busy_server_is_not_suspected_of_another_model() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        stub.script.append(reply({"error": "slow down"}, 429, Retry_After="1"))
        with pytest.raises(BackendUnavailableError):
            await embedder.embed_query("a")
        await embedder.embed_query("a")
        assert stub.texts == [[PROBE], ["a"], ["a"]]


async def test_another_dimension_is_rejected_and_learnt() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        stub.dimension = 12
        with pytest.raises(BackendDataError, match=r"\(1, 12\), expected \(n, 8\)"):
            await embedder.embed_query("a")
        await embedder.ping()
        assert embedder.model.dimension == 12


async def test_a_server_that_lists_other_models_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    listed = reply({"data": [{"id": "phi-4"}, {"id": "text-embedding-gte"}, {}, 7]})
    async with embedding_stub(models=listed) as stub, embedder_over(stub.url) as embedder:
        await embedder.ping()
        (record,) = caplog.records
        assert record.getMessage().endswith("does not list the model 'stub'; it may answer with another")


@pytest.mark.parametrize("models", [reply({"error": "what?"}, 404), reply(b"garbage"), lambda _: Wire(close=True)])
async def test_a_server_without_a_list_of_models_is_fine(models: Behaviour, caplog: pytest.LogCaptureFixture) -> None:
    async with embedding_stub(models=models) as stub, embedder_over(stub.url) as embedder:
        assert embedder.model.dimension == 8
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# --- the model and the index


async def test_a_process_that_sees_the_model_through_noise_writes_under_the_indexs_own_fingerprint(
    tmp_path: Path,
) -> None:
    async with open_database(tmp_path / "index.db") as store, embedding_stub(dimension=384) as stub:
        for noise, name in ((0.0, "first"), (NOISE, "second")):
            stub.noise = noise
            async with embedder_over(stub.url) as embedder:
                bound = BoundEmbedder(embedder, store.documents)
                await bound.bind()
                maker = bound.model.fingerprint
                vectors = await bound.embed_documents(["text"])
                written = document(name)
                assert await store.documents.write(Version(written, chunks_of(written), vectors, maker))
                recorded = await store.documents.recorded_model()
                assert recorded is not None
                assert recorded.fingerprint == maker
                assert (embedder.model.fingerprint == maker) == (name == "first")


@asynccontextmanager
async def bound_index(tmp_path: Path) -> AsyncIterator[tuple[SqliteStore, EmbeddingStub, BoundEmbedder]]:
    """An index, an embedding server, and the server's model bound to the index."""
    async with (
        open_database(tmp_path / "index.db") as store,
        embedding_stub() as stub,
        embedder_over(stub.url) as embedder,
    ):
        bound = BoundEmbedder(embedder, store.documents)
        await bound.bind()
        yield store, stub, bound


async def test_another_model_behind_the_address_is_rejected_until_the_index_is_rebuilt(tmp_path: Path) -> None:
    """D-10: found while running."""
    async with bound_index(tmp_path) as (store, stub, bound):
        written = document("first")
        await store.documents.write(Version(written, chunks_of(written), await bound.embed_documents(["text"])))
        stub.seed = "another"
        with pytest.raises(BackendRejectedError, match="run `rag-context reindex`"):
            await bound.ping()
        await bound.bind()
        for call in (bound.embed_query("text"), bound.embed_documents(["text"])):
            with pytest.raises(BackendRejectedError, match="run `rag-context reindex`"):
                await call
        stub.seed = "one"
        await bound.ping()
        np.testing.assert_allclose(await bound.embed_query("text"), stub.vector("text"), atol=1e-6)
        stub.seed = "another"
        with pytest.raises(BackendRejectedError):
            await bound.ping()
        await store.documents.drop_vectors()
        await bound.bind()
        np.testing.assert_allclose(await bound.embed_query("text"), stub.vector("text"), atol=1e-6)


async def test_an_index_without_a_model_gets_the_one_that_is_there_now(tmp_path: Path) -> None:
    """D-10: the model was another one at the last request, and there was none since."""
    async with bound_index(tmp_path) as (store, stub, bound):
        before = bound.model.fingerprint
        stub.seed = "another"
        await store.documents.drop_vectors()
        await bound.bind()
        recorded = await store.documents.recorded_model()
        assert recorded is not None
        assert not same_model(recorded.fingerprint, before)
        assert same_model(recorded.fingerprint, fingerprint(stub.vector(PROBE)))


async def test_a_model_that_came_back_is_noticed_by_comparing_it_with_the_index(tmp_path: Path) -> None:
    """D-10: nothing was embedded since, so that no answer showed it."""
    async with bound_index(tmp_path) as (_, stub, bound):
        stub.seed = "another"
        with pytest.raises(BackendRejectedError):
            await bound.ping()
        stub.seed = "one"
        await bound.bind()
        np.testing.assert_allclose(await bound.embed_query("text"), stub.vector("text"), atol=1e-6)
