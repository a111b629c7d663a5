"""The use cases of providers: list them, describe one, test a configuration or a connection at allowed addresses."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from rag_context.api import providers
from rag_context.api.collection_operations import NoFields
from rag_context.api.handlers import performs
from rag_context.api.operations import collections as operations
from rag_context.collections.provider_connections import Connections
from rag_context.collections.registry import ProviderRegistry, Registered, probe
from rag_context.errors import FieldError, InvalidInputError, NotFoundError
from rag_context.ports.provider import ProviderHealth

_PATH_FORMAT = re.compile(r'"format": "(file-|directory-)?path"')

_UNSAFE = re.compile(r"[\\\s\x00-\x1f\x7f]")
"""Characters that address parsers interpret differently."""

ANY = "*"


@dataclass(frozen=True, slots=True)
class AllowedAddresses:
    """The addresses at which callers may test a provider: those in the server's configuration.

    With any address, a caller could scan the network of the server and read what its hosts answer. `listed` are `host`,
    `host:port`, or `*` for any; `configured` addresses need not be listed.
    """

    listed: tuple[str, ...] = ()
    configured: tuple[str, ...] = ()

    def forbidden(self, addresses: Iterable[str]) -> list[str]:
        if ANY in self.listed:
            return []
        allowed = {_parts(each) for each in (*self.listed, *self.configured)}
        return [each for each in addresses if not self._is_allowed(each, allowed)]

    def _is_allowed(self, address: str, allowed: set[tuple[str, int | None] | None]) -> bool:
        parts = _parts(address)
        if parts is None:
            return False
        host, port = parts
        listed = {_parts(each) for each in self.listed}
        return (host, port) in allowed or (host, None) in listed


def _parts(address: str) -> tuple[str, int | None] | None:
    """Host and port; None if it is not an address."""
    if _UNSAFE.search(address):
        return None
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return None if not host else (host.rstrip("."), port)


class ProviderService:
    def __init__(self, connections: Connections, registry: ProviderRegistry, allowed: AllowedAddresses) -> None:
        self._connections = connections
        self._registry = registry
        self._allowed = allowed

    @performs(operations.PROVIDER_LIST)
    async def listing(self, _request: NoFields) -> providers.ProvidersResponse:
        await self._registry.load()
        found = [self._described(registered) for registered in self._registry]
        return providers.ProvidersResponse(providers=found, count=len(found))

    @performs(operations.PROVIDER_GET)
    async def get(self, request: providers.ProviderRequest) -> providers.ProviderResponse:
        return self._described(await self._known(request.name))

    @performs(operations.PROVIDER_TEST)
    async def test(self, request: providers.TestProviderRequest) -> providers.ProviderHealthResponse:
        name = request.name
        registered = await self._known(name)
        if request.connection is not None:
            connection = self._connections.require(request.connection)
            if connection.provider != name:
                message = f"Connection '{connection.id}' is of the provider '{connection.provider}'"
                raise InvalidInputError(message, [FieldError("connection", message)])
            return _health(await connection.health())
        if not registered.available:
            message = f"Provider '{name}' is not available: {registered.reason}"
            raise InvalidInputError(message, [FieldError("", message)])
        configuration = request.configuration or {}
        _reject_paths(registered.connection_schema(), configuration)
        options = _validated(registered, configuration)
        if self._allowed.forbidden(registered.addresses(options)):
            # Raised before any request: the response must not reveal whether something listens at the address.
            message = (
                "Only addresses in the server's configuration are tested: configure a connection with this one, or "
                "add it to server.test_addresses"
            )
            raise InvalidInputError(message, [FieldError("configuration", message)])
        return _health(await probe(registered, options))

    async def _known(self, name: str) -> Registered:
        await self._registry.load()
        found = self._registry.get(name)
        if found is None:
            known = ", ".join(dict.fromkeys(registered.name for registered in self._registry))
            raise NotFoundError(f"Provider '{name[:64]}' not found; known are {known}")
        return found

    def _described(self, registered: Registered) -> providers.ProviderResponse:
        connections = self._connections.values()
        capabilities = providers.CapabilitiesResponse(**asdict(registered.capabilities))
        return providers.ProviderResponse(
            name=registered.name,
            title=registered.title,
            available=registered.available,
            reason=registered.reason,
            capabilities=capabilities if registered.available else None,
            connection_schema=registered.connection_schema() or None,
            connections=[one.id for one in connections if one.provider == registered.name],
        )


def _reject_paths(schema: Mapping[str, Any], configuration: Mapping[str, object]) -> None:
    """Reject paths: a remote caller must not create files on this machine. Raises: InvalidInputError."""
    properties = schema.get("properties", {})
    paths = [name for name in configuration if _PATH_FORMAT.search(json.dumps(properties.get(name, {})))]
    if paths:
        message = "is a path on the server's disk: configure a connection with it, and test that connection"
        raise InvalidInputError(
            "; ".join(f"{name} {message}" for name in paths),
            [FieldError(f"configuration.{name}", message) for name in paths],
        )


def _validated(registered: Registered, configuration: Mapping[str, object]) -> BaseModel:
    """The configuration as the model of its provider kind. Raises: InvalidInputError with the request's fields."""
    try:
        return registered.validated(configuration)
    except InvalidInputError as error:
        details = [FieldError(f"configuration.{detail.field}", detail.message) for detail in error.details]
        raise InvalidInputError(str(error), details) from None


def _health(health: ProviderHealth) -> providers.ProviderHealthResponse:
    return providers.ProviderHealthResponse(
        status=health.status,
        timestamp=health.checked,
        latency_ms=max(round(health.latency_ms, 3), 0.0),
        error=health.error,
        collections=health.collections,
        storage_bytes=health.storage_bytes,
    )
