"""Providers of collections on the wire. Their fields are in snake_case, as their clients know them."""

from typing import Annotated, Any, Self

from pydantic import JsonValue, model_validator
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError

from rag_context.api.wire import Count, Milliseconds, PlainRequest, PlainResponse, UtcTime, about
from rag_context.domain.documents import Status


class TestRequest(PlainRequest):
    """A configuration to try; or the id of a connection that the server has, to be tried as it is."""

    __test__ = False  # not a test, whatever pytest makes of its name

    configuration: Annotated[dict[str, JsonValue] | None, about("As the provider's connection_schema describes it")] = (
        None
    )
    connection: Annotated[str | None, about("Id of a configured connection of this provider")] = None

    @model_validator(mode="after")
    def _check_not_both(self) -> Self:
        if self.configuration is not None and self.connection is not None:
            raise PydanticCustomError("exactly_one", "Name configuration or connection, not both")
        return self


class ProviderRequest(PlainRequest):
    """Which provider."""

    name: Annotated[str, about("Name of the provider, as in the list", min_length=1)]


class TestProviderRequest(TestRequest, ProviderRequest):
    """Which provider to try, and how."""


class CapabilitiesResponse(PlainResponse):
    """What a provider can do."""

    collections: bool
    search: bool
    embeddings: Annotated[bool, about("Whether it makes vectors itself")]
    metadata_filtering: bool
    scanned_operators: Annotated[
        list[str], about("Operators of where that it answers by reading documents: exactly, but slower")
    ]


class ProviderResponse(PlainResponse):
    """A provider of collections."""

    name: str
    title: str
    available: bool
    reason: Annotated[str | None, about("Why it is not available, and what to do")] = None
    capabilities: CapabilitiesResponse | None = None
    connection_schema: Annotated[
        dict[str, Any] | None, WithJsonSchema({"type": "object", "description": "JSON Schema of its configuration"})
    ] = None
    connections: Annotated[list[str], about("Ids of the connections to it that the server has")]


class ProvidersResponse(PlainResponse):
    """All providers, by name, also those that cannot be used here."""

    providers: list[ProviderResponse]
    count: Count


class ProviderHealthResponse(PlainResponse):
    """How a provider is."""

    status: Status
    timestamp: UtcTime
    latency_ms: Milliseconds
    error: str | None = None
    collections: Annotated[Count | None, about("How many there are, where known")] = None
    storage_bytes: Annotated[Count | None, about("What they take, where known")] = None
