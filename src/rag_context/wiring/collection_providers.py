"""The built-in kinds of provider, and the configured connections. Adapters are imported when a provider is opened."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from rag_context.collections import provider_connections
from rag_context.collections.collection_service import AllowedAddresses, CollectionService
from rag_context.collections.collections import Collections
from rag_context.collections.labels import BUILT
from rag_context.collections.provider_connections import DEFAULT, Connections, ProviderConnection, TextEmbedder
from rag_context.collections.registry import ProviderKind, ProviderRegistry, Registered
from rag_context.domain.documents import counted
from rag_context.embedders.model_vectors import CachedEmbedder
from rag_context.errors import BackendError, ConfigurationError, InvalidInputError
from rag_context.ingest.redaction import Redactor
from rag_context.ports.provider import Capabilities, Provider
from rag_context.resilience.admission import Admissions
from rag_context.resilience.dependency import Dependency
from rag_context.settings import ConnectionSettings, EmbedderSettings, Settings, values
from rag_context.settings.installation import install_command
from rag_context.settings.values import Consistency, Expected, HttpUrl, PostgresUrl, Secret, Section, hosts_of, setting
from rag_context.stores.sqlite.embedded import FILE_NAME, stored_names
from rag_context.stores.tokens import CAPABILITIES
from rag_context.wiring.model_adapters import open_embedder
from rag_context.wiring.stores import ONLY_HERE, local_notes, qdrant_options, uses_servers

logger = logging.getLogger(__name__)

CHROMA_URL = "http://localhost:8000"
QDRANT_PORT = 6333
POSTGRES_PORT = 5432
_WITH_PORT = re.compile(r":\d+$")


def _address(url: str) -> str:
    if any(not parts.hostname or parts.port == 0 for parts in map(urlsplit, hosts_of(url))):
        raise ValueError(url)
    return url


Address = Annotated[HttpUrl, AfterValidator(_address)]
Prefix = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$"),
    Expected("1 to 40 lower-case letters, digits, dashes and underscores, a letter or digit first"),
]


class EmbeddedConfiguration(Section):
    """Collections in the data directory; there are no options."""


class QdrantConfiguration(Section):
    """Collections on a Qdrant server."""

    url: Address = setting("http://localhost:6333", "Its address, or its nodes: http://one:6333,two:6333.", repr=False)
    api_key: Secret | None = setting(None, "Key for Qdrant.")
    prefix: Prefix = setting("rag-context", "What the names of our collections begin with in Qdrant.")
    transport: Literal["http", "grpc"] = setting("http", "How Qdrant is spoken to; grpc uses grpc_port.")
    grpc_port: int = setting(6334, "Qdrant's port for gRPC.", ge=1, le=65535)
    timeout_s: float = setting(30.0, "Longest wait for one answer.", gt=0, le=3600)
    replicas: int | None = setting(None, "Replicas of each shard of a new collection; default: the server's.", ge=1)
    read_consistency: Consistency = setting("one", "How many replicas of a shard a read queries.")


class PostgresConfiguration(Section):
    """Collections in a PostgreSQL database with pgvector."""

    url: PostgresUrl = setting(
        "postgresql://localhost:5432/rag_context",
        "PostgreSQL's address, postgresql://USER:PASSWORD@HOST:PORT/DATABASE.",
        repr=False,
        json_schema_extra={"writeOnly": True},
    )
    pool_size: int = setting(10, "Connections at most.", ge=2, le=1000)
    statement_cache_size: int = setting(64, "Prepared statements of each connection; 0 behind PgBouncer.", ge=0)


class ChromaConfiguration(Section):
    """Collections on a Chroma server, or in a folder of Chroma's."""

    url: Address | None = setting(
        None, "Chroma's address; http://localhost:8000 if no folder is named either.", repr=False
    )
    folder: values.UserPath | None = setting(None, "Folder of a Chroma inside this process, in place of a server.")
    prefix: Prefix = setting("rag-context", "What the names of our collections begin with in Chroma.")
    timeout_s: float = setting(30.0, "How long a server may be silent.", gt=0, le=3600)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.url is not None and self.folder is not None:
            raise PydanticCustomError("two_places", "url and folder exclude each other: set one of them")
        if self.folder is not None and find_spec("chromadb") is None:
            reason = f"a folder needs a library that is not installed: run `{install_command('chroma')}`"
            raise PydanticCustomError("no_library", reason)
        return self


def _qdrant_addresses(options: QdrantConfiguration) -> list[str]:
    nodes = [urlsplit(url) for url in hosts_of(options.url)]
    addresses = [node.geturl() if node.port else f"{node.scheme}://{node.netloc}:{QDRANT_PORT}" for node in nodes]
    ports = [f"{node.hostname}:{options.grpc_port}" for node in nodes if options.transport == "grpc"]
    return [*addresses, *ports]


def _postgres_addresses(options: PostgresConfiguration) -> list[str]:
    """Every host that the address names, each with its port."""
    hosts = urlsplit(options.url).netloc.rpartition("@")[2].split(",")
    return [host if _WITH_PORT.search(host) else f"{host}:{POSTGRES_PORT}" for host in hosts]


def provider_registry(settings: Settings) -> ProviderRegistry:
    """All provider kinds; nothing is opened and no plug-in is imported before its first use."""
    stores = settings.stores
    embedded = ProviderKind(
        name="embedded",
        title="Embedded (the data directory)",
        capabilities=Capabilities(),
        configuration=EmbeddedConfiguration,
        addresses=lambda _: (),
        open=partial(_open_embedded, settings.data_dir),
    )
    qdrant = ProviderKind(
        name="qdrant",
        title="Qdrant",
        capabilities=CAPABILITIES,
        configuration=QdrantConfiguration,
        addresses=_qdrant_addresses,
        open=partial(_open_qdrant, stores.qdrant_collection),
    )
    postgres = ProviderKind(
        name="postgres",
        title="PostgreSQL",
        capabilities=Capabilities(),
        configuration=PostgresConfiguration,
        addresses=_postgres_addresses,
        open=_open_postgres,
    )
    chroma = ProviderKind(
        name="chroma",
        title="Chroma",
        capabilities=CAPABILITIES,
        configuration=ChromaConfiguration,
        addresses=lambda options: [] if options.folder else [options.url or CHROMA_URL],
        open=partial(_open_chroma, stores.chroma_collection),
    )
    return ProviderRegistry(
        [
            (embedded, None),
            (qdrant, _missing("qdrant_client", "qdrant")),
            (postgres, _missing("asyncpg", "postgres")),
            (chroma, None),  # a server is reached over plain HTTP, without Chroma's library
        ]
    )


def _missing(module: str, extra: str) -> str | None:
    if find_spec(module) is not None:
        return None
    return f"Its client is not installed: run `{install_command(extra)}`."


def _open_embedded(data_dir: Path, _: EmbeddedConfiguration) -> AbstractAsyncContextManager[Provider]:
    from rag_context.stores.sqlite.collections import open_collections  # noqa: PLC0415  (only if used)

    return open_collections(data_dir / FILE_NAME)


@asynccontextmanager
async def _open_qdrant(memory: str, options: QdrantConfiguration) -> AsyncIterator[Provider]:
    await asyncio.to_thread(import_module, "rag_context.stores.qdrant.qdrant_collections")  # seconds, not on the loop
    from rag_context.stores.qdrant.qdrant_collections import open_qdrant_collections  # noqa: PLC0415  (an extra)

    async with open_qdrant_collections(
        options.url,
        prefix=options.prefix,
        api_key=options.api_key.get_secret_value() if options.api_key else None,
        transport=options.transport,
        grpc_port=options.grpc_port,
        timeout_s=options.timeout_s,
        read_consistency=options.read_consistency,
        replicas=options.replicas,
        hidden=[memory],
    ) as provider:
        yield provider


def _open_postgres(options: PostgresConfiguration) -> AbstractAsyncContextManager[Provider]:
    from rag_context.stores.postgres.collections import open_postgres_collections  # noqa: PLC0415  (an extra)

    return open_postgres_collections(
        options.url, pool_size=options.pool_size, statement_cache_size=options.statement_cache_size
    )


@asynccontextmanager
async def _open_chroma(memory: str, options: ChromaConfiguration) -> AsyncIterator[Provider]:
    await asyncio.to_thread(import_module, "rag_context.stores.chroma.chroma_collections")
    from rag_context.stores.chroma.chroma_collections import open_chroma_collections  # noqa: PLC0415  (only if used)

    place = options.folder or options.url or CHROMA_URL
    opened = open_chroma_collections(place, prefix=options.prefix, timeout_s=options.timeout_s, hidden=[memory])
    async with opened as provider:
        yield provider


LOCAL = "data-directory"
"""The connection to the collections of the data directory, where `default` is a server and nothing else leads there."""

MOST_NAMED = 5


def _default(settings: Settings) -> ConnectionSettings:
    """Collections are where the documents are, or beside their vectors: shared by all servers that share those."""
    stores = settings.stores
    options: dict[str, object] = {"provider": "embedded"}
    if stores.documents == "postgres":
        options = {
            "provider": "postgres",
            "url": stores.postgres_url,
            "pool_size": stores.postgres_pool_size,
            "statement_cache_size": stores.postgres_statement_cache_size,
        }
    elif stores.vectors == "qdrant":
        options = {"provider": "qdrant", "url": stores.qdrant_url, **qdrant_options(stores)}
    elif stores.vectors == "chroma" and stores.chroma_dir is None:
        options = {"provider": "chroma", "url": stores.chroma_url}
    return ConnectionSettings.model_validate(options)


def _tables(settings: Settings) -> dict[str, ConnectionSettings]:
    """All connections by id, the one that is always there among them."""
    return {DEFAULT: _default(settings), **settings.connections}


def _with_local(settings: Settings) -> tuple[dict[str, ConnectionSettings], dict[str, str]]:
    """All connections; and by id, of those that keep collections on this machine only beside server stores, a note.

    Collections that the data directory got before `default` was a server stay reachable, on a connection of their own.
    """
    tables = _tables(settings)
    if not uses_servers(settings.stores):
        return tables, {}
    notes = {
        id_: f"collections of the connection {id_} {ONLY_HERE}"
        for id_, one in tables.items()
        if one.provider == "embedded" or (one.provider == "chroma" and "folder" in one.configuration)
    }
    if not any(one.provider == "embedded" for one in tables.values()):
        names = _local_names(settings)
        if names:
            tables.setdefault(LOCAL, ConnectionSettings(provider="embedded"))
            shown = ", ".join(map(repr, names[:MOST_NAMED])) + (" ..." if names[MOST_NAMED:] else "")
            notes[LOCAL] = (
                f"{counted(len(names), 'collection')} of the data directory ({shown}) {ONLY_HERE}; "
                f"`rag-context collections copy {LOCAL}:NAME NAME` copies one to {tables[DEFAULT].provider}"
            )
    return tables, notes


def _local_names(settings: Settings) -> list[str]:
    try:
        return [name for name in stored_names(settings.data_dir / FILE_NAME) if BUILT not in name]
    except BackendError as error:
        logger.warning("collections of the data directory, if there are any, are not found: %s", error)
        return []


@asynccontextmanager
async def open_connections(
    settings: Settings, registry: ProviderRegistry | None = None, default_embedder: TextEmbedder | None = None
) -> AsyncIterator[Connections]:
    """The configured connections, none opened yet; `default` is with documents or vectors unless configured.

    Without an embedder, as copies of stored vectors need none, texts are embedded where a connection has its own.

    Raises: ConfigurationError (a connection can never work).
    """
    tables, notes = await asyncio.to_thread(_with_local, settings)
    # Before anything is opened, so that a connection that can never work is reported at the start.
    registry = registry or provider_registry(settings)
    configured = {id_: _configured(id_, connection, registry) for id_, connection in tables.items()}
    async with AsyncExitStack() as stack:
        made = []
        for id_, connection in tables.items():
            embedder = default_embedder
            if connection.embedder is not None:
                embedder = await _embedder(id_, settings, connection.embedder, stack)
            registered, configuration = configured[id_]
            opener = partial(registered.open, configuration)
            made.append(ProviderConnection(id_, connection.provider, opener, embedder, note=notes.get(id_)))
        yield await stack.enter_async_context(aclosing(Connections(made)))


@asynccontextmanager
async def open_collection_service(
    settings: Settings, default_embedder: TextEmbedder, admissions: Admissions, redactor: Redactor
) -> AsyncIterator[CollectionService]:
    """Open the use cases of collections. Raises: ConfigurationError (a connection can never work)."""
    registry = provider_registry(settings)
    allowed = AllowedAddresses(settings.server.test_addresses, tuple(_addresses(settings, registry)))
    async with open_connections(settings, registry, default_embedder) as connections:
        for note in (*local_notes(settings.stores).values(), *(one.note for one in connections.values() if one.note)):
            logger.warning(note)
        service = CollectionService(Collections(connections), registry, admissions, allowed, redactor)
        try:
            yield service
        finally:
            await service.close()


def _addresses(settings: Settings, registry: ProviderRegistry) -> Iterator[str]:
    for id_, connection in _tables(settings).items():
        registered, configuration = _configured(id_, connection, registry)
        yield from registered.addresses(configuration)


def _configured(id_: str, connection: ConnectionSettings, registry: ProviderRegistry) -> tuple[Registered, BaseModel]:
    """The provider of a connection, and its configuration. Raises: ConfigurationError (it can never work)."""
    registered = registry.get(connection.provider)
    if registered is None:
        known = ", ".join(dict.fromkeys(one.name for one in registry))
        raise ConfigurationError(
            f"connections.{id_}.provider is {connection.provider!r}, which is unknown; choose one of {known}."
        )
    if not registered.available:
        raise ConfigurationError(
            f"connections.{id_}: provider {connection.provider!r} is not available: {registered.reason}"
        )
    try:
        return registered, registered.validated(connection.configuration)
    except InvalidInputError as error:
        raise ConfigurationError(f"connections.{id_}: {error}") from error


async def _embedder(id_: str, settings: Settings, options: EmbedderSettings, stack: AsyncExitStack) -> TextEmbedder:
    adapted = settings.model_copy(update={"embedder": options})
    embedder = CachedEmbedder(await stack.enter_async_context(open_embedder(adapted)))
    return TextEmbedder(
        embedder, Dependency(f"embedder of connection {id_}", embedder.ping, probe_s=provider_connections.PROBE_S)
    )
