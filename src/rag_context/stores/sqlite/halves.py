"""The embedded file as one of two stores: documents without vectors, or vectors whose documents are kept elsewhere."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from functools import partial

from rag_context.stores.sqlite import changes, registry
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.documents import SqliteDocuments, analysed_terms
from rag_context.stores.sqlite.vectors import SqliteVectors
from rag_context.types import Chunk, Counts, Document, EmbeddingModel, Held, Matrix

_PAGE = 1000

_HELD = """
SELECT d.id, d.content_hash, json_group_array(c.id)
FROM json_each(?) AS asked
CROSS JOIN documents AS d ON d.id = asked.value
CROSS JOIN chunks AS c ON c.document = d.key
CROSS JOIN vectors AS v ON v.chunk = c.key
GROUP BY d.key
"""

_HOLDING = """
SELECT id FROM documents AS d WHERE id > ? AND EXISTS (
    SELECT 1 FROM chunks AS c CROSS JOIN vectors AS v ON v.chunk = c.key WHERE c.document = d.key
) ORDER BY id LIMIT ?
"""

_SETTLED_COUNTS = """
SELECT documents, pending, chunks, chunks - (
    SELECT count(*) FROM documents AS d CROSS JOIN chunks AS c ON c.document = d.key WHERE d.status = 'pending'
) FROM totals
"""


class SqliteDocumentsApart(SqliteDocuments):
    """`DocumentStore` and `ModelRegistry` where another store keeps the vectors: they count as there once settled."""

    _are_apart = True

    async def counts(self) -> Counts:
        """How much the index holds; vectors are those that indexed documents must have."""
        return await self._database.read(lambda connection: Counts(*connection.execute(_SETTLED_COUNTS).fetchone()))


class SqliteDocumentWriter:
    """`DocumentWriter` over the embedded file. Every method raises `BackendError` where it cannot be written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, document: Document, chunks: Sequence[Chunk]) -> None:
        """Store a document, pending, in place of its earlier version, in one transaction."""
        words = await asyncio.to_thread(analysed_terms, chunks)
        await self._database.write(partial(changes.write_document, document, chunks, words, None, None))

    async def recut(self, document: Document, chunks: Sequence[Chunk]) -> bool:
        """Put other chunks in place of this version's, pending; False where it is not there any more."""
        words = await asyncio.to_thread(analysed_terms, chunks)
        return await self._database.write(partial(changes.recut_document, document, chunks, words, None, None))

    async def settle(self, document_id: str, content_hash: str, made_by: str | None = None) -> bool:
        """Note that this version's vectors are in; False where it is not there any more.

        Raises:
            BackendRejectedError: the index records another model by now.
        """
        return await self._database.write(partial(changes.settle_document, document_id, content_hash, made_by))

    async def unsettle(self, document_ids: Collection[str]) -> None:
        """Note that these documents' vectors are not what they should be."""
        await self._database.write(partial(changes.unsettle_documents, list(document_ids)))

    async def delete(self, document_id: str) -> bool:
        """Remove a document with its chunks; False where it is unknown."""
        return await self._database.write(partial(changes.delete_document, document_id))


class SqliteVectorHalf(SqliteVectors):
    """`VectorStore` and `VectorWriter` over an embedded file that another store's documents are copied into."""

    async def prepare(self, model: EmbeddingModel) -> None:
        """Record the model; the file itself needs nothing.

        Raises:
            IndexMismatchError: there are vectors of another model.
        """
        await self._database.write(partial(registry.record_model, model))

    async def put(self, document: Document, chunks: Sequence[Chunk], vectors: Matrix) -> None:
        """Store the vectors (`(len(chunks), dim) float32`) of a document in place of its earlier ones, at once.

        Raises:
            BackendRejectedError: they do not fit the chunks, or those that are there.
        """
        words: list[list[str]] = [[] for _ in chunks]
        known = replace(document, content="")  # the passages have what is shown of it
        await self._database.write(partial(changes.write_document, known, chunks, words, vectors, None))

    async def discard(self, document_ids: Collection[str]) -> None:
        """Forget the vectors of these documents."""
        await self._database.write(partial(_discard, list(document_ids)))

    async def held(self, document_ids: Collection[str]) -> dict[str, Held]:
        """What is there of these documents; those without a vector are left out."""
        return await self._database.read(partial(_held, list(document_ids)))

    async def held_documents(self) -> AsyncIterator[str]:
        """The ids of all documents that have vectors."""
        last = ""
        while ids := await self._database.read(partial(_holding, last)):
            for id_ in ids:
                yield id_
            last = ids[-1]

    async def count(self) -> int:
        """How many vectors there are."""
        return await self._database.read(_count)

    async def clear(self) -> None:
        """Forget all vectors, and the model that made them."""
        await self._database.write(registry.forget_vectors)


def _discard(document_ids: Sequence[str], connection: sqlite3.Connection) -> None:
    for id_ in document_ids:
        changes.delete_document(id_, connection)


def _held(document_ids: Sequence[str], connection: sqlite3.Connection) -> dict[str, Held]:
    rows = connection.execute(_HELD, (json.dumps(document_ids),))
    return {id_: Held(frozenset(json.loads(chunks)), frozenset({revision})) for id_, revision, chunks in rows}


def _holding(after: str, connection: sqlite3.Connection) -> list[str]:
    return [id_ for (id_,) in connection.execute(_HOLDING, (after, _PAGE))]


def _count(connection: sqlite3.Connection) -> int:
    count: int = connection.execute("SELECT vectors FROM totals").fetchone()[0]
    return count
