"""Documents and chunks: reading and writing them, lists of them without their texts, and the model of their vectors."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from rag_context.domain.documents import (
    Chunk,
    Counts,
    Cursor,
    Document,
    Listing,
    Missing,
    Retrievals,
    Stored,
    Tenant,
    TenantState,
)
from rag_context.domain.reports import Periods, counted
from rag_context.domain.search import Filter, Neighbours, Passage
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.ports.writing import Version
from rag_context.resilience.admission import Computing
from rag_context.stores.search_statistics import RetrievalCounts
from rag_context.stores.sqlite import changes, document_rows, vector_models
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.memory.following import IndexInMemory


class SqliteDocuments:
    """`DocumentStore`, `IndexWriter` and `ModelRegistry` over the embedded file.

    Every method raises `BackendError` where the file cannot be read or written.
    """

    _has_split_vectors = False
    """Whether another store keeps the vectors."""

    def __init__(self, database: Database, memory: IndexInMemory) -> None:
        self._database = database
        self._memory = memory
        self._retrievals = RetrievalCounts(lambda counts: database.write(partial(changes.add_retrievals, counts)))
        self._computing = Computing()

    @property
    def version(self) -> int:
        return self._database.version

    async def refresh_version(self) -> None:
        await self._database.refresh_version()

    async def passages(self, chunk_ids: Sequence[str]) -> dict[str, Passage]:
        if not chunk_ids:
            return {}
        return await self._database.read(partial(document_rows.read_passages, list(chunk_ids)))

    async def neighbours(self, chunk_ids: Sequence[str]) -> dict[str, Neighbours]:
        return await self._memory.read(lambda at: at.index.neighbours(chunk_ids), needs_vectors=False)

    async def get(self, document_id: str) -> Document | None:
        return await self._database.read(partial(document_rows.read_document, document_id))

    async def stored(self, document_id: str) -> Stored | None:
        return (await self.states([document_id])).get(document_id)

    async def states(self, document_ids: Sequence[str]) -> dict[str, Stored]:
        return await self._database.read(partial(document_rows.read_states, list(document_ids)))

    async def chunks(self, document_id: str) -> list[Chunk]:
        return await self._database.read(partial(document_rows.read_chunks, document_id))

    async def pending(self, limit: int) -> list[str]:
        return await self._database.read(partial(document_rows.read_pending, limit))

    async def matching(self, where: Filter, limit: int) -> list[str]:
        return await self._database.read(partial(document_rows.read_matching, where, limit))

    async def similar(self, documents: Sequence[Document]) -> list[list[str]]:
        return await self._database.read(lambda file: [document_rows.read_similar(each, file) for each in documents])

    async def listing(self, where: Filter, *, limit: int, after: Cursor | None = None) -> list[Listing]:
        return await self._database.read(partial(document_rows.read_listing, where, limit, after))

    async def inventory(self, after: str, limit: int) -> dict[str, Stored]:
        return await self._database.read(partial(document_rows.read_inventory, after, limit))

    async def content_hashes(self, document_ids: Sequence[str]) -> dict[str, str]:
        return await self._database.read(partial(document_rows.read_content_hashes, list(document_ids)))

    async def tenants(self) -> list[Tenant]:
        return await self._database.read(document_rows.read_tenants)

    async def retrievals(self, document_id: str) -> Retrievals:
        return await self._database.read(partial(document_rows.read_retrievals, document_id))

    async def record_retrievals(self, document_ids: Sequence[str], at: datetime) -> None:
        self._retrievals.record(document_ids, at)

    async def close(self) -> None:
        await self._retrievals.close()

    async def counts(self) -> Counts:
        return await self._database.read(document_rows.read_counts)

    async def tenant_state(self, tenant: Tenant) -> TenantState:
        return await self._database.read(partial(document_rows.read_tenant_state, tenant))

    async def periods(self) -> Periods | None:
        return await self._database.read(document_rows.read_periods)

    async def missing_vectors(self, where: Filter) -> Missing:
        return await self._database.read(partial(document_rows.read_missing_vectors, self._has_split_vectors, where))

    async def ping(self) -> str:
        await self._database.round()
        counts = await self.counts()
        return f"{counted(counts.documents, 'document')} in {counted(counts.chunks, 'chunk')}, {counts.pending} pending"

    async def try_write(self) -> None:
        """Write something that changes nothing of the index. Raises: BackendError (why a write would fail)."""
        await self._database.try_write()

    async def write(self, version: Version) -> bool:
        (result,) = await self.write_all([version])
        if isinstance(result, Exception):
            raise result
        return result

    async def write_all(self, versions: Sequence[Version]) -> list[bool | Exception]:
        chars = sum(len(version.document.content) for version in versions)
        analysed = await self._computing.run(
            lambda: [changes.analysed_terms(each.chunks) for each in versions], chars=chars
        )
        writes = [
            partial(changes.write_document, version, each) for version, each in zip(versions, analysed, strict=True)
        ]
        results = await self._database.write_all(writes)
        await self._memory.await_own_rows(sum(len(version.chunks) for version in versions))
        return results

    async def attach(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str | None = None) -> bool:
        done = await self._database.write(partial(changes.attach_vectors, document_id, content_hash, vectors, made_by))
        await self._memory.await_own_rows(len(vectors))
        return done

    async def rechunk(self, version: Version) -> bool:
        chars = len(version.document.content)
        analysed = await self._computing.run(partial(changes.analysed_terms, version.chunks), chars=chars)
        done = await self._database.write(partial(changes.rechunk_document, version, analysed))
        await self._memory.await_own_rows(len(version.chunks))
        return done

    async def delete(self, document_id: str) -> bool:
        return await self._database.write(partial(changes.delete_document, document_id))

    async def recorded_model(self) -> EmbeddingModel | None:
        return await self._database.read(vector_models.read_model)

    async def adopt_model(self, model: EmbeddingModel) -> None:
        await self._database.write(partial(vector_models.record_model, model))

    async def drop_vectors(self) -> int:
        return await self._database.write(vector_models.forget_vectors)
