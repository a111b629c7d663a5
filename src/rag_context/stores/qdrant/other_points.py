"""Points of other programs in a collection of Qdrant; reading them changes nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rag_context.errors import NotFoundError
from rag_context.ports.foreign import ForeignRecord
from rag_context.stores.engines import read_fields
from rag_context.stores.qdrant.points import CHUNK_ID, is_ours
from rag_context.stores.qdrant.qdrant_api import QdrantConnection, Transport, connect
from rag_context.stores.qdrant.qdrant_errors import NoCollectionError
from rag_context.stores.qdrant.qdrant_vectors import TIMEOUT_S

_PAGE = 250


@asynccontextmanager
async def open_other_points(
    url: str, collection: str, *, api_key: str | None, transport: Transport, grpc_port: int
) -> AsyncIterator["OtherPoints"]:
    """Open a collection for reading. Raises: ConfigurationError (the address, or the name)."""
    connection = connect(
        url, collection, api_key=api_key, transport=transport, grpc_port=grpc_port, timeout_s=TIMEOUT_S
    )
    try:
        yield OtherPoints(connection)
    finally:
        await connection.client.close()


class OtherPoints:
    """`ForeignSource` over the points that this package did not store."""

    def __init__(self, connection: QdrantConnection) -> None:
        self._connection = connection

    @property
    def label(self) -> str:
        return f"{self._connection.collection} in Qdrant"

    async def records(self) -> AsyncIterator[ForeignRecord]:
        try:
            async for point in self._connection.scroll(None, payload=True, page=_PAGE):
                if is_ours(point.id, point.payload):
                    continue
                text, fields = read_fields(point.payload or {})
                names = {str(point.id), str(fields.get(CHUNK_ID, point.id))}
                yield ForeignRecord(str(point.id), text, fields, frozenset(names))
        except NoCollectionError as error:
            raise NotFoundError(str(error)) from error
