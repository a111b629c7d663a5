"""Kinds of provider between the wire and the domain: what there are, and trying one."""

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from rag_context.api.providers import (
    CapabilitiesResponse,
    ProviderHealthResponse,
    ProviderResponse,
    ProvidersResponse,
    TestRequest,
)
from rag_context.collections.addresses import AllowedAddresses
from rag_context.collections.connections import Connections
from rag_context.collections.registry import ProviderRegistry, Registered, probe
from rag_context.errors import FieldError, InvalidInputError, NotFoundError
from rag_context.ports.provider import Capabilities, ProviderHealth

_PATH_FORMAT = re.compile(r'"format": "(file-|directory-)?path"')


class ProviderService:
    """The use cases of providers.

    Args:
        connections: where collections live.
        registry: the kinds of provider.
        allowed: where kinds of provider may be tried for a caller.
    """

    def __init__(self, connections: Connections, registry: ProviderRegistry, allowed: AllowedAddresses) -> None:
        self._connections = connections
        self._registry = registry
        self._allowed = allowed

    async def listing(self) -> ProvidersResponse:
        """All kinds of provider, also those that cannot be used here."""
        await self._registry.load()
        found = [self._described(registered) for registered in self._registry]
        return ProvidersResponse(providers=found, count=len(found))

    async def get(self, name: str) -> ProviderResponse:
        """One kind of provider."""
        return self._described(await self._known(name))

    async def test(self, name: str, request: TestRequest) -> ProviderHealthResponse:
        """Say how a provider is with a configuration, or on a connection that there is."""
        registered = await self._known(name)
        if request.connection is not None:
            connection = self._connections.known(request.connection)
            if connection.provider != name:
                said = f"Connection '{connection.id}' is of the provider '{connection.provider}'"
                raise InvalidInputError(said, [FieldError("connection", said)])
            return _health(await connection.health())
        if not registered.available:
            said = f"Provider '{name}' is not available: {registered.reason}"
            raise InvalidInputError(said, [FieldError("", said)])
        configuration = request.configuration or {}
        _refuse_paths(registered.connection_schema(), configuration)
        chosen = _validated(registered, configuration)
        if self._allowed.forbidden(registered.addresses(chosen)):
            # Said before anything is tried: the answer is the same whether something listens there or not.
            said = (
                "Only addresses that the server's configuration names are tried: make a connection with this one, or "
                "have it added to server.test_addresses"
            )
            raise InvalidInputError(said, [FieldError("configuration", said)])
        return _health(await probe(registered, chosen))

    async def _known(self, name: str) -> Registered:
        await self._registry.load()
        found = self._registry.get(name)
        if found is None:
            known = ", ".join(dict.fromkeys(registered.name for registered in self._registry))
            raise NotFoundError(f"Provider '{name[:64]}' not found; known are {known}")
        return found

    def _described(self, registered: Registered) -> ProviderResponse:
        connections = self._connections.values()
        return ProviderResponse(
            name=registered.name,
            title=registered.title,
            available=registered.available,
            reason=registered.reason,
            capabilities=_capabilities(registered.capabilities) if registered.available else None,
            connection_schema=registered.connection_schema() or None,
            connections=[one.id for one in connections if one.provider == registered.name],
        )


def _capabilities(capabilities: Capabilities) -> CapabilitiesResponse:
    return CapabilitiesResponse(
        collections=capabilities.collections,
        search=capabilities.search,
        embeddings=capabilities.embeddings,
        metadata_filtering=capabilities.metadata_filtering,
        scanned_operators=list(capabilities.scanned_operators),
    )


def _refuse_paths(schema: Mapping[str, Any], configuration: Mapping[str, object]) -> None:
    """A caller from elsewhere must not have files made on this machine. Raises: InvalidInputError."""
    properties = schema.get("properties", {})
    paths = [name for name in configuration if _PATH_FORMAT.search(json.dumps(properties.get(name, {})))]
    if paths:
        said = "names a place on the server's disk: configure a connection with it, and test that"
        raise InvalidInputError(
            "; ".join(f"{name} {said}" for name in paths),
            [FieldError(f"configuration.{name}", said) for name in paths],
        )


def _validated(registered: Registered, configuration: Mapping[str, object]) -> BaseModel:
    """A configuration as its kind wants it. Raises: InvalidInputError, about fields of the request."""
    try:
        return registered.validated(configuration)
    except InvalidInputError as error:
        details = [FieldError(f"configuration.{detail.field}", detail.message) for detail in error.details]
        raise InvalidInputError(str(error), details) from None


def _health(health: ProviderHealth) -> ProviderHealthResponse:
    return ProviderHealthResponse(
        status=health.status,
        timestamp=health.checked,
        latency_ms=max(round(health.latency_ms, 3), 0.0),
        error=health.error,
        collections=health.collections,
        storage_bytes=health.storage_bytes,
    )
