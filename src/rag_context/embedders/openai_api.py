"""`/v1/embeddings` and `/v1/models` of a server with OpenAI's API: its replies as vectors."""

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rag_context.domain.documents import Json
from rag_context.domain.vectors import Matrix
from rag_context.embedders.model_vectors import PROBE
from rag_context.errors import BackendDataError
from rag_context.openai_server import AT_ONCE, OpenAIServer, Reply, Use

COMPONENT = "embedder"
USE = Use(COMPONENT, section="embedder", kind="embedding", path="embeddings", result="vectors")

BODY_BYTES = 1 << 20
"""Bytes of a response for everything but vectors: names, errors, a list of models."""

NUMBER_BYTES = 40
"""A number in JSON takes 25 bytes at most, and may be indented. Longer responses are rejected."""

MOST_DIMENSIONS = 8192
"""Numbers in a vector of a model that is not known yet."""

EncodingFormat = Literal["float", "base64"]


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors as the server made them, `(n, dim) float32`, and the name it gave its model."""

    vectors: Matrix
    model: str | None


class EmbeddingApi:
    """The embeddings of one model on one server.

    Args:
        url: its address, with or without `/v1`.
        model: the name of the model.
        api_key: sent as a bearer token.
        timeout_s: longest wait for a whole answer.
        encoding_format: sent with every request if given; some servers do not know the field.

    Raises:
        ConfigurationError: The address or the key cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        encoding_format: EncodingFormat | None = None,
    ) -> None:
        self._http = OpenAIServer(url, USE, model=model, api_key=api_key, timeout_s=timeout_s)
        self.server = self._http.name
        self._fields = {} if encoding_format is None else {"encoding_format": encoding_format}

    async def embed(self, texts: Sequence[str], dimension: int = MOST_DIMENSIONS) -> Embedded:
        """The server's vectors of these texts, in their order.

        Args:
            texts: what to embed.
            dimension: the greatest length of a vector; far longer responses are not read.

        Raises:
            BackendError: The server returned no vectors; the class of the error tells whether a retry may help.
        """
        # Some servers reject an empty text; a space is as empty to every model.
        fields = {"input": [text or " " for text in texts], **self._fields}
        reply = await self._http.post(fields, BODY_BYTES + len(texts) * dimension * NUMBER_BYTES)
        if len(reply.body) <= AT_ONCE:
            return self._vectors(reply, texts)
        return await asyncio.to_thread(self._vectors, reply, texts)

    async def models(self) -> list[str]:
        """The names of the models that the server lists; empty where it has no list. Raises: BackendError."""
        reply = await self._http.get("models", BODY_BYTES)
        data = reply.payload().get("data") if reply.status == HTTPStatus.OK else None
        names = [item.get("id") for item in data if isinstance(item, dict)] if isinstance(data, list) else []
        return [name for name in names if isinstance(name, str)]

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _vectors(self, reply: Reply, texts: Sequence[str]) -> Embedded:
        payload = reply.payload()
        data = payload.get("data")
        if reply.status != HTTPStatus.OK or not isinstance(data, list):
            raise self._http.failure(reply, payload, public=all(text == PROBE for text in texts))
        if len(data) != len(texts):
            raise BackendDataError(COMPONENT, f"{self.server} returned {len(data)} vectors for {len(texts)} texts")
        rows: list[NDArray[np.float32] | None] = [None] * len(data)
        for place, item in enumerate(data):
            fields = item if isinstance(item, dict) else {}
            index = fields.get("index", place)
            if type(index) is not int or not 0 <= index < len(rows) or rows[index] is not None:
                raise BackendDataError(COMPONENT, f"{self.server} returned vectors that are not numbered from 0")
            rows[index] = _numbers(fields.get("embedding"), self.server)
        found = [row for row in rows if row is not None]
        if len({len(row) for row in found}) != 1:
            raise BackendDataError(COMPONENT, f"{self.server} returned vectors of several dimensions")
        name = payload.get("model")
        return Embedded(np.stack(found), name if isinstance(name, str) else None)


def _numbers(value: Json, server: str) -> NDArray[np.float32]:
    """One vector, from numbers or from base64 of little-endian float32."""
    try:
        if isinstance(value, str):
            numbers = np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32)
        else:
            with np.errstate(over="ignore"):  # values beyond float32 become infinite, and are rejected as such
                numbers = np.array(value, np.float64).astype(np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise BackendDataError(COMPONENT, f"{server} returned an invalid vector") from error
    if numbers.ndim != 1 or not len(numbers):
        raise BackendDataError(
            COMPONENT,
            f"{server} did not return one vector per text: turn on pooling there, by mean or as its model requires",
        )
    return numbers
