"""What an export has beside documents, where that is requested: collections with their vectors, records of searches."""

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from rag_context.api.export_lines import ExportedCollection, ExportedDocumentOfCollection, ExportedSearches, read_line
from rag_context.domain.clauses import EVERYTHING
from rag_context.domain.documents import EPOCH
from rag_context.domain.reports import SearchRecord
from rag_context.errors import InvalidInputError
from rag_context.ports.provider import Collection, Entry, Provider
from rag_context.ports.reading import MetricsStore
from rag_context.transfer.lines import decoded_vectors, fields_of

AT_ONCE = 500
"""Documents of a collection, or searches, in one line."""

MOST_BESIDE = 50_000
"""So many searches of an index are compared with those of a line, which are of the same time."""

_searches = TypeAdapter(list[SearchRecord])
_LABELS = ("dimension", "count", "foreign", "name", "metadata")


@dataclass(slots=True)
class BesideDocuments:
    """The rest of an index; what is None is neither exported nor imported. It counts what went out, or came in."""

    provider: Callable[[], Awaitable[Provider]] | None = None
    """Opens the provider that has the collections."""
    searches: MetricsStore | None = None
    names: Sequence[str] = ()
    """The collections to export."""
    entries: int = 0
    recorded: int = 0

    async def lines(self) -> AsyncIterator[bytes]:
        """All of it, line by line. Raises: BackendError."""
        if self.provider is not None:
            provider = await self.provider()
            for name in self.names:
                async for line in self._collection(provider, name):
                    yield line
        until = None
        last: list[SearchRecord] = []  # of the moment at which the next page begins
        while self.searches is not None and (found := await self.searches.recent(EPOCH, AT_ONCE, until)):
            records = [each for each in found if each not in last]
            if not records:
                return
            self.recorded += len(records)
            yield ExportedSearches(searches=_searches.dump_python(records, mode="json")).to_json()
            until = found[-1].timestamp
            last = [each for each in found if each.timestamp == until]

    async def _collection(self, provider: Provider, name: str) -> AsyncIterator[bytes]:
        collection = await provider.collection(name)
        offset, total = 0, 1
        while collection is not None and offset < total:
            page = await provider.entries(name, EVERYTHING, limit=AT_ONCE, offset=offset)
            vectors = await provider.vectors(name, [entry.id for entry in page.entries])
            entries = [entry for entry in page.entries if entry.id in vectors]
            matrix = np.stack([vectors[entry.id] for entry in entries]) if entries else np.empty(0)
            self.entries += len(entries)
            yield ExportedCollection(
                collection=name,
                **fields_of(collection, *_LABELS),
                metadata=_plain(collection.metadata),
                dimension=collection.dimension,
                documents=[
                    ExportedDocumentOfCollection(id=entry.id, text=entry.text, metadata=_plain(entry.metadata))
                    for entry in entries
                ],
                vectors=base64.b64encode(matrix.astype("<f4").tobytes()).decode("ascii"),
            ).to_json()
            offset, total = offset + AT_ONCE, page.total

    async def take_collection(self, line: bytes, *, overwrite: bool) -> None:
        """Store a part of a collection; documents that are there stay, unless they are to be overwritten.

        Raises: InvalidInputError (it is not valid, or another collection has its name), BackendError.
        """
        read = read_line(ExportedCollection, line)
        entries = [Entry(each.id, each.text, each.metadata) for each in read.documents]
        vectors = decoded_vectors(read.vectors, len(entries), read.dimension or 1)
        if vectors is None or self.provider is None:
            raise InvalidInputError(f"The vectors of the collection {read.collection!r} are not valid")
        provider = await self.provider()
        labels = read.embedding_provider, read.embedding_model
        there = await provider.collection(read.collection)
        if there is None:
            await provider.create(Collection(read.collection, read.metadata, *labels, created=read.created))
        elif there.foreign or (there.embedding_provider, there.embedding_model) != labels:
            raise InvalidInputError(f"A collection {read.collection!r} with another origin or model is there already")
        known = {} if overwrite or there is None else await provider.vectors(read.collection, [e.id for e in entries])
        rows = [row for row, entry in enumerate(entries) if entry.id not in known]
        if rows:
            await provider.upsert(read.collection, [entries[row] for row in rows], vectors[rows])
        self.entries += len(rows)

    async def take_searches(self, line: bytes) -> None:
        """Store records of searches, of those that are not there. Raises: InvalidInputError, BackendError."""
        try:
            records = _searches.validate_python(read_line(ExportedSearches, line).searches)
        except ValidationError as error:
            raise InvalidInputError(f"The records of searches are not valid: {error.errors()[0]['msg']}") from None
        if not records or self.searches is None:
            return
        times = [each.timestamp for each in records]
        known = set(map(_identity, await self.searches.recent(min(times), MOST_BESIDE, max(times))))
        new = [each for each in records if _identity(each) not in known]
        if new:
            await self.searches.append(new, [])
        self.recorded += len(new)


def _identity(record: SearchRecord) -> tuple[object, ...]:
    """Without its moment, of which some stores keep milliseconds only."""
    return record.request_id, record.query, record.latency_ms


def _plain(metadata: Any) -> dict[str, Any]:
    """Metadata as JSON has it; its mappings may be of any kind."""
    plain: dict[str, Any] = json.loads(json.dumps(metadata, default=dict))
    return plain
