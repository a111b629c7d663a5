"""Chroma inside this process, over a folder. Importing its library takes some seconds."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import chromadb
from chromadb.api.client import Client
from chromadb.api.models.Collection import Collection
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings
from chromadb.errors import ChromaError, InternalError, NotFoundError

from rag_context.domain.vectors import Vector
from rag_context.errors import BackendRejectedError, BackendUnavailableError
from rag_context.stores.chroma import chroma_api
from rag_context.stores.chroma.chroma_api import COMPONENT, CollectionGoneError, CollectionInfo, Fields, Rows, rows_from

THREADS = 4

_NAME_EXISTS = "already exists"
"""The text of Chroma's internal error for a name that exists."""

T = TypeVar("T")


class ChromaFolder:
    """Has the calls of `ChromaServer`. One process may use a folder; one that cannot be opened is tried again."""

    def __init__(self, path: Path) -> None:
        self.label = f"Chroma in {path}"
        self._path = path
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="chroma")
        self._opening = threading.Lock()
        self._client: Client | None = None
        self._collections: dict[str, Collection] = {}

    async def aclose(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        if self._client is not None:
            await asyncio.to_thread(self._client.close)

    async def open(self, name: str) -> CollectionInfo:
        return await self._run(lambda: self._made(name, None, get_or_create=True))

    async def find(self, name: str) -> CollectionInfo | None:
        try:
            return await self._run(lambda: self._remember(self._chroma().get_collection(name, embedding_function=None)))
        except CollectionGoneError:
            return None

    async def all(self) -> list[CollectionInfo]:
        return await self._run(lambda: [self._remember(each) for each in self._chroma().list_collections()])

    async def create(self, name: str, fields: Fields) -> CollectionInfo | None:
        try:
            return await self._run(lambda: self._made(name, fields, get_or_create=False))
        except chroma_api.NameExistsError:
            return None

    async def describe(self, collection: str, fields: Fields) -> None:
        await self._run(lambda: self._collection(collection).modify(metadata=dict(fields)))

    async def drop(self, name: str) -> None:
        with suppress(CollectionGoneError):
            await self._run(lambda: self._chroma().delete_collection(name))

    async def most_rows(self) -> int:
        return await self._run(lambda: self._chroma().get_max_batch_size())

    async def upsert(self, collection: str, rows: Rows) -> None:
        await self._run(
            lambda: self._collection(collection).upsert(
                ids=list(rows.ids),
                embeddings=rows.vectors,
                metadatas=[dict(fields) for fields in rows.fields],
                documents=list(rows.texts),
            )
        )

    async def delete(self, collection: str, ids: Sequence[str]) -> None:
        await self._run(lambda: self._collection(collection).delete(ids=list(ids)))

    async def count(self, collection: str) -> int:
        return await self._run(lambda: self._collection(collection).count())

    async def get(
        self,
        collection: str,
        include: Sequence[chroma_api.Part] = (),
        *,
        ids: Sequence[str] | None = None,
        where: chroma_api.Where | None = None,
        limit: int | None = None,
    ) -> Rows:
        found = await self._run(
            lambda: self._collection(collection).get(
                ids=None if ids is None else list(ids),
                where=cast("Any", where),
                limit=limit,
                include=cast("Any", list(include)),
            )
        )
        fields = cast("Any", found["metadatas"])
        return rows_from(self.label, found["ids"], fields, found["documents"], found["embeddings"])

    async def nearest(self, collection: str, vector: Vector, limit: int, where: chroma_api.Where | None) -> Rows:
        found = await self._run(
            lambda: self._collection(collection).query(
                query_embeddings=cast("Any", [vector]),
                n_results=limit,
                where=cast("Any", where),
                include=["metadatas", "embeddings"],
            )
        )
        metadatas, embeddings = cast("Any", (found["metadatas"], found["embeddings"]))
        return rows_from(self.label, found["ids"][0], metadatas[0], None, embeddings[0])

    def _made(self, name: str, fields: Fields | None, *, get_or_create: bool) -> CollectionInfo:
        configuration = cast("Any", {"hnsw": dict(chroma_api.HNSW)})
        metadata = None if fields is None else dict(fields)
        made = self._chroma().create_collection(
            name, configuration=configuration, metadata=metadata, embedding_function=None, get_or_create=get_or_create
        )
        return self._remember(made)

    def _remember(self, collection: Collection) -> CollectionInfo:
        # The library's calls are methods of a collection object; ours name a collection by its id.
        self._collections[str(collection.id)] = collection
        space = (collection.configuration_json.get("hnsw") or {}).get("space")
        dimension = collection._model.dimension  # noqa: SLF001  (it has no public name)
        return CollectionInfo(str(collection.id), str(space), dimension, collection.name, collection.metadata or {})

    def _collection(self, id_: str) -> Collection:
        collection = self._collections.get(id_)
        if collection is None:
            raise CollectionGoneError(COMPONENT, f"{self.label} has no such collection")
        return collection

    def _chroma(self) -> Client:
        with self._opening:
            if self._client is None:
                try:
                    settings = Settings(anonymized_telemetry=False)
                    self._client = cast("Client", chromadb.PersistentClient(self._path, settings))
                except (ChromaError, OSError):
                    # The library keeps what it failed to start, and would hand it out the next time.
                    SharedSystemClient._identifier_to_system.pop(str(self._path), None)  # noqa: SLF001
                    raise
            return self._client

    async def _run(self, work: Callable[[], T]) -> T:
        """Do `work` in a thread. Chroma's messages are not repeated: they may contain stored data."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except NotFoundError as error:
            raise CollectionGoneError(COMPONENT, f"{self.label} has no such collection") from error
        except (InternalError, OSError) as error:
            if _NAME_EXISTS in str(error):
                raise chroma_api.NameExistsError(COMPONENT, f"{self.label} has a collection of this name") from error
            if chroma_api.LOST_ROW in str(error):
                raise chroma_api.RowsMovedError(
                    COMPONENT, f"{self.label}: rows went away while they were read"
                ) from error
            raise BackendUnavailableError(COMPONENT, f"{self.label} cannot be used ({type(error).__name__})") from error
        except (ChromaError, ValueError, TypeError) as error:
            raise BackendRejectedError(
                COMPONENT, f"{self.label} rejected the request ({type(error).__name__})"
            ) from error
