"""A provider of collections in one file: each collection is a JSON file in a folder.

It reads and writes the whole file every time, which is short but slow. One process may use a folder.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from rag_context.collections.registry import ProviderKind
from rag_context.domain.clauses import Clause
from rag_context.domain.documents import Json, Status
from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendDataError, BackendUnavailableError, InvalidInputError, NotFoundError
from rag_context.ports.provider import Capabilities, Collection, Entry, EntryHit, EntryPage, ProviderHealth
from rag_context.domain.where import matches, value_at

READS_EVERYTHING = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$contains")


class Configuration(BaseModel):
    """Settings of a connection: `connections.<id>.folder`."""

    folder: Path = Field(description="Folder of the collections; made when it is missing.")


class JsonFiles:
    """Fits `rag_context.ports.provider.Provider`; nothing has to be inherited."""

    capabilities = Capabilities(scanned_operators=READS_EVERYTHING)

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = asyncio.Lock()

    async def collections(self) -> list[Collection]:
        async with self._lock:
            found = await asyncio.to_thread(lambda: [_read(path) for path in self._folder.glob("*.json")])
        return sorted((_described(record) for record in found), key=lambda collection: collection.name)

    async def collection(self, name: str) -> Collection | None:
        try:
            return _described(await self._known(name))
        except NotFoundError:
            return None

    async def create(self, collection: Collection) -> bool:
        record = {
            "name": collection.name,
            "metadata": dict(collection.metadata),
            "embedding_provider": collection.embedding_provider,
            "embedding_model": collection.embedding_model,
            "dimension": None,
            "created": (collection.created or datetime.now(UTC)).isoformat(),
            "rows": {},
        }
        async with self._lock:
            if self._path(collection.name).exists():
                return False
            await asyncio.to_thread(_write, self._path(collection.name), record)
            return True

    async def drop(self, name: str) -> None:
        await self._known(name)
        async with self._lock:
            self._path(name).unlink(missing_ok=True)

    async def replace_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        async with self._lock:
            record = await asyncio.to_thread(self._read, name) | {"metadata": dict(metadata)}
            await asyncio.to_thread(_write, self._path(name), record)
        return _described(record)

    async def merge_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        async with self._lock:
            record = await asyncio.to_thread(self._read, name)
            record["metadata"] |= metadata
            await asyncio.to_thread(_write, self._path(name), record)
        return _described(record)

    async def upsert(self, name: str, entries: Sequence[Entry], vectors: Matrix) -> None:
        async with self._lock:
            record = await asyncio.to_thread(self._read, name)
            if not entries:
                return
            _check_dimension(record, vectors.shape[1])
            record["dimension"] = vectors.shape[1]
            for entry, vector in zip(entries, vectors.tolist(), strict=True):
                record["rows"][entry.id] = {"text": entry.text, "metadata": entry.metadata, "vector": vector}
            await asyncio.to_thread(_write, self._path(name), record)

    async def entries(self, name: str, where: Clause, *, limit: int, offset: int = 0) -> EntryPage:
        found = _matching(await self._known(name), where)
        return EntryPage(tuple(found[offset : offset + limit]), len(found))

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        rows = (await self._known(name))["rows"]
        return {id_: np.asarray(rows[id_]["vector"], dtype=np.float32) for id_ in ids if id_ in rows}

    async def search(self, name: str, vector: Vector, *, limit: int, where: Clause) -> list[EntryHit]:
        record = await self._known(name)
        _check_dimension(record, len(vector))
        hits = [
            EntryHit(entry, float(np.dot(np.asarray(record["rows"][entry.id]["vector"], dtype=np.float32), vector)))
            for entry in _matching(record, where)
        ]
        return sorted(hits, key=lambda hit: (-hit.cosine, hit.entry.id))[:limit]

    async def delete(self, name: str, id_: str) -> bool:
        async with self._lock:
            record = await asyncio.to_thread(self._read, name)
            there = record["rows"].pop(id_, None) is not None
            await asyncio.to_thread(_write, self._path(name), record)
        return there

    async def empty(self, name: str) -> int:
        async with self._lock:
            record = await asyncio.to_thread(self._read, name)
            await asyncio.to_thread(_write, self._path(name), record | {"rows": {}})
        return len(record["rows"])

    async def values(self, name: str, path: tuple[str, ...]) -> list[Json]:
        distinct: dict[tuple[bool, Json], Json] = {}
        for row in (await self._known(name))["rows"].values():
            found = value_at(row["metadata"], path)
            for value in found if isinstance(found, list) else [found]:
                if isinstance(value, str | int | float):
                    distinct.setdefault((isinstance(value, bool), value), value)  # true is not 1
        return list(distinct.values())

    async def health(self) -> ProviderHealth:
        started = time.perf_counter()
        health = ProviderHealth(Status.HEALTHY, datetime.now(UTC), 0.0)
        try:
            collections = await self.collections()
            size = sum(path.stat().st_size for path in self._folder.glob("*.json"))
        except (BackendDataError, BackendUnavailableError, OSError) as error:
            health = replace(health, status=Status.UNAVAILABLE, error=str(error))
        else:
            health = replace(health, collections=len(collections), storage_bytes=size)
        return replace(health, latency_ms=(time.perf_counter() - started) * 1000)

    async def _known(self, name: str) -> dict[str, Any]:
        async with self._lock:
            return await asyncio.to_thread(self._read, name)

    def _read(self, name: str) -> dict[str, Any]:
        if not self._path(name).exists():
            raise NotFoundError(f"Collection '{name}' not found")
        return _read(self._path(name))

    def _path(self, name: str) -> Path:
        return self._folder / f"{sha256(name.encode()).hexdigest()}.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_bytes())
    except OSError as error:
        raise BackendUnavailableError("json-files", f"{path.name} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise BackendDataError("json-files", f"{path.name} is not JSON") from error
    return record


def _write(path: Path, record: dict[str, Any]) -> None:
    """All or nothing: the new file takes the place of the old one once it is on the disk."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".new").open("w", encoding="utf-8") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".new").replace(path)
    except OSError as error:
        raise BackendUnavailableError("json-files", f"{path.name} cannot be written ({error.strerror})") from error


def _described(record: dict[str, Any]) -> Collection:
    return Collection(
        record["name"],
        record["metadata"],
        record["embedding_provider"],
        record["embedding_model"],
        record["dimension"],
        datetime.fromisoformat(record["created"]),
        len(record["rows"]),
    )


def _matching(record: dict[str, Any], where: Clause) -> list[Entry]:
    entries = (Entry(id_, row["text"], row["metadata"]) for id_, row in sorted(record["rows"].items()))
    return [entry for entry in entries if matches(where, entry.metadata)]


def _check_dimension(record: dict[str, Any], dimension: int) -> None:
    if record["dimension"] not in (None, dimension):
        bound = record["dimension"]
        message = f"Collection '{record['name']}' holds vectors of {bound} dimensions, not of {dimension}"
        raise InvalidInputError(message)


@asynccontextmanager
async def open_json_files(configuration: Configuration) -> AsyncIterator[JsonFiles]:
    yield JsonFiles(configuration.folder)


KIND = ProviderKind(
    name="json-files",
    title="JSON files in a folder",
    capabilities=JsonFiles.capabilities,
    configuration=Configuration,
    open=open_json_files,
)
