"""A server of nothing but embeddings: one model for whoever speaks OpenAI's API, other servers of ours included."""

from collections.abc import Sequence

import numpy as np
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from rag_context._version import __version__
from rag_context.api.failure import ErrorCode
from rag_context.api.maintenance import BareHealth
from rag_context.domain.documents import Status
from rag_context.domain.embedding_model import EmbeddingModel
from rag_context.domain.vectors import Matrix
from rag_context.ports.models import Embedder, Tokenizer
from rag_context.resilience.dependency import Dependency
from rag_context.server.app import guarded
from rag_context.server.embeddings import embeddings_reply, model_reply, models_reply
from rag_context.server.endpoint import JSON_KINDS, SEND_JSON, Endpoint, Handler, check_media_type
from rag_context.server.messages import Reply, RequestRejectedError, http_request, read_body
from rag_context.server.options import ServerOptions
from rag_context.service.health import HealthMonitor

SLICE = 32
"""Texts of a long list that are queued at a time, so that no client keeps the others waiting."""


class Embedding:
    """Fits `embeddings.EmbeddingService` over an embedder whose model wants no prefixes.

    A text that comes alone is a query and goes ahead of those that come in lists.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Embed texts: `(n, dim) float32`. Raises: BackendError."""
        if len(texts) == 1:
            return (await self._embedder.embed_query(texts[0]))[np.newaxis]
        parts = [
            await self._embedder.embed_documents(texts[start : start + SLICE]) for start in range(0, len(texts), SLICE)
        ]
        return np.concatenate(parts)

    def model(self) -> EmbeddingModel:
        """The embedder's model. Raises: BackendError while it is not known."""
        return self._embedder.model

    @property
    def tokenizer(self) -> Tokenizer:
        """The embedder's tokenizer."""
        return self._embedder.tokenizer


class EmbeddingApp:
    """The ASGI application, behind the same guards as the whole server's."""

    def __init__(self, embedder: Embedder, options: ServerOptions) -> None:
        handlers = _Handlers(embedder)
        gets: dict[str, Handler] = {
            "/v1/models": handlers.models,
            "/v1/models/{name:path}": handlers.model,
            "/health": handlers.health,
            "/live": handlers.live,
            "/ready": handlers.ready,
        }
        routes = [Route(path, Endpoint(handle), methods=["GET"]) for path, handle in gets.items()]
        routes.insert(0, Route("/v1/embeddings", Endpoint(handlers.embed), methods=["POST"]))
        self._stack = guarded(Router(routes, redirect_slashes=False), options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        scope["app"] = self  # which lets the router raise what it does not know, for `guarded` to answer
        await self._stack(scope, receive, send)


class _Handlers:
    """The routes' handlers."""

    def __init__(self, embedder: Embedder) -> None:
        self._service = Embedding(embedder)
        self._health = HealthMonitor((("embedding model", Dependency("embedder", embedder.ping)),))

    async def embed(self, scope: Scope, receive: Receive) -> Reply:
        check_media_type(http_request(scope), JSON_KINDS, SEND_JSON)
        return await embeddings_reply(self._service, await read_body(receive))

    async def models(self, _scope: Scope, _receive: Receive) -> Reply:
        return await models_reply(self._service)

    async def model(self, scope: Scope, _receive: Receive) -> Reply:
        return await model_reply(self._service, scope["path_params"]["name"])

    async def health(self, _scope: Scope, _receive: Receive) -> Reply:
        return Reply(BareHealth(healthy=await self._works()).to_json())

    async def live(self, _scope: Scope, _receive: Receive) -> Reply:
        return Reply.json({"status": "ok", "version": __version__})

    async def ready(self, _scope: Scope, _receive: Receive) -> Reply:
        if not await self._works():
            raise RequestRejectedError(503, ErrorCode.SERVICE_UNAVAILABLE, "Not ready yet", retry_after="1")
        return Reply.json({"status": "ready"})

    async def _works(self) -> bool:
        (finding,) = await self._health.examine()
        return finding.status is Status.HEALTHY
