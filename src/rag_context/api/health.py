"""How the system is."""

from typing import Annotated

from pydantic import Field

from rag_context.api.wire import Count, Milliseconds, WireRequest, WireResponse
from rag_context.domain.documents import Status


class HealthRequest(WireRequest):
    """No arguments."""


class ComponentHealth(WireResponse):
    """One part of the system."""

    name: str
    role: str
    status: Status
    latency_ms: Milliseconds | None = None
    detail: str | None = None


class ModelName(WireResponse):
    """The embedding model in use."""

    name: str
    dimension: Annotated[int, Field(ge=1)]


class HealthResponse(WireResponse):
    """How the system is; the three seed roles speak for whichever backend holds them."""

    healthy: Annotated[bool, Field(description="Whether searches are answered whole and writes are taken")]
    qdrant_status: Annotated[Status, Field(description="The vector store")]
    lm_studio_status: Annotated[Status, Field(description="The embedder")]
    mongo_status: Annotated[Status, Field(description="The document store")]
    latency: Annotated[Milliseconds, Field(description="How long the check took, in milliseconds")]
    indexed_documents: Count
    circuit_breaker_open: bool
    components: list[ComponentHealth]
    embedding_model: Annotated[ModelName | None, Field(description="Absent while the model is unknown")] = None
    pending_documents: Annotated[Count, Field(description="Documents whose vectors are still to come")]
    indexing: Annotated[bool, Field(description="Documents are being embedded; healthy as long as it moves on")] = False
    version: str


class BareHealth(WireResponse):
    """What a caller without a key may know."""

    healthy: bool
