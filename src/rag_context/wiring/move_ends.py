"""Opens both ends of a move: the index and the collections of the settings, and those of another backend."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from rag_context.collections.provider_connections import DEFAULT
from rag_context.errors import InvalidInputError
from rag_context.ports.provider import Provider
from rag_context.settings import Settings, StoreSettings, check_available
from rag_context.settings.keys import location_of
from rag_context.settings.values import PostgresUrl
from rag_context.stores.sqlite.embedded import FILE_NAME, require_index
from rag_context.transfer.mover import Index, Mover
from rag_context.wiring.collection_providers import open_connections, provider_registry
from rag_context.wiring.stores import Stores, open_stores

EMBEDDED = "embedded"
"""Stands for the data directory."""


@dataclass(frozen=True, slots=True)
class End:
    """One end of a move. `collections` is None where they are on a configured connection, which both ends share."""

    name: str
    stores: Stores
    collections: Provider | None


@dataclass(frozen=True, slots=True)
class Move:
    source: End
    target: End
    mover: Mover


@asynccontextmanager
async def open_move(settings: Settings, to: str) -> AsyncIterator[Move]:
    """Open the index of the settings and the one to move it to; other processes may use both.

    Raises:
        InvalidInputError: `to` is no `postgresql://` address nor `embedded`, or is where the index is already.
        ConfigurationError: the settings cannot work, or there is no index.
    """
    target = settings.model_copy(update={"stores": _stores_at(to, settings.stores)})
    check_available(settings)
    check_available(target)
    if settings.stores.documents == EMBEDDED:
        require_index(settings.data_dir / FILE_NAME)
    async with AsyncExitStack() as stack:
        ends = (await _opened(settings, stack), await _opened(target, stack))
        yield Move(*ends, Mover(_index(ends[0].stores), _index(ends[1].stores)))


def _index(stores: Stores) -> Index:
    return Index(stores.documents, stores.vectors, stores.registry, stores.writer, stores.bulk, stores.journal)


async def _opened(settings: Settings, stack: AsyncExitStack) -> End:
    stores = await stack.enter_async_context(open_stores(settings))
    collections = None
    if DEFAULT not in settings.connections:
        connections = await stack.enter_async_context(open_connections(settings, provider_registry(settings)))
        collections = await connections.require(DEFAULT).opened()
    return End(location_of(settings), stores, collections)


def _stores_at(to: str, stores: StoreSettings) -> StoreSettings:
    """The stores of the target. Raises: InvalidInputError."""
    is_postgres = to.startswith(("postgresql://", "postgres://"))
    if not is_postgres and to != EMBEDDED:
        raise InvalidInputError(f'--to takes a postgresql:// address, or "{EMBEDDED}" for the data directory.')
    if is_postgres:
        try:
            TypeAdapter[str](PostgresUrl).validate_python(to)
        except ValidationError as error:
            raise InvalidInputError(
                "--to is not a valid address; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, user and password"
                " percent-encoded."
            ) from error
    kind = "postgres" if is_postgres else EMBEDDED
    if stores.documents == stores.vectors == kind and (not is_postgres or stores.postgres_url == to):
        remedy = (
            "unset DATABASE_URL to move the data directory there" if is_postgres else "set DATABASE_URL to its source"
        )
        raise InvalidInputError(f"The settings name this index already, so there is nothing to move: {remedy}.")
    changes: dict[str, object] = {"documents": kind, "vectors": kind}
    return stores.model_copy(update={**changes, "postgres_url": to} if is_postgres else changes)
