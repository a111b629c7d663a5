"""`/v1/embeddings` and `/v1/models`: the server's own model, for clients that speak OpenAI's API."""

import asyncio
import base64
from collections.abc import Sequence
from typing import Protocol

from rag_context.api.embeddings import Embedding, EmbeddingsRequest, EmbeddingsResponse, Model, ModelsResponse, Usage
from rag_context.api.failure import ErrorCode
from rag_context.api.reading import read_json
from rag_context.domain.embedding_model import EmbeddingModel
from rag_context.domain.vectors import Matrix, Vector
from rag_context.ports.models import Tokenizer
from rag_context.server.messages import Reply, RequestRejectedError

NAME_CHARS = 128
"""Of a name that is not known, so much is repeated."""


class EmbeddingService(Protocol):
    """What embeddings are taken from."""

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Embed texts as they are: `(n, dim) float32`. Raises: BackendError."""
        ...

    def model(self) -> EmbeddingModel:
        """The model in use. Raises: BackendError while it is not known."""
        ...

    @property
    def tokenizer(self) -> Tokenizer: ...


async def embeddings_reply(service: EmbeddingService, body: bytes) -> Reply:
    """Vectors of the texts in a request.

    Raises:
        InvalidInputError: The request is wrong.
        RequestRejectedError: It asks for another model.
        BackendError: There is no model now.
    """
    request = read_json(EmbeddingsRequest, body)
    model = service.model()
    if request.model is not None:
        _check_name(request.model, model.name)
    vectors = await service.embed(request.input)
    return Reply(await asyncio.to_thread(_written, request, vectors, model.name, service.tokenizer))


async def models_reply(service: EmbeddingService) -> Reply:
    """The one model of this server. Raises: BackendError."""
    return Reply(ModelsResponse(data=[Model(id=service.model().name)]).to_json())


async def model_reply(service: EmbeddingService, name: str) -> Reply:
    """The model of this server by its name. Raises: RequestRejectedError where it has another; BackendError."""
    model = service.model()
    _check_name(name, model.name)
    return Reply(Model(id=model.name).to_json())


def _check_name(asked: str, name: str) -> None:
    """Whether a model is meant, with or without its maker: `sentence-transformers/all-MiniLM-L6-v2`."""
    if asked.lower().rpartition("/")[2] != name.lower().rpartition("/")[2]:
        raise RequestRejectedError(
            404,
            ErrorCode.MODEL_NOT_FOUND,
            f"The model {asked[:NAME_CHARS]!r} does not exist here; this server has {name!r} only",
        )


def _written(request: EmbeddingsRequest, vectors: Matrix, name: str, tokenizer: Tokenizer) -> bytes:
    write = _base64 if request.encoding_format == "base64" else _numbers
    tokens = sum(len(tokenizer.offsets(text)) for text in request.input)
    response = EmbeddingsResponse.model_construct(
        data=[Embedding.model_construct(index=i, embedding=write(vector)) for i, vector in enumerate(vectors)],
        model=name,
        usage=Usage(prompt_tokens=tokens, total_tokens=tokens),
    )
    return response.to_json()


def _numbers(vector: Vector) -> list[float]:
    numbers: list[float] = vector.tolist()
    return numbers


def _base64(vector: Vector) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
