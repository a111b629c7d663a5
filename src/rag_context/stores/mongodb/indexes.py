"""The indexes that queries on MongoDB use. One is created if none with the same keys exists under any name."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pymongo import IndexModel
from pymongo.errors import OperationFailure

from rag_context.domain.documents import FILTERED, wire_name
from rag_context.errors import BackendRejectedError
from rag_context.resilience.deadline import ended
from rag_context.stores.mongodb.document_records import THEIRS
from rag_context.stores.mongodb.mongo import COMPONENT, Collection, Mongo, is_code
from rag_context.stores.server_stores import log_failure

logger = logging.getLogger(__name__)

UP, DOWN = 1, -1
TEXT_INDEX = "content_text_index"
TEXT_WEIGHTS = {"content": 10, "metadata.tags": 5}

_TEXT_MODEL = IndexModel(
    [(path, "text") for path in TEXT_WEIGHTS], name=TEXT_INDEX, weights=TEXT_WEIGHTS, default_language="english"
)
_NAMESPACE_NOT_FOUND = 26
_CONFLICTS = (85, 86)


def _index(name: str, *key: tuple[str, int]) -> IndexModel:
    return IndexModel(list(key), name=name)


DOCUMENTS = (
    _index("session_timestamp_idx", ("sessionId", UP), ("timestamp", DOWN)),
    _index("tags_idx", ("metadata.tags", UP)),
    _index("content_type_timestamp_idx", ("contentType", UP), ("timestamp", DOWN)),
    _index("decision_id_idx", ("metadata.decisionId", UP)),
    *(_index(f"{name}_idx", (f"metadata.{wire_name(name)}", UP)) for name in FILTERED),
    _index("chunk_id_idx", ("chunks.chunkId", UP)),
    _index("source_idx", ("source", UP), ("tenant", UP)),
    _index("tenant_timestamp_idx", ("tenant", UP), ("timestamp", DOWN), ("timestampMicros", DOWN), ("_id", UP)),
    _index("timestamp_idx", ("timestamp", DOWN)),
    _index("occurred_idx", ("occurredAt", DOWN), ("timestamp", DOWN), ("tenant", UP)),
    _index("thread_time_idx", ("thread", UP), ("tenant", UP), ("occurredAt", UP), ("sequence", UP)),
    _index("similarity_idx", ("similarityBands", UP), ("tenant", UP)),
    _index("status_idx", ("status", UP), ("sequence", UP), ("chunkCount", UP), ("termCount", UP)),
)
"""The last one counts documents by status without reading any document."""

CHUNKS = (
    _index("terms_idx", ("terms", UP), ("tenant", UP), ("length", UP)),
    _index("repeated_idx", ("repeated", UP), ("tenant", UP), ("length", UP)),
    _index("chunk_id_idx", ("chunkId", UP)),
)
"""The first two lead from a term to the chunks that hold it, the shortest first."""

METRICS = (
    _index("timestamp_idx", ("timestamp", DOWN)),
    _index("agent_timestamp_idx", ("agent", UP), ("timestamp", DOWN)),
    _index("fallback_timestamp_idx", ("fallback", UP), ("timestamp", DOWN)),
)
ERRORS = (
    _index("timestamp_idx", ("timestamp", DOWN)),
    _index("level_timestamp_idx", ("level", UP), ("timestamp", DOWN)),
)


class Indexes:
    """Creates missing indexes, with one task at a time."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._making: asyncio.Task[None] | None = None
        self._failed: dict[str, str] = {}

    @property
    def missing(self) -> str:
        """The indexes that could not be made, each with the reason; "" if none is missing."""
        return "; ".join(f"index {name} is missing: {reason}" for name, reason in self._failed.items())

    async def ensure(self) -> None:
        await asyncio.shield(self._task())

    def ensure_soon(self) -> None:
        self._task()

    async def close(self) -> None:
        if self._making is not None:
            await ended(self._making)

    async def text_index(self) -> bool:
        """Whether the text index exists with the right options. Raises: BackendError."""
        async with self._mongo.reached():
            for index in filter(_is_text, await _present(self._mongo.documents)):
                weights = {path: int(weight) for path, weight in index.get("weights", {}).items()}
                if weights == TEXT_WEIGHTS and index.get("default_language") == "english":
                    return True
        return False

    async def replace_text_index(self) -> None:
        """Create the text index again, in place of any other one; where another program has documents, it stays."""
        async with self._mongo.reached():
            if await self._mongo.documents.find_one(THEIRS, {"_id": 1}) is None:
                for index in await _present(self._mongo.documents):
                    if _is_text(index):
                        await self._mongo.documents.drop_index(index["name"])
        await self.ensure()

    def _task(self) -> "asyncio.Task[None]":
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make(), name="mongodb indexes")
            self._making.add_done_callback(log_failure("indexes could not be made", logging.WARNING))
        return self._making

    async def _make(self) -> None:
        mongo = self._mongo
        failed: dict[str, str] = {}
        for collection, required in (
            (mongo.documents, (*DOCUMENTS, _TEXT_MODEL)),
            (mongo.chunks, CHUNKS),
            (mongo.metrics, METRICS),
            (mongo.errors, ERRORS),
        ):
            failed |= await self._complete(collection, required)
        for name, reason in failed.items():
            if self._failed.get(name) != reason:
                logger.warning("index %s cannot be made: %s", name, reason)
        self._failed = failed

    async def _complete(self, collection: Collection, required: Sequence[IndexModel]) -> dict[str, str]:
        """Create the missing indexes of a collection one by one, so that a failure does not stop the others."""
        async with self._mongo.reached():
            present = await _present(collection)
        failed: dict[str, str] = {}
        for model in required:
            if not _is_among(present, model):
                try:
                    await self._create(collection, model)
                except BackendRejectedError as error:
                    failed[f"{collection.name}.{model.document['name']}"] = str(error)
        return failed

    async def _create(self, collection: Collection, model: IndexModel) -> None:
        """Raises: BackendRejectedError with the reason, or BackendError if the server is unavailable."""
        name = model.document["name"]
        async with self._mongo.reached():
            try:
                await collection.create_indexes([model])
            except OperationFailure as error:
                if not is_code(error, *_CONFLICTS):
                    raise
                if _is_among(await _present(collection), model):
                    return  # another process was faster
                raise BackendRejectedError(
                    COMPONENT, f"another index has its name (code {error.code}); drop or rename the other one"
                ) from error
        logger.info("made index %s of %s", name, collection.name)


async def _present(collection: Collection) -> list[Mapping[str, Any]]:
    try:
        return [index async for index in await collection.list_indexes()]
    except OperationFailure as error:
        if not is_code(error, _NAMESPACE_NOT_FOUND):
            raise
        return []


def _is_among(present: Sequence[Mapping[str, Any]], model: IndexModel) -> bool:
    """Whether an index with these keys is there, under any name; one text index, which is all there can be, will do."""
    if _is_text(model.document):
        return any(_is_text(index) for index in present)
    required = list(model.document["key"].items())
    return any(list(index["key"].items()) == required for index in present)


def _is_text(index: Mapping[str, Any]) -> bool:
    return "text" in index["key"].values()
