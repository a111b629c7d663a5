"""`/v1/embeddings` and `/v1/models`: OpenAI's shapes, of errors too."""

import base64
import struct
from typing import Any

import httpx2
import pytest

from rag_context.errors import BackendStartingError

from .server_thread import Running

EMBEDDINGS = "/v1/embeddings"


def vectors(reply: httpx2.Response) -> list[list[float]]:
    assert reply.status_code == 200, reply.text
    data = reply.json()["data"]
    assert [row["index"] for row in data] == list(range(len(data)))
    return [row["embedding"] for row in data]


def test_every_text_gets_its_vector_in_openais_shape(client: httpx2.Client, open_server: Running) -> None:
    """G-1: samples can be taken from the server itself."""
    reply = client.post(EMBEDDINGS, json={"input": ["red fox", "blue whale sings"], "model": "maker/Fake"})
    body = reply.json()
    assert body["object"] == "list"
    assert body["model"] == "fake"
    assert body["usage"] == {"prompt_tokens": 5, "total_tokens": 5}
    assert {row["object"] for row in body["data"]} == {"embedding"}
    fox, whale = vectors(reply)
    assert len(fox) == open_server.service.embedder.model.dimension
    assert sum(number * number for number in whale) == pytest.approx(1.0, abs=1e-5)
    assert open_server.service.embedded == ["red fox", "blue whale sings"]


def test_one_text_may_stand_without_a_list(client: httpx2.Client) -> None:
    (alone,) = vectors(client.post(EMBEDDINGS, json={"input": "red fox"}))
    (listed,) = vectors(client.post(EMBEDDINGS, json={"input": ["red fox"], "model": None, "user": "u-1"}))
    assert alone == listed


def test_base64_holds_the_same_numbers_as_little_endian_float32(client: httpx2.Client) -> None:
    (numbers,) = vectors(client.post(EMBEDDINGS, json={"input": "red fox", "encoding_format": "float"}))
    reply = client.post(EMBEDDINGS, json={"input": "red fox", "encoding_format": "base64"})
    packed = base64.b64decode(reply.json()["data"][0]["embedding"])
    assert list(struct.unpack(f"<{len(numbers)}f", packed)) == pytest.approx(numbers, abs=1e-7)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "input"),
        ({"input": ""}, "input[0]"),
        ({"input": []}, "input"),
        ({"input": [[1, 2, 3]]}, "input[0]"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "encodingFormat": "base64"}, "encodingFormat"),
        ({"input": "a", "dimensions": 256}, "dimensions"),
    ],
)
def test_what_cannot_be_embedded_is_rejected_by_field(
    client: httpx2.Client, open_server: Running, body: dict[str, Any], field: str
) -> None:
    reply = client.post(EMBEDDINGS, json=body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_input", field)
    assert error["message"]
    assert error["request_id"] == reply.headers["X-Request-ID"]
    assert open_server.service.embedded == []


def test_as_many_texts_as_openai_accepts_are_accepted(client: httpx2.Client) -> None:
    assert len(vectors(client.post(EMBEDDINGS, json={"input": ["fox"] * 2048}))) == 2048


def test_the_model_is_listed(client: httpx2.Client) -> None:
    reply = client.get("/v1/models")
    assert reply.status_code == 200
    assert reply.json() == {
        "object": "list",
        "data": [{"id": "fake", "object": "model", "created": 0, "owned_by": "rag-context"}],
    }


def test_the_model_is_found_by_its_name(client: httpx2.Client) -> None:
    for name in ("fake", "FAKE", "maker/fake"):
        assert client.get(f"/v1/models/{name}").json()["id"] == "fake"


@pytest.mark.parametrize("name", ["text-embedding-3-small", "fake-2", "maker/", "x" * 250])
def test_another_model_does_not_exist(client: httpx2.Client, open_server: Running, name: str) -> None:
    for reply in (client.get(f"/v1/models/{name}"), client.post(EMBEDDINGS, json={"input": "a", "model": name})):
        error = reply.json()["error"]
        assert (reply.status_code, error["type"], error["code"]) == (404, "invalid_request_error", "model_not_found")
        assert "this server has 'fake' only" in error["message"]
        assert len(error["message"]) < 300
    assert open_server.service.embedded == []


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_while_the_model_loads_a_client_gets_a_retry_delay(
    client: httpx2.Client, open_server: Running, method: str
) -> None:
    open_server.service.failure = BackendStartingError("embedder", "still loading")
    path = EMBEDDINGS if method == "POST" else "/v1/models"
    reply = client.request(method, path, json={"input": "a"} if method == "POST" else None)
    assert reply.status_code == 503
    assert int(reply.headers["retry-after"]) >= 1
    error = reply.json()["error"]
    assert (error["message"], error["type"]) == ("Embedding service unavailable", "server_error")


def test_a_body_above_one_mebibyte_is_rejected(client: httpx2.Client) -> None:
    assert client.post(EMBEDDINGS, json={"input": "a" * (1 << 20)}).status_code == 413


def test_other_kinds_of_body_and_method_are_rejected(client: httpx2.Client) -> None:
    assert client.post(EMBEDDINGS, content=b"a", headers={"Content-Type": "text/plain"}).status_code == 415
    assert client.get(EMBEDDINGS).status_code == 405
    assert client.post("/v1/models", json={}).status_code == 405


def test_read_keys_may_embed_and_unknown_keys_may_not(locked: Running) -> None:
    with locked.client(**{"X-API-Key": "read-me"}) as reader:
        assert reader.post(EMBEDDINGS, json={"input": "a"}).status_code == 200
        assert reader.get("/v1/models").status_code == 200
    with locked.client() as other_program:
        assert other_program.post(EMBEDDINGS, json={"input": "a"}).status_code == 401
        assert other_program.get("/v1/models").status_code == 401
