"""Chroma as a server, over its HTTP API of version 2.

Its own client library is not used here: it needs the server to be there when it is made, shares connections between
servers, and answers what it does not know with a bare `Exception` that repeats the body.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2
import numpy as np
from pydantic import TypeAdapter, ValidationError

from rag_context._version import __version__
from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendRejectedError, BackendTimeoutError, BackendUnavailableError, ConfigurationError
from rag_context.stores.chroma import chroma_api

if TYPE_CHECKING:
    from rag_context.stores.chroma.folder import ChromaFolder

CONNECT_S = 5.0
TIMEOUT_S = 30.0
CONNECTIONS = 20
KEEP_ALIVE_S = 30.0

_PAGE = 500

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Collection:
    id: str
    configuration_json: dict[str, dict[str, Any] | None]
    dimension: int | None = None
    name: str = ""
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Got:
    ids: list[str]
    metadatas: list[dict[str, Any] | None] | None = None
    documents: list[str | None] | None = None
    embeddings: list[list[float]] | None = None


@dataclass(frozen=True, slots=True)
class _NearestRows:
    ids: list[list[str]]
    metadatas: list[list[dict[str, Any] | None]]
    embeddings: list[list[list[float]]]


@dataclass(frozen=True, slots=True)
class _Limits:
    max_batch_size: int
    supports_base64_encoding: bool = False


_COLLECTION = TypeAdapter(_Collection)
_ALL = TypeAdapter(list[_Collection])
_GOT = TypeAdapter(_Got)
_NEAR = TypeAdapter(_NearestRows)
_LIMITS = TypeAdapter(_Limits)
_NUMBER = TypeAdapter(int)
_ANYTHING = TypeAdapter[dict[str, Any]](dict[str, Any])


class ChromaServer:
    """Connected lazily. Raises: ConfigurationError (that is no address).

    All calls raise `BackendError`; those with a collection's id `CollectionGoneError` if it was deleted.
    """

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        try:
            base = httpx2.URL(url.strip())
        except (httpx2.InvalidURL, ValueError) as error:
            raise ConfigurationError("stores.chroma_url (a connection's url) is not a valid address") from error
        origin = base.copy_with(userinfo=b"", path="/", query=None, fragment=None)
        self.label = f"Chroma at {str(origin).rstrip('/')}"
        self._limits: _Limits | None = None
        self._client = httpx2.AsyncClient(
            base_url=base.copy_with(path=f"{base.path.rstrip('/')}/api/v2/"),
            headers={"User-Agent": f"rag-context/{__version__}", "Content-Type": "application/json"},
            timeout=httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            limits=httpx2.Limits(max_connections=CONNECTIONS, keepalive_expiry=KEEP_ALIVE_S),
            trust_env=False,
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def open(self, name: str) -> chroma_api.CollectionInfo:
        """The collection of this name, created if it is missing."""
        return await self._made({"name": name, "get_or_create": True})

    async def find(self, name: str) -> chroma_api.CollectionInfo | None:
        try:
            return _info_of(await self._call("GET", f"{_COLLECTIONS}/{name}", _COLLECTION))
        except chroma_api.CollectionGoneError:
            return None

    async def all(self) -> list[chroma_api.CollectionInfo]:
        """All collections, also those of other programs."""
        found: list[chroma_api.CollectionInfo] = []
        while True:
            page = await self._call("GET", f"{_COLLECTIONS}?limit={_PAGE}&offset={len(found)}", _ALL)
            found += map(_info_of, page)
            if len(page) < _PAGE:
                return found

    async def create(self, name: str, fields: chroma_api.Fields) -> chroma_api.CollectionInfo | None:
        """Create a collection; None if the name exists."""
        try:
            return await self._made({"name": name, "metadata": fields})
        except chroma_api.NameExistsError:
            return None

    async def _made(self, body: Mapping[str, object]) -> chroma_api.CollectionInfo:
        body = {**body, "configuration": {"hnsw": chroma_api.HNSW}}
        try:
            return _info_of(await self._call("POST", _COLLECTIONS, _COLLECTION, body))
        except chroma_api.CollectionGoneError as error:
            message = f"{self.label} does not speak version 2 of Chroma's API"
            raise BackendRejectedError(chroma_api.COMPONENT, message) from error

    async def describe(self, collection: str, fields: chroma_api.Fields) -> None:
        """Put other fields, one at least, in place of a collection's."""
        await self._call("PUT", f"{_COLLECTIONS}/{collection}", _ANYTHING, {"new_metadata": fields})

    async def drop(self, name: str) -> None:
        """Remove a collection, if it exists."""
        with suppress(chroma_api.CollectionGoneError):
            await self._call("DELETE", f"{_COLLECTIONS}/{name}", _ANYTHING)

    async def most_rows(self) -> int:
        """How many rows one `upsert` may hold."""
        return (await self._read_limits()).max_batch_size

    async def upsert(self, collection: str, rows: chroma_api.Rows) -> None:
        limits = await self._read_limits()
        body = {
            "ids": rows.ids,
            "metadatas": rows.fields,
            "documents": rows.texts,
            "embeddings": _encoded(rows.vectors, limits),
        }
        await self._call("POST", f"{_COLLECTIONS}/{collection}/upsert", _ANYTHING, body)

    async def delete(self, collection: str, ids: Sequence[str]) -> None:
        await self._call("POST", f"{_COLLECTIONS}/{collection}/delete", _ANYTHING, {"ids": ids})

    async def count(self, collection: str) -> int:
        return await self._call("GET", f"{_COLLECTIONS}/{collection}/count", _NUMBER)

    async def get(
        self,
        collection: str,
        include: Sequence[chroma_api.Part] = (),
        *,
        ids: Sequence[str] | None = None,
        where: chroma_api.Where | None = None,
        limit: int | None = None,
    ) -> chroma_api.Rows:
        """The rows of these ids that exist, or those that a condition lets through, as of one point in time.

        They come in any order, with the parts in `include`. Without ids and a condition these are all rows; `limit`
        returns the first ones only.
        """
        selected = {"ids": ids, "where": where, "limit": limit}
        body = {"include": include, **{name: value for name, value in selected.items() if value is not None}}
        found = await self._call("POST", f"{_COLLECTIONS}/{collection}/get", _GOT, body)
        return chroma_api.rows_from(
            self.label,
            found.ids,
            found.metadatas if "metadatas" in include else None,
            found.documents if "documents" in include else None,
            found.embeddings or [] if "embeddings" in include else None,
        )

    async def nearest(
        self, collection: str, vector: Vector, limit: int, where: chroma_api.Where | None
    ) -> chroma_api.Rows:
        """Rows near to a vector with their fields and vectors: those that the index returns, nearest first."""
        body = {
            "query_embeddings": [vector.tolist()],
            "n_results": limit,
            "where": where,
            "include": ["metadatas", "embeddings"],
        }
        found = await self._call("POST", f"{_COLLECTIONS}/{collection}/query", _NEAR, body)
        if not len(found.ids) == len(found.metadatas) == len(found.embeddings) == 1:
            raise chroma_api.invalid_response(self.label, "not one answer to one query")
        return chroma_api.rows_from(self.label, found.ids[0], found.metadatas[0], None, found.embeddings[0])

    async def _read_limits(self) -> _Limits:
        if self._limits is None:
            self._limits = await self._call("GET", "pre-flight-checks", _LIMITS)
        return self._limits

    async def _call(self, method: str, path: str, answer: TypeAdapter[T], body: object = None) -> T:
        content = None if body is None else json.dumps(body).encode()
        try:
            response = await self._client.request(method, path, content=content)
        except httpx2.TimeoutException as error:
            raise BackendTimeoutError(chroma_api.COMPONENT, f"{self.label} did not answer in time") from error
        except AttributeError as error:  # uvloop: a connection reset while it was made has no socket, which anyio reads
            raise chroma_api.unreachable(self.label, "reset") from error
        except httpx2.TransportError as error:
            raise chroma_api.unreachable(self.label, str(error) or type(error).__name__) from error
        except httpx2.DecodingError as error:
            raise chroma_api.invalid_response(self.label, "bytes that cannot be decoded") from error
        # Redirects are not followed, so they are errors too.
        if response.status_code >= httpx2.codes.MULTIPLE_CHOICES:
            raise self._failure(response)
        try:
            return answer.validate_json(response.content)
        except ValidationError as error:
            raise chroma_api.invalid_response(self.label, "another body than its API has") from error

    def _failure(self, response: httpx2.Response) -> BackendRejectedError | BackendUnavailableError:
        """Maps a status to our error; bodies are not repeated, because they may contain stored data."""
        status = response.status_code
        problem = f"{self.label} returned {status}"
        if status == httpx2.codes.NOT_FOUND:
            return chroma_api.CollectionGoneError(chroma_api.COMPONENT, f"{problem}: the collection does not exist")
        if status == httpx2.codes.CONFLICT:
            return chroma_api.NameExistsError(chroma_api.COMPONENT, f"{problem}: the name exists")
        if status == httpx2.codes.INTERNAL_SERVER_ERROR and chroma_api.LOST_ROW in response.text:
            return chroma_api.RowsMovedError(chroma_api.COMPONENT, f"{problem}: rows were removed while they were read")
        if status == httpx2.codes.TOO_MANY_REQUESTS or status >= httpx2.codes.INTERNAL_SERVER_ERROR:
            return BackendUnavailableError(chroma_api.COMPONENT, problem, retry_after_s=_seconds(response))
        return BackendRejectedError(chroma_api.COMPONENT, problem)


_COLLECTIONS = "tenants/default_tenant/databases/default_database/collections"


def _info_of(found: _Collection) -> chroma_api.CollectionInfo:
    settings = found.configuration_json.get("hnsw") or found.configuration_json.get("spann") or {}
    return chroma_api.CollectionInfo(
        found.id, str(settings.get("space")), found.dimension, found.name, found.metadata or {}
    )


def _encoded(vectors: Matrix | None, limits: _Limits) -> list[str] | list[list[float]]:
    rows = np.zeros((0, 0), dtype="<f4") if vectors is None else vectors.astype("<f4")
    if limits.supports_base64_encoding:
        # Exact, and shorter than decimal numbers.
        return [base64.b64encode(row.tobytes()).decode() for row in rows]
    numbers: list[list[float]] = rows.tolist()
    return numbers


def _seconds(response: httpx2.Response) -> float | None:
    problem = response.headers.get("Retry-After", "")
    return float(problem) if problem.isdecimal() else None


@asynccontextmanager
async def open_api(place: str | Path, timeout_s: float = TIMEOUT_S) -> AsyncIterator[chroma_api.ChromaApi]:
    """Chroma on a server (its address), or in this process over a folder, which its first call opens.

    The folder may be used by no other. Importing its library takes some seconds. Raises: ConfigurationError.
    """
    opened = ChromaServer(place, timeout_s) if isinstance(place, str) else await asyncio.to_thread(_folder, place)
    async with aclosing(opened):
        yield opened


def _folder(path: Path) -> "ChromaFolder":
    from rag_context.stores.chroma.folder import ChromaFolder  # noqa: PLC0415  (it takes seconds)

    return ChromaFolder(path)
