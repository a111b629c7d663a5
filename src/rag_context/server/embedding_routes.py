"""`/v1/embeddings` and `/v1/models`, for clients that speak OpenAI's API: in every server, and in one of their own."""

import asyncio
import base64
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from rag_context._version import __version__
from rag_context.api.embeddings import Embedding, EmbeddingsRequest, EmbeddingsResponse, Model, ModelsResponse, Usage
from rag_context.api.maintenance import BareHealth
from rag_context.api.parsing import ErrorCode, read_json
from rag_context.domain.documents import Status
from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector
from rag_context.ports.models import Embedder, Tokenizer
from rag_context.resilience.component_checks import HealthMonitor
from rag_context.resilience.dependency import Dependency
from rag_context.server import requests
from rag_context.server.middleware import guarded
from rag_context.server.options import ServerOptions

NAME_CHARS = 128
"""Of a name that is not known, so much is repeated."""


class EmbeddingService(Protocol):
    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Embed texts as they are: `(n, dim) float32`. Raises: BackendError."""
        ...

    def model(self) -> EmbeddingModel:
        """The model in use. Raises: BackendError while it is not known."""
        ...

    @property
    def tokenizer(self) -> Tokenizer: ...


class EmbeddingHandlers:
    def __init__(self, service: EmbeddingService) -> None:
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


SLICE = 32
"""Texts of a long list that are queued at a time, so that no client keeps the others waiting."""


class OneModelService:
    """An `EmbeddingService` over an embedder whose model wants no prefixes.

    A text that comes alone is a query and goes ahead of those that come in lists.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    async def embed(self, texts: Sequence[str]) -> Matrix:
        if len(texts) == 1:
            return (await self._embedder.embed_query(texts[0]))[np.newaxis]
        parts = [
            await self._embedder.embed_documents(texts[start : start + SLICE]) for start in range(0, len(texts), SLICE)
        ]
        return np.concatenate(parts)

    def model(self) -> EmbeddingModel:
        return self._embedder.model

    @property
    def tokenizer(self) -> Tokenizer:
        return self._embedder.tokenizer


class EmbeddingApp:
    def __init__(self, embedder: Embedder, options: ServerOptions) -> None:
        self._health = HealthMonitor((("embedding model", Dependency("embedder", embedder.ping)),))
        gets: dict[str, requests.Handler] = {"/health": self._healthy, "/live": self._live, "/ready": self._ready}
        routes = EmbeddingHandlers(OneModelService(embedder)).routes()
        routes += [Route(path, requests.Endpoint(handle), methods=["GET"]) for path, handle in gets.items()]
        self._stack = guarded(Router(routes, redirect_slashes=False), options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # which lets the router raise what it does not know, for `guarded` to answer
        await self._stack(scope, receive, send)

    async def _healthy(self, _scope: Scope, _receive: Receive) -> requests.Reply:
        return requests.Reply(BareHealth(healthy=await self._works()).to_json())

    async def _live(self, _scope: Scope, _receive: Receive) -> requests.Reply:
        return requests.Reply.json({"status": "ok", "version": __version__})

    async def _ready(self, _scope: Scope, _receive: Receive) -> requests.Reply:
        if not await self._works():
            raise requests.RequestRejectedError(503, "Not ready yet", retry_after_s=1)
        return requests.Reply.json({"status": "ready"})

    async def _works(self) -> bool:
        (finding,) = await self._health.examine()
        return finding.status is Status.HEALTHY
