"""Vectors in Chroma: exact under any filter, as long as its index finds what it should; and other programs' rows."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from rag_context import errors
from rag_context.domain.documents import Chunk, Document, StoredVectors, counted
from rag_context.domain.search import Filter, Passage, VectorHit
from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector
from rag_context.ports.reading import ForeignRecord
from rag_context.ports.writing import require_shape
from rag_context.stores.chroma import chroma_api
from rag_context.stores.chroma.filters import cheap_condition, condition, passes
from rag_context.stores.chroma.payload import DOCUMENT_ID, OURS, REVISION, is_ours, passage_of, ref_of, rows_of
from rag_context.stores.chroma.server import open_api
from rag_context.stores.engines import read_fields

T = TypeVar("T")


@asynccontextmanager
async def open_chroma(place: str | Path, collection: str) -> AsyncIterator["ChromaVectors"]:
    """The collection at a place; calls fail until that is available, and then work. Raises: ConfigurationError."""
    if not chroma_api.NAME.fullmatch(collection):
        raise errors.ConfigurationError(
            f"stores.chroma_collection = {collection!r} is no name for a collection of Chroma: "
            "3 to 512 letters, digits, dots, dashes and underscores, a letter or digit at either end."
        )
    async with open_api(place) as api:
        if isinstance(place, Path):
            with suppress(errors.BackendError):
                await api.open(collection)
        yield ChromaVectors(api, collection)


class ChromaVectors:
    """Fits `ports.VectorStore` and `ports.VectorWriter`.

    A missing collection counts as empty, unless it existed before: then searches raise instead of returning no hits,
    until a write creates it again.
    """

    def __init__(self, api: chroma_api.ChromaApi, name: str) -> None:
        self._api = api
        self._name = name
        self._info: chroma_api.CollectionInfo | None = None
        self._foreign: int | None = None
        """Rows of other programs at the last look; None before the first."""

    async def search(self, vector: Vector, *, limit: int, where: Filter) -> list[VectorHit]:
        if limit < 1:
            return []
        search = self._read(lambda collection: self._search(collection, vector, limit, where))
        return [VectorHit(ref_of(near.id, near.fields), near.cosine) for near in await self._explained(vector, search)]

    async def score(self, vector: Vector, chunk_ids: Sequence[str]) -> dict[str, float]:
        scores: dict[str, float] = {}
        comparison = self._comparison(vector, None)
        async for rows in self._rows(chunk_ids, "embeddings"):
            scores.update(zip(rows.ids, comparison.cosines(rows).tolist(), strict=True))
        return scores

    async def passages(self, chunk_ids: Sequence[str]) -> dict[str, Passage]:
        found: dict[str, Passage] = {}
        async for rows in self._rows(chunk_ids, "metadatas", "documents"):
            for id_, fields, text in zip(rows.ids, rows.fields, rows.texts, strict=True):
                found[id_] = passage_of(id_, fields, text)
        return found

    async def ping(self) -> str:
        opened = await (self._find() if self._info else self._open())
        self._foreign = None
        count = await self.count()
        if opened.dimension is None:
            return f"no vectors yet in collection {self._name!r}, {self._api.label}"
        axis = np.zeros(opened.dimension, dtype=np.float32)
        axis[0] = 1.0
        await self._read(lambda collection: self._api.nearest(collection, axis, 1, None))
        what = f"{counted(count, 'vector')} of dimension {opened.dimension}"
        if self._foreign:
            what = f"{what}, beside {counted(self._foreign, 'row')} of other programs,"
        return f"{what} in collection {self._name!r}, {self._api.label}"

    async def prepare(self, model: EmbeddingModel) -> None:
        opened = await self._open()
        if opened.space != chroma_api.SPACE:
            raise self._foreign_error(f"compares vectors by {opened.space!r}, not by cosine")
        is_other = opened.dimension not in (None, model.dimension)
        if is_other or not await self.count():
            await self.require_own()
        if is_other and await self._write(self._api.count) == 0:
            # Ours have no metadata; one with some is of another program that has stored nothing yet.
            if opened.fields:
                raise self._foreign_error("is empty, and was made by another program")
            await self.clear()  # a collection keeps the dimension of what was in it
            opened = await self._open()
        if opened.dimension not in (None, model.dimension):
            raise errors.BackendRejectedError(
                chroma_api.COMPONENT,
                f"The collection {self._name!r} in Chroma has vectors of dimension {opened.dimension}, "
                f"and {model.name} makes some of dimension {model.dimension}: run `rag-context reindex`, "
                "or name another as stores.chroma_collection.",
            )

    async def put(self, document: Document, chunks: Sequence[Chunk], vectors: Matrix) -> None:
        require_shape(chroma_api.COMPONENT, vectors, len(chunks))
        size = min(chroma_api.PAGE, await self._api.most_rows())
        for start in range(0, len(chunks), size):
            rows = rows_of(document, chunks[start : start + size], vectors[start : start + size])
            await self._explained(vectors[0], self._write(partial(self._api.upsert, rows=rows)))
        # Only now: a crash leaves rows of two versions, never of none.
        existing = await self._ids({DOCUMENT_ID: {"$eq": document.id}})
        await self._delete(sorted(set(existing) - {chunk.id for chunk in chunks}))

    async def discard(self, document_ids: Collection[str]) -> None:
        for some in chroma_api.pages(list(document_ids)):
            await self._delete(await self._ids({DOCUMENT_ID: {"$in": some}}))

    async def stored_vectors(self, document_ids: Collection[str]) -> dict[str, StoredVectors]:
        chunks: dict[str, set[str]] = {}
        revisions: dict[str, set[str]] = {}
        for some in chroma_api.pages(list(document_ids)):
            async for rows in self._rows(await self._ids({DOCUMENT_ID: {"$in": some}}), "metadatas"):
                for id_, fields in filter(lambda row: is_ours(row[1]), zip(rows.ids, rows.fields, strict=True)):
                    document = str(fields.get(DOCUMENT_ID))
                    chunks.setdefault(document, set()).add(id_)
                    revisions.setdefault(document, set()).add(str(fields.get(REVISION)))
        return {id_: StoredVectors(frozenset(chunks[id_]), frozenset(revisions[id_])) for id_ in chunks}

    async def stored_documents(self) -> AsyncIterator[str]:
        seen: set[str] = set()
        async for rows in self._rows(await self._ids(None), "metadatas"):
            for fields in filter(is_ours, rows.fields):
                document = fields[DOCUMENT_ID]
                if document not in seen:
                    seen.add(document)
                    yield document

    async def vectors(self, chunk_ids: Sequence[str]) -> dict[str, Vector]:
        found: dict[str, Vector] = {}
        async for rows in self._rows(chunk_ids, "embeddings"):
            found.update(zip(rows.ids, chroma_api.matrix_of(rows, self._api.label), strict=True))
        return found

    async def count(self) -> int:
        """How many vectors of ours there are; how many rows are other programs', `ping` sees again."""
        count = await self._write(self._api.count)
        if self._foreign is None:
            # Listing ids takes long in a large collection, and is done once.
            self._foreign = count - len(await self._ids(OURS)) if count else 0
        return max(count - self._foreign, 0)

    async def clear(self) -> None:
        """Delete all vectors, and their dimension; of a collection that other programs use too, only our rows."""
        await self.remove()
        await self._open()

    async def remove(self) -> None:
        if (info := await self._api.find(self._name)) is not None:
            ours, foreign = await self._split()
            if foreign or (info.fields and not ours):
                await self._delete(ours)
            else:
                await self._api.drop(self._name)
        self._info = self._foreign = None

    async def require_own(self) -> None:
        """Check row by row that no other program stores anything in the collection. Raises: ForeignDataError."""
        if await self._api.find(self._name) is None:
            return
        if foreign := (await self._split())[1]:
            raise self._foreign_error(f"holds {counted(len(foreign), 'row')} of other programs")

    async def _split(self) -> tuple[list[str], list[str]]:
        """The ids of our rows, and those of other programs'."""
        ours: list[str] = []
        foreign: list[str] = []
        async for rows in self._rows(await self._ids(None), "metadatas"):
            for id_, fields in zip(rows.ids, rows.fields, strict=True):
                (ours if is_ours(fields) else foreign).append(id_)
        self._foreign = len(foreign)
        return ours, foreign

    def _foreign_error(self, what: str) -> errors.ForeignDataError:
        other = "rag-context-vectors" if self._name != "rag-context-vectors" else "rag-context-vectors-2"
        return errors.ForeignDataError(
            chroma_api.COMPONENT,
            f"Chroma's collection {self._name!r} {what}. It was not changed: set stores.chroma_collection to another"
            f" name, such as {other!r}. `rag-context adopt` takes over documents in the form of earlier programs.",
        )

    def sibling(self, suffix: str) -> "ChromaVectors":
        """Another collection in the same place, under this one's name and `suffix`."""
        return ChromaVectors(self._api, f"{self._name}{suffix}")

    async def _search(self, collection: str, vector: Vector, limit: int, where: Filter) -> list[chroma_api.Near]:
        """The nearest rows, by the cheapest method first, then by more exact ones until the result is certain."""
        # Without a filter first: the index is fast then, and most searches are of a tenant that owns most rows.
        comparison = self._comparison(vector, where)
        wide = max(chroma_api.WIDE * limit, chroma_api.WIDE_LEAST)
        rows = await self._api.nearest(collection, vector, wide, None)
        hits = comparison.of(rows)
        # Certain only if a worse row was seen too: else rows as near as the last hit may be missing.
        enough = len(rows.ids) == wide and len(hits) >= limit
        if enough and hits[limit - 1].cosine > float(comparison.cosines(rows).min()):
            return hits[:limit]
        # A filter that leaves few rows makes the index lose some of them, so those are compared one by one.
        narrow = cheap_condition(where)
        if len((await self._api.get(collection, where=narrow, limit=chroma_api.FEW + 1)).ids) <= chroma_api.FEW:
            return comparison.of(await self._api.get(collection, ["metadatas", "embeddings"], where=narrow))[:limit]
        if enough:  # unless more of them have equal cosines than were requested
            return hits[:limit]
        while wide <= chroma_api.MOST_NEAREST:
            rows = await self._api.nearest(collection, vector, wide, condition(where))
            hits = comparison.of(rows)
            if len(hits) >= limit:
                return hits[:limit]
            if len(rows.ids) < wide:
                break
            wide *= 4
        # The index ended its search early: all rows that pass are compared, however slow that is.
        every = (await self._api.get(collection, where=condition(where))).ids
        return await comparison.of_all(self._api, collection, every, limit)

    def _comparison(self, vector: Vector, where: Filter | None) -> chroma_api.RowComparison:
        def matrix(rows: chroma_api.Rows) -> Matrix:
            found = chroma_api.matrix_of(rows, self._api.label)
            if len(found) and found.shape[1:] != vector.shape:
                raise _wrong_dimension(vector, found.shape[1])
            return found

        return chroma_api.RowComparison(vector, lambda fields: where is None or passes(fields, where), matrix)

    async def _rows(self, ids: Sequence[str], *include: chroma_api.Part) -> AsyncIterator[chroma_api.Rows]:
        """The rows of these ids, page by page."""
        for some in chroma_api.pages(ids):
            yield await self._read(partial(self._api.get, include=include, ids=some))

    async def _ids(self, where: chroma_api.Where | None) -> Sequence[str]:
        return (await self._write(lambda collection: self._api.get(collection, where=where))).ids

    async def _delete(self, ids: Sequence[str]) -> None:
        for some in chroma_api.pages(ids):
            await self._write(partial(self._api.delete, ids=some))

    async def _explained(self, vector: Vector, work: Awaitable[T]) -> T:
        """Raise a clear error if Chroma rejected the vectors for their dimension."""
        try:
            return await work
        except errors.BackendRejectedError as error:
            opened = await self._find()
            if opened.dimension not in (None, len(vector)):
                raise _wrong_dimension(vector, opened.dimension) from error
            raise

    async def _read(self, work: Callable[[str], Awaitable[T]]) -> T:
        return await self._do(work, self._find)

    async def _write(self, work: Callable[[str], Awaitable[T]]) -> T:
        """Do `work` in the collection, which is created again if it is missing."""
        return await self._do(work, self._open)

    async def _do(
        self, work: Callable[[str], Awaitable[T]], find_again: Callable[[], Awaitable[chroma_api.CollectionInfo]]
    ) -> T:
        async def attempt() -> T:
            info = self._info or await self._open()
            try:
                return await work(info.id)
            except chroma_api.CollectionGoneError:
                await find_again()
                raise

        return await chroma_api.repeated(attempt)

    async def _find(self) -> chroma_api.CollectionInfo:
        found = await self._api.find(self._name)
        if found is None:
            message = f"The collection {self._name!r} in Chroma is gone: run `rag-context check --repair`."
            raise errors.BackendDataError(chroma_api.COMPONENT, message)
        self._info = found
        return found

    async def _open(self) -> chroma_api.CollectionInfo:
        self._info = await self._api.open(self._name)
        return self._info


def _wrong_dimension(vector: Vector, dimension: int | None) -> errors.BackendDataError:
    return errors.BackendDataError(
        chroma_api.COMPONENT,
        f"The vector has shape {vector.shape}, the collection in Chroma has dimension {dimension}.",
    )


@asynccontextmanager
async def open_other_rows(place: str | Path, collection: str) -> AsyncIterator["OtherRows"]:
    """Open a collection on a server (its address) or in a folder. Raises: ConfigurationError."""
    async with open_api(place) as api:
        yield OtherRows(api, collection)


class OtherRows:
    """`ForeignSource` over the rows that this package did not store."""

    def __init__(self, api: chroma_api.ChromaApi, collection: str) -> None:
        self._api = api
        self._collection = collection
        self.label = f"{collection} in {api.label}"

    async def records(self) -> AsyncIterator[ForeignRecord]:
        """All of them by id; each with the name, metadata and labels of its collection. Raises: NotFoundError."""
        info = await self._api.find(self._collection)
        if info is None:
            raise errors.NotFoundError(f"{self._api.label} has no collection {self._collection!r}.")
        of_collection = {"name": self._collection, **info.fields}
        for ids in chroma_api.pages(sorted((await self._api.get(info.id)).ids)):
            rows = await self._api.get(info.id, ["metadatas", "documents"], ids=ids)
            for id_, row, text in sorted(zip(rows.ids, rows.fields, rows.texts, strict=True)):
                if not is_ours(row):
                    content, fields = read_fields(row, text)
                    names = {id_, str(fields.get("chunkId", id_))}
                    yield ForeignRecord(id_, content, {**fields, "collection": of_collection}, frozenset(names))
