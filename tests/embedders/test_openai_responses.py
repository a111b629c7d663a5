"""What servers answer when something is wrong, and what becomes of it. None of it is ever taken for a vector."""

import asyncio
import gzip
import logging
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from rag_context.domain.vectors import PROBE
from rag_context.embedders.openai_embedder import EmbeddingApi
from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendRejectedError,
    BackendStartingError,
    BackendTimeoutError,
    BackendUnavailableError,
)
from rag_context.openai_server import retry_after
from rag_context.resilience.dependency import BreakerState, Dependency
from tests.embedders.remote_embedder import embedder_over
from tests.servers.embedding_stub import (
    Behaviour,
    EmbeddingStub,
    ReceivedRequest,
    Wire,
    embedding_stub,
    packed,
    reply,
    vector,
)

LM_STUDIO_NO_MODEL = {
    "error": "No models loaded. Please load a model in the developer page or use the 'lms load' command."
}
LM_STUDIO_OTHER_KIND = {
    "error": {
        "message": 'Failed to load model "phi-4". Error: Model is not embedding.',
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
}
OLLAMA_NO_MODEL = {
    "error": {"message": 'model "stub" not found, try pulling it first', "type": "api_error", "code": None}
}
OPENAI_NO_MODEL = {
    "error": {
        "message": "The model `stub` does not exist or you do not have access to it.",
        "type": "invalid_request_error",
        "code": "model_not_found",
    }
}
LLAMA_TOO_LONG = {
    "error": {
        "code": 500,
        "message": "input (602 tokens) is too large to process. increase the physical batch size "
        "(current batch size: 512)",
        "type": "server_error",
    }
}
OPENAI_TOO_LONG = {
    "error": {
        "message": "This model's maximum context length is 8192 tokens, however you requested 9001 tokens.",
        "type": "invalid_request_error",
        "code": None,
    }
}
TEI_TOO_LONG = {"error": "`inputs` must have less than 512 tokens. Given: 602", "error_type": "Validation"}
OLLAMA_TOO_LONG = {"error": {"message": "the input length exceeds the context length", "type": "api_error"}}


async def outcome(*script: Behaviour) -> BackendError:
    """How a query ends that meets this, on a server that worked until then."""
    async with embedding_stub() as stub, embedder_over(stub.url, api_key="sesame") as embedder:
        stub.script.extend(script)
        with pytest.raises(BackendError) as caught:
            await embedder.embed_query("a secret plan")
        message = str(caught.value)
        assert caught.value.component == "embedder"
        assert "sesame" not in message
        assert "secret plan" not in message
        stub.script.clear()
        np.testing.assert_allclose(await embedder.embed_query("then"), stub.vector("then"), atol=1e-6)
        return caught.value


def raw(data: bytes, **fields: Any) -> Behaviour:
    return lambda _: Wire(data, **fields)


def ok(**fields: Any) -> Behaviour:
    return reply({"object": "list", "model": "stub", **fields})


# --- answers of other servers


@pytest.mark.parametrize(
    ("payload", "status"),
    [(LM_STUDIO_NO_MODEL, 400), (LM_STUDIO_OTHER_KIND, 404), (OLLAMA_NO_MODEL, 404), (OPENAI_NO_MODEL, 404)],
)
async def test_a_model_that_is_not_loaded_says_what_to_do(payload: object, status: int) -> None:
    error = await outcome(reply(payload, status))
    assert isinstance(error, BackendUnavailableError)
    assert "has no embedding model 'stub'" in str(error)
    assert "load it there, or set embedder.model" in str(error)


async def test_lm_studio_answers_an_unknown_path_with_200() -> None:
    error = await outcome(reply({"error": "Unexpected endpoint or method. (POST /v1/embedding)"}))
    assert isinstance(error, BackendRejectedError)
    assert "check embedder.url" in str(error)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_wrong_key_names_the_setting(status: int) -> None:
    error = await outcome(reply({"error": {"message": "Incorrect API key provided: sesame"}}, status))
    assert isinstance(error, BackendRejectedError)
    assert "rejects the key in embedder.api_key" in str(error)


async def test_a_missing_key_names_the_setting() -> None:
    async with embedding_stub(always=reply({"error": "no"}, 401)) as stub, embedder_over(stub.url) as embedder:
        with pytest.raises(BackendUnavailableError, match=r"requires a key: set embedder\.api_key"):
            _ = embedder.model
        with pytest.raises(BackendRejectedError, match=r"requires a key: set embedder\.api_key"):
            await embedder.ping()


async def test_429_passes_on_how_long_to_wait() -> None:
    error = await outcome(
        reply({"error": {"message": "Rate limit reached", "code": "rate_limit"}}, 429, Retry_After="7")
    )
    assert isinstance(error, BackendUnavailableError)
    assert error.retry_after_s == 7.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("0.25", 0.25),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("-3", None),
    ],
)
def test_retry_after_is_read_as_seconds_and_as_a_date(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}, datetime(2026, 3, 1, 12, tzinfo=UTC)) == seconds


@pytest.mark.parametrize("status", [500, 502, 503, 504, 424, 408])
async def test_a_server_that_fails_may_be_queried_again(status: int) -> None:
    error = await outcome(reply(b"<html>Bad Gateway</html>", status))
    assert isinstance(error, BackendUnavailableError)
    assert not isinstance(error, BackendStartingError)
    assert str(status) in str(error)


async def test_a_timeout_is_not_treated_as_a_text_that_is_too_long() -> None:
    error = await outcome(reply({"error": {"message": "the request took too long"}}, 504))
    assert isinstance(error, BackendUnavailableError)


async def test_a_model_being_loaded_is_no_failure() -> None:
    error = await outcome(reply({"error": {"message": "Loading model", "code": 503}}, 503))
    assert isinstance(error, BackendStartingError)


@pytest.mark.parametrize("status", [301, 302, 404, 405])
async def test_an_address_without_embeddings_names_the_setting(status: int) -> None:
    error = await outcome(reply(b"moved", status, Location="http://elsewhere/"))
    assert isinstance(error, BackendRejectedError)
    assert "check embedder.url" in str(error)


async def test_other_rejections_stay_rejections_and_show_nothing_of_the_text() -> None:
    said = {"error": {"message": "cannot embed 'a secret plan'", "type": "invalid_request_error"}}
    error = await outcome(reply(said, 400))
    assert type(error) is BackendRejectedError
    assert "rejected the request (400: 'invalid_request_error')" in str(error)


async def test_what_a_server_says_of_the_probe_is_repeated() -> None:
    refusal = reply({"detail": "quota of project 12 used up"}, 400)
    async with embedding_stub(always=refusal) as stub, embedder_over(stub.url) as embedder:
        with pytest.raises(BackendUnavailableError, match="quota of project 12 used up"):
            _ = embedder.model


async def test_neither_password_nor_query_of_the_address_is_reported() -> None:
    async with embedding_stub() as stub:
        url = stub.url.replace("http://", "http://user:passw0rd@") + "/v1?api-key=t0ken"
        always = lambda request: reply({"error": f"no {request.path}"}, 400)(request)  # noqa: E731
        stub.always = always
        async with embedder_over(url) as embedder:
            with pytest.raises(BackendRejectedError) as caught:
                await embedder.ping()
        assert stub.requests[0].path == "/v1/embeddings?api-key=t0ken"
        assert stub.requests[0].headers["authorization"].startswith("Basic ")
        assert "passw0rd" not in str(caught.value)
        assert "t0ken" not in str(caught.value)


# --- answers that cannot be right


@pytest.mark.parametrize(
    "behaviour",
    [
        reply(b"garbage"),
        reply(b""),
        reply(b"[1, 2]"),
        reply(b"[" * 100_000),
        reply({}),
        ok(data=None),
        ok(data=[]),
        ok(data=["vector"]),
        ok(data=[{}]),
        ok(data=[{"embedding": []}]),
        ok(data=[{"embedding": [[0.1] * 8]}]),
        ok(data=[{"embedding": ["x"] * 8}]),
        ok(data=[{"embedding": [None] * 8}]),
        ok(data=[{"embedding": {}}]),
        ok(data=[{"embedding": "!!!!"}]),
        ok(data=[{"embedding": packed([vector("a", 8, "one")])[0] + "!"}]),
        ok(data=[{"embedding": "AAAA"}]),
        ok(data=[{"embedding": [10**400] * 8}]),
        ok(data=[{"embedding": [1e300] * 8}]),
        ok(data=[{"embedding": [0.0] * 8}]),
        ok(data=[{"embedding": [0.1] * 7}]),
        ok(data=[{"embedding": [0.1] * 8}] * 2),
        ok(data=[{"embedding": [0.1] * 8, "index": 1}]),
        ok(data=[{"embedding": [0.1] * 8, "index": "0"}]),
        ok(data=[{"embedding": [0.1] * 8, "index": True}]),
        reply(b'{"data": [{"embedding": [NaN, 1, 2, 3, 4, 5, 6, 7]}]}'),
        reply(b'{"data": [{"embedding": [1e999, 1, 2, 3, 4, 5, 6, 7]}]}'),
        reply(b"not gzip", Content_Encoding="gzip"),
    ],
)
async def test_invalid_responses_are_rejected(behaviour: Behaviour) -> None:
    assert type(await outcome(behaviour)) is BackendDataError


async def test_vectors_of_several_dimensions_or_under_one_number_are_rejected() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        for second in ({"index": 1, "embedding": [0.1] * 7}, {"index": 0, "embedding": [0.1] * 8}):
            stub.script.append(ok(data=[{"index": 0, "embedding": [0.1] * 8}, second]))
            with pytest.raises(BackendDataError):
                await embedder.embed_documents(["a", "b"])


async def test_an_answer_without_end_is_cut_off() -> None:
    bomb = gzip.compress(b" " * (65 << 20))
    error = await outcome(reply(bomb, Content_Encoding="gzip"))
    assert isinstance(error, BackendDataError)
    assert "more than" in str(error)


async def test_another_dimension_than_the_models_own_is_rejected_and_explained() -> None:
    name = "nomic-embed-text-v1.5"
    async with embedding_stub(dimension=384) as stub, embedder_over(stub.url, model=name) as embedder:
        with pytest.raises(BackendUnavailableError, match=r"384 dimensions.*has 768.*set embedder\.model"):
            _ = embedder.model
        with pytest.raises(BackendDataError, match="another model is loaded there"):
            await embedder.ping()


# --- faults of the wire


@pytest.mark.parametrize(
    "behaviour",
    [
        raw(b"", close=True),
        raw(b"", reset=True),
        raw(b"SSH-2.0-OpenSSH_9.2\r\n", close=True),
        raw(b'HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{"data": [', close=True),
        raw(b'HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{"data": [', reset=True),
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", close=True),
    ],
)
async def test_a_broken_connection_may_be_tried_again(behaviour: Behaviour) -> None:
    assert type(await outcome(behaviour)) is BackendUnavailableError


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"])
async def test_a_server_that_hangs_is_waited_for_as_long_as_configured(begun: bytes) -> None:
    never = asyncio.Event()
    hanging = Wire(begun) if begun else Wire(until=never)  # the rest of a reply that has begun never comes
    async with embedding_stub(always=lambda _: hanging) as stub:
        api = EmbeddingApi(stub.url, model="stub", timeout_s=0.05)
        with pytest.raises(BackendTimeoutError, match="did not answer in time"):
            await api.embed(["a"])
        await api.close()


async def test_a_server_that_never_ends_its_answer_is_not_waited_for_either() -> None:
    begun = b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n"
    async with embedding_stub(always=raw(begun, drip=b" ")) as stub:
        api = EmbeddingApi(stub.url, model="stub", timeout_s=0.1)
        with pytest.raises(BackendTimeoutError, match="did not answer in time"):
            await api.embed(["a"])
        await api.close()


async def test_a_failed_connection_names_the_server_without_its_password() -> None:
    async with embedding_stub() as stub:
        await stub.stop()
        async with embedder_over(stub.url.replace("http://", "http://user:passw0rd@")) as embedder:
            with pytest.raises(BackendUnavailableError, match=f"127.0.0.1:{stub.port} cannot be reached") as caught:
                await embedder.ping()
            assert "passw0rd" not in str(caught.value)


# --- texts that are too long


def limited(stub: EmbeddingStub, longest: int, payload: object, status: int) -> Behaviour:
    """A server that takes texts of so many characters."""

    def behave(request: ReceivedRequest) -> Wire:
        if any(len(text) > longest for text in request.texts):
            return reply(payload, status)(request)
        return stub.embed(request)

    return behave


@pytest.mark.parametrize(
    ("payload", "status"),
    [(LLAMA_TOO_LONG, 500), (OPENAI_TOO_LONG, 400), (OLLAMA_TOO_LONG, 400), (TEI_TOO_LONG, 413), ({}, 413)],
)
async def test_a_text_that_is_too_long_is_cut_to_the_window_with_one_warning(
    payload: object, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """F-8: input too long is truncated with a warning, and is no failure of the server."""
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        stub.always = limited(stub, 254 * 5, payload, status)
        with caplog.at_level(logging.WARNING):
            cut = await embedder.embed_query("word " * 1000)
            await embedder.embed_query("more " * 1000)
        np.testing.assert_allclose(cut, stub.vector("word " * 253 + "word"), atol=1e-6)
        (record,) = caplog.records
        assert record.getMessage().startswith("a text of 5000 characters is too long for the embedding server at ")
        assert record.getMessage().endswith(" and was cut to 1269; further cuts are not reported")


async def test_only_the_text_that_is_too_long_is_cut() -> None:
    texts = ["short", "long " * 500, "also short"]
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        stub.always = limited(stub, 254 * 5, LLAMA_TOO_LONG, 500)
        rows = await embedder.embed_documents(texts)
        expected = [texts[0], ("long " * 254).strip(), texts[2]]
        np.testing.assert_allclose(rows, [stub.vector(text) for text in expected], atol=1e-6)


async def test_where_the_server_takes_less_than_the_window_it_is_halved_until_it_fits() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        stub.always = limited(stub, 200, LLAMA_TOO_LONG, 500)
        text = "word " * 100
        np.testing.assert_allclose(await embedder.embed_query(text), stub.vector(text[:125]), atol=1e-6)


async def test_a_text_that_fits_at_no_length_is_rejected_and_opens_no_breaker() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        part = Dependency("embedder", embedder.ping)
        stub.always = limited(stub, len(PROBE), LLAMA_TOO_LONG, 500)
        for _ in range(5):
            with pytest.raises(BackendRejectedError, match="does not accept even"):
                await part.call(lambda: embedder.embed_query("word " * 2000), 60.0)
        assert part.breaker.state is BreakerState.CLOSED
        np.testing.assert_allclose(await embedder.embed_query("short"), stub.vector("short"), atol=1e-6)
