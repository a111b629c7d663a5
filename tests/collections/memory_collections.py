"""A provider of collections in memory, the simplest implementation of its port."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from rag_context.domain.clauses import Clause
from rag_context.domain.documents import Json, Status
from rag_context.domain.vectors import Matrix, Vector
from rag_context.domain.where import matches, value_at
from rag_context.errors import InvalidInputError, NotFoundError
from rag_context.ports.provider import Capabilities, Collection, Entry, EntryHit, EntryPage, ProviderHealth


@dataclass(slots=True)
class _MemoryRecord:
    collection: Collection
    rows: dict[str, tuple[Entry, Vector]] = field(default_factory=dict)


class MemoryCollections:
    """Implements the `Provider` port; filters are evaluated by the reference evaluator."""

    def __init__(self) -> None:
        self.capabilities = Capabilities()
        self._records: dict[str, _MemoryRecord] = {}

    async def collections(self) -> list[Collection]:
        return [self._shown(self._records[name]) for name in sorted(self._records)]

    async def collection(self, name: str) -> Collection | None:
        record = self._records.get(name)
        return None if record is None else self._shown(record)

    async def create(self, collection: Collection) -> bool:
        if collection.name in self._records:
            return False
        created = collection.created or datetime.now(UTC)
        self._records[collection.name] = _MemoryRecord(replace(collection, count=0, dimension=None, created=created))
        return True

    async def drop(self, name: str) -> None:
        self._known(name)
        del self._records[name]

    async def replace_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        record = self._known(name)
        record.collection = replace(record.collection, metadata=dict(metadata))
        return self._shown(record)

    async def merge_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        return await self.replace_metadata(name, {**self._known(name).collection.metadata, **metadata})

    async def upsert(self, name: str, entries: Sequence[Entry], vectors: Matrix) -> None:
        record = self._known(name)
        if not entries:
            return
        _check_dimension(record, vectors.shape[1])
        record.collection = replace(record.collection, dimension=vectors.shape[1])
        record.rows.update({entry.id: (entry, vector) for entry, vector in zip(entries, vectors, strict=True)})

    async def entries(self, name: str, where: Clause, *, limit: int, offset: int = 0) -> EntryPage:
        found = [entry for entry, _ in self._matching(name, where)]
        return EntryPage(tuple(found[offset : offset + limit]), len(found))

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        rows = self._known(name).rows
        return {id_: rows[id_][1] for id_ in ids if id_ in rows}

    async def search(self, name: str, vector: Vector, *, limit: int, where: Clause) -> list[EntryHit]:
        _check_dimension(self._known(name), len(vector))
        hits = [EntryHit(entry, float(np.dot(row, vector))) for entry, row in self._matching(name, where)]
        return sorted(hits, key=lambda hit: -hit.cosine)[:limit]

    async def delete(self, name: str, id_: str) -> bool:
        return self._known(name).rows.pop(id_, None) is not None

    async def empty(self, name: str) -> int:
        rows = self._known(name).rows
        deleted = len(rows)
        rows.clear()
        return deleted

    async def values(self, name: str, path: tuple[str, ...]) -> list[Json]:
        found: dict[tuple[bool, Json], Json] = {}
        for entry, _ in self._known(name).rows.values():
            value = value_at(entry.metadata, path)
            for single in value if isinstance(value, list) else [value]:
                if isinstance(single, str | int | float):
                    found.setdefault((isinstance(single, bool), single), single)
        return list(found.values())

    async def health(self) -> ProviderHealth:
        return ProviderHealth(Status.HEALTHY, datetime.now(UTC), 0.0, collections=len(self._records))

    def _known(self, name: str) -> _MemoryRecord:
        if name not in self._records:
            raise NotFoundError(f"Collection '{name}' not found")
        return self._records[name]

    def _matching(self, name: str, where: Clause) -> list[tuple[Entry, Vector]]:
        rows = self._known(name).rows
        return [rows[id_] for id_ in sorted(rows) if matches(where, rows[id_][0].metadata)]

    def _shown(self, record: _MemoryRecord) -> Collection:
        return replace(record.collection, count=len(record.rows))


def _check_dimension(record: _MemoryRecord, dimension: int) -> None:
    bound = record.collection.dimension
    if bound is not None and bound != dimension:
        raise InvalidInputError(
            f"Collection '{record.collection.name}' holds vectors of {bound} dimensions, not of {dimension}"
        )
