"""The embedder over an OpenAI-compatible server: vectors in order, batches, prefixes, priorities, lifecycle."""

import asyncio
import logging
import time

import numpy as np
import pytest

from rag_context.domain.vectors import PROBE
from rag_context.embedders.openai_embedder import SHARED_S, OpenAIEmbedder, SingleFlight
from rag_context.errors import BackendStartingError, BackendUnavailableError, ConfigurationError
from rag_context.ports.models import Embedder
from tests.embedders.remote_embedder import TIMEOUT_S, embedder_over
from tests.servers.embedding_stub import EmbeddingStub, Wire, embedding_stub, packed, reply


def queries(stub: EmbeddingStub) -> list[list[str]]:
    """The requests beside the probe."""
    return [texts for texts in stub.texts if texts != [PROBE]]


# --- the vectors


async def test_it_fits_the_port_and_takes_the_model_as_the_server_answers() -> None:
    async with embedding_stub(dimension=12) as stub, embedder_over(stub.url) as embedder:
        port: Embedder = embedder
        assert (port.model.name, port.model.dimension, port.model.window) == ("stub", 12, 254)
        assert await port.ping() == f"stub, 12 dimensions, by the embedding server at {stub.url}"
        assert len(port.tokenizer.offsets("Hello, world")) == 3


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/embeddings"])
async def test_the_address_is_accepted_with_and_without_its_version(path: str) -> None:
    async with embedding_stub() as stub, embedder_over(stub.url + path) as embedder:
        np.testing.assert_allclose(await embedder.embed_query("hello"), stub.vector("hello"), atol=1e-6)


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/openai", "/openai/v1/embeddings"), ("/api/v1beta/openai?version=7", "/api/v1beta/openai/embeddings")],
)
async def test_a_path_in_the_address_is_kept(path: str, expected: str) -> None:
    async with embedding_stub(always=reply({"error": "not here"})) as stub, embedder_over(stub.url + path):
        assert {request.path.partition("?")[0] for request in stub.requests} == {expected}


async def test_documents_go_in_batches_of_32_and_come_back_in_order() -> None:
    texts = [f"text {n}" for n in range(70)]
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        rows = await embedder.embed_documents(texts)
        assert [len(batch) for batch in queries(stub)] == [32, 32, 6]
        np.testing.assert_allclose(rows, [stub.vector(text) for text in texts], atol=1e-6)
        assert rows.dtype == np.float32
        assert (await embedder.embed_documents([])).shape == (0, 8)


async def test_vectors_are_put_where_their_index_says() -> None:
    def backwards(request: object) -> Wire:
        data = [{"index": i, "embedding": stub.vector(text).tolist()} for i, text in enumerate(["a", "b", "c"])]
        return reply({"data": data[::-1]})(request)  # type: ignore[arg-type]

    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        stub.script.append(backwards)
        rows = await embedder.embed_documents(["a", "b", "c"])
        np.testing.assert_allclose(rows, [stub.vector(text) for text in "abc"], atol=1e-6)


async def test_base64_is_read_as_numbers_are() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        data = [{"index": 0, "embedding": packed([stub.vector("a")])[0]}]
        stub.script.append(reply({"data": data, "model": "stub"}))
        assert np.array_equal(await embedder.embed_query("a"), stub.vector("a"))


async def test_an_encoding_is_requested_only_on_demand() -> None:
    async with embedding_stub() as stub:
        async with embedder_over(stub.url):
            assert "encoding_format" not in stub.requests[0].fields
        async with embedder_over(stub.url, encoding_format="base64"):
            assert stub.requests[-1].path.endswith("models")
            assert stub.requests[-2].fields["encoding_format"] == "base64"


async def test_prefixes_of_the_models_profile_apply() -> None:
    async with (
        embedding_stub(dimension=768) as stub,
        embedder_over(stub.url, model="nomic-embed-text-v1.5") as embedder,
    ):
        await embedder.embed_query("who?")
        await embedder.embed_documents(["me"])
        assert queries(stub) == [["search_query: who?"], ["search_document: me"]]
        assert (embedder.model.query_prefix, embedder.model.window) == ("search_query: ", 2046)
        assert {request.fields["model"] for request in stub.requests if request.fields} == {"nomic-embed-text-v1.5"}


async def test_a_model_with_another_vocabulary_gets_a_smaller_window() -> None:
    async with embedding_stub(dimension=1024) as stub, embedder_over(stub.url, model="bge-m3") as embedder:
        assert embedder.model.window == 8190 / 1.5


async def test_vectors_of_another_norm_are_normalised_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        for text in ("a", "b"):
            stub.script.append(reply({"data": [{"embedding": (stub.vector(text) * 7).tolist()}], "model": "stub"}))
        with caplog.at_level(logging.WARNING):
            vectors = [await embedder.embed_query(text) for text in ("a", "b")]
        np.testing.assert_allclose(vectors, [stub.vector("a"), stub.vector("b")], atol=1e-6)
        assert [record.getMessage() for record in caplog.records] == [
            "the embedding model returns vectors that are not of norm 1; they are normalised"
        ]


async def test_an_empty_text_and_a_lone_surrogate_can_be_sent() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        await embedder.embed_documents(["", "broken \ud800 text", "東京"])
        assert queries(stub) == [[" ", "broken ? text", "東京"]]


async def test_the_key_is_sent_as_a_bearer_token() -> None:
    async with embedding_stub() as stub:
        async with embedder_over(stub.url, api_key=" sesame\n"):
            assert {request.headers["authorization"] for request in stub.requests} == {"Bearer sesame"}
        stub.requests.clear()
        async with embedder_over(stub.url):
            assert not any("authorization" in request.headers for request in stub.requests)


@pytest.mark.parametrize("url", ["ftp://host", "host:1234", "http://", "http://user:se/cret@host:1"])
def test_an_address_that_cannot_work_stops_at_once(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"embedder\.url") as caught:
        OpenAIEmbedder(url, model="stub")
    assert "se" not in str(caught.value).replace("used", "")


@pytest.mark.parametrize("key", ["two words", "käse", "a\nb"])
def test_a_key_that_cannot_be_sent_stops_at_once_and_is_not_repeated(key: str) -> None:
    with pytest.raises(ConfigurationError, match=r"embedder\.api_key") as caught:
        OpenAIEmbedder("http://host", model="stub", api_key=key)
    assert key not in str(caught.value)


# --- who goes first


async def test_a_query_does_not_wait_for_documents() -> None:
    gate = asyncio.Event()
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        stub.script.extend([lambda request: Wire(stub.embed(request).data, until=gate)] * 2)
        bulk = [asyncio.create_task(embedder.embed_documents([f"{n}.{k}" for k in range(64)])) for n in range(20)]
        while len(queries(stub)) < 2:
            stub.arrived.clear()
            await stub.arrived.wait()
        await embedder.embed_query("urgent")
        assert [len(texts) for texts in queries(stub)] == [32, 32, 1]
        gate.set()
        assert [len(rows) for rows in await asyncio.gather(*bulk)] == [64] * 20


async def test_identical_queries_in_flight_share_one_request() -> None:
    gate = asyncio.Event()
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        stub.script.append(lambda request: Wire(stub.embed(request).data, until=gate))
        stub.arrived.clear()
        tasks = [asyncio.create_task(embedder.embed_query("same")) for _ in range(5)]
        await stub.arrived.wait()
        tasks[0].cancel()
        await asyncio.wait({tasks[0]})
        gate.set()
        vectors = await asyncio.gather(*tasks[1:])
        assert all(np.array_equal(found, vectors[0]) for found in vectors)
        assert queries(stub) == [["same"]]


async def test_a_query_without_a_waiting_caller_is_given_up() -> None:
    gate = asyncio.Event()
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        stub.script.append(lambda request: Wire(stub.embed(request).data, until=gate))
        stub.arrived.clear()
        tasks = [asyncio.create_task(embedder.embed_query("same")) for _ in range(2)]
        await stub.arrived.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        np.testing.assert_allclose(await embedder.embed_query("same"), stub.vector("same"), atol=1e-6)
        assert queries(stub) == [["same"], ["same"]]
        gate.set()


async def test_many_calls_use_few_connections() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        for n in range(30):
            await embedder.embed_query(str(n))
        assert stub.connections_made <= 2  # the model is probed beside a query


# --- lifecycle


async def test_until_the_server_has_answered_every_call_says_that_it_starts() -> None:
    gate = asyncio.Event()
    async with embedding_stub() as stub:
        stub.script.append(lambda request: Wire(stub.embed(request).data, until=gate))
        async with embedder_over(stub.url, wait=False) as embedder:
            with pytest.raises(BackendStartingError, match="has not answered yet"):
                await embedder.embed_query("a")
            with pytest.raises(BackendStartingError, match="has not answered yet"):
                await embedder.embed_documents(["a"])
            assert not await embedder.ready(0)
            gate.set()
            assert await embedder.ready(TIMEOUT_S)
            assert len(await embedder.embed_query("a")) == 8


async def test_a_server_that_still_loads_its_model_counts_as_starting() -> None:
    loading = reply({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, 503)
    async with embedding_stub(always=loading) as stub, embedder_over(stub.url, wait=False) as embedder:
        while not stub.texts:
            await stub.arrived.wait()
        assert not await embedder.ready(0)
        with pytest.raises(BackendStartingError):
            _ = embedder.model
        stub.always = None
        assert await embedder.ready(TIMEOUT_S)


async def test_a_server_that_is_down_at_the_start_is_found_when_it_comes(caplog: pytest.LogCaptureFixture) -> None:
    """M-5, F-3: starting never fails, and it connects by itself."""
    async with embedding_stub() as stub:
        await stub.stop()
        async with embedder_over(stub.url) as embedder:
            with pytest.raises(BackendUnavailableError, match="cannot be reached") as caught:
                _ = embedder.model
            assert not isinstance(caught.value, BackendStartingError)
            with pytest.raises(BackendUnavailableError):
                await embedder.ping()
            await stub.start()
            while not await embedder.ready(0):
                await asyncio.sleep(0.005)
            np.testing.assert_allclose(await embedder.embed_query("a"), stub.vector("a"), atol=1e-6)
        assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


async def test_a_ping_finds_the_server_without_waiting_for_the_next_try() -> None:
    async with embedding_stub() as stub:
        await stub.stop()
        async with embedder_over(stub.url, first_retry_s=3600.0) as embedder:
            await stub.start()
            assert "8 dimensions" in await embedder.ping()
            assert embedder.model.dimension == 8


async def test_after_an_outage_it_works_again_at_once() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        await embedder.embed_query("before")
        await stub.stop()
        with pytest.raises(BackendUnavailableError):
            await embedder.embed_query("meanwhile")
        await stub.start()
        np.testing.assert_allclose(await embedder.embed_query("after"), stub.vector("after"), atol=1e-6)


async def test_a_probe_that_hangs_does_not_hold_up_the_next_one() -> None:
    gate, ahead_s = asyncio.Event(), 0.0
    async with (
        embedding_stub() as stub,
        embedder_over(stub.url, check_every_s=0.01, clock=lambda: time.monotonic() + ahead_s) as embedder,
    ):
        stub.always = lambda request: Wire(stub.embed(request).data, until=gate)
        stub.arrived.clear()
        await stub.arrived.wait()
        stub.always = None
        ahead_s += SHARED_S
        async with asyncio.timeout(TIMEOUT_S):
            assert "8 dimensions" in await embedder.ping()
        assert not gate.is_set()
        gate.set()


async def test_a_probe_answered_late_does_not_bring_back_a_former_model() -> None:
    gate, ahead_s = asyncio.Event(), 0.0
    async with embedding_stub() as stub, embedder_over(stub.url, clock=lambda: time.monotonic() + ahead_s) as embedder:
        stub.script.append(lambda request: Wire(stub.embed(request).data, until=gate))
        ahead_s += SHARED_S
        stub.arrived.clear()
        late = asyncio.create_task(embedder.ping())
        await stub.arrived.wait()
        stub.seed = "another"
        ahead_s += SHARED_S
        await embedder.ping()
        model = embedder.model
        gate.set()
        await late
        assert embedder.model is model


async def test_closing_ends_running_work_and_rejects_new_work() -> None:
    gate = asyncio.Event()
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        stub.always = lambda request: Wire(stub.embed(request).data, until=gate)
        stub.arrived.clear()
        calls = [asyncio.create_task(embedder.embed_query("a")), asyncio.create_task(embedder.embed_documents(["b"]))]
        while len(queries(stub)) < 2:
            stub.arrived.clear()
            await stub.arrived.wait()
        await embedder.close()
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, BackendUnavailableError)
        with pytest.raises(BackendUnavailableError, match="closed"):
            await embedder.embed_query("a")
        with pytest.raises(BackendUnavailableError, match="closed"):
            await embedder.ping()
        await embedder.close()
        assert not await embedder.ready(0)


async def test_closing_before_the_start_is_fine() -> None:
    embedder = OpenAIEmbedder("http://127.0.0.1:9", model="stub")
    await embedder.close()
    await embedder.start()
    assert not await embedder.ready(0)


class Work:
    """Something that takes until it is let go."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.begun = 0
        self.given_up = 0

    async def __call__(self) -> int:
        self.begun += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return self.begun


async def joined(flights: SingleFlight[int], work: Work, count: int) -> list["asyncio.Task[int]"]:
    """So many callers that wait for one piece of work."""
    tasks = [asyncio.create_task(flights.join("key", work)) for _ in range(count)]
    while not work.begun:
        await asyncio.sleep(0)
    return tasks


async def test_equal_keys_share_and_other_keys_do_not() -> None:
    flights, work, other = SingleFlight[int](), Work(), Work()
    tasks = [*await joined(flights, work, 3), asyncio.create_task(flights.join("other", other))]
    work.gate.set()
    other.gate.set()
    assert await asyncio.gather(*tasks) == [1, 1, 1, 1]
    assert (work.begun, other.begun) == (1, 1)
    await flights.join("key", work)
    assert work.begun == 2


async def test_it_goes_on_for_those_who_still_wait() -> None:
    flights, work = SingleFlight[int](), Work()
    first, second = await joined(flights, work, 2)
    first.cancel()
    await asyncio.wait({first})
    work.gate.set()
    assert await second == 1
    assert work.given_up == 0


async def test_work_that_has_just_ended_is_not_shared() -> None:
    flights: SingleFlight[int] = SingleFlight()
    work = Work()

    async def late() -> int:
        await work.gate.wait()  # wakes right after the work, before any waiter is woken
        return await flights.join("a", work)

    first = asyncio.create_task(flights.join("a", work))
    while not work.begun:
        await asyncio.sleep(0)
    second = asyncio.create_task(late())
    await asyncio.sleep(0)
    work.gate.set()
    await asyncio.gather(first, second)
    assert work.begun == 2


async def test_it_is_given_up_with_the_last_who_waited() -> None:
    flights, work = SingleFlight[int](), Work()
    tasks = await joined(flights, work, 2)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await asyncio.sleep(0)
    assert work.given_up == 1
    again = asyncio.create_task(flights.join("key", work))
    while work.begun < 2:
        await asyncio.sleep(0)
    work.gate.set()
    assert await again == 2


async def test_all_who_wait_learn_of_a_failure() -> None:
    async def fail() -> int:
        await asyncio.sleep(0)
        raise ValueError("no")

    flights = SingleFlight[int]()
    results = await asyncio.gather(*(flights.join("key", fail) for _ in range(3)), return_exceptions=True)
    assert [str(result) for result in results] == ["no"] * 3
    with pytest.raises(ValueError, match="no"):
        await flights.join("key", fail)
