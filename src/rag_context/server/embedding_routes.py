"""`/v1/embeddings` and `/v1/models`, for clients that speak OpenAI's API, such as the embedders of other servers."""

import asyncio
import base64

from starlette.routing import Route
from starlette.types import Receive, Scope

from rag_context.api.embeddings import Embedding, EmbeddingsRequest, EmbeddingsResponse, Model, ModelsResponse, Usage
from rag_context.api.parsing import ErrorCode, read_json
from rag_context.domain.vectors import Matrix, Vector
from rag_context.memory.service import Service
from rag_context.ports.models import Tokenizer
from rag_context.server import requests

NAME_CHARS = 128
"""Of a name that is not known, so much is repeated."""


class EmbeddingHandlers:
    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        return [
            Route("/v1/embeddings", requests.Endpoint(self._embed), methods=["POST"]),
            Route("/v1/models", requests.Endpoint(self._models), methods=["GET"]),
            Route("/v1/models/{name:path}", requests.Endpoint(self._model), methods=["GET"]),
        ]

    async def _embed(self, scope: Scope, receive: Receive) -> requests.Reply:
        requests.check_media_type(requests.http_request(scope), requests.JSON_KINDS, requests.SEND_JSON)
        request = read_json(EmbeddingsRequest, await requests.read_body(receive))
        model = self._service.model()
        if request.model is not None:
            _check_name(request.model, model.name)
        vectors = await self._service.embed(request.input)
        return requests.Reply(await asyncio.to_thread(_written, request, vectors, model.name, self._service.tokenizer))

    async def _models(self, _scope: Scope, _receive: Receive) -> requests.Reply:
        return requests.Reply(ModelsResponse(data=[Model(id=self._service.model().name)]).to_json())

    async def _model(self, scope: Scope, _receive: Receive) -> requests.Reply:
        model = self._service.model()
        _check_name(scope["path_params"]["name"], model.name)
        return requests.Reply(Model(id=model.name).to_json())


def _check_name(requested: str, name: str) -> None:
    """Reject the name of another model. The maker is optional: `sentence-transformers/all-MiniLM-L6-v2`."""
    if requested.lower().rpartition("/")[2] != name.lower().rpartition("/")[2]:
        raise requests.RequestRejectedError(
            404,
            f"The model {requested[:NAME_CHARS]!r} does not exist here; this server has {name!r} only",
            code=ErrorCode.MODEL_NOT_FOUND,
        )


def _written(request: EmbeddingsRequest, vectors: Matrix, name: str, tokenizer: Tokenizer) -> bytes:
    write = _base64 if request.encoding_format == "base64" else _numbers
    tokens = sum(tokenizer.count(request.input))
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
